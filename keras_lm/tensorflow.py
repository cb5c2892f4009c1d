"""TensorFlow and TensorFlow Text, or stand-ins where they are not installed.

Models, converters, presets, objectives and tasks on token ids run on Keras's JAX backend without
TensorFlow. Modules that only need it for text, `tf.data` or exports import it from here: without it
they can still be imported, nothing is an instance of its classes, and what is called raises an
ImportError that says what to install.

TensorFlow Text may be missing where TensorFlow is there, as on Windows: `HAS_TEXT` is False then,
and tokenizers are made of TensorFlow's own operations.
"""

import contextlib
import re

from keras_lm.utils.optional_dependencies import INSTALL_TEXT

INSTALL = "needs TensorFlow: pip install tensorflow tensorflow-text"


class Base:
    """Stands for a class of TensorFlow's that others inherit from."""

    def __init__(self, name=None):
        self.name = name


class Missing:
    """Stands for TensorFlow or TensorFlow Text, or a part of it."""

    def __init__(self, name, error, install=INSTALL):
        self._name, self._error, self._install = name, error, install

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}", self._error, self._install)

    def __mro_entries__(self, bases):
        return (Base,)  # for `class Tokenizer(tf.Module)`

    def __or__(self, other):
        return self  # in annotations

    __ror__ = __or__

    def __getitem__(self, item):
        return self  # in annotations, too

    def __instancecheck__(self, instance):
        return False

    def __call__(self, *args, **kwargs):
        raise ImportError(
            f"{self._name} {self._install}. (It is called, and cannot be imported: {self._error}.)"
        )

    @staticmethod
    def TensorSpec(*args):
        """Return None; constants of modules are made of specs, for graphs that are not traced."""

    @staticmethod
    def is_tensor(value):
        """Return False: nothing is a tensor of TensorFlow's."""
        return False

    @staticmethod
    def get_strategy():
        """Return a stand-in for the default strategy."""
        return OneDevice()


class OneDevice:
    """Stands for TensorFlow's default strategy."""

    num_replicas_in_sync = 1
    scope = staticmethod(contextlib.nullcontext)


def require_installed(what: str) -> None:
    """Raise an ImportError where TensorFlow is not installed."""
    if not IS_INSTALLED:
        raise ImportError(f"{what} {INSTALL}.")


def require_text(what: str) -> None:
    """Raise an ImportError where TensorFlow Text is not installed."""
    if not HAS_TEXT:
        raise ImportError(f"{what} {INSTALL_TEXT}.")


@contextlib.contextmanager
def forgotten_datasets():
    """A context after which TensorFlow forgets the datasets that were made in it.

    It keeps what a dataset calls in Python, and what that refers to, as long as the graph around
    it, which is otherwise that of the process.
    """
    with tf.Graph().as_default(), eager_context.eager_mode():
        yield


def missing_operation(error: Exception) -> str | None:
    """Return what to say of an error of loading a SavedModel for want of TensorFlow Text.

    It is None if TensorFlow Text is installed, or the error is another one.
    """
    operation = re.search(r"Op type not registered '([^']+)'", str(error))
    if HAS_TEXT or operation is None:
        return None
    return (
        f"It has the operation {operation[1]}, which {INSTALL_TEXT}. Or export it again with "
        "operations='tensorflow'."
    )


try:
    import tensorflow as tf
    from tensorflow.core.protobuf import trackable_object_graph_pb2
    from tensorflow.python.eager import context as eager_context

    IS_INSTALLED = True
except ImportError as error:
    IS_INSTALLED = False
    eager_context = trackable_object_graph_pb2 = tf = Missing("tensorflow", str(error))

try:
    if not IS_INSTALLED:  # TensorFlow Text would fail for want of it
        raise ModuleNotFoundError("TensorFlow is not installed", name="tensorflow_text")
    import tensorflow_text as tf_text
    from tensorflow_text.python.ops.byte_splitter import gen_byte_splitter
    from tensorflow_text.python.ops.sentencepiece_tokenizer import gen_sentencepiece_tokenizer

    HAS_TEXT = True
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] != "tensorflow_text":
        raise  # it is installed, and broken
    HAS_TEXT = False
    tf_text = Missing("tensorflow_text", str(error), INSTALL_TEXT if IS_INSTALLED else INSTALL)
    gen_byte_splitter = gen_sentencepiece_tokenizer = tf_text

__all__ = [
    "HAS_TEXT",
    "INSTALL",
    "INSTALL_TEXT",
    "IS_INSTALLED",
    "forgotten_datasets",
    "gen_byte_splitter",
    "gen_sentencepiece_tokenizer",
    "missing_operation",
    "require_installed",
    "require_text",
    "tf",
    "tf_text",
    "trackable_object_graph_pb2",
]
