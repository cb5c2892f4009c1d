"""What the readers of all formats share: their exception, configurations, and tensors.

Tensors are read on access. Of those in shards, an index says in which of the files beside it each
of them is.
"""

import ast
import json
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from keras_lm.utils.json_values import plain_numbers

LFS_START = b"version https://git-lfs"
MOST_JSON_BYTES = 2**27  # more than any vocabulary has
MOST_GIN_BYTES = 2**20  # many times what there is
MOST_TENSORS = 10_000  # many times what the largest model has
LONGEST_MESSAGE = 1400
# A reader's entry for one tensor: its shape, and the function that reads it.
Entry = tuple[tuple[int, ...], Callable[[], np.ndarray]]
# A file name to its reader, in the order of preference within a folder.
Readers = dict[str, Callable[[pathlib.Path], dict[str, Entry]]]


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


# === Configurations: JSON, and gin as mesh_tensorflow and trax leave it ===


def read_json(path: pathlib.Path, kind: type = dict) -> dict | list:
    """Return the JSON object (or list) in a file; raise a CheckpointError if there is none."""
    require_file(path)
    if path.stat().st_size > MOST_JSON_BYTES:
        raise CheckpointError(
            f"{path} has {path.stat().st_size} bytes, and such a file has {MOST_JSON_BYTES} at "
            "most: it is another file. Copy or download it again."
        )
    try:
        value = json.loads(path.read_text(encoding="utf-8"), object_hook=plain_numbers)
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


def read_config(folder: pathlib.Path, name: str) -> dict:
    """Return the JSON object in a file of a folder, `{}` if there is no such file."""
    return read_json(folder / name) if (folder / name).is_file() else {}


GIN = "operative_config.gin"
BINDING = re.compile(r"^([\w./]+)[^\S\n]*=\s*(.+)$", re.MULTILINE)


def read_gin(path: pathlib.Path) -> dict:
    """Return what a gin file binds: `{"num_heads": 8, "decoder/SelfAttention.num_heads": 8}`.

    Macros, `%num_heads`, are replaced; what is not a literal, such as `@SelfAttention`, stays text.
    """
    require_file(path)
    if path.stat().st_size > MOST_GIN_BYTES:
        raise CheckpointError(
            f"{path} has {path.stat().st_size} bytes, and settings have {MOST_GIN_BYTES} at most: "
            "it is another file. Copy or download it again."
        )
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8 text. Copy or download it again.") from error
    text = re.sub(r"^[^\S\n]*#.*", "", text, flags=re.MULTILINE)
    text = re.sub(r"\\[^\S\n]*\n\s*", "", text)  # a long value goes on in the next line
    bound = {name: _literal(value) for name, value in BINDING.findall(text)}

    def resolved(value):
        is_macro = isinstance(value, str) and value.startswith("%")
        return bound.get(value[1:], value) if is_macro else value

    return {name: resolved(value) for name, value in bound.items()}


def _literal(text):
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text.strip()


# === Tensors ===


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
                f"{name!r} holds values of the type {value.dtype}, which cannot be weights. The "
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


def read_first(folder: pathlib.Path, readers: Readers) -> dict[str, Entry]:
    """Read the first of the files that exists; raise a CheckpointError if none does."""
    for name, read in readers.items():
        if (folder / name).is_file():
            return read(folder / name)
    raise CheckpointError(
        f"{folder} has a configuration and no weights that go with it. Put one of these beside it: "
        f"{', '.join(readers)}."
    )


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


def is_finite(array: np.ndarray) -> bool:
    """Return whether all numbers of an array are finite."""
    if array.dtype.kind not in "fV":
        return True
    if array.dtype == np.float32:  # twice as fast; squares of large numbers overflow
        flat = array.ravel(order="K")
        with np.errstate(all="ignore"):
            if np.isfinite(np.vdot(flat, flat)):
                return True
    return bool(np.isfinite(array).all())
