"""The Open Inference Protocol over gRPC: `inference.GRPCInferenceService`, with its messages.

The messages are described here, without files of a compiler, and in a pool of their own: a client
in the same process may have its own messages of the same names.

Source: https://github.com/kserve/open-inference-protocol, `open_inference_grpc.proto`.
"""

import math

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import types_pb2

from keras_lm.serving import monitoring, open_inference
from keras_lm.serving.errors import ServingError, invalid
from keras_lm.serving.grpc_services import answering
from keras_lm.serving.open_inference import DATATYPES

SERVICE = "inference.GRPCInferenceService"

# === The messages ===

NAMED = {"name": "string", "version": "string"}
TENSOR = {"name": "string", "datatype": "string", "shape": "repeated int64"}
PARAMETERS = {"parameters": "repeated Parameter"}  # map<string, InferParameter> on the wire
CONTENTS = {"contents": "InferTensorContents"}
OF_MODEL = {"model_name": "string", "model_version": "string", "id": "string", **PARAMETERS}

# A message → its fields, which are numbered from 1 in this order.
MESSAGES = {
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": "bool"},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": "bool"},
    "ModelReadyRequest": NAMED,
    "ModelReadyResponse": {"ready": "bool"},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {**NAMED, "extensions": "repeated string"},
    "ModelMetadataRequest": NAMED,
    "ModelMetadataResponse": {
        "name": "string",
        "versions": "repeated string",
        "platform": "string",
        "inputs": "repeated TensorMetadata",
        "outputs": "repeated TensorMetadata",
    },
    "TensorMetadata": TENSOR,
    "ModelInferRequest": {
        **OF_MODEL,
        "inputs": "repeated InferTensor",
        "outputs": "repeated InferRequestedOutputTensor",
        "raw_input_contents": "repeated bytes",
    },
    "ModelInferResponse": {
        **OF_MODEL,
        "outputs": "repeated InferTensor",
        "raw_output_contents": "repeated bytes",
    },
    "InferTensor": {**TENSOR, **PARAMETERS, **CONTENTS},
    "InferRequestedOutputTensor": {"name": "string", **PARAMETERS},
    "Parameter": {"key": "string", "value": "InferParameter"},
    "InferParameter": {  # one of these
        "bool_param": "bool",
        "int64_param": "int64",
        "string_param": "string",
        "double_param": "double",
        "uint64_param": "uint64",
    },
    "InferTensorContents": {
        "bool_contents": "repeated bool",
        "int_contents": "repeated int32",
        "int64_contents": "repeated int64",
        "uint_contents": "repeated uint32",
        "uint64_contents": "repeated uint64",
        "fp32_contents": "repeated float",
        "fp64_contents": "repeated double",
        "bytes_contents": "repeated bytes",
    },
}
CHOICE = "parameter_choice"


def _make_messages():
    """Return a dict of the messages' names → their classes."""
    file = descriptor_pb2.FileDescriptorProto(
        name="keras_lm/open_inference.proto", package="inference", syntax="proto3"
    )
    field_types = descriptor_pb2.FieldDescriptorProto
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field_name, kind) in enumerate(fields.items(), 1):
            label, _, kind = kind.rpartition(" ")
            field = message.field.add(name=field_name, number=number)
            field.label = field_types.LABEL_REPEATED if label else field_types.LABEL_OPTIONAL
            if kind in MESSAGES:
                field.type, field.type_name = field_types.TYPE_MESSAGE, f".inference.{kind}"
            else:
                field.type = field_types.Type.Value(f"TYPE_{kind.upper()}")
            if name == "InferParameter":
                field.oneof_index = 0
        if name == "InferParameter":
            message.oneof_decl.add(name=CHOICE)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    find = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(find(f"inference.{name}")) for name in MESSAGES}


CLASSES = _make_messages()

# The field of `InferTensorContents` for TensorFlow's types. FP16 has none.
FIELDS = {
    types_pb2.DT_BOOL: "bool_contents",
    types_pb2.DT_INT64: "int64_contents",
    types_pb2.DT_UINT64: "uint64_contents",
    types_pb2.DT_FLOAT: "fp32_contents",
    types_pb2.DT_DOUBLE: "fp64_contents",
    types_pb2.DT_STRING: "bytes_contents",
    **{types_pb2.DataType.Value(f"DT_INT{bits}"): "int_contents" for bits in (8, 16, 32)},
    **{types_pb2.DataType.Value(f"DT_UINT{bits}"): "uint_contents" for bits in (8, 16, 32)},
}


# === The service ===


def add_service(server, models, body_memory, callers):
    """Register the service over `Models` with a `grpc.Server`; see `grpc_services.add_services`."""
    service = InferenceService(models, body_memory, callers)
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            getattr(service, name),
            CLASSES[f"{name}Request"].FromString,
            CLASSES[f"{name}Response"].SerializeToString,
        )
        for name in METHODS
    }
    handler = grpc.method_handlers_generic_handler(SERVICE, handlers)
    server.add_generic_rpc_handlers((handler,))


METHODS = (
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelInfer",
)


class InferenceService:
    """Answers about models, and runs them."""

    def __init__(self, models, body_memory, callers):
        self._models = models
        self._body_memory = body_memory
        self._callers = callers

    @answering
    def ServerLive(self, request):
        return CLASSES["ServerLiveResponse"](live=True)

    @answering
    def ServerReady(self, request):
        """Return whether all models answer."""
        return CLASSES["ServerReadyResponse"](ready=not monitoring.not_ready(self._models))

    @answering
    def ModelReady(self, request):
        """Return whether a model answers; one that there is not does not."""
        try:
            version = read_version(request.version)
            ready = open_inference.is_ready(self._models, request.name, version)
        except ServingError:
            ready = False
        return CLASSES["ModelReadyResponse"](ready=ready)

    @answering
    def ServerMetadata(self, request):
        return CLASSES["ServerMetadataResponse"](**open_inference.SERVER)

    @answering
    def ModelMetadata(self, request):
        version = read_version(request.version)
        metadata = open_inference.describe(self._models, request.name, version)
        return CLASSES["ModelMetadataResponse"](**metadata)

    @answering
    def ModelInfer(self, request):
        """Run a signature, `serving_default` or the one in the parameter `signature_name`."""
        parameters = open_inference.check_parameters(
            _read_parameters(request.parameters), ("signature_name",), "The request"
        )
        version = read_version(request.model_version)
        with self._models.lease(request.model_name, version) as served:
            name, signature = open_inference.signature_of(served, parameters)
            inputs = _read_inputs(served, signature, request)
            for output in request.outputs:
                asked = _read_parameters(output.parameters)
                open_inference.check_parameters(asked, ("binary_data",), f"Output {output.name!r}")
            outputs = served.run(name, inputs, [output.name for output in request.outputs])
            return _write(request, served, outputs)


def read_version(text):
    """Return the number of a version, None for the newest, "" in messages."""
    if not text:
        return None
    if not text.isdecimal() or len(text) > 18:
        raise invalid(f"version={text[:80]!r}: pass the number of a version, or none.")
    return int(text)


def _read_parameters(parameters):
    values = {each.key: each.value for each in parameters}
    kinds = {key: value.WhichOneof(CHOICE) for key, value in values.items()}
    return {key: kinds[key] and getattr(value, kinds[key]) for key, value in values.items()}


def _read_inputs(served, signature, request):
    """Return a dict of the arrays of a `ModelInferRequest`."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise invalid(f"raw_input_contents has {len(raw)}, for {len(request.inputs)} inputs.")
    inputs = {}
    for index, tensor in enumerate(request.inputs):
        name, shape = tensor.name, list(tensor.shape)
        if name in inputs:
            raise invalid(f"The input {name!r} is given twice.")
        known = ("binary_data_size", "content_type")
        open_inference.check_parameters(
            _read_parameters(tensor.parameters), known, f"Input {name!r}"
        )
        info = open_inference.check_tensor(served, signature, name, tensor.datatype, shape)
        if not raw:
            inputs[name] = _read_contents(name, info, shape, tensor.contents)
        elif tensor.HasField("contents"):
            raise invalid(
                f"Input {name!r} has contents, and the request raw_input_contents: use one of them."
            )
        else:
            inputs[name] = open_inference.from_raw(name, info, shape, raw[index])
    return inputs


def _read_contents(name, info, shape, contents):
    field = FIELDS.get(info.dtype)
    if field is None:
        kind = DATATYPES.get(info.dtype)
        raise invalid(f"Input {name!r} is {kind}, which is for raw_input_contents alone.")
    values = getattr(contents, field)
    if len(values) != math.prod(shape):
        raise invalid(
            f"Input {name!r} has {len(values)} values in {field}, but its shape needs "
            f"{math.prod(shape)}."
        )
    if info.dtype == types_pb2.DT_STRING:
        array = np.empty(len(values), object)
        array[:] = list(values)
        return array.reshape(shape)
    dtype = np.dtype(tf.as_dtype(info.dtype).as_numpy_dtype)
    array = np.array(values, np.int64 if field in ("int_contents", "uint_contents") else dtype)
    wrong = array[array != array.astype(dtype)] if dtype.kind in "iu" else ()
    if len(wrong):
        raise invalid(f"Input {name!r} has {wrong[0]}, which is out of the range of {dtype.name}.")
    return array.astype(dtype).reshape(shape)


def _write(request, served, outputs):
    """Return the `ModelInferResponse`, in bytes if the request was, or if a type asks for it."""
    response = CLASSES["ModelInferResponse"](
        model_name=request.model_name, model_version=str(served.number), id=request.id
    )
    types = {
        name: (tf.string if array.dtype == object else tf.as_dtype(array.dtype)).as_datatype_enum
        for name, array in outputs.items()
    }
    in_bytes = bool(request.raw_input_contents) or not all(
        kind in FIELDS for kind in types.values()
    )
    for name, array in outputs.items():
        tensor = response.outputs.add(name=name, datatype=DATATYPES.get(types[name], ""))
        tensor.shape.extend(array.shape)
        if in_bytes:
            response.raw_output_contents.append(open_inference.to_raw(array))
        else:
            getattr(tensor.contents, FIELDS[types[name]]).extend(array.ravel().tolist())
    return response
