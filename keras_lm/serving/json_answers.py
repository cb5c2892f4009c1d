"""Arrays → the JSON of TF Serving's REST API.

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
import json

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from keras_lm.serving.errors import invalid
from keras_lm.serving.inference import type_name
from keras_lm.serving.json_requests import INTEGERS

CHUNK = 2**16


def write_outputs(outputs, by_row):
    """Return the body of a Predict answer; `by_row` if the request had the row format."""
    if by_row:
        _check_batch(outputs)
    columns = {name: _to_lists(name, array) for name, array in outputs.items()}
    if len(columns) == 1:
        (column,) = columns.values()
        return _dump({"predictions" if by_row else "outputs": column})
    if by_row:
        rows = [dict(zip(columns, row)) for row in zip(*columns.values(), strict=True)]
        return _dump({"predictions": rows})
    return _dump({"outputs": columns})


def write_classes(classes, scores):
    """Return the body of a Classify answer, from two arrays (examples, classes)."""
    labels, scores = _to_lists("classes", classes), _to_lists("scores", scores)
    rows = [[list(pair) for pair in zip(*row)] for row in zip(labels, scores)]
    return _dump({"results": rows})


def write_numbers(numbers):
    """Return the body of a Regress answer, from an array (examples,)."""
    return _dump({"results": _to_lists("outputs", numbers)})


def write_error(message):
    """Return the body of an error."""
    return _dump({"error": message})


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


def _to_lists(name, array):
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


def _dump(document):
    # Bytes that are not UTF-8 are sent unchanged, as by TF Serving.
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogateescape")
