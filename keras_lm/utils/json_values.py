"""Values as JSON has them, read and written, and the errors of other libraries as sentences."""

import json
import math


def json_line(row):
    """Return an object as a line of UTF-8."""
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair: UTF-8 cannot encode it, JSON can escape it
        return json.dumps(row).encode() + b"\n"


def plain(value):
    """Convert numpy arrays and bytes, also in dicts and lists, to types that JSON has.

    Numbers get as few digits as their precision allows.
    """
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list) or getattr(value, "ndim", 0):
        return [plain(part) for part in value]
    if hasattr(value, "dtype") and value.dtype.kind == "f":
        # As a Python float, a float32 of 0.1 would be 0.10000000149011612.
        return float(str(value)) if math.isfinite(value) else None
    return value.item() if hasattr(value, "item") else value


def first_line(error):
    """Return the message of another library's exception as a sentence."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return line if line.endswith(".") else f"{line}."
