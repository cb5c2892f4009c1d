"""The readers' exception, and checks that they share."""

import json
import pathlib

LFS_START = b"version https://git-lfs"
MOST_JSON_BYTES = 2**27  # more than any vocabulary has
MOST_TENSORS = 10_000  # many times what the largest model has
LONGEST_MESSAGE = 1400


class CheckpointError(ValueError):
    """A checkpoint cannot be read; the message names the file, what is wrong and the remedy."""

    def __str__(self):
        message = super().__str__()
        if len(message) <= LONGEST_MESSAGE:
            return message
        return f"{message[: LONGEST_MESSAGE - 400]} … {message[-300:]}"  # it quotes the file


def require_file(path: pathlib.Path, named_by: str = "") -> pathlib.Path:
    """Return `path`; raise a CheckpointError if it is missing, empty or a git-LFS pointer."""
    if not path.is_file():
        reason = f", named by {named_by}," if named_by else ""
        raise CheckpointError(f"{path}{reason} is missing. Copy it into the folder.")
    with path.open("rb") as file:
        start = file.read(len(LFS_START))
    if start == LFS_START:
        raise CheckpointError(
            f"{path} is a git-LFS pointer, not the file itself. Run `git lfs pull` in the "
            "repository that it comes from, or download the file itself."
        )
    if not start:
        raise CheckpointError(f"{path} is empty. Copy or download it again.")
    return path


def require_few(names, path: pathlib.Path) -> None:
    """Raise a CheckpointError if a file or folder holds more tensors than any model has."""
    if len(names) > MOST_TENSORS:
        raise CheckpointError(
            f"{path} holds {len(names)} tensors, and a checkpoint has {MOST_TENSORS} at most: it "
            "is damaged, or another program's."
        )


def read_json(path: pathlib.Path, kind: type = dict) -> dict | list:
    """Return the JSON object (or list) in a file; raise a CheckpointError if there is none."""
    require_file(path)
    if path.stat().st_size > MOST_JSON_BYTES:
        raise CheckpointError(
            f"{path} has {path.stat().st_size} bytes, and such a file has {MOST_JSON_BYTES} at "
            "most: it is another file. Copy or download it again."
        )
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not valid JSON ({error}). Copy or download it again."
        ) from error
    if not isinstance(value, kind):
        raise CheckpointError(
            f"{path} should hold a JSON {'object' if kind is dict else 'list'} and holds a "
            f"{type(value).__name__}. "
            "Copy or download it again."
        )
    return value


def read_shard_index(path: pathlib.Path) -> dict:
    """Return the `weight_map` of an index file: tensor names to the files beside it."""
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(f'{path} has no "weight_map". Copy or download it again.')
    for shards in weight_map.values():
        for shard in shards if isinstance(shards, list) else [shards]:
            # A downloaded index must not make us open files elsewhere on the disk.
            if not isinstance(shard, str) or pathlib.PureWindowsPath(shard).name != shard:
                raise CheckpointError(
                    f"{path} names the shard {shard!r}, which is not a file name. Shards lie "
                    "beside their index: put them there and correct the name."
                )
    return weight_map
