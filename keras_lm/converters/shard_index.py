"""Tensors in shards: an index says in which of the files beside it each of them is."""

import pathlib
from collections.abc import Callable

from keras_lm.converters.checked_files import CheckpointError, Entry, read_json


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


def read_shards(
    index: pathlib.Path,
    read_file: Callable[..., dict[str, Entry]],
    stored_name: Callable[[str], str] = lambda name: name,
) -> dict[str, Entry]:
    """Open the shards that an index names, each with `read_file(path, named_by=index)`.

    `stored_name` returns the name in the shard of a name in the index.
    """
    weight_map = {stored_name(name): shard for name, shard in read_shard_index(index).items()}
    shards = {
        shard: read_file(index.parent / shard, named_by=str(index))
        for shard in sorted(set(weight_map.values()))
    }
    for name, shard in weight_map.items():
        if name not in shards[shard]:
            raise CheckpointError(
                f"{index} places {name!r} in {shard}, which has no such tensor. The files are of "
                "different checkpoints or versions: copy or download them together."
            )
    return {name: shards[shard][name] for name, shard in weight_map.items()}
