"""One version of a model in memory: runs its signatures on named arrays, for every protocol.

`ServedModel.run` is TF Serving's Predict; `classify` and `regress` run signatures that take
serialised tf.Examples, and check that the outputs have the form which these calls promise.
"""

import collections
import contextlib
import functools
import threading

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from keras_lm.litert import InterpreterPool
from keras_lm.serving import batching, writer
from keras_lm.serving.errors import ServingError, StatusCode, invalid, tensorflow_errors
from keras_lm.serving.work_limits import check_answer, check_request, count_tokens
from keras_lm.tensorflow import missing_operation  # its import registers those of tokenizers
from keras_lm.utils.files import check_sums

DEFAULT_SIGNATURE = "serving_default"
STRINGS_A_ROW = 16  # the most on average, such as choices or words
# Bytes of the strings of an input. TensorFlow does not stop within an operation, such as a
# tokenizer's, that reads them: more would outlast deadlines.
LARGEST_TEXTS = 2**24
LARGEST_PADDED = 2**28  # bytes of all rows, padded to the longest
LARGEST_CONTEXTS = 2**26  # bytes of a context that tf.Examples share, copied for each of them


def type_name(data_type):
    """Return TensorFlow's word for a `types_pb2.DataType`, such as "float" or "int32"."""
    return types_pb2.DataType.Name(data_type).removeprefix("DT_").lower()


class ServedModel:
    """One version of a model; subclasses have its signatures and run them.

    Attributes:
        platform: str, what the Open Inference Protocol calls the format.

    Args:
        number: int, the version.
        signature_defs: dict of name → `SignatureDef`, of all signatures.
        parameters: dict of how requests are joined, from `batching`, or None.
        max_rows: int, the maximum number of rows in a request; None for no limit.
    """

    platform = "tensorflow_savedmodel"

    def __init__(self, number, signature_defs, parameters=None, max_rows=None):
        self.number = number
        self.signature_defs = signature_defs
        self.max_rows = max_rows
        self.observe = self.work = self.tokens = None  # see `Models`
        self._batchers = {
            name: batching.Batcher(functools.partial(self._call, name), parameters, self._observe)
            for name, signature in signature_defs.items()
            if parameters and batching.can_join(signature)
        }

    def _call(self, name, inputs):
        """Run a signature on a dict of checked arrays, and return a dict of arrays."""
        raise NotImplementedError

    def _observe(self, rows, waits):
        if self.observe is not None:
            self.observe(rows, waits)

    def run(self, name, inputs, output_names=()):
        """Run a signature on a dict of arrays; return the outputs in `output_names`, or all.

        Inputs with a default are optional. Strings are arrays of `bytes` objects. Calls from
        several threads may be joined; see `batching`.
        """
        signature = self.signature_defs[name]
        inputs = _complete(inputs, signature)
        for alias in inputs:
            _check_input(alias, inputs[alias], signature.inputs[alias])
            self._check_size(alias, inputs[alias])
        work = check_request(inputs, signature)
        _check_output_names(output_names, signature)
        batcher = self._batchers.get(name)
        if batcher is None:
            self._observe(
                max((len(array) for array in inputs.values() if array.ndim), default=1), [0.0]
            )
        with contextlib.ExitStack() as held:
            if self.tokens is not None:
                held.enter_context(self.tokens.hold(count_tokens(inputs, work)))
            if work and self.work is not None:
                held.enter_context(self.work.share())(work)
            outputs = batcher.run(inputs) if batcher else self._call(name, inputs)
        check_answer(outputs)
        return {alias: outputs[alias] for alias in output_names or outputs}

    def check_rows(self, number, strings=0):
        """Raise a `ServingError` if a request has too many rows, or too many strings in them."""
        if self.max_rows is None:
            return
        most = {"rows": self.max_rows, "strings": STRINGS_A_ROW * self.max_rows}
        for what, size in {"rows": number, "strings": strings}.items():
            if size > most[what]:
                raise invalid(
                    f"The request has {size} {what}, but this server takes at most {most[what]} "
                    f"(max_rows={self.max_rows}): send fewer at once."
                )

    def _check_size(self, alias, array):
        rows = max(array.shape[:1], default=1)
        if array.dtype != object:
            self.check_rows(rows)
            return
        self.check_rows(rows, array.size)
        lengths = [len(string) for string in array.ravel()]
        longest, total = max(lengths, default=0), sum(lengths)
        if total > LARGEST_TEXTS:
            raise invalid(
                f"Input {alias} has strings of {total} bytes, but this server reads at most "
                f"{LARGEST_TEXTS} in a request: send fewer at once, or cut long ones."
            )
        if rows > 1 and rows * longest > LARGEST_PADDED:
            raise invalid(
                f"Input {alias} has {rows} rows, and one string of {longest} bytes: rows may be "
                "padded to the longest, so send long strings separately."
            )

    def stream(self, request):
        """Return a generator of the parts of a text; see `writer.Writer.events`."""
        raise ServingError(
            StatusCode.UNIMPLEMENTED,
            "This model cannot stream text: export a CausalLM as a SavedModel.",
        )


class SavedModel(ServedModel):
    """A SavedModel in memory; the name of its folder is the version number."""

    def __init__(self, folder, max_rows=None):
        signature_defs = _read_signature_defs(folder)
        try:
            check_sums(folder, "copy or export it again")
            with tensorflow_errors():
                self._loaded = tf.saved_model.load(str(folder), tags=["serve"])
        except ServingError as error:
            if message := missing_operation(error):
                raise ServingError(StatusCode.FAILED_PRECONDITION, message) from error
            raise
        except Exception as error:  # TensorFlow raises all kinds of errors for broken files
            if message := missing_operation(error):
                raise ServingError(StatusCode.FAILED_PRECONDITION, message) from error
            code = StatusCode.NOT_FOUND if isinstance(error, OSError) else StatusCode.UNKNOWN
            raise ServingError(code, str(error)) from error
        self._limits = writer.read_limits(folder, signature_defs)
        self._writer, self._making_writer = None, threading.Lock()
        parameters = batching.read_parameters(folder)
        super().__init__(int(folder.name), signature_defs, parameters, max_rows)

    def stream(self, request):
        if self._limits is None:
            raise ServingError(
                StatusCode.UNIMPLEMENTED,
                "This model cannot stream text: it is not a language model, or was exported by an "
                "older version of keras_lm. Export it again.",
            )
        self.warm_up_streams()
        return self._writer.events(request, self.tokens)

    def warm_up_streams(self):
        """Trace the graphs of streams, if it has any, so that the first client need not wait."""
        if self._limits is None:
            return
        with self._making_writer:
            if self._writer is None:
                made = writer.Writer(self._loaded.signatures, self.signature_defs, self._limits)
                # Traced here, once: the first clients at once would each do so, for minutes.
                with contextlib.suppress(ServingError):  # of a vocabulary without this letter
                    collections.deque(made.events({"prompt": "a", "max_new_tokens": 2}), maxlen=0)
                self._writer = made

    def _call(self, name, inputs):
        if name not in self._loaded.signatures:  # for example the one that initialises tables
            raise invalid(f'Signature "{name}" is not for requests.')
        infos = self.signature_defs[name].inputs
        with tensorflow_errors():
            tensors = {
                alias: tf.constant(array, tf.as_dtype(infos[alias].dtype))
                for alias, array in inputs.items()
            }
            outputs = self._loaded.signatures[name](**tensors)
            return {alias: output.numpy() for alias, output in outputs.items()}


def _read_signature_defs(folder):
    path = folder / "saved_model.pb"
    try:
        saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    except OSError as error:
        raise ServingError(
            StatusCode.NOT_FOUND, f"Could not find SavedModel .pb at supplied export path: {folder}"
        ) from error
    except Exception as error:  # protobuf's DecodeError; its module depends on the version
        raise ServingError(StatusCode.DATA_LOSS, f"Can't parse {path} as binary proto") from error
    for meta_graph in saved_model.meta_graphs:
        if list(meta_graph.meta_info_def.tags) == ["serve"]:
            return dict(meta_graph.signature_def)
    raise ServingError(
        StatusCode.NOT_FOUND,
        f"Could not find meta graph def matching supplied tags: {{ serve }} in {folder}",
    )


def _complete(inputs, signature):
    """Return the inputs with the defaults of missing ones; raise if one has no default."""
    extra = inputs.keys() - signature.inputs.keys()
    missing = signature.inputs.keys() - inputs.keys() - signature.defaults.keys()
    if extra or missing:
        raise invalid(
            f"input size does not match signature: {len(inputs)}!={len(signature.inputs)} "
            f"len({_set_of(inputs)}) != len({_set_of(signature.inputs)}). Sent extra: "
            f"{_set_of(extra)}. Missing but required: {_set_of(missing)}."
        )
    defaults = signature.defaults.keys() - inputs.keys()
    return inputs | {alias: tf.make_ndarray(signature.defaults[alias]) for alias in defaults}


def _set_of(names):
    return "{" + ",".join(sorted(names)) + "}"


def _check_input(alias, array, info):
    # TF Serving leaves this check to the operations, some of which accept a wrong shape.
    expected = tf.as_dtype(info.dtype)
    given = tf.as_dtype(array.dtype) if array.dtype != object else tf.string
    if given != expected:
        raise invalid(
            f"Expects input {alias} to be {type_name(info.dtype)} but "
            f"{type_name(given.as_datatype_enum)} is provided"
        )
    shape = tf.TensorShape(info.tensor_shape)
    if not shape.is_compatible_with(array.shape):
        raise invalid(
            f"Expects input {alias} to have shape {shape} but {tf.TensorShape(array.shape)} is "
            "provided"
        )


def _check_output_names(names, signature):
    for alias in names:
        if alias not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {alias} Outputs expected to be in "
                f"the set {_set_of(signature.outputs)}."
            )
    if len(set(names)) != len(names):
        twice = next(alias for alias in names if list(names).count(alias) > 1)
        raise invalid(f"duplicate output tensor alias: {twice}")


def with_context(context, examples):
    """Return serialised tf.Examples, each with the features of a serialised context added."""
    if len(context) * len(examples) > LARGEST_CONTEXTS:
        raise invalid(
            f"The context has {len(context)} bytes, which are copied for each of {len(examples)} "
            "examples: send fewer examples, or put long features into the example that needs them."
        )
    # Concatenated serialised messages are merged; of equal features, the last counts.
    return [context + example for example in examples]


def classify(served, name, examples):
    """Run a signature on serialised tf.Examples; return the arrays (classes, scores).

    Both have the shape (examples, classes). A signature may lack one of them: `classes` are then
    empty bytes, `scores` zeros. An empty `name` is the default signature.
    """
    signature = _signature_of_examples(served, name, "classification")
    names = [alias for alias in ("classes", "scores") if alias in signature.outputs]
    if len(signature.outputs) not in (1, 2):
        raise invalid(f"Expected one or two output Tensors, found {len(signature.outputs)}")
    if not names:
        raise ServingError(
            StatusCode.FAILED_PRECONDITION,
            'Expected classification signature outputs to contain at least one of "classes" or '
            f'"scores". Signature was: {signature}',
        )
    outputs = _run_on_examples(served, name, examples, names)
    for alias, dtype in (("classes", object), ("scores", np.float32)):
        array = outputs.get(alias)
        if array is None:
            continue
        if array.ndim != 2:
            raise invalid(
                f"Expected Tensor shape: [batch_size num_classes] but got {list(array.shape)}"
            )
        if array.dtype != dtype:
            wanted = "DT_STRING" if dtype is object else "DT_FLOAT"
            raise invalid(f"Expected {alias} Tensor of {wanted}. Got: {array.dtype}")
        if len(array) != len(examples):
            raise invalid(
                f"Expected {alias} output batch size of {len(examples)}. Got: {len(array)}"
            )
    shape = outputs[names[0]].shape
    classes = outputs.get("classes", np.full(shape, b"", object))
    scores = outputs.get("scores", np.zeros(shape, np.float32))
    if classes.shape != scores.shape:
        raise invalid(
            "Tensors class and score should match in dim_size(1). Got "
            f"{classes.shape[1]} vs. {scores.shape[1]}"
        )
    return classes, scores


def regress(served, name, examples):
    """Run a signature on serialised tf.Examples; return its `outputs`, (examples,) float32."""
    signature = _signature_of_examples(served, name, "regression")
    if len(signature.outputs) != 1:
        raise invalid("Expected one output Tensor.")
    if "outputs" not in signature.outputs:
        raise ServingError(
            StatusCode.FAILED_PRECONDITION,
            f"No regression outputs found in SignatureDef: {signature}",
        )
    array = _run_on_examples(served, name, examples, ["outputs"])["outputs"]
    if array.ndim != 1 and array.shape[1:] != (1,):
        raise invalid(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{list(array.shape)}"
        )
    if len(array) != len(examples):
        raise invalid(
            f"Input batch size did not match output batch size: {len(examples)} vs. {len(array)}"
        )
    if array.dtype != np.float32:
        raise invalid(f"Expected output Tensor of DT_FLOAT.  Got: {array.dtype}")
    return array.reshape(-1)


def _signature_of_examples(served, name, kind):
    # Like TF Serving, this ignores the signature's method name, and checks its form only.
    name = name or DEFAULT_SIGNATURE
    signature = served.signature_defs.get(name)
    if signature is None:
        raise invalid(f"No signature was found with the name: {name}")
    if len(signature.inputs) != 1:
        raise invalid("Expected one input Tensor.")
    if "inputs" not in signature.inputs:
        fitting = [
            key
            for key, definition in served.signature_defs.items()
            if set(definition.inputs) == {"inputs"}
        ]
        remedy = f" Pass signature_name, one of: {', '.join(sorted(fitting))}." if fitting else ""
        raise ServingError(
            StatusCode.FAILED_PRECONDITION,
            f"No {kind} inputs found in SignatureDef {name!r}.{remedy}",
        )
    return signature


def _run_on_examples(served, name, examples, output_names):
    if not examples:
        raise invalid("Input is empty.")
    return served.run(
        name or DEFAULT_SIGNATURE, {"inputs": np.array(examples, object)}, output_names
    )


# === A `.tflite` behind the server's protocols ===

# As the batching_params.pbtxt of a SavedModel; there is no file beside a `.tflite`. A large request
# runs in parts, between which other clients have their turn; larger parts are not faster.
BATCHING = {"max_batch_size": 16, "batch_timeout_micros": 2000}


class LiteRTModel(ServedModel):
    """A `.tflite` in memory.

    Args:
        number: int, the version.
        path: `Path` of the file.
        max_rows: int, the maximum number of rows in a request; None for no limit.
        num_interpreters, num_threads: int; see `InterpreterPool`.
    """

    platform = "litert"

    def __init__(self, number, path, max_rows=None, num_interpreters=1, num_threads=None):
        try:
            content = path.read_bytes()  # a copy: the file may be overwritten
            self._pool = InterpreterPool(content, num_interpreters, num_threads)
        except ImportError as error:
            raise ServingError(StatusCode.UNIMPLEMENTED, str(error)) from error
        except OSError as error:
            raise ServingError(StatusCode.NOT_FOUND, f"Cannot read {path}: {error}") from error
        except ValueError as error:
            raise ServingError(StatusCode.DATA_LOSS, f"{path}: {error}") from error
        signature_defs = {
            name: meta_graph_pb2.SignatureDef(
                inputs=_infos(signature.inputs),
                outputs=_infos(signature.outputs),
                method_name="tensorflow/serving/predict",
            )
            for name, signature in self._pool.signatures.items()
        }
        parameters = BATCHING | {"num_batch_threads": num_interpreters}
        super().__init__(number, signature_defs, parameters, max_rows)

    def stream(self, request):
        raise ServingError(
            StatusCode.UNIMPLEMENTED,
            "This model is a .tflite, which cannot stream text: export the CausalLM as a "
            "SavedModel.",
        )

    def _call(self, name, inputs):
        try:
            with tensorflow_errors():  # out of memory
                return self._pool.run(name, inputs)
        except ValueError as error:
            raise invalid(str(error)) from error


def _infos(columns):
    return {
        name: meta_graph_pb2.TensorInfo(
            name=name,
            dtype=tf.as_dtype(tf.string if c.dtype is object else c.dtype).as_datatype_enum,
            tensor_shape=tf.TensorShape([None if n < 0 else n for n in c.shape]).as_proto(),
        )
        for name, c in columns.items()
    }
