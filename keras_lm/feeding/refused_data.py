"""Data that a graph or Keras refuses: an error in plain words."""

import contextlib
import re
from typing import Any

import keras

from keras_lm.layers.tensorflow.tracing import said_by_require
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.training.watched_steps import no_batches, watched

NO_CLASS = re.compile(r"label value of (-?\d+) which is outside the valid range of \[0, (\d+)\)")

# What Keras says where there was none.
WITHOUT_BATCHES = ("since the metric has not yet been built", "'batch_outputs'")

InvalidArgument = ()

if IS_INSTALLED:
    InvalidArgument = tf.errors.InvalidArgumentError

    class WrongDataError(InvalidArgument, ValueError):
        """Data that a graph refused; the message says what is wrong with them."""

        def __init__(self, message):
            super().__init__(None, None, message)

        def __str__(self):
            return self.message


@contextlib.contextmanager
def watching(options: dict[str, Any], model: keras.Model) -> Any:
    """A context to call Keras's `fit`, `evaluate` or `predict` in.

    A `WatchedSteps` joins their callbacks. Data without batches raise a ValueError, and so do those
    that a graph refuses: a `WrongDataError`.

    Args:
        options: arguments of the call.
        model: the model.
    """
    options["callbacks"] = watched(options.get("callbacks"), model)
    try:
        yield
    except (UnboundLocalError, ValueError) as error:
        if any(words in str(error) for words in WITHOUT_BATCHES):
            raise no_batches() from None
        raise
    except InvalidArgument as error:
        message = _plain(error.message)
        if message is None:
            raise
        raise WrongDataError(message) from None


def _plain(message):
    """Return what an error of a graph says, or None if that is not about data."""
    if said := said_by_require(message):
        return said
    if found := NO_CLASS.search(message):
        last = int(found[2]) - 1
        return f"labels hold {found[1]}, which is not a class: they count from 0 to {last}."
    return None
