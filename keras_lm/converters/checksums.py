"""Checksums in the header of our `.safetensors` files: of each tensor, and of the rest.

They are those of `keras_lm.utils.file_sums`.
"""

import json
import pathlib
import zlib

import numpy as np

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.utils.file_sums import sum_of

ENTRY = "checksums"  # of the header
HEADER = ""  # stands for its other entries, beside the names of tensors


def of_tensor(name: str, array: np.ndarray) -> int:
    """Return the checksum of a tensor: of its name, type, shape and values."""
    start = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode())
    return sum_of(np.ascontiguousarray(array).reshape(-1).view(np.uint8), start)


def of_header(metadata: dict) -> int:
    """Return the CRC-32 of the other entries of a header."""
    others = {name: value for name, value in metadata.items() if name != ENTRY}
    return zlib.crc32(json.dumps(others, sort_keys=True).encode())


def with_checksums(metadata: dict, arrays: dict) -> dict[str, str]:
    """Return a header with the checksums of itself and a dict of tensors."""
    found = {name: of_tensor(name, array) for name, array in arrays.items()}
    return metadata | {ENTRY: json.dumps({HEADER: of_header(metadata)} | found)}


def stated(path: pathlib.Path, metadata: dict | None) -> dict[str, int]:
    """Return the checksums that a header states, `{}` if the file is older or not ours.

    Raises:
        CheckpointError: if the header is not the one that was written.
    """
    if ENTRY not in (metadata or {}):
        return {}
    try:
        found = json.loads(metadata[ENTRY])
    except (ValueError, RecursionError) as error:
        raise _changed(path) from error
    if not isinstance(found, dict) or found.get(HEADER) != of_header(metadata):
        raise _changed(path)
    return found


def check_tensor(path: pathlib.Path, name: str, array: np.ndarray, expected: dict) -> None:
    """Raise a CheckpointError if a tensor of a file is not the one that was written."""
    if expected and of_tensor(name, array) != expected.get(name):
        raise _changed(path, f" at {name!r}")


def _changed(path, where=""):
    return CheckpointError(
        f"{path} is damaged{where}: its checksum differs from that in its header. Copy or download "
        "it again."
    )
