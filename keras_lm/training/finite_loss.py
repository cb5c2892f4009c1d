"""Training ends at the first loss that is not a number, with what to try."""

import math
from typing import Any

import keras


class FiniteLoss(keras.callbacks.Callback):
    """Raises a FloatingPointError in the first step whose loss is NaN or infinite.

    `fit` of our tasks has one, unless `callbacks` has a `keras.callbacks.TerminateOnNaN`, which
    ends training without an error.
    """

    # Keras may run it beside the next step, so that no step waits for the loss of the one before.
    async_safe = True
    epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        loss = float((logs or {}).get("loss", 0.0))
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss} in step {batch + 1} of epoch {self.epoch + 1}, and so are "
                "weights from then on. Load the task again and try a lower learning_rate, longer "
                "warm-up, clipping (global_clipnorm=1.0), float32 or bfloat16 in place of float16, "
                "or look for wrong labels and sample_weight."
            )


def with_finite_loss(callbacks: Any, model: keras.Model) -> Any:
    """Return the callbacks of a call of `fit`, with a `FiniteLoss` before them.

    Args:
        callbacks: a callback, a list of them, a `CallbackList`, or None.
        model: the model that is trained.
    """
    known = (FiniteLoss, keras.callbacks.TerminateOnNaN)
    is_list = isinstance(callbacks, keras.callbacks.CallbackList)
    given = keras.tree.flatten(callbacks.callbacks if is_list else callbacks or [])
    if any(isinstance(each, known) for each in given):
        return callbacks
    own = FiniteLoss()
    if not is_list:
        return [own, *given]
    own.set_model(model)
    callbacks.callbacks.insert(0, own)
    return callbacks
