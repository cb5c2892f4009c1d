"""safetensors, one file or sharded: our own presets and Hugging Face's folders.

The header of our own files has checksums of each tensor, and of the rest of the header; they are
those of `keras_lm.utils.file_sums`.
"""

import functools
import json
import pathlib
import zlib

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy, as which such tensors are returned)
import numpy as np
import safetensors
from safetensors.numpy import save_file

from keras_lm.converters.checked_files import CheckpointError, Entry, require_few, require_file
from keras_lm.utils.file_sums import sum_of


def read_safetensors(path: pathlib.Path, named_by: str = "") -> dict[str, Entry]:
    """Open a `.safetensors` file, of which only the header is read."""
    require_file(path, named_by)
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            names = list(file.keys())
            require_few(names, path)
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
            expected = stated_checksums(path, file.metadata())
    except (safetensors.SafetensorError, OSError) as error:
        raise _damaged(path, error) from error
    return {
        name: (shape, functools.partial(_read_tensor, path, name, expected))
        for name, shape in shapes.items()
    }


def _read_tensor(path: pathlib.Path, name: str, expected: dict) -> np.ndarray:
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            array = file.get_tensor(name)
    except AttributeError as error:  # of `numpy`, which has no such type
        raise CheckpointError(
            f"{path}: {name!r} is of a type that is not read here ({error}), such as the float8 of "
            "quantized models. Take the checkpoint in float32, float16 or bfloat16."
        ) from error
    except (safetensors.SafetensorError, OSError, TypeError, ValueError, KeyError) as error:
        raise _damaged(path, error, f" at {name!r}") from error
    check_tensor(path, name, array, expected)
    return array


def save_checked(arrays: dict, path: pathlib.Path, metadata: dict | None = None) -> None:
    """Write a dict of arrays with their checksums, and `metadata`, in the header."""
    save_file(arrays, path, with_checksums(metadata or {}, arrays))


def read_checked(path: pathlib.Path) -> tuple[dict, dict]:
    """Return the metadata and the arrays of a file by `save_checked`, compared.

    Raises:
        CheckpointError: if a tensor is not the one that was written.
        SafetensorError, OSError: if it is not such a file.
    """
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
        expected = stated_checksums(path, metadata)
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for name, array in arrays.items():
        check_tensor(path, name, array, expected)
    return metadata, arrays


def write_safetensors(
    folder: pathlib.Path, arrays: dict, max_shard_bytes: int, metadata: dict | None = None
) -> None:
    """Write `model.safetensors`, or shards of it and their index, into an existing folder.

    `arrays` is a dict of NumPy arrays; one larger than `max_shard_bytes` has a file of its own.
    `metadata` is a dict of str, for the header of each file; without it, that has checksums.
    """
    shards, size = [{}], 0
    for name, array in arrays.items():
        if shards[-1] and size + array.nbytes > max_shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = np.array(array, order="C")
        size += array.nbytes
    # Other programs may keep a header whose tensors they have changed.
    save = save_checked if metadata is None else save_file
    if len(shards) == 1:
        save(shards[0], folder / "model.safetensors", metadata)
        return
    weight_map = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save(shard, folder / file, metadata)
        weight_map |= dict.fromkeys(shard, file)
    total = sum(array.nbytes for array in arrays.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    text = json.dumps(index, indent=2)
    (folder / "model.safetensors.index.json").write_text(f"{text}\n")


def _damaged(path, error, where="") -> CheckpointError:
    return CheckpointError(
        f"{path} cannot be read as safetensors{where}: {error}. It is damaged, incomplete or of "
        "another format: copy or download it again."
    )


# === Checksums ===

CHECKSUMS = "checksums"  # of the header
OF_HEADER = ""  # stands for its other entries, beside the names of tensors


def tensor_checksum(name: str, array: np.ndarray) -> int:
    """Return the checksum of a tensor: of its name, type, shape and values."""
    start = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode())
    return sum_of(np.ascontiguousarray(array).reshape(-1).view(np.uint8), start)


def header_checksum(metadata: dict) -> int:
    """Return the CRC-32 of the other entries of a header."""
    others = {name: value for name, value in metadata.items() if name != CHECKSUMS}
    return zlib.crc32(json.dumps(others, sort_keys=True).encode())


def with_checksums(metadata: dict, arrays: dict) -> dict[str, str]:
    """Return a header with the checksums of itself and a dict of tensors."""
    checksums = {name: tensor_checksum(name, array) for name, array in arrays.items()}
    return metadata | {CHECKSUMS: json.dumps({OF_HEADER: header_checksum(metadata)} | checksums)}


def stated_checksums(path: pathlib.Path, metadata: dict | None) -> dict[str, int]:
    """Return the checksums that a header states, `{}` if the file is older or not ours.

    Raises:
        CheckpointError: if the header is not the one that was written.
    """
    if CHECKSUMS not in (metadata or {}):
        return {}
    try:
        checksums = json.loads(metadata[CHECKSUMS])
    except (ValueError, RecursionError) as error:
        raise _changed(path) from error
    if not isinstance(checksums, dict) or checksums.get(OF_HEADER) != header_checksum(metadata):
        raise _changed(path)
    return checksums


def check_tensor(path: pathlib.Path, name: str, array: np.ndarray, expected: dict) -> None:
    """Raise a CheckpointError if a tensor of a file is not the one that was written."""
    if expected and tensor_checksum(name, array) != expected.get(name):
        raise _changed(path, f" at {name!r}")


def _changed(path, where=""):
    return CheckpointError(
        f"{path} is damaged{where}: its checksum differs from that in its header. Copy or download "
        "it again."
    )
