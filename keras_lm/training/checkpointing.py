"""Checkpoints of a training run, from which it continues as if it had never stopped."""

import contextlib
import hashlib
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy, as which such tensors are returned)
import numpy as np
from safetensors import SafetensorError, safe_open

from keras_lm.converters import checked_files
from keras_lm.converters.checked_files import save_checked
from keras_lm.training.optimizers import schedule_and_steps
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import RemotePath, as_path, is_remote, on_disk, reading, replacing
from keras_lm.utils.optional_dependencies import require
from keras_lm.utils.processes import IS_JAX, as_array, check_agreement, gather, workers_of
from keras_lm.utils.user_arguments import is_finite

if IS_JAX:
    import jax

STEPS_TO_ASK = 50  # between two questions of several processes whether to save
BEST = "best/"  # before the names of the best weights of an early stopping


class TrainingCheckpoint(keras.callbacks.Callback):
    """Save the state of a run: weights, optimizer, random seeds, step, and the logs of its epochs.

    The weights include companions of the task's objectives, such as a generator. Of a teacher it
    has a digest of the weights, so that a run does not continue with another one. The file is
    replaced atomically. It has no data: skip as many batches as `restore` returns steps.

    An epoch that ends soon after a save is not saved if that took more than a second: saving takes
    a tenth of the time at most.

    Of several workers, the chief writes the file and all read it: it has to lie where all can. A
    run may go on with another number of workers, and on JAX on other devices, in another layout.

    A file at an address is uploaded at each save, so that another machine can go on. If an upload
    fails during training, it warns and trains on: the next save tries again.

    Args:
        path: of the file, on a disk or at an address.
        settings: JSON-serializable dict of what else determines the run, such as its batch size; a
            run with other settings cannot continue from this file.
        minutes: float. Minutes between two saves, at the end of a step.
        carried: list of `keras.Variable`, state of the run beside the model and its optimizer.
        stopping: `keras.callbacks.EarlyStopping` that keeps the best weights, which are saved too;
            it comes before this among the callbacks.

    Example:
        checkpoint = keras_lm.training.TrainingCheckpoint("run.safetensors", {"batch_size": 8})
        done = checkpoint.restore(task)
        task.fit(batches.skip(done), callbacks=[checkpoint])
    """

    def __init__(
        self,
        path: PathLike,
        settings: Mapping[str, Any] | None = None,
        minutes: float = 5.0,
        carried: Sequence[Any] = (),
        stopping: keras.callbacks.EarlyStopping | None = None,
    ):
        super().__init__()
        self.path: Path | RemotePath = as_path(path)
        self.settings = json.loads(json.dumps(settings or {}))  # as they come back from the file
        self.minutes = minutes
        self.carried = list(carried)
        self.stopping = stopping
        self.logs: list[dict[str, Any]] = []  # of whole epochs
        self.best_weights: list[np.ndarray] | None = None  # of `stopping`, as they were restored
        self.step: int = 0
        self._seconds = 0.0  # that the last save took
        self._step_before_epoch = 0
        self._digests = None

    def restore(self, model: keras.Model) -> int:
        """Restore a compiled model, and return how many steps are done: 0 if nothing was saved.

        Raises:
            ValueError: if the file is damaged, or of another model, teacher or other settings, or
                workers find different files.
        """
        step = self._read(model) if self._is_there() else 0
        check_agreement(
            model.distribute_strategy,
            step,
            f"{self.path} holds step {step} here, and another worker found something else: give "
            "all workers a path on a disk that they share.",
        )
        return step

    def _is_there(self):
        return self.path.is_file()

    def _read(self, model):
        variables = self._variables(model)
        about, arrays = self._load(model, variables)
        for name, variable in variables.items():
            variable.assign(arrays.pop(name))
        best = [arrays[f"{BEST}{number}"] for number in range(len(arrays))]
        self.step = self._step_before_epoch = about["step"]
        self.logs, self.best_weights = about.get("logs", []), best or None
        schedule, _ = schedule_and_steps(model)
        if schedule is not None:
            schedule.skipped = about.get("skipped", 0)
        return self.step

    def _load(self, model, variables):
        # All is checked before anything is used.
        try:
            with reading(self.path) as path, safe_open(path, framework="numpy") as file:
                expected = checked_files.stated_checksums(self.path, file.metadata())
                about = json.loads(file.metadata()["training"])
                names = list(file.keys())
                shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
                self._check(about, shapes, model, variables)
                arrays = {name: file.get_tensor(name) for name in names}
                for name, array in arrays.items():
                    checked_files.check_tensor(self.path, name, array, expected)
        except (SafetensorError, KeyError, TypeError) as error:
            raise self._incomplete(error) from error
        return about, arrays

    def _incomplete(self, error):
        return ValueError(
            f"{self.path} is not a complete checkpoint of a training run ({error}): remove it to "
            "start over."
        )

    def _check(self, about, shapes, model, variables):
        stored = about["settings"]
        for name in sorted({*stored, *self.settings}):
            then, now = stored.get(name), self.settings.get(name)
            if then != now:
                raise ValueError(
                    f"{self.path} is a checkpoint of a run with {name}={then}, and not {now}: "
                    "repeat that run to go on, or remove it to start over."
                )
        if about.get("teachers", []) != self._teachers(model):
            raise ValueError(
                f"{self.path} is a checkpoint of a run with another teacher, whose weights "
                "differ: train with that one, or remove it to start over."
            )
        own = {name: shape for name, shape in shapes.items() if not name.startswith(BEST)}
        if own != {name: tuple(variable.shape) for name, variable in variables.items()}:
            raise ValueError(
                f"{self.path} is a checkpoint of another model or optimizer: train with "
                "those, or remove it to start over."
            )

    def save(self) -> None:
        """Write the state now; only the chief does, and on JAX all processes have to call it.

        Raises:
            ValueError: if weights are NaN or infinite.
        """
        if not (IS_JAX or workers_of(self.model.distribute_strategy).is_chief):
            return
        began = time.monotonic()
        arrays = self._values(self._variables(self.model))
        for name in [name for name, array in arrays.items() if not self._is_finite(array)]:
            raise ValueError(
                f"{name} is NaN or infinite after step {self.step}, so it is not saved: go on from "
                f"{self.path}, if it is there, with a lower learning_rate."
            )
        best = getattr(self.stopping, "best_weights", None) or ()
        arrays |= {f"{BEST}{number}": array for number, array in enumerate(best)}
        schedule, steps = schedule_and_steps(self.model)
        skipped = schedule.start + self.step - steps if schedule else 0
        about = {"step": self.step, "settings": self.settings, "skipped": skipped}
        about["logs"] = self.logs
        about["teachers"] = self._teachers(self.model)
        self._write(arrays, about)
        self._saved_at = time.monotonic()
        self._seconds = self._saved_at - began

    def _values(self, variables):
        return {name: np.array(as_array(v), order="C") for name, v in variables.items()}

    def _is_finite(self, array):
        return is_finite(array)

    def _write(self, arrays, about):
        if workers_of(self.model.distribute_strategy).is_chief:
            with replacing(self.path) as new:
                save_checked(arrays, new, {"training": json.dumps(about)})

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._saved_at = time.monotonic()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._step_before_epoch = self.step

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self.step = self._step_before_epoch + batch + 1
        if self._is_due(60 * self.minutes, self.step):
            self._save_unless_broken(logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.logs.append({name: float(value) for name, value in (logs or {}).items()})
        if self._is_due(10 * self._seconds if self._seconds > 1 else 0):
            self._save_unless_broken(logs)

    def _is_due(self, seconds, step=0):
        """Return whether the last save is so long ago.

        On JAX each process may have a part of the state, so that all save at once, by the clock of
        the chief; of steps they ask it after every fiftieth.
        """
        is_due = time.monotonic() - self._saved_at >= seconds
        strategy = self.model.distribute_strategy
        if not IS_JAX or workers_of(strategy).number == 1:
            return is_due
        return step % STEPS_TO_ASK == 0 and bool(gather(strategy, int(is_due))[0])

    def _save_unless_broken(self, logs):
        if not np.isfinite((logs or {}).get("loss", 0.0)):
            return
        try:
            self.save()
        except OSError as error:
            if not is_remote(self.path):
                raise
            self._saved_at = time.monotonic()
            warnings.warn(
                f"step {self.step} is not saved, and training goes on until the next save: {error}",
                stacklevel=2,
            )

    def _teachers(self, model):
        """Return a digest of the weights of each teacher, a list of str; they do not change."""
        if self._digests is None:
            learners = [model, *getattr(model, "objectives", ())]
            teachers = [getattr(learner, "teacher", None) for learner in learners]
            self._digests = [_digest(teacher) for teacher in teachers if teacher is not None]
        return self._digests

    def _variables(self, model):
        """All state of the run, by names that are the same in every process."""
        if not model.optimizer.built:  # Keras's loss scaling would make its variables again
            with model.distribute_strategy.scope():
                model.optimizer.build(model.trainable_variables)
        owners = {
            "model": model.variables,
            "optimizer": model.optimizer.variables,
            "carried": self.carried,
            "objectives": [
                variable
                for objective in getattr(model, "objectives", ())
                for variable in objective.variables
            ],
        }
        return {
            f"{owner}/{number}": variable
            for owner, variables in owners.items()
            for number, variable in enumerate(variables)
        }


class OrbaxTrainingCheckpoint(TrainingCheckpoint):
    """A `TrainingCheckpoint` in a folder of Orbax, into which each process writes its own part.

    So no process ever has the whole state of a model that is divided among devices. A run goes on
    with another number of processes, on other devices and in another layout. The folder holds the
    last state; the one before is removed once the next is complete. It is for Keras's JAX backend,
    and needs the extra `orbax`.

    Args:
        path: of the folder, on a disk that all processes share.
        settings, minutes, carried, stopping: those of `TrainingCheckpoint`.

    Raises:
        RuntimeError: with another backend than JAX.
        ValueError: if the path is a file.
        ImportError: if orbax-checkpoint is not installed.

    Example:
        checkpoint = keras_lm.training.OrbaxTrainingCheckpoint("run", {"batch_size": 8})
        done = checkpoint.restore(task)
        task.fit(batches.skip(done), callbacks=[checkpoint])

    Source: the Orbax documentation, https://orbax.readthedocs.io, "Checkpointing PyTrees".
    """

    def __init__(self, path: PathLike, *args: Any, **kwargs: Any):
        if not IS_JAX:
            raise RuntimeError(
                "OrbaxTrainingCheckpoint is for Keras's JAX backend, and this is "
                f"{keras.backend.backend()!r}: use TrainingCheckpoint(FILE)."
            )
        self._orbax = require("orbax.checkpoint", "OrbaxTrainingCheckpoint")
        super().__init__(on_disk(path), *args, **kwargs)
        if self.path.is_file():
            raise ValueError(f"path={str(path)!r} is a file: pass a folder, such as 'run.orbax'.")
        options = self._orbax.CheckpointManagerOptions(
            max_to_keep=1, enable_async_checkpointing=False
        )
        items = {
            "state": self._orbax.StandardCheckpointHandler(),
            "about": self._orbax.JsonCheckpointHandler(),
        }
        # Saves are numbered one after another: a step may be saved again, with an epoch's logs.
        self._saves = self._orbax.CheckpointManager(
            self.path.absolute(), item_handlers=items, options=options
        )

    def _is_there(self):
        self._saves.reload()
        return self._saves.latest_step() is not None

    def _load(self, model, variables):
        args, number = self._orbax.args, self._saves.latest_step()
        with self._whole():
            about = self._saves.restore(number, args=args.Composite(about=args.JsonRestore()))
            about, stored = about["about"], self._saves.item_metadata(number)["state"]
            shapes = {name: tuple(array.shape) for name, array in stored.items()}
            # Arrays of the best weights are of the host.
            state = {name: np.empty(array.shape, array.dtype) for name, array in stored.items()}
        self._check(about, shapes, model, variables)
        state |= {
            name: jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=value.sharding)
            for name, value in self._values(variables).items()
        }
        with self._whole():
            items = args.Composite(state=args.StandardRestore(state))
            arrays = {**self._saves.restore(number, args=items)["state"]}
        for name, array in arrays.items():
            if _sum_of_bits(array) != about["sums"].get(name):
                raise self._incomplete(f"the numbers of {name} are not those that were saved")
        return about, arrays

    @contextlib.contextmanager
    def _whole(self):
        """A context in which Orbax reads; it has errors of many classes for damaged files."""
        try:
            yield
        except (ValueError, KeyError, TypeError, OSError, RuntimeError, AttributeError) as error:
            lines = str(error).splitlines() or [type(error).__name__]
            raise self._incomplete(lines[0]) from error

    def _values(self, variables):
        return {name: keras.ops.convert_to_tensor(v) for name, v in variables.items()}

    def _is_finite(self, array):
        return bool(keras.ops.all(keras.ops.isfinite(array)))

    def _write(self, arrays, about):
        args, number = self._orbax.args, (self._saves.latest_step() or 0) + 1
        about["sums"] = {name: _sum_of_bits(array) for name, array in arrays.items()}
        items = args.Composite(state=args.StandardSave(arrays), about=args.JsonSave(about))
        self._saves.save(number, args=items, force=True)


def _sum_of_bits(array):
    """Return the sum of all numbers of an array as their bits, which no layout changes."""
    array = jax.numpy.asarray(array)
    if array.dtype == bool:
        array = array.astype("uint8")
    bits = jax.lax.bitcast_convert_type(array, f"uint{8 * array.dtype.itemsize}")
    return int(jax.numpy.sum(bits, dtype="uint32"))


def checkpoint_at(path, *args, **kwargs):
    """Return the callback for a path: for a folder of Orbax if its name ends with `.orbax`."""
    is_folder = as_path(path).suffix == ".orbax"
    return (OrbaxTrainingCheckpoint if is_folder else TrainingCheckpoint)(path, *args, **kwargs)


def _digest(model):
    digest = hashlib.sha256()
    for weight in model.weights:
        digest.update(as_array(weight).tobytes())
    return digest.hexdigest()
