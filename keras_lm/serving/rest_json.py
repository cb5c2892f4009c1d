"""The JSON of TF Serving's REST API: what is asked of a model, and its answer.

Requests become arrays and tf.Examples; error messages are TF Serving's.

    {"instances": [row, row], "signature_name": …}                          by rows
    {"inputs": column(s), "signature_name": …}                              by columns
    {"examples": [features, features], "context": features, "signature_name": …}

If the signature has a single input, a row is a plain value, else an object by input name; the same
holds for columns. Strings are text or, for other bytes, `{"b64": "…"}`. `NaN`, `Infinity` and
`-Infinity` are accepted, as in TF Serving, though JSON has no such numbers.

Arrays become answers:

    {"predictions": [row, row]}             Predict, if the request had rows
    {"outputs": column(s)}                  Predict, if the request had columns
    {"results": [[[label, score], …], …]}   Classify, a list for each example
    {"results": [number, …]}                Regress
    {"error": message}

If the signature has a single output, a row is a plain value, else an object by output name; the
same holds for columns. Strings are text, or `{"b64": "…"}` if the output's name ends in `_bytes`.
NaN and infinities are written as `NaN`, `Infinity` and `-Infinity`.
"""

import base64
import binascii
import collections
import functools
import json
import logging
import math

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from keras_lm.serving import inference
from keras_lm.serving.errors import ServingError, StatusCode, invalid
from keras_lm.serving.inference import DEFAULT_SIGNATURE, type_name, with_context

LONGEST_SHOWN = 200  # characters of a value in an error message
MOST_CONTAINERS = 2**21  # objects and arrays: "{}", 2 bytes of JSON, takes 100 in memory
LARGEST_RANK = 254  # of a tensor in TensorFlow

INTEGERS = {
    types_pb2.DT_INT8,
    types_pb2.DT_INT16,
    types_pb2.DT_INT32,
    types_pb2.DT_INT64,
    types_pb2.DT_UINT8,
    types_pb2.DT_UINT32,
    types_pb2.DT_UINT64,
}
FLOATS = {types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE}


def parse(body):
    """Return the JSON object in a body; strings keep bytes that are not UTF-8."""
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    if (number := body.count(b"{") + body.count(b"[")) > MOST_CONTAINERS:
        raise invalid(
            f"JSON Parse error: {number} objects and arrays, but this server reads at most "
            f"{MOST_CONTAINERS}: send fewer rows at once."
        )
    try:
        document = json.loads(
            body.decode("utf-8-sig", "surrogateescape"),
            parse_int=_integer,
            parse_float=_decimal,
            object_pairs_hook=_members,
        )
    except RecursionError as error:
        raise invalid("JSON Parse error: Nested too deeply.") from error
    except json.JSONDecodeError as error:
        raise invalid(f"JSON Parse error: {error.msg} at offset: {error.pos}") from error
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {show(document)} Is not object")
    return document


def _members(pairs):
    """Return an object's members. TensorFlow Serving reads the first of a key that is repeated."""
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = collections.Counter(name for name, _ in pairs)
        raise invalid(
            f"JSON Parse error: The key {counts.most_common(1)[0][0]!r} is repeated in an object: "
            "leave one out."
        )
    return members


def _decimal(text):
    value = float(text)
    if math.isinf(value):
        raise invalid("JSON Parse error: Number too big to be stored in double.")
    return value


def _integer(text):
    # An integer of more than 64 bits becomes a float. Checking the length first keeps a number of
    # a million digits from taking long.
    if len(text) <= 20 and -(2**63) <= int(text) < 2**64:
        return int(text)
    return _decimal(text)


def signature_name(document):
    """Return the signature's name in a request, or "" for the default signature."""
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {show(document)} not formatted correctly. 'signature_name' key must be "
            "a string value."
        )
    return name


def check_keys(document, known):
    """Raise a `ServingError` for a key of a request that would have no effect, such as an option.

    TF Serving passes over them.
    """
    for key in document.keys() - {*known, "signature_name"}:
        raise invalid(
            f"{show(key)} is not a key of this request, which has {', '.join(known)} and "
            "signature_name: options of a signature are inputs, beside its texts."
        )


# Requests for Predict


def read_inputs(document, signature):
    """Return the arrays in a request, as a dict, and whether it has the row format."""
    check_keys(document, ("instances", "inputs"))
    if "instances" in document and "inputs" in document:
        raise invalid(
            f"JSON Value: {show(document)} Not formatted correctly expecting only one of 'inputs' "
            "or 'instances' keys to exist "
        )
    if "instances" in document:
        return _read_rows(document["instances"], signature), True
    if "inputs" in document:
        return _read_columns(document["inputs"], signature), False
    raise invalid("Missing 'inputs' or 'instances' key")


def _read_columns(columns, signature):
    if not isinstance(columns, dict) or _is_base64(columns):
        if len(signature.inputs) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                "required as per tensorinfo_map"
            )
        columns = dict.fromkeys(signature.inputs, columns)
    arrays = {}
    for name, info in signature.inputs.items():
        if name in columns:
            try:
                arrays[name] = make_array(*flattened(columns[name], info.dtype), info.dtype)
            except ServingError as error:
                message = f"Failed to process input: {name}. Error: {error.message}"
                raise ServingError(error.code, message) from error
        else:  # even if it has a default: TF Serving fills in defaults over gRPC only
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    for name in columns.keys() - signature.inputs.keys():
        raise invalid(
            f"{show(name)} is not an input of this signature, which takes "
            f"{', '.join(sorted(signature.inputs))}."
        )
    return arrays


def _read_rows(rows, signature):
    if not isinstance(rows, list):
        raise invalid(f"JSON Value: {show(rows)} Excepting 'instances' to be an list/array")
    if not rows:
        raise invalid("JSON Value: [] No values in 'instances' array")
    if not isinstance(rows[0], dict) and len(signature.inputs) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            "required as per tensorinfo_map"
        )
    by_name = isinstance(rows[0], dict) and not _is_base64(rows[0])
    types = {name: info.dtype for name, info in signature.inputs.items()}
    values, shapes = {}, {}
    for index, row in enumerate(rows):
        is_object = isinstance(row, dict) and not _is_base64(row)
        if is_object and not by_name:
            raise invalid(f"Expecting value/list but got object at item {index} of input list")
        if by_name and not is_object:
            raise invalid(f"Expecting object but got list at item {index} of input list")
        named = row if by_name else dict.fromkeys(types, row)
        for name, value in named.items():
            try:
                _add_row(name, value, types, values, shapes)
            except ServingError as error:
                key = f" key: {name}" if by_name else ""
                raise invalid(
                    f"Failed to process element: {index}{key} of 'instances' list. Error: {error}"
                ) from error
        if named.keys() != types.keys():
            raise invalid(
                f"Failed to process element: {index} of 'instances' list. JSON object: "
                f"{show(row)} keys must be equal to: {','.join(sorted(types))}"
            )
    return {
        name: make_array((len(rows), *shapes[name]), flat, types[name])
        for name, flat in values.items()
    }


def _add_row(name, value, types, values, shapes):
    if name not in types:
        raise invalid(f"JSON object: does not have named input: {name}")
    shape, flat = flattened(value, types[name])
    if shapes.setdefault(name, shape) != shape:
        raise invalid(f"Expecting shape {show(shapes[name])} but got: {show(shape)}")
    values.setdefault(name, []).extend(flat)


# Values


def flattened(value, data_type):
    """Return the shape of nested lists, and a flat list of their values, of the given type."""
    if not isinstance(value, list):
        return [], [_read_value(value, data_type)]
    shape, first = [], value
    while isinstance(first, list):
        shape.append(len(first))
        if not first:
            break
        first = first[0]
    if len(shape) > LARGEST_RANK:
        raise invalid(f"Encountered list at unexpected level: {len(shape)}")
    values = [value]
    for level, size in enumerate(shape):
        for item in values:
            if not isinstance(item, list):
                raise invalid(
                    f"JSON Value: {show(item)} found at incorrect level: {level + 1} in the JSON "
                    f"DOM. Expected at level: {len(shape)}"
                )
            if len(item) != size:
                raise invalid(
                    f"Encountered list at unexpected size: {len(item)} at level: {level} expected "
                    f"size: {size}"
                )
        values = [inner for item in values for inner in item]
    for item in values:
        if isinstance(item, list):
            raise invalid(
                f"Encountered list at unexpected level: {len(shape)} expected < {len(shape)}"
            )
    return shape, [_read_value(item, data_type) for item in values]


def _read_value(value, data_type):
    if data_type == types_pb2.DT_STRING:
        if isinstance(value, dict):
            return _decode_base64(value)
        if isinstance(value, str):
            return encode(value)
    elif data_type == types_pb2.DT_BOOL:
        if isinstance(value, bool):
            return value
    elif data_type in INTEGERS:
        smallest, largest = _limits_of_integers(data_type)
        if type(value) is int and smallest <= value <= largest:
            return value
    elif data_type in FLOATS:
        if type(value) in (int, float):
            return _check_precision(value, data_type)
    elif not isinstance(value, dict):
        raise ServingError(
            StatusCode.UNIMPLEMENTED,
            f"Conversion of JSON Value: {show(value)} to type: {type_name(data_type)}",
        )
    raise invalid(
        f"JSON Value: {show(value)} Type: {_json_type(value)} is not of expected type: "
        f"{type_name(data_type)}"
    )


@functools.cache
def _limits_of_integers(data_type):
    limits = np.iinfo(tf.as_dtype(data_type).as_numpy_dtype)
    return int(limits.min), int(limits.max)


@functools.cache
def _limits_of_floats(data_type):
    limits = np.finfo(tf.as_dtype(data_type).as_numpy_dtype)
    return 2 ** (limits.nmant + 1) - 1, float(limits.max)


def _check_precision(value, data_type):
    largest_integer, largest_float = _limits_of_floats(data_type)
    largest = largest_integer if type(value) is int else largest_float
    if abs(value) > largest and not math.isinf(value):
        raise invalid(
            f"Cannot convert JSON value: {show(value)} to {type_name(data_type)} without loss of "
            "precision."
        )
    return value


def make_array(shape, values, data_type):
    """Return the array of a flat list of values of a `types_pb2.DataType`."""
    dtype = object if data_type == types_pb2.DT_STRING else tf.as_dtype(data_type).as_numpy_dtype
    return np.array(values, dtype).reshape(shape)


def _is_base64(value):
    return value.keys() == {"b64"} and isinstance(value["b64"], str)


def _decode_base64(value):
    if not _is_base64(value):
        raise invalid(f"JSON Value: {show(value)} not formatted correctly for base64 data")
    text = "".join(value["b64"].split())
    if "=" not in text:
        text += "=" * (-len(text) % 4)  # padding may be left out
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid("Unable to base64 decode") from error


def encode(text):
    """Return the bytes of a string of JSON; raise if it has a lone surrogate."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise invalid("JSON Parse error: The surrogate pair in string is invalid.") from error


def _json_type(value):
    names = {dict: "Object", list: "Array", str: "String", type(None): "Null"}
    return str(value) if isinstance(value, bool) else names.get(type(value), "Number")


def show(value):
    """Return a value as an error message shows it: as JSON, and short."""
    text = json.dumps(value)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"


# Requests for Classify and Regress


def read_examples(document):
    """Return the serialised tf.Examples of a request, each with the features of its context."""
    check_keys(document, ("examples", "context"))
    context = _read_example(document["context"]) if "context" in document else b""
    if "examples" not in document:
        raise invalid(
            f"JSON Value: {show(document)} When method is classify, key 'examples' is expected "
            "and was not found"
        )
    examples = document["examples"]
    if not isinstance(examples, list):
        raise invalid(
            f"JSON Value: {show(document)} Expecting 'examples' value to be an list/array"
        )
    if not examples:
        raise invalid(f"JSON Value: {show(document)} 'examples' value is an empty array")
    return with_context(context, [_read_example(example) for example in examples])


def _read_example(features):
    if not isinstance(features, dict):
        raise invalid(f"Example must be JSON object but got JSON {_json_type(features)}")
    example = tf.train.Example()
    for name, values in features.items():
        feature = example.features.feature[encode(name).decode("utf-8", "replace")]
        for value in values if isinstance(values, list) else [values]:
            _add_to_feature(value, name, feature)
    return example.SerializeToString()


def _add_to_feature(value, name, feature):
    if isinstance(value, str) or (isinstance(value, dict) and _is_base64(value)):
        kind, value = "bytes_list", _read_value(value, types_pb2.DT_STRING)
    elif type(value) is float:
        kind, value = "float_list", _check_precision(value, types_pb2.DT_FLOAT)
    elif isinstance(value, int):
        kind, value = "int64_list", int(value)
        if value >= 2**63:
            raise invalid(f"Feature: {name} has uint64 element. Only int64 is supported.")
    else:
        raise invalid(f"Feature: {name} has element with unexpected JSON type: {_json_type(value)}")
    if feature.WhichOneof("kind") not in (None, kind):
        expected = feature.WhichOneof("kind").removesuffix("_list")
        raise invalid(f"Unexpected element type in feature: {name} expecting type: {expected}")
    getattr(feature, kind).value.append(value)


# === Answers ===

CHUNK = 2**16


def write_outputs(outputs, by_row):
    """Return the body of a Predict answer; `by_row` if the request had the row format."""
    if by_row:
        _check_batch(outputs)
    columns = {name: to_lists(name, array) for name, array in outputs.items()}
    if len(columns) == 1:
        (column,) = columns.values()
        return dump({"predictions" if by_row else "outputs": column})
    if by_row:
        rows = [dict(zip(columns, row)) for row in zip(*columns.values(), strict=True)]
        return dump({"predictions": rows})
    return dump({"outputs": columns})


def write_classes(classes, scores):
    """Return the body of a Classify answer, from two arrays (examples, classes)."""
    labels, scores = to_lists("classes", classes), to_lists("scores", scores)
    rows = [[list(pair) for pair in zip(*row)] for row in zip(labels, scores)]
    return dump({"results": rows})


def write_numbers(numbers):
    """Return the body of a Regress answer, from an array (examples,)."""
    return dump({"results": to_lists("outputs", numbers)})


def write_error(message):
    """Return the body of an error."""
    return dump({"error": message})


def _check_batch(outputs):
    batch = None
    for name, array in outputs.items():
        if array.ndim == 0:
            raise invalid(f"Tensor name: {name} has no shape information ")
        if len(array) < 1:
            raise invalid(f"Tensor name: {name} has invalid batch size: {len(array)}")
        if batch not in (None, len(array)):
            raise invalid(
                f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {batch}"
            )
        batch = len(array)


def to_lists(name, array):
    """Return an output as nested lists that JSON can hold; `name` says if strings are base64."""
    if array.dtype == object:
        write = _base64_object if name.endswith("_bytes") else _text
        values = np.empty(array.size, object)
        values[:] = [write(value) for value in array.ravel()]
        return values.reshape(array.shape).tolist()
    if array.dtype == np.float32:
        return _shortest(array).tolist()
    data_type = tf.as_dtype(array.dtype).as_datatype_enum
    if data_type not in {*INTEGERS, types_pb2.DT_DOUBLE, types_pb2.DT_BOOL}:
        raise invalid(f"Failed to write JSON value for tensor type: {type_name(data_type)}")
    return array.tolist()


def _shortest(array):
    """Return float32 as the float64 with the fewest digits: 0.2, not 0.20000000298023224."""
    values = np.empty(array.size, np.float64)
    for start in range(0, array.size, CHUNK):  # in chunks: a number takes 128 bytes as text
        part = slice(start, start + CHUNK)
        values[part] = array.ravel()[part].astype("U").astype(np.float64)
    return values.reshape(array.shape)


def _base64_object(value):
    return {"b64": base64.b64encode(value).decode("ascii")}


def _text(value):
    return value.decode("utf-8", "surrogateescape")


def dump(document):
    """Return JSON as the body of an answer."""
    # Bytes that are not UTF-8 are sent unchanged, as by TF Serving.
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogateescape")


logger = logging.getLogger("keras_lm.serving")


# === What is asked: `:predict`, `:classify` and `:regress` ===


def answer(run, models, spec, parse, caller):
    """Answer a POST in a worker thread; `parse` returns the JSON object in its body."""
    try:
        caller.check()  # before it starts
        document = parse()
        with caller.served(), models.lease(**spec) as served:
            _check_rows(served, document)
            return run(served, document)
    except ServingError:
        raise
    except RecursionError as error:
        raise invalid("JSON Parse error: Nested too deeply.") from error
    except MemoryError as error:
        raise ServingError(StatusCode.RESOURCE_EXHAUSTED, "Out of memory.") from error
    except Exception as error:
        logger.exception("A request to %s failed.", spec["name"])
        raise ServingError(StatusCode.INTERNAL, f"{type(error).__name__}: {error}") from error


def _check_rows(served, document):
    """Refuse too many rows before any of them is read."""
    columns = document.get("inputs")
    columns = list(columns.values()) if isinstance(columns, dict) else [columns]
    for rows in (document.get("instances"), document.get("examples"), *columns):
        if isinstance(rows, list):
            served.check_rows(len(rows))


def _predict(served, document):
    name = signature_name(document) or DEFAULT_SIGNATURE
    signature = served.signature_defs.get(name)
    if signature is None:
        raise invalid(f'Serving signature name: "{name}" not found in signature def')
    if not signature.inputs:
        raise invalid(f"Failed to get input map for signature: {name}")
    inputs, by_row = read_inputs(document, signature)
    return write_outputs(served.run(name, inputs), by_row)


def _classify(served, document):
    name = signature_name(document)
    examples = read_examples(document)
    return write_classes(*inference.classify(served, name, examples))


def _regress(served, document):
    name = signature_name(document)
    examples = read_examples(document)
    return write_numbers(inference.regress(served, name, examples))


VERBS = {"predict": _predict, "classify": _classify, "regress": _regress}
