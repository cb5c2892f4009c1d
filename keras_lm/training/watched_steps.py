"""Training ends at the first loss that is not a number; and data without batches are refused."""

import math
from typing import Any

import keras


class WatchedSteps(keras.callbacks.Callback):
    """Raises an error in the first step whose loss is NaN or infinite, and if there is no step.

    Args:
        stops: bool. False leaves a loss that is not a number to others.
    """

    # Keras may run it beside the next step, so that no step waits for the loss of the one before.
    async_safe = True
    epoch = steps = answers = 0

    def __init__(self, stops: bool = True):
        super().__init__()
        self.stops = stops

    def on_train_begin(self, logs=None):
        self.steps = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        loss = float((logs or {}).get("loss", 0.0))
        if self.stops and not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss} in step {batch + 1} of epoch {self.epoch + 1}, and so are "
                "weights from then on. Load the task again and try a lower learning_rate, longer "
                "warm-up, clipping (global_clipnorm=1.0), float32 or bfloat16 in place of float16, "
                "or look for wrong labels and sample_weight."
            )

    def on_epoch_end(self, epoch, logs=None):
        if not self.steps:
            raise no_batches()

    def on_test_begin(self, logs=None):
        self.answers = 0

    def on_test_batch_end(self, batch, logs=None):
        self.answers += 1

    def on_test_end(self, logs=None):
        if not self.answers:
            raise no_batches()

    on_predict_begin, on_predict_batch_end = on_test_begin, on_test_batch_end


def watched(callbacks: Any, model: keras.Model) -> Any:
    """Return the callbacks of a call of `fit` or `evaluate`, with a `WatchedSteps` before them.

    Args:
        callbacks: a callback, a list of them, a `CallbackList`, or None.
        model: the model that is trained.
    """
    is_list = isinstance(callbacks, keras.callbacks.CallbackList)
    given = keras.tree.flatten(callbacks.callbacks if is_list else callbacks or [])
    if any(isinstance(each, WatchedSteps) for each in given):
        return callbacks
    own = WatchedSteps(not any(isinstance(c, keras.callbacks.TerminateOnNaN) for c in given))
    if not is_list:
        return [own, *given]
    own.set_model(model)
    callbacks.callbacks.insert(0, own)
    return callbacks


def no_batches():
    """Return the error of data without batches."""
    return ValueError(
        "x has no batches: pass data with one example at least. A tf.data.Dataset may have lost "
        "all of them by filter, skip or batch(…, drop_remainder=True)."
    )
