"""Checksums in the header of our `.safetensors` files: of each tensor, and of the rest.

A tensor's is the CRC-32 of the sums of its blocks, each 4,096 bytes as 64-bit numbers modulo 2**64:
any changed byte changes a sum, and sums are taken ten times as fast as a CRC.
"""

import json
import pathlib
import zlib

import numpy as np

from keras_lm.converters.checked_files import CheckpointError

ENTRY = "checksums"  # of the header
BLOCK = 4096  # bytes
HEADER = ""  # stands for its other entries, beside the names of tensors


def of_tensor(name: str, array: np.ndarray) -> int:
    """Return the checksum of a tensor: of its name, type, shape and values."""
    start = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode())
    values = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = values.size - values.size % BLOCK
    sums = values[:whole].view(np.uint64).reshape(-1, BLOCK // 8).sum(axis=1)
    return zlib.crc32(values[whole:], zlib.crc32(sums, start))


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
