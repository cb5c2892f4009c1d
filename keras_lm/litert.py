"""LiteRT's interpreter, with TensorFlow Text's operations."""


def open_interpreter(model):
    """Return an interpreter of a `.tflite`, its path or its content as bytes.

    Keep it as long as a signature's runner is used. An ImportError means that there is none here:
    `pip install 'keras-lm[litert]'`.
    """
    from ai_edge_litert.interpreter import InterpreterWithCustomOps
    from tensorflow_text.core.pybinds.tflite_registrar import SELECT_TFTEXT_OPS

    source = {"model_content": model} if isinstance(model, bytes) else {"model_path": str(model)}
    return InterpreterWithCustomOps(custom_op_registerers=SELECT_TFTEXT_OPS, **source)
