"""Pretraining on windows or rows of tokens, in a run that can be interrupted."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_lm.data import epoch_batches, window_batches
from keras_lm.data.packed_windows import label_columns
from keras_lm.data.shards import is_own
from keras_lm.objectives import CausalLanguageModel
from keras_lm.tensorflow import tf
from keras_lm.training.checkpointing import checkpoint_at
from keras_lm.training.optimizers import plan_schedule, schedule_and_steps
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.processes import gather, workers_of
from keras_lm.utils.user_arguments import check_batch_size


class OneRun(keras.callbacks.CallbackList):
    """Callbacks that treat several calls of `fit` as one: the run begins once, and ends once."""

    has_begun = False

    def on_train_begin(self, logs=None):
        if not self.has_begun:
            self.has_begun = True
            super().on_train_begin(logs)

    def on_train_end(self, logs=None):
        """Wait: the next epoch is another call."""

    def end(self):
        super().on_train_end()

    def replay(self, checkpoint):
        """Begin, and let history and early stopping see the epochs that a checkpoint has."""
        self.on_train_begin()
        stopping = checkpoint.stopping
        for epoch, logs in enumerate(checkpoint.logs):
            self.model.history.on_epoch_end(epoch, logs)
            if stopping is not None:
                stopping.on_epoch_end(epoch, logs)
        if stopping is not None:
            stopping.best_weights = checkpoint.best_weights


def fit_epochs(
    task, batches, steps, total, done, validation_data, callbacks, verbose, fit=None, past=None
):
    """Train on different batches in each epoch, starting from step `done` of the whole run.

    `batches(epoch, first)` returns a dataset of an epoch's `steps` batches, from the step `first`
    on. The run has `total` steps: its last epoch may be shorter. For the callbacks this is one call
    of `fit`. Returns the history of each (rest of an) epoch.

    `fit` trains on these batches; by default it is the task's own. `past` is a `TrainingCheckpoint`
    whose earlier epochs count as if they had been trained in this call.
    """
    epochs = -(-total // steps)
    run = OneRun(
        callbacks,
        add_history=True,
        add_progbar=verbose != 0,
        verbose=1 if verbose == "auto" else verbose,
        epochs=epochs,
        steps=steps,
        model=task,
    )
    task.stop_training = False
    if past is not None and past.logs:
        run.replay(past)
    with _Plan(task, done, total):
        for epoch in range(done // steps, epochs):
            if task.stop_training:
                break
            first = max(done - epoch * steps, 0)
            left = total - epoch * steps - first
            if not left:
                break
            data, number = batches(epoch, first), min(left, steps - first)
            run.set_params(run.params | {"steps": number})
            (fit or task.fit)(
                data.take(number) if number < steps - first else data,
                initial_epoch=epoch,
                epochs=epoch + 1,
                validation_data=validation_data,
                callbacks=run,
                verbose=verbose,
            )
    if run.has_begun:
        run.end()
    return task.history.history


class _Plan:
    """Spreads the schedule over all steps of a run, instead of those of each call of `fit`."""

    def __init__(self, model, done, total_steps):
        schedule, _ = schedule_and_steps(model)
        self.schedule = plan_schedule(
            model, schedule.skipped - done if schedule else 0, total_steps
        )

    def __enter__(self):
        if self.schedule is not None:
            self.schedule.is_planned_by_fit = False

    def __exit__(self, *error):
        if self.schedule is not None:
            self.schedule.is_planned_by_fit = True


def fit_windows(
    task: keras.Model,
    windows: tf.data.Dataset[Any],
    batch_size: int = 32,
    epochs: int = 1,
    steps: int | None = None,
    seed: int = 0,
    validation_windows: tf.data.Dataset[Any] | None = None,
    checkpoint: PathLike | None = None,
    minutes: float = 5.0,
    callbacks: Sequence[Any] = (),
    verbose: int | str = "auto",
) -> dict[str, list[float]]:
    """Train a task on windows or rows, and continue where an earlier call was interrupted.

    Interrupted or not, the run takes the same steps: weights, optimizer, learning rate, dropout,
    masks and the order of the data are those of an uninterrupted run, bit for bit on devices with
    deterministic arithmetic, such as a CPU.

    Args:
        task: compiled `keras_lm.tasks.CausalLM` for windows; `MaskedLM`, `Pretrainer` or another
            pretraining task for rows. It is made in the same way each time.
        windows: `tf.data.Dataset` of (S + 1,) int32, see `keras_lm.data.token_windows`, or of rows,
            see `keras_lm.data.pretraining_rows`. Of several workers, all have the same ones and
            divide each batch, or each has its own part (`keras_lm.data.read_token_shards`).
        batch_size, epochs: int.
        steps: int. The length of the run instead of `epochs`; its last epoch may be shorter.
        seed: int, of the order of the windows. Weights, dropout and masks follow
            `keras.utils.set_random_seed`, called before the task is made.
        validation_windows: the same for `val_…` after each epoch, or None.
        checkpoint: path of the file to save the run to, and to continue from if it exists, or None.
            If it ends with `.orbax`, it is the folder of an `OrbaxTrainingCheckpoint`.
        minutes: float. How often to save, besides after each epoch.
        callbacks, verbose: as in Keras.

    Returns:
        dict from metrics to lists of their values, one for each (rest of an) epoch of this call.

    Raises:
        ValueError: if the windows do not fill a batch or are not for such a task, both `epochs` and
            `steps` are given, or the checkpoint is damaged or of another model, teacher or other
            settings.

    Example:
        task = keras_lm.tasks.CausalLM(backbone, tokenizer=tokenizer)
        task.compile(optimizer=keras_lm.training.AdamW(learning_rate=5e-4))
        windows = keras_lm.data.read_token_shards("tokens", tokenizer)
        keras_lm.training.fit_windows(task, windows, epochs=3, checkpoint="run.safetensors")
    """
    check_kind(task, windows)
    check_batch_size(batch_size)
    if steps is not None and (steps < 1 or epochs != 1):
        raise ValueError(f"epochs={epochs} and steps={steps}: pass one of them, 1 or more.")
    windows, number = _counted(windows)
    strategy = task.distribute_strategy
    workers = workers_of(strategy).number if is_own(windows) else 1
    number, steps_per_epoch = _steps_per_epoch(number, batch_size, workers, strategy)
    callbacks = list(callbacks)
    done = 0
    if checkpoint is not None:
        settings = {
            "batch_size": batch_size,
            "epochs": epochs,
            "steps": steps,
            "seed": seed,
            "windows": number,
            "optimizer": keras.saving.serialize_keras_object(task.optimizer),
        }
        if workers > 1:  # each has another order then
            settings["workers"] = workers
        checkpoint = checkpoint_at(checkpoint, settings, minutes)
        done = checkpoint.restore(task)
        callbacks.append(checkpoint)
    if validation_windows is not None:
        validation_windows = window_batches(_counted(validation_windows)[0], batch_size)

    def batches(epoch, first):
        whole = epoch_batches(windows, batch_size // workers, seed, epoch).take(steps_per_epoch)
        return whole.skip(first) if first else whole

    return fit_epochs(
        task,
        batches,
        steps_per_epoch,
        epochs * steps_per_epoch if steps is None else steps,
        done,
        validation_windows,
        callbacks,
        verbose,
    )


def check_kind(task, windows):
    """Raise an error if a task would read windows or rows of another kind in a wrong way."""
    if not isinstance(windows.element_spec, dict):
        if not any(isinstance(objective, CausalLanguageModel) for objective in task.objectives):
            raise ValueError(
                f"windows hold tokens for a causal language model, which {type(task).__name__} is "
                "not: pass rows of keras_lm.data.pretraining_rows."
            )
        return
    taken = [
        name.replace("_logits", "_labels")
        for objective in task.objectives
        for name in objective.by_output(objective.loss())
    ]
    for name in label_columns(windows):
        if name not in taken:
            raise ValueError(
                f"windows are rows with {name}, which no objective of this "
                f"{type(task).__name__} takes: make rows of another form, or give a Pretrainer one."
            )


def _steps_per_epoch(number, batch_size, workers, strategy):
    """Return how many windows all workers have, and how many steps an epoch has.

    `number` is how many this worker has: all of them, or its own part of several workers'.
    """
    if batch_size % workers:
        raise ValueError(
            f"batch_size={batch_size} is shared by {workers} workers, and each reads its own part "
            "of the windows: pass a multiple."
        )
    of_worker = batch_size // workers
    steps = number // of_worker
    if workers > 1:
        numbers = gather(strategy, number)
        number, steps = int(numbers.sum()), int(numbers.min()) // of_worker
    if not steps:
        raise ValueError(
            f"There are {number} windows, and batch_size={batch_size} of them make a step: give "
            "more text, or a lower batch_size or sequence length."
        )
    return number, steps


def _counted(windows):
    """Return windows as a dataset of known length, so that Keras need not run into its end."""
    number = int(windows.cardinality())
    if number < 0:
        number = int(windows.reduce(np.int64(0), lambda number, _: number + 1))
    return windows.apply(tf.data.experimental.assert_cardinality(number)), number
