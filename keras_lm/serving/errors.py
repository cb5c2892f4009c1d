"""The one error of the server: a status code and a message, which each protocol translates."""

import contextlib

import grpc
import tensorflow as tf

StatusCode = grpc.StatusCode

BY_NUMBER = {code.value[0]: code for code in StatusCode}


class ServingError(Exception):
    """A request that cannot be answered, or a version that cannot be loaded.

    `code` is a `grpc.StatusCode`, the same codes as TensorFlow's, of which HTTP's follow. If TF
    Serving has words for what is wrong, the message is like them.
    """

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code
        self.message = message

    def __str__(self):
        return f"{self.code.name}: {self.message}"


def invalid(message):
    """Return the most common error, that of a request which is wrong in itself."""
    return ServingError(StatusCode.INVALID_ARGUMENT, message)


@contextlib.contextmanager
def tensorflow_errors():
    """Turn what TensorFlow and memory raise inside of the block into `ServingError`."""
    try:
        yield
    except tf.errors.OpError as error:
        # Python's TensorFlow adds where in Python it happened, which is nowhere here.
        message = error.message.rpartition("<stack traces unavailable>\n")[2]
        message = message.partition(" [Op:")[0]
        raise ServingError(BY_NUMBER[error.error_code], message) from error
    except MemoryError as error:
        raise ServingError(StatusCode.RESOURCE_EXHAUSTED, "Out of memory.") from error
