"""GPT as OpenAI published it: one long vector in ten `params_N.npy`, and the shapes to split it.

The vector has no names: positions come first, then tokens, then the arrays of each block in the
order in which the program made its variables.
"""

import functools
import itertools
import json
import math
import pathlib
import re

import numpy as np

from keras_lm.converters.checked_files import CheckpointError, Entry, require_file

SHAPES = "params_shapes.json"
SHARD = re.compile(r"params_(\d+)\.npy")
BLOCK = ("attn/c_attn/w", "attn/c_attn/b", "attn/c_proj/w", "attn/c_proj/b", "ln_1/g", "ln_1/b")
BLOCK += ("mlp/c_fc/w", "mlp/c_fc/b", "mlp/c_proj/w", "mlp/c_proj/b", "ln_2/g", "ln_2/b")
HEAD_DIM = 64  # the published model's, which no file states


def read_openai_shards(folder: pathlib.Path, hparams: dict) -> tuple[dict, dict[str, Entry]]:
    """Return the sizes under OpenAI's names, and the arrays (`positions`, `h0/attn/c_attn/w`, …).

    Values are not read. Of `hparams` only `n_head` counts; it is `{}` for what OpenAI published.
    """
    shapes = _read_shapes(folder / SHAPES)
    num_layers, rest = divmod(len(shapes) - 2, len(BLOCK))
    if num_layers < 1 or rest or [len(shape) for shape in shapes[:2]] != [2, 2]:
        raise CheckpointError(
            f"{folder / SHAPES} lists {len(shapes)} shapes. GPT's are 2 of embeddings and "
            f"{len(BLOCK)} a block: copy or download the file again."
        )
    names = ["positions", "tokens"]
    names += [f"h{i}/{name}" for i in range(num_layers) for name in BLOCK]

    shards = _open_shards(folder)
    total, needed = sum(map(len, shards)), sum(map(math.prod, shapes))
    if total != needed:
        raise CheckpointError(
            f"{folder} has {len(shards)} shards with {total} numbers, but {SHAPES} asks for "
            f"{needed}: a params_N.npy is missing, or of another model. Copy the folder again."
        )
    ends = list(itertools.accumulate(map(math.prod, shapes)))
    entries = {
        name: (shape, functools.partial(_read_array, folder, end - math.prod(shape), shape))
        for name, shape, end in zip(names, shapes, ends, strict=True)
    }
    (n_ctx, n_embd), (n_vocab, _) = shapes[:2]
    config = {
        "n_vocab": n_vocab,
        "n_ctx": n_ctx,
        "n_embd": n_embd,
        "n_head": hparams.get("n_head", max(n_embd // HEAD_DIM, 1)),
        "n_layer": num_layers,
    }
    return config, entries


def _read_shapes(path: pathlib.Path) -> list[tuple[int, ...]]:
    require_file(path)
    try:
        shapes = [tuple(shape) for shape in json.loads(path.read_text())]
        wrong = [s for shape in shapes for s in shape if type(s) is not int or s < 1]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is not a size")
        return shapes
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not a list of shapes ({error}). Copy or download it again."
        ) from error


def _open_shards(folder: pathlib.Path) -> list[np.ndarray]:
    """The shards in their order, as arrays that stay on the disk."""
    numbers = {int(m[1]): path for path in folder.iterdir() if (m := SHARD.fullmatch(path.name))}
    shards = []
    for number in range(max(numbers, default=0) + 1):
        path = require_file(folder / f"params_{number}.npy", named_by=str(folder / SHAPES))
        try:
            shard = np.lib.format.open_memmap(path, mode="r")
        except (OSError, ValueError, EOFError, OverflowError) as error:
            raise CheckpointError(
                f"{path} cannot be read as an array: {error}. Copy or download it again."
            ) from error
        if shard.ndim != 1:
            raise CheckpointError(f"{path} has shape {shard.shape}, but a shard is a vector.")
        shards.append(shard)
    return shards


def _read_array(folder: pathlib.Path, start: int, shape: tuple[int, ...]) -> np.ndarray:
    stop, parts, position = start + math.prod(shape), [], 0
    for shard in _open_shards(folder):
        parts.append(shard[max(start - position, 0) : max(stop - position, 0)])
        position += len(shard)
    return np.concatenate(parts).reshape(shape)
