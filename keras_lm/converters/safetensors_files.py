"""safetensors, one file or sharded: our own presets and Hugging Face's folders."""

import functools
import json
import pathlib

import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy, as which such tensors are returned)
import numpy as np
import safetensors
from safetensors.numpy import save_file

from keras_lm.converters import checksums
from keras_lm.converters.checked_files import CheckpointError, Entry, require_few, require_file


def read_safetensors(path: pathlib.Path, named_by: str = "") -> dict[str, Entry]:
    """Open a `.safetensors` file, of which only the header is read."""
    require_file(path, named_by)
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            names = list(file.keys())
            require_few(names, path)
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
            expected = checksums.stated(path, file.metadata())
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
    checksums.check_tensor(path, name, array, expected)
    return array


def save_checked(arrays: dict, path: pathlib.Path, metadata: dict | None = None) -> None:
    """Write a dict of arrays with their checksums, and `metadata`, in the header."""
    save_file(arrays, path, checksums.with_checksums(metadata or {}, arrays))


def read_checked(path: pathlib.Path) -> tuple[dict, dict]:
    """Return the metadata and the arrays of a file by `save_checked`, compared.

    Raises:
        CheckpointError: if a tensor is not the one that was written.
        SafetensorError, OSError: if it is no such file.
    """
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
        expected = checksums.stated(path, metadata)
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for name, array in arrays.items():
        checksums.check_tensor(path, name, array, expected)
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
