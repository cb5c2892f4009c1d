"""Training in a folder of its own, which an interrupted run goes on from.

While a run goes on, `OUTPUT.unfinished` holds what it is (`run.json`), its tokens, and how far it
has come; the same call goes on from there, and removes the folder at the end. If the output is at
an address, so is the folder, and any machine can go on.
"""

import contextlib
import hashlib
import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_lm import data
from keras_lm.data.shards import INDEX
from keras_lm.tensorflow import tf
from keras_lm.training.checkpointing import TrainingCheckpoint
from keras_lm.training.streams import fit_streams
from keras_lm.training.windows import fit_epochs, fit_windows
from keras_lm.utils.argument_types import PathLike, RawLabels, RawTexts
from keras_lm.utils.files import RemotePath, as_path, remove_folder, replacing
from keras_lm.utils.processes import chief_first, workers_of

STATE = "state.safetensors"


class Run:
    """A run that can be interrupted at any time, and continued with the same `settings` only.

    Of the workers of a strategy, the chief writes, and all see the folder.

    Args:
        output: path, or address, of the preset to be written at the end; the run's folder lies
            beside it.
        settings: dict of what has to be the same for a run to go on.
        strategy: `tf.distribute.Strategy`. Default: the one in whose scope this is called.
        say: function of a str, for what a user wants to know.

    Raises:
        ValueError: if the folder holds another run, or something else.

    Example:

        run = keras_lm.training.Run("my-gpt2", {"corpus": "reports", "epochs": 3})
        run.fit(task, keras_lm.data.read_documents("reports/*.txt"), epochs=3)
        task.save_to_preset("my-gpt2")
        run.remove()
    """

    def __init__(
        self,
        output: PathLike,
        settings: Mapping[str, Any],
        strategy: Any = None,
        say: Callable[[str], None] = print,
    ):
        self.strategy: Any = strategy or tf.distribute.get_strategy()
        output = as_path(output)
        self.folder: Path | RemotePath = output.with_name(f"{output.name}.unfinished")
        self.say = say
        about = self.folder / "run.json"
        settings = json.loads(json.dumps(settings, default=str))
        chief_first(self.strategy, lambda: self._begin(about, settings))

    def _begin(self, about, settings):
        if about.is_file():
            stored = json.loads(about.read_text(encoding="utf-8"))
            changed = sorted(
                name for name in {*stored, *settings} if stored.get(name) != settings.get(name)
            )
            if changed and [file.name for file in self.folder.iterdir()] == [about.name]:
                changed = []  # nothing was saved yet
                _write(about, settings)
            if changed:
                raise ValueError(
                    f"{self.folder} holds an unfinished run with another {', '.join(changed)}. "
                    "Repeat its command to go on, or remove the folder to start over."
                )
            if workers_of(self.strategy).is_chief:  # others find what the chief has just begun
                self.say(f"Going on with the run in {self.folder}.")
        elif self.folder.exists():
            raise ValueError(
                f"{self.folder} exists and is not an unfinished run: rename it, or choose another "
                "output=FOLDER."
            )
        else:
            _write(about, settings)

    def fit(
        self,
        task: keras.Model,
        documents: Iterable[Any],
        validation: tf.data.Dataset[Any] | None = None,
        rows: Mapping[str, Any] | None = None,
        minutes: float = 5.0,
        callbacks: Sequence[Any] = (),
        own_shards: bool = False,
        streams: bool = False,
        **options: Any,
    ) -> dict[str, list[float]]:
        """Train from where an earlier call was interrupted; return a dict of metric → values.

        Args:
            task: a compiled task.
            documents: see `keras_lm.data.token_windows`, or with `rows`
                `keras_lm.data.pretraining_rows`; or the path of a folder of their shards.
            validation: the same, to measure on after each epoch.
            rows: dict of the settings of `pretraining_rows`; None for windows.
            minutes: float, how often to save where the run is.
            callbacks: list of Keras's callbacks.
            own_shards: bool. Whether each worker reads a part of its own of the shards.
            streams: bool. Whether the documents are read in order, with a state carried along; the
                `rows` are settings of `keras_lm.data.stream_rows` then.
            **options: arguments of `keras_lm.training.fit_windows`, or of `fit_streams`.

        Raises:
            KeyboardInterrupt: if it is interrupted; says that it can go on.
            ValueError: if the loss is no longer a number. Then, and if training fails before
                anything was saved, the folder of the run is removed.
        """
        with self._kept():
            read = self._stream_rows if streams and rows is not None else self._windows
            if validation is not None:
                validation = read(task, validation, "validation", rows)
            fit = fit_streams if streams else fit_windows
            history = fit(
                task,
                read(task, documents, "tokens", rows, own_shards),
                validation_windows=validation,
                checkpoint=self.folder / STATE,
                minutes=minutes,
                callbacks=[keras.callbacks.TerminateOnNaN(), *callbacks],
                **options,
            )
        if history and not math.isfinite(history["loss"][-1]):
            self.remove()
            raise ValueError(
                "the loss is no longer a number: try a lower learning_rate. Nothing was written."
            )
        return history

    def fit_texts(
        self,
        task: keras.Model,
        x: RawTexts,
        y: RawLabels,
        batch_size: int,
        epochs: int,
        seed: int = 0,
        validation_data: Any = None,
        class_weight: Any = None,
        minutes: float = 5.0,
        callbacks: Sequence[Any] = (),
        verbose: int | str = "auto",
    ) -> dict[str, list[float]]:
        """Train on raw texts and labels; the rest as `fit`.

        Where the loss is no longer a number, training ends, and the folder of the run is removed.

        Args:
            task: a compiled task, or a `Distiller`.
            x, y, batch_size, epochs, validation_data, class_weight: as its `fit` takes them.
            seed: int, of the order of the rows.
            minutes, callbacks, verbose: see `fit`. Keras's `EarlyStopping` goes on, too.
        """
        stopping = [c for c in callbacks if isinstance(c, keras.callbacks.EarlyStopping)]
        past = TrainingCheckpoint(
            self.folder / STATE, {}, minutes, stopping=stopping[0] if stopping else None
        )
        with self._kept():
            make = task.maker_of_batches(x, y, batch_size, class_weight)
            if validation_data is not None:
                validation_data = task.validation_batches(validation_data, batch_size)
            here = workers_of(self.strategy).replicas

            def batches(epoch, first):
                order = make(int(np.random.default_rng((seed % 2**32, epoch)).integers(2**31)))
                return order.skip(first * here)  # of a batch, each replica has a part

            steps = len(batches(0, 0)) // here
            history = fit_epochs(
                task,
                batches,
                steps,
                epochs * steps,
                past.restore(task),
                validation_data,
                [keras.callbacks.TerminateOnNaN(), *callbacks, past],
                verbose,
                task.fit_packed,
                past,
            )
        if not math.isfinite(history["loss"][-1]):
            self.remove()
        return history

    @contextlib.contextmanager
    def _kept(self):
        """A context that removes the folder if training fails before anything was saved."""
        try:
            yield
        except BaseException as error:
            if not (self.folder / STATE).is_file():
                self.remove()
            elif isinstance(error, KeyboardInterrupt):
                raise self._interrupted() from None
            raise

    def _interrupted(self):
        return KeyboardInterrupt(
            f"interrupted. The same command goes on from what {self.folder} holds."
        )

    def _windows(self, task, documents, name, rows, own_shards=False):
        if isinstance(documents, (str, Path)):
            workers = workers_of(self.strategy)
            part = {"worker": workers.index, "num_workers": workers.number} if own_shards else {}
            return data.read_token_shards(documents, task.tokenizer, **part)
        return chief_first(self.strategy, lambda: self._written(task, documents, name, rows))

    def _stream_rows(self, task, documents, name, rows, own_shards=False):
        # Not written: tokens are in several rows, of which memory holds all in any case.
        length = task.packing["sequence_length"]
        return data.stream_rows(documents, task.tokenizer, task.packer.template, length, **rows)

    def _written(self, task, documents, name, rows):
        folder = self.folder / name
        length = task.packing["sequence_length"]
        is_there = (folder / INDEX).is_file()
        if not is_there and rows is None:
            number = data.write_token_shards(documents, task.tokenizer, length, folder)
            self.say(f"{name}: {number:,} windows of {length} tokens")
        elif not is_there:
            template = task.packer.template
            number = data.write_row_shards(
                documents, task.tokenizer, template, length, folder, **rows
            )
            self.say(f"{name}: {number:,} rows of {length} tokens")
        return data.read_token_shards(folder, task.tokenizer)

    def remove(self) -> None:
        """Remove the folder of the run."""
        if workers_of(self.strategy).is_chief:
            remove_folder(self.folder)


class SeveralSeeds(Run):
    """A run for each of some seeds; `seeds.json` in its folder has the histories of those done.

    Beside it lies the preset of the best so far, the one with the lowest validation loss. After an
    interruption the seeds that are done are not trained again. Arguments: as `Run`.
    """

    def best(self, train, seeds, early_stopping=None):
        """Train with each seed, say what each reaches, and return the best's preset and history.

        Args:
            train: function from a seed and the `Path` of an output to a task, its history and the
                `Run` at that output, or None.
            seeds: list of int.
            early_stopping: see `kept_epoch`.
        """
        path = self.folder / "seeds.json"
        done = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

        def value(seed, metric="val_loss"):
            return done[seed][metric][kept_epoch(done[seed], early_stopping)]

        for seed in map(str, seeds):
            if seed not in done:
                task, history, run = self._train(train, seed)
                done[seed] = {name: [*map(float, values)] for name, values in history.items()}
                best = min(done, key=value)
                if best == seed:
                    task.save_to_preset(self.folder / f"best-{seed}")
                with replacing(path) as new:
                    new.write_text(json.dumps(done) + "\n", encoding="utf-8")
                for old in [*self.folder.iterdir()]:
                    if old.name.startswith("best-") and old.name != f"best-{best}":
                        remove_folder(old)
                if run:
                    run.remove()
            metrics = [metric for metric in done[seed] if metric.startswith("val_")]
            self._say_values(
                f"seed {seed}", {metric: f"{value(seed, metric):.4f}" for metric in metrics}
            )
        by_metric = {metric: [value(seed, metric) for seed in done] for metric in metrics}
        self._say_values(
            "mean",
            {
                metric: f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}"
                for metric, values in by_metric.items()
            },
        )
        best = min(done, key=value)
        self.say(f"kept    seed {best}, of the lowest validation loss")
        return self.folder / f"best-{best}", done[best]

    def _train(self, train, seed):
        try:
            return train(int(seed), self.folder / f"seed-{seed}")
        except BaseException as error:
            if [file.name for file in self.folder.iterdir()] == ["run.json"]:
                self.remove()
            elif isinstance(error, KeyboardInterrupt):
                raise self._interrupted() from None
            raise

    def _say_values(self, name, values):
        shown = (f"{metric.removeprefix('val_')} {value}" for metric, value in values.items())
        self.say(f"{name:<8}{', '.join(shown)}".replace("_", " "))


def _write(path, settings):
    with replacing(path) as new:
        new.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def kept_epoch(history, early_stopping):
    """Return the place in a history of the epoch whose weights are kept: the best, or the last."""
    losses = history["val_loss"] if early_stopping else []
    return losses.index(min(losses)) if losses else -1


def fingerprint(texts):
    """Return a digest of the texts of a corpus, str or bytes, which identifies it."""
    digest = hashlib.sha256()
    for text in texts:
        text = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()
