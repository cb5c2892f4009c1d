"""Conversions between the client's numpy arrays and the JSON of requests and answers."""

import base64

import numpy as np

DTYPES = {
    "DT_STRING": object,
    "DT_BOOL": np.bool_,
    "DT_HALF": np.float16,
    "DT_BFLOAT16": np.float32,  # numpy has no bfloat16
    "DT_FLOAT": np.float32,
    "DT_DOUBLE": np.float64,
    **{f"DT_{kind}INT{bits}": np.dtype(f"{kind.lower()}int{bits}") for kind in ("", "U")
       for bits in (8, 16, 32, 64)},
}  # fmt: skip


def signatures_from_json(signature_def_map):
    """Convert the JSON of a SignatureDefMap to the result of `Client.metadata`."""
    return {
        name: {
            "method": value.get("method_name", ""),
            "inputs": {
                n: _column(info, value.get("defaults", {}).get(n))
                for n, info in value.get("inputs", {}).items()
            },
            "outputs": {n: _column(info) for n, info in value.get("outputs", {}).items()},
        }
        for name, value in signature_def_map.get("signature_def", {}).items()
    }


def fits(inputs, columns):
    """Return whether all inputs are known, and all inputs without a default are there."""
    required = {name for name, column in columns.items() if "default" not in column}
    return required <= set(inputs) <= set(columns)


def check_strings(inputs, columns):
    """Raise ValueError if an input that takes strings has a row that is another value."""
    for name, column in inputs.items():
        if columns[name]["dtype"] != "DT_STRING" or not isinstance(column, (list, np.ndarray)):
            continue
        for row, value in enumerate(column):
            if not isinstance(value, (str, bytes, list, tuple, np.ndarray)):
                raise ValueError(
                    f"{name}[{row}] is {value!r}, a {type(value).__name__}, and not a string: "
                    "replace or drop it."
                )


def _column(tensor_info, default=None):
    """One input or output of a signature, from the JSON of a TensorInfo and a TensorProto."""
    shape = tensor_info.get("tensor_shape", {})
    dtype = tensor_info.get("dtype", "DT_INVALID")
    column = {"dtype": dtype, "shape": None if shape.get("unknown_rank") else _sizes(shape)}
    return column if default is None else column | {"default": _array(default)}


def _sizes(tensor_shape):
    return [int(dim.get("size", 0)) for dim in tensor_shape.get("dim", [])]


def _array(tensor):
    """The array in the JSON of a TensorProto."""
    dtype, shape = DTYPES.get(tensor["dtype"]), _sizes(tensor.get("tensor_shape", {}))
    if tensor.get("tensor_content"):
        return np.frombuffer(base64.b64decode(tensor["tensor_content"]), dtype).reshape(shape)
    values = next((value for name, value in tensor.items() if name.endswith("_val") and value), [])
    if dtype is object:
        values = [base64.b64decode(value) for value in values]
    if len(values) == 1:  # TensorProto's short form of equal values
        return np.full(shape, values[0], dtype)
    return np.array(values, dtype).reshape(shape)


def to_json(value):
    """Return an array, list or value in a form that JSON can hold."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


def from_json(value, dtype):
    """Return nested lists as an array; `dtype` is a key of `DTYPES`."""

    def decode(item):
        if isinstance(item, list):
            return [decode(inner) for inner in item]
        return base64.b64decode(item["b64"]) if isinstance(item, dict) else item

    return np.array(decode(value), dtype=DTYPES.get(dtype))


def from_tensor(name, array):
    """Return an output of gRPC as REST would return it, with strings as `str`."""
    if array.dtype == object and not name.endswith("_bytes"):
        texts = [item.decode("utf-8", "replace") for item in array.ravel()]
        return np.array(texts, dtype=object).reshape(array.shape)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
