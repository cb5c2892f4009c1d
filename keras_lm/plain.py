"""Answers as lines of JSON, and the errors of other libraries as sentences."""

import json
import math


def json_line(row):
    """Return an object as a line of UTF-8."""
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair has no UTF-8, and JSON an escape for it
        return json.dumps(row).encode() + b"\n"


def plain(value):
    """Return numpy's arrays and bytes as JSON has them, numbers as short as their precision allows.

    Also of dicts and lists of these.
    """
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list) or getattr(value, "ndim", 0):
        return [plain(part) for part in value]
    if hasattr(value, "dtype") and value.dtype.kind == "f":
        # float32 0.1 as a Python float is 0.10000000149011612.
        return float(str(value)) if math.isfinite(value) else None
    return value.item() if hasattr(value, "item") else value


def first_line(error):
    """Return what another library's exception says, as a sentence."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return line if line.endswith(".") else f"{line}."
