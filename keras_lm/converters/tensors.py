"""A mapping of tensor names to arrays that reads a tensor on access."""

import pathlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from keras_lm.converters.checked_files import CheckpointError, read_shard_index

# A reader's entry for one tensor: its shape, and the function that reads it.
Entry = tuple[tuple[int, ...], Callable[[], np.ndarray]]


class LazyTensors(Mapping):
    """Names and shapes at once, values on access: `tensors["bert/pooler/dense/kernel"]`.

    Values are not cached, so that memory never holds a large checkpoint, and no file is kept open.
    """

    def __init__(self, entries: dict[str, Entry]):
        self._entries = entries

    def __getitem__(self, name: str) -> np.ndarray:
        value = self._entries[name][1]()
        # V are bfloat16 and the like, or records.
        if value.dtype.kind not in "fiubV" or value.dtype.names:
            raise CheckpointError(
                f"{name!r} holds values of the type {value.dtype}, which are no weights. The "
                "checkpoint is damaged: copy or download it again."
            )
        return value

    def __contains__(self, name) -> bool:
        # Mapping's own version would read the tensor to find out.
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"LazyTensors({len(self)} tensors)"

    def renamed(self, names: dict[str, str]) -> "LazyTensors":
        """Return the same tensors, those in `names` under the name that it gives them."""
        return LazyTensors({names.get(name, name): entry for name, entry in self._entries.items()})

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading it."""
        return self._entries[name][0]


def read_shards(
    index: pathlib.Path, read_file: Callable[..., dict[str, Entry]]
) -> dict[str, Entry]:
    """Open the shards that an index names, each with `read_file(path, named_by=index)`."""
    weight_map = read_shard_index(index)
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
