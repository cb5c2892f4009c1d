"""The server's error: a status code and a message, which each protocol translates."""

import contextlib

import grpc
import tensorflow as tf

from keras_lm.layers.tensorflow import said_by_require

StatusCode = grpc.StatusCode

BY_NUMBER = {code.value[0]: code for code in StatusCode}


class ServingError(Exception):
    """A request that cannot be answered, or a version that cannot be loaded.

    `code` is a `grpc.StatusCode`, which has TensorFlow's codes; the HTTP status follows from it.
    The message is TF Serving's, if it has one for the error. `retry_after` is the number of seconds
    after which the same request may succeed, or None.
    """

    def __init__(self, code, message, retry_after=None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after

    def __str__(self):
        return f"{self.code.name}: {self.message}"


def invalid(message):
    """Return the `INVALID_ARGUMENT` error."""
    return ServingError(StatusCode.INVALID_ARGUMENT, message)


def plain(message):
    """Return a message of TensorFlow's as it was written, without places in graphs and in code."""
    # TensorFlow adds the place in Python code, which a loaded graph does not have.
    message = message.rpartition("<stack traces unavailable>\n")[2].partition(" [Op:")[0]
    message = message.partition("\n\t [[{{node")[0]
    return said_by_require(message) or message


@contextlib.contextmanager
def tensorflow_errors():
    """Turn the errors of TensorFlow and out of memory inside the block into `ServingError`."""
    try:
        yield
    except tf.errors.OpError as error:
        raise ServingError(BY_NUMBER[error.error_code], plain(error.message)) from error
    except MemoryError as error:
        raise ServingError(StatusCode.RESOURCE_EXHAUSTED, "Out of memory.") from error
