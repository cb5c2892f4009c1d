"""LiteRT's interpreter, with TensorFlow Text's operations."""

from keras_lm.optional import require


def open_interpreter(model):
    """Return an interpreter for a `.tflite`, given by its path or its content as bytes.

    Keep a reference to it as long as you use the runner of a signature.

    Raises:
        ImportError: if LiteRT's interpreter is not installed.
    """
    litert = require("ai_edge_litert.interpreter", "a .tflite")
    from tensorflow_text.core.pybinds.tflite_registrar import SELECT_TFTEXT_OPS

    source = {"model_content": model} if isinstance(model, bytes) else {"model_path": str(model)}
    return litert.InterpreterWithCustomOps(custom_op_registerers=SELECT_TFTEXT_OPS, **source)
