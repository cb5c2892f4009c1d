"""The Open Inference Protocol, version 2, of KServe and Triton: tensors with a name, over REST.

    GET  /v2                                   this server
    GET  /v2/health/live, /v2/health/ready     whether it lives; whether all models answer
    GET  /v2/models/NAME[/versions/N]          inputs and outputs of `serving_default`
    GET  /v2/models/NAME[/versions/N]/ready    whether it answers
    POST /v2/models/NAME[/versions/N]/infer    an answer

The protocol has no signatures: the parameter `signature_name` of a request is ours. Inputs with a
default may be left out. Data are flat or nested lists; or, by Triton's extension, bytes after the
JSON, of which the header `Inference-Header-Content-Length` gives the length. An output whose name
ends in `_bytes` has base64 in JSON, and says so by the parameter `content_type`, as MLServer does.

Source: https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol;
https://github.com/triton-inference-server/server/tree/main/docs/protocol.
"""

import base64
import binascii
import math

import numpy as np
import tensorflow as tf
from starlette.responses import Response
from tensorflow.core.framework import types_pb2

from keras_lm.serving import monitoring, rest_json
from keras_lm.serving.errors import ServingError, StatusCode, invalid
from keras_lm.serving.inference import DEFAULT_SIGNATURE
from keras_lm.serving.messages import MOST_REPEATED
from keras_lm.version import __version__

# TensorFlow's types → the protocol's.
DATATYPES = {
    types_pb2.DT_BOOL: "BOOL",
    types_pb2.DT_HALF: "FP16",
    types_pb2.DT_BFLOAT16: "BF16",
    types_pb2.DT_FLOAT: "FP32",
    types_pb2.DT_DOUBLE: "FP64",
    types_pb2.DT_STRING: "BYTES",
    **{
        types_pb2.DataType.Value(f"DT_{kind}{bits}"): f"{kind}{bits}"
        for kind in ("INT", "UINT")
        for bits in (8, 16, 32, 64)
    },
}
LARGEST_RANK = 32
HEADER = "inference-header-content-length"
SERVER = {"name": "keras_lm", "version": __version__, "extensions": ["binary_tensor_data"]}


# === About the server and its models ===


def is_ready(models, name, version=None):
    """Return whether a model, or one version of it, answers.

    Raises:
        ServingError: if there is no such model, or version.
    """
    return any(state == "AVAILABLE" for _, state, _ in models.status(name, version))


def describe(models, name, version=None):
    """Return the metadata of a model: its versions, and the inputs and outputs of its default."""
    with models.lease(name, version) as served:
        _, signature = signature_of(served, {})
        platform = served.platform
    numbers = [number for number, state, _ in models.status(name) if state == "AVAILABLE"]
    return {
        "name": name,
        "versions": [str(number) for number in sorted(numbers)],
        "platform": platform,
        "inputs": [_describe_tensor(*column) for column in sorted(signature.inputs.items())],
        "outputs": [_describe_tensor(*column) for column in sorted(signature.outputs.items())],
    }


def _describe_tensor(name, info):
    shape = [-1] if info.tensor_shape.unknown_rank else [dim.size for dim in info.tensor_shape.dim]
    return {"name": name, "datatype": DATATYPES.get(info.dtype, ""), "shape": shape}


def about(models, path, spec, verb):
    """Return the status and the answer, a dict, to a GET request; None if it asks something else.

    `spec` and `verb` are of a path that names a model, else None.
    """
    if path == "/v2":
        return 200, SERVER
    if path == "/v2/health/live":
        return 200, {"live": True}
    if path == "/v2/health/ready":
        ready = not monitoring.not_ready(models)
        return (200 if ready else 503), {"ready": ready}
    if spec is None or verb == "infer":
        return None
    name, version = spec["name"], spec["version"]
    if verb == "ready":
        ready = is_ready(models, name, version)
        return (200 if ready else 503), {"name": name, "ready": ready}
    return 200, describe(models, name, version)


# === What a request asks, over both protocols ===


def check_parameters(parameters, known, whose):
    """Return the parameters of a request, or of a tensor; raise for one that would have no effect.

    `whose` is what they are of, for messages.
    """
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise invalid(f"{whose} has parameters that are not an object of names and values.")
    for name in parameters.keys() - set(known):
        raise invalid(
            f"{whose} has the parameter {rest_json.show(name)}, and may have {', '.join(known)}."
        )
    return parameters


def signature_of(served, parameters):
    """Return the name of the signature that a request asks, and its `SignatureDef`."""
    name = parameters.get("signature_name", DEFAULT_SIGNATURE)
    if not isinstance(name, str) or name not in served.signature_defs:
        names = sorted(key for key in served.signature_defs if not key.startswith("__"))
        raise invalid(f"signature_name={rest_json.show(name)}: this model has {', '.join(names)}.")
    return name, served.signature_defs[name]


def check_tensor(served, signature, name, datatype, shape):
    """Return the `TensorInfo` of an input; raise if a request's tensor differs from it."""
    if name not in signature.inputs:
        names = ", ".join(sorted(signature.inputs))
        raise invalid(f"{rest_json.show(name)} is not an input of this model, which takes {names}.")
    info = signature.inputs[name]
    expected, wanted = DATATYPES.get(info.dtype), tf.TensorShape(info.tensor_shape)
    if datatype != expected:
        shown = rest_json.show(datatype)
        raise invalid(f"Input {name!r} has the datatype {shown}, and the model takes {expected}.")
    is_shape = isinstance(shape, list) and len(shape) <= LARGEST_RANK
    if not is_shape or not all(type(size) is int and 0 <= size < 2**63 for size in shape):
        shown = rest_json.show(shape)
        raise invalid(f"Input {name!r} has the shape {shown}: pass a list of sizes.")
    if not wanted.is_compatible_with(shape):
        raise invalid(f"Input {name!r} has the shape {shape}, and the model takes {wanted}.")
    # Sizes count even if another is 0: a model may allocate for the columns of no rows.
    if 0 in shape and math.prod(max(size, 1) for size in shape) > MOST_REPEATED:
        raise invalid(f"Input {name!r} has the large shape {shape}, and no values.")
    rows = shape[0] if shape else 1
    served.check_rows(rows, math.prod(shape) if info.dtype == types_pb2.DT_STRING else 0)
    return info


# === Tensors as bytes: in rows of bits, or strings that each begin with their length ===


def from_raw(name, info, shape, raw):
    """Return the array in the bytes of an input."""
    number = math.prod(shape)
    if info.dtype == types_pb2.DT_STRING:
        return _array_of_strings(name, _split(name, raw, number), shape)
    dtype = np.dtype(tf.as_dtype(info.dtype).as_numpy_dtype)
    if len(raw) != number * dtype.itemsize:
        raise invalid(
            f"Input {name!r} has {len(raw)} bytes, but its shape needs {number * dtype.itemsize}."
        )
    array = np.frombuffer(raw, np.uint8) != 0 if dtype == np.bool_ else np.frombuffer(raw, dtype)
    return array.reshape(shape)


def _split(name, raw, number):
    strings, place = [], 0
    while place < len(raw):
        if len(strings) == number:  # the next ones would only take memory
            raise invalid(f"Input {name!r} has more strings than the {number} of its shape.")
        start = place + 4
        place = start + int.from_bytes(raw[place:start], "little")
        if place > len(raw):
            raise invalid(f"Input {name!r} ends within a string: each begins with its length.")
        strings.append(bytes(raw[start:place]))
    return strings


def _array_of_strings(name, strings, shape):
    if len(strings) != math.prod(shape):
        raise invalid(
            f"Input {name!r} has {len(strings)} strings, but its shape needs {math.prod(shape)}."
        )
    array = np.empty(len(strings), object)
    array[:] = strings
    return array.reshape(shape)


def to_raw(array):
    """Return the bytes of an output."""
    if array.dtype != object:
        return array.tobytes()
    return b"".join(len(text).to_bytes(4, "little") + text for text in array.ravel())


# === The JSON of a request, and of its answer ===

KEYS = ("id", "parameters", "inputs", "outputs", "model_name", "model_version")


def parse(body, json_length=None):
    """Return the JSON object of a request; `data` of a tensor in bytes is a `memoryview`.

    Args:
        body: bytes, JSON and, if `json_length` is given, the bytes of tensors after it.
        json_length: str, the header of this name, or None.
    """
    if json_length is None:
        return _with_bytes(rest_json.parse(body), memoryview(b""))
    if not json_length.isdecimal() or len(json_length) > 20 or int(json_length) > len(body):
        raise invalid(f"{HEADER}={json_length[:80]!r}: the body has {len(body)} bytes.")
    document = rest_json.parse(body[: int(json_length)])
    return _with_bytes(document, memoryview(body)[int(json_length) :])


def _with_bytes(document, rest):
    for tensor in _objects(document, "inputs"):
        parameters = tensor.get("parameters")
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if size is None:
            continue
        if type(size) is not int or not 0 <= size <= len(rest) or "data" in tensor:
            raise invalid(
                f"binary_data_size={rest_json.show(size)}: pass the number of the tensor's bytes "
                f"after the JSON, of which {len(rest)} are left, and no data."
            )
        tensor["data"], rest = rest[:size], rest[size:]
    if len(rest):
        raise invalid(f"After the JSON and its tensors, the body has {len(rest)} more bytes.")
    return document


def _objects(document, key):
    objects = document.get(key)
    if objects is None and key != "inputs":
        return []
    if not isinstance(objects, list) or not all(isinstance(one, dict) for one in objects):
        raise invalid(f"{key!r} has to be a list of tensors, each an object with its name.")
    if not all(isinstance(one.get("name"), str) for one in objects):
        raise invalid(f"{key!r} has a tensor that has no name, which has to be a string.")
    return objects


def infer(model_name, served, document):
    """Return the body of an answer, or the `Response` of one with bytes after its JSON."""
    for key in document.keys() - set(KEYS):
        raise invalid(
            f"{rest_json.show(key)} is not a key of this request, which has {', '.join(KEYS)}."
        )
    identifier = document.get("id", "")
    if not isinstance(identifier, str):
        raise invalid(f"id={rest_json.show(identifier)}: pass a string.")
    known = ("signature_name", "binary_data_output")
    parameters = check_parameters(document.get("parameters"), known, "The request")
    name, signature = signature_of(served, parameters)
    inputs, in_bytes = {}, {}
    for tensor in _objects(document, "inputs"):
        if tensor["name"] in inputs:
            raise invalid(f"The input {tensor['name']!r} is given twice.")
        inputs[tensor["name"]] = _read(served, signature, tensor)
    for output in _objects(document, "outputs"):
        asked = check_parameters(output.get("parameters"), ("binary_data",), "An output")
        in_bytes[output["name"]] = _flag(asked, "binary_data", f"Output {output['name']!r}")
    every = _flag(parameters, "binary_data_output", "The request")
    outputs = served.run(name, inputs, list(in_bytes))
    wanted = {one for one in outputs if (every if in_bytes.get(one) is None else in_bytes[one])}
    head = {"model_name": model_name, "model_version": str(served.number)}
    return _write(head | ({"id": identifier} if identifier else {}), outputs, wanted)


def _flag(parameters, name, owner):
    """Return the value of a parameter that is true, false or missing, which is None."""
    value = parameters.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid(f"{owner} has {name}={rest_json.show(value)}: pass true or false.")
    return value


def _read(served, signature, tensor):
    """Return the array of an input."""
    name, shape, data = (tensor.get(key) for key in ("name", "shape", "data"))
    for key in tensor.keys() - {"name", "shape", "datatype", "parameters", "data"}:
        raise invalid(f"Input {name!r} has the key {rest_json.show(key)}, which tensors lack.")
    known = ("binary_data_size", "content_type")
    parameters = check_parameters(tensor.get("parameters"), known, f"Input {name!r}")
    info = check_tensor(served, signature, name, tensor.get("datatype"), shape)
    if isinstance(data, memoryview):
        return from_raw(name, info, shape, data)
    if not isinstance(data, list):
        raise invalid(f"Input {name!r} has no data, which has to be a list.")
    try:
        sizes, values = rest_json.flattened(data, info.dtype)
    except ServingError as error:
        raise ServingError(error.code, f"Input {name!r}: {error.message}") from error
    if sizes not in (shape, [math.prod(shape)]):
        raise invalid(f"Input {name!r} has data of the shape {sizes}, and its shape is {shape}.")
    if info.dtype != types_pb2.DT_STRING:
        return rest_json.make_array(shape, values, info.dtype)
    return _array_of_strings(name, _decoded(name, values, parameters), shape)


def _decoded(name, strings, parameters):
    kind = parameters.get("content_type", "str")
    if kind not in ("str", "base64"):
        raise invalid(f"Input {name!r} has content_type={rest_json.show(kind)}: str, or base64.")
    if kind == "str":
        return strings
    try:
        return [base64.b64decode(string, validate=True) for string in strings]
    except binascii.Error as error:
        raise invalid(f"Input {name!r} has a string that is not base64: {error}.") from error


def _write(head, outputs, in_bytes):
    tensors, parts = [], []
    for name, array in outputs.items():
        data_type = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
        datatype = DATATYPES.get(data_type.as_datatype_enum)
        if datatype is None:
            raise ServingError(
                StatusCode.UNIMPLEMENTED, f"Output {name!r} is {data_type.name}: name others."
            )
        tensor = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if name in in_bytes:
            parts.append(to_raw(array))
            tensor["parameters"] = {"binary_data_size": len(parts[-1])}
        elif array.dtype == object and name.endswith("_bytes"):
            tensor["parameters"] = {"content_type": "base64"}
            tensor["data"] = [base64.b64encode(text).decode() for text in array.ravel()]
        else:
            flat = array.ravel()
            half = datatype in ("FP16", "BF16")
            tensor["data"] = rest_json.to_lists(name, flat.astype(np.float32) if half else flat)
        tensors.append(tensor)
    body = rest_json.dump(head | {"outputs": tensors})
    if not parts:
        return body
    headers = {HEADER: str(len(body))}
    return Response(b"".join([body, *parts]), 200, headers, "application/octet-stream")
