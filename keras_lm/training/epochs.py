"""A training run whose epochs differ, and that may continue in the middle of one."""

from typing import Any

import keras

from keras_lm.training.optimizers import plan_schedule, schedule_and_steps


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


def fit_epochs(task, batches, steps, total, done, validation_data, callbacks, verbose):
    """Train on different batches in each epoch, starting from step `done` of the whole run.

    `batches(epoch, first)` returns a dataset of an epoch's `steps` batches, from the step `first`
    on. The run has `total` steps: its last epoch may be shorter. For the callbacks this is one call
    of `fit`. Returns the history of each (rest of an) epoch.
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
    with _Plan(task, done, total):
        for epoch in range(done // steps, epochs):
            first = max(done - epoch * steps, 0)
            left = total - epoch * steps - first
            if not left:
                break
            task.fit(
                batches(epoch, first).take(left),
                initial_epoch=epoch,
                epochs=epoch + 1,
                validation_data=validation_data,
                callbacks=run,
                verbose=verbose,
            )
            if task.stop_training:
                break
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


def restored_epoch(callbacks: Any) -> int | None:
    """Return the number of the epoch, from 0, whose weights a callback restores after `fit`.

    Args:
        callbacks: Keras's callbacks, a list or a `CallbackList`, or None.
    """
    for each in getattr(callbacks, "callbacks", callbacks) or ():
        if isinstance(each, keras.callbacks.EarlyStopping) and each.restore_best_weights:
            return each.best_epoch if each.best_weights is not None else None
    return None
