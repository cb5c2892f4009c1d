"""LiteRT's interpreter, with TensorFlow Text's operations."""

import os

from keras_lm.optional import require


def open_interpreter(model, num_threads=None):
    """Return an interpreter for a `.tflite`, given by its path or its content as bytes.

    Keep a reference to it as long as you use the runner of a signature. Its methods are not for
    several threads at once: open one for each.

    Args:
        num_threads: int, the threads of an answer; None for one on each core that the process may
            use. LiteRT itself would use one.

    Raises:
        ImportError: if LiteRT's interpreter is not installed.
        ValueError: if `num_threads` is less than 1.

    Example:

        interpreter = open_interpreter("film-critic.tflite")
        classify = interpreter.get_signature_runner("serving_default")
        classify(text=np.array([b"I laughed, I cried."]))
    """
    if num_threads is not None and num_threads < 1:
        raise ValueError(f"num_threads={num_threads}: pass 1 or more, or None for all cores.")
    litert = require("ai_edge_litert.interpreter", "a .tflite")
    from tensorflow_text.core.pybinds.tflite_registrar import SELECT_TFTEXT_OPS

    source = {"model_content": model} if isinstance(model, bytes) else {"model_path": str(model)}
    return litert.InterpreterWithCustomOps(
        custom_op_registerers=SELECT_TFTEXT_OPS,
        num_threads=num_threads or _num_cores(),
        **source,
    )


def _num_cores():
    has_affinity = hasattr(os, "sched_getaffinity")  # Linux alone
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
