"""TF Serving's messages: requests, answered by a SavedModel, and the state of its versions."""

import math

import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_status_pb2,
    inference_pb2,
    predict_pb2,
    regression_pb2,
)

from keras_lm.serving import inference
from keras_lm.serving.errors import ServingError, StatusCode, invalid
from keras_lm.serving.inference import DEFAULT_SIGNATURE

# The last value in a message is repeated to fill the tensor, so a few bytes can mean a large one.
MOST_REPEATED = 2**20

# A tensor's type → the field of its message that has the values
FIELDS = {
    types_pb2.DT_FLOAT: "float_val",
    types_pb2.DT_DOUBLE: "double_val",
    types_pb2.DT_INT8: "int_val",
    types_pb2.DT_INT16: "int_val",
    types_pb2.DT_INT32: "int_val",
    types_pb2.DT_INT64: "int64_val",
    types_pb2.DT_UINT8: "int_val",
    types_pb2.DT_UINT16: "int_val",
    types_pb2.DT_UINT32: "uint32_val",
    types_pb2.DT_UINT64: "uint64_val",
    types_pb2.DT_BOOL: "bool_val",
    types_pb2.DT_STRING: "string_val",
}


def predict(served, request):
    """Return the `PredictResponse` of a SavedModel to a `PredictRequest`."""
    name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    if name not in served.signature_defs:
        raise ServingError(
            StatusCode.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.'
        )
    inputs = {alias: read_tensor(alias, tensor) for alias, tensor in request.inputs.items()}
    outputs = served.run(name, inputs, request.output_filter)
    response = predict_pb2.PredictResponse()
    _fill_spec(response.model_spec, served, request.model_spec)
    for alias, array in outputs.items():
        response.outputs[alias].CopyFrom(write_tensor(array))
    return response


def classify(served, request):
    """Return the `ClassificationResponse` to a `ClassificationRequest`."""
    response = classification_pb2.ClassificationResponse()
    _fill_spec(response.model_spec, served, request.model_spec)
    _classify(served, request.model_spec, _read_examples(served, request.input), response.result)
    return response


def regress(served, request):
    """Return the `RegressionResponse` to a `RegressionRequest`."""
    response = regression_pb2.RegressionResponse()
    _fill_spec(response.model_spec, served, request.model_spec)
    _regress(served, request.model_spec, _read_examples(served, request.input), response.result)
    return response


def multi_inference(served, request):
    """Return the `MultiInferenceResponse` to a `MultiInferenceRequest`."""
    response = inference_pb2.MultiInferenceResponse()
    seen = set()
    for task in request.tasks:
        if not task.model_spec.name:
            raise invalid("Found ModelSpec with an empty model name.")
        if task.model_spec.name != request.tasks[0].model_spec.name:
            raise invalid(
                "All ModelSpecs in a MultiInferenceRequest must access the same model name."
            )
        name = task.model_spec.signature_name or DEFAULT_SIGNATURE
        if name in seen:
            raise invalid(f"Duplicate evaluation of signature: {name}")
        seen.add(name)
        if name not in served.signature_defs:
            raise invalid(f"Requested signature not found in model graph: {name}")
    examples = _read_examples(served, request.input)
    for task in request.tasks:
        result = response.results.add()
        _fill_spec(result.model_spec, served, task.model_spec)
        if task.method_name == tf.saved_model.CLASSIFY_METHOD_NAME:
            _classify(served, task.model_spec, examples, result.classification_result)
        elif task.method_name == tf.saved_model.REGRESS_METHOD_NAME:
            _regress(served, task.model_spec, examples, result.regression_result)
        else:
            raise ServingError(
                StatusCode.UNIMPLEMENTED,
                f"Unsupported signature method_name: {task.method_name}",
            )
    return response


def _fill_spec(spec, served, asked):
    spec.name = asked.name
    spec.signature_name = asked.signature_name or DEFAULT_SIGNATURE
    spec.version.value = served.number


def _classify(served, spec, examples, result):
    classes, scores = inference.classify(served, spec.signature_name, examples)
    for labels, row in zip(classes.tolist(), scores.tolist()):
        pairs = zip(labels, row)
        result.classifications.add().classes.extend(
            # The message's type for a label is text, so bytes that are not UTF-8 cannot be sent.
            classification_pb2.Class(label=label.decode("utf-8", "replace"), score=score)
            for label, score in pairs
        )


def _regress(served, spec, examples, result):
    for number in inference.regress(served, spec.signature_name, examples).tolist():
        result.regressions.add(value=number)


def _read_examples(served, source):
    """Return the serialised tf.Examples of an `Input`, each with the features of its context."""
    kind = source.WhichOneof("kind")
    served.check_rows(len(getattr(source, kind).examples) if kind else 0)
    if kind == "example_list":
        return [example.SerializeToString() for example in source.example_list.examples]
    if kind == "example_list_with_context":
        both = source.example_list_with_context
        examples = [example.SerializeToString() for example in both.examples]
        return inference.with_context(both.context.SerializeToString(), examples)
    return []


def read_tensor(alias, tensor):
    """Return the array in a `TensorProto`; `alias` is the input's name, for error messages."""
    sizes = [dimension.size for dimension in tensor.tensor_shape.dim]
    field = FIELDS.get(tensor.dtype)
    sent = len(getattr(tensor, field)) if field else 0
    if tensor.tensor_shape.unknown_rank or any(size < 0 for size in sizes):
        raise invalid(f"tensor parsing error: {alias}: its shape is not known")
    # Sizes count even if another is 0: a model may allocate for the columns of a tensor of 0 rows.
    if not tensor.tensor_content and math.prod(max(n, 1) for n in sizes) - sent > MOST_REPEATED:
        raise invalid(f"tensor parsing error: {alias}: {sent} values for the shape {sizes}")
    try:
        return tf.make_ndarray(tensor)
    except MemoryError:
        raise
    except Exception as error:  # TypeError, ValueError, IndexError, ...: it depends on the mistake
        raise invalid(f"tensor parsing error: {alias}: {error}") from error


def write_tensor(array):
    """Return the `TensorProto` of an array, with the values in the field that TF Serving uses.

    TensorFlow's own function writes `tensor_content`, which most clients cannot read.
    """
    data_type = (tf.string if array.dtype == object else tf.as_dtype(array.dtype)).as_datatype_enum
    if data_type not in FIELDS:
        return tf.make_tensor_proto(array)
    tensor = tensor_pb2.TensorProto(dtype=data_type)
    for size in array.shape:
        tensor.tensor_shape.dim.add(size=size)
    getattr(tensor, FIELDS[data_type]).extend(array.ravel().tolist())
    return tensor


def model_status(models, name, version=None):
    """Return the `GetModelStatusResponse` about a model, or about one version of it."""
    message = get_model_status_pb2.GetModelStatusResponse()
    for number, state, error in models.status(name, version):
        status = message.model_version_status.add(
            version=number, state=get_model_status_pb2.ModelVersionStatus.State.Value(state)
        )
        status.status.error_code = error.code.value[0] if error else 0
        status.status.error_message = error.message if error else ""
    return message
