"""A program that runs an exported model with TensorFlow, or its own runtime, only.

TensorFlow Text is imported for a SavedModel that has its operations.

`python fresh_process.py FORMAT MODEL FILE SIGNATURE` reads a list of batches from FILE, dicts of
name → array, and writes the answers and timings to FILE. After each batch it prints a line.
"""

import os
import pickle
import sys
import time


def load_saved_model(path, signature):
    """Return a signature, a function from arrays to a dict of arrays, and the seconds to load."""
    import tensorflow as tf

    start = time.perf_counter()
    try:
        model = tf.saved_model.load(path)
    except Exception as error:  # of several classes
        if "Op type not registered" not in str(error):
            raise
        import tensorflow_text  # noqa: F401 - registers the tokenizer's operations

        start = time.perf_counter()
        model = tf.saved_model.load(path)
    seconds = time.perf_counter() - start

    def serve(**columns):
        columns = {name: tf.constant(column, tf.string) for name, column in columns.items()}
        answer = model.signatures[signature](**columns)
        return {name: value.numpy() for name, value in answer.items()}

    return serve, seconds


def load_tflite(path, signature="serving_default"):
    """Return the same as `load_saved_model` for a `.tflite`."""
    from ai_edge_litert.interpreter import InterpreterWithCustomOps
    from tensorflow_text.core.pybinds.tflite_registrar import SELECT_TFTEXT_OPS

    start = time.perf_counter()
    interpreter = InterpreterWithCustomOps(model_path=path, custom_op_registerers=SELECT_TFTEXT_OPS)
    return _runner(interpreter, signature, start)


def load_plain_tflite(path, signature="serving_default"):
    """Return the same for a `.tflite` that has LiteRT's own operations alone."""
    from ai_edge_litert.interpreter import Interpreter

    start = time.perf_counter()
    return _runner(Interpreter(model_path=path), signature, start)


def _runner(interpreter, signature, start):
    serve = interpreter.get_signature_runner(signature)
    return serve, time.perf_counter() - start


def load_onnx(path, _=None):
    """Return the same as `load_saved_model` for an `.onnx`."""
    import onnxruntime

    start = time.perf_counter()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def serve(**rows):
        return dict(zip(names, session.run(names, rows), strict=True))

    return serve, time.perf_counter() - start


def load_compiled(path, signature="serving_default"):
    """Return the same for a `.tflite` of known sizes, run as LiteRT.js runs it."""
    import numpy

    try:
        from ai_edge_litert.compiled_model import CompiledModel
    except ImportError:  # an older one
        return load_plain_tflite(path, signature)

    start = time.perf_counter()
    model = CompiledModel.from_file(path)
    dtypes = {"float32": numpy.float32, "int32": numpy.int32, "uint8": numpy.uint8}
    outputs = model.get_output_tensor_details(signature)

    def serve(**columns):
        given = {name: model.create_input_buffer_by_name(signature, name) for name in columns}
        for name, column in columns.items():
            given[name].write(numpy.asarray(column))
        made = {name: model.create_output_buffer_by_name(signature, name) for name in outputs}
        model.run_by_name(signature, given, made)
        answer = {}
        for name, details in outputs.items():
            size = int(numpy.prod(details["shape"]))
            array = made[name].read(size, dtypes[str(details["dtype"])])
            answer[name] = array.reshape(details["shape"])
        return answer

    return serve, time.perf_counter() - start


LOADERS = {
    "saved_model": load_saved_model,
    "litert": load_tflite,
    "onnx": load_onnx,
    "compiled": load_compiled,
}


def main(format, model, file, signature):
    """Answer all batches in `file` with a signature of `model`."""
    # Python imports modules from the folder of its program, where this library's modules could
    # hide others (`tflite`, `check`, …).
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path = [folder for folder in sys.path if os.path.abspath(folder) != here]

    with open(file, "rb") as stream:
        batches = pickle.load(stream)
    load = LOADERS[format]
    has_strings = any(column.dtype.kind in "OSU" for column in batches[0].values())
    if format == "litert" and not has_strings:
        load = load_plain_tflite
    serve, load_seconds = load(model, signature)
    answers, first_call_seconds = [], None
    for batch in batches:
        start = time.perf_counter()
        answers.append(serve(**batch))
        first_call_seconds = first_call_seconds or time.perf_counter() - start
        print("answered", flush=True)
    with open(file, "wb") as stream:
        pickle.dump((answers, load_seconds, first_call_seconds), stream)


if __name__ == "__main__":
    main(*sys.argv[1:])
