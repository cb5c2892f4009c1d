"""LiteRT's interpreter, with TensorFlow Text's operations."""


def open_interpreter(model):
    """Return an interpreter of a `.tflite`; keep it as long as a signature's runner is used.

    Args:
        model: path of the file, or its content as bytes.

    Raises:
        ImportError: if there is no interpreter here: `pip install 'keras-lm[litert]'`.
        ValueError, RuntimeError: if the model is damaged.

    Example:

        interpreter = open_interpreter("classifier.tflite")
        interpreter.get_signature_runner("serving_default")(text=np.array([b"a text"]))
    """
    from ai_edge_litert.interpreter import InterpreterWithCustomOps
    from tensorflow_text.core.pybinds.tflite_registrar import SELECT_TFTEXT_OPS

    source = {"model_content": model} if isinstance(model, bytes) else {"model_path": str(model)}
    return InterpreterWithCustomOps(custom_op_registerers=SELECT_TFTEXT_OPS, **source)
