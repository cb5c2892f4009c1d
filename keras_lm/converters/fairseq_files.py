"""fairseq's checkpoints: one pickle of weights and training arguments."""

import pathlib

from keras_lm.converters.checked_files import CheckpointError, Entry
from keras_lm.converters.torch_pickle import entries_of, open_torch
from keras_lm.converters.torch_unpickler import Options

# As `from_pretrained` and training name the file to take, in the order of preference.
NAMES = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt")
FUSED = ".in_proj_"


def find_fairseq(folder: pathlib.Path) -> pathlib.Path | None:
    """Return the checkpoint in a folder, or None if no file has one of fairseq's names."""
    for name in NAMES:
        if (folder / name).is_file():
            return folder / name
    paths = sorted(folder.glob("checkpoint*.pt"))
    if len(paths) > 1:
        raise CheckpointError(
            f"{folder} has several models: {', '.join(path.name for path in paths)}. Move all but "
            "one into folders of their own, each with a copy of dict.txt."
        )
    return paths[0] if paths else None


def read_fairseq(path: pathlib.Path) -> tuple[dict, dict[str, Entry]]:
    """Return the configuration of a checkpoint, and its tensors by name.

    The configuration is the plain values of `args`, as files have it up to fairseq 0.10, or of the
    `model` part of `cfg`, whose `_name` is then `arch`. Queries, keys and values are three tensors,
    as they are since 0.9, also if an older file has them in one.
    """
    root, places = open_torch(path)
    stated = root.get("args") or root.get("cfg") if isinstance(root, dict) else None
    values = _values(stated)
    if isinstance(values.get("model"), (dict, Options)):
        values = _values(values["model"])
        values = {"arch": values.get("_name"), **values}
    # Plain values only: a nested one may be made to unfold without end.
    config = {
        name: value
        for name, value in values.items()
        if type(name) is str and (value is None or type(value) in (bool, int, float, str))
    }
    if not config:
        raise CheckpointError(
            f"{path} holds no configuration, 'args' or 'cfg', as fairseq's checkpoints do. Give "
            "the file that training wrote."
        )
    entries = {}
    for name, (shape, read) in entries_of(root, places, path).items():
        if FUSED in name and shape and shape[0] % 3 == 0:
            entries |= _split(name, shape, read)
        else:
            entries[name] = (shape, read)
    return config, entries


def _values(stated) -> dict:
    stated = stated.values if isinstance(stated, Options) else stated
    return stated if isinstance(stated, dict) else {}


def _split(name, shape, read) -> dict[str, Entry]:
    """`in_proj_weight` (3 D, D) → `q_proj.weight`, `k_proj.weight`, `v_proj.weight` (D, D)."""
    rows = shape[0] // 3

    def part(index):
        return (rows, *shape[1:]), lambda: read()[index * rows : (index + 1) * rows]

    return {name.replace(FUSED, f".{letter}_proj."): part(i) for i, letter in enumerate("qkv")}
