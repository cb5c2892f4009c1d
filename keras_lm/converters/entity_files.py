"""Entities of a knowledge graph and their vectors, as thunlp/ERNIE publishes them in `kg_embed`.

- `entity2id.txt`: a line with the number of entities, then an entity's id (`Q7259`), a tab, and the
  number of its vector, from 0;
- `entity2vec.vec`: a vector a line, its numbers separated by tabs, in the order of the numbers;
- `entity_map.txt`: a name (the title of its page on Wikipedia), a tab, and the entity's id.

Shapes: N entities, E width of a vector.
"""

import dataclasses
import io
import itertools
import pathlib
from collections.abc import Iterable

import numpy as np

from keras_lm.converters.checked_files import CheckpointError, Entry, require_file
from keras_lm.utils.files import as_local

# The tensor of a checkpoint that is such a file beside it.
ENTITY_VECTORS = "entity_vectors"
IDS, VECTORS, NAMES = "entity2id.txt", "entity2vec.vec", "entity_map.txt"
FOLDER = "kg_embed"
BLOCK_ROWS = 4096
LONGEST_LINE = 2**20
COPY_AGAIN = "Copy or download it again."


@dataclasses.dataclass(frozen=True)
class Entities:
    """Entities and their vectors, in the same order.

    Args:
        ids: list of N str, such as `"Q7259"`.
        vectors: (N, E) float32.
    """

    ids: list[str]
    vectors: np.ndarray


def read_entities(folder: str | pathlib.Path, ids: Iterable[str] | None = None) -> Entities:
    """Read entities and their vectors from a folder in the form of thunlp/ERNIE's `kg_embed`.

    Args:
        folder: with `entity2id.txt` and `entity2vec.vec`.
        ids: the entities to read, in any order; those that the files lack are left out. None for
            all, which are five million vectors of 100, 2 GB, in the published files.

    Raises:
        CheckpointError: a file is missing, cut off or damaged; the message names the line.

    Example:
        entities = read_entities("kg_embed", ["Q7259", "Q84"])
        backbone = ErnieBackbone.from_preset("ernie_base").with_entities(entities.vectors)
    """
    folder = as_local(folder)
    numbers = read_entity_numbers(folder / IDS)
    if ids is not None:
        wanted = set(ids)
        numbers = {id: number for id, number in numbers.items() if id in wanted}
    order = sorted(numbers, key=numbers.get)
    rows = None if ids is None else [numbers[id] for id in order]
    vectors = _read_vectors(folder / VECTORS, rows)
    if rows is None and len(vectors) != len(order):
        raise CheckpointError(
            f"{folder / VECTORS} has {len(vectors)} vectors, and {IDS} {len(order)} entities: the "
            "files do not belong together, or one is cut off."
        )
    return Entities(order, vectors)


def read_entity_numbers(path: str | pathlib.Path) -> dict[str, int]:
    """Return the number of each entity's vector, from a file `entity2id.txt`.

    Raises:
        CheckpointError: the file is cut off or damaged; the message names the line.
    """
    path = require_file(as_local(path))
    lines = _lines(path)
    number_of_lines = next(lines)[1].strip()
    if not number_of_lines.isdecimal():
        raise CheckpointError(
            f"{path}, line 1: {number_of_lines[:40]!r} is not the number of entities that such a "
            f"file begins with. {COPY_AGAIN}"
        )
    numbers, taken = {}, set()
    for line, text in lines:
        id, _, number = text.partition("\t")
        number = number.strip()
        if not (id and number.isdecimal()):
            raise CheckpointError(
                f"{path}, line {line}: {text[:40]!r} is not an entity, a tab and a number, such as "
                f"'Q7259\\t0'. {COPY_AGAIN}"
            )
        if id in numbers or int(number) in taken:
            raise CheckpointError(
                f"{path}, line {line}: {id if id in numbers else number} occurs twice. {COPY_AGAIN}"
            )
        numbers[id] = int(number)
        taken.add(numbers[id])
    if len(numbers) != int(number_of_lines):
        raise CheckpointError(
            f"{path} is damaged: line 1 promises {number_of_lines} entities, and there are "
            f"{len(numbers)}. {COPY_AGAIN}"
        )
    return numbers


def read_entity_names(path: str | pathlib.Path) -> dict[str, str]:
    """Return the entity's id for each name, as thunlp/ERNIE publishes them.

    Of a name that occurs twice, the last id counts, as in the authors' code.

    Args:
        path: a file `entity_map.txt`, or a folder with one.

    Raises:
        CheckpointError: the file is damaged; the message names the line.

    Example:
        names = read_entity_names("kg_embed")
        names["Ada Lovelace"]  # "Q7259"
    """
    path = as_local(path)
    path = require_file(path / NAMES if path.is_dir() else path)
    names = {}
    for line, text in _lines(path):
        name, tab, id = text.partition("\t")
        if not (name.strip() and tab and id.strip()) or "\t" in id.strip():
            raise CheckpointError(
                f"{path}, line {line}: {text[:40]!r} is not a name, a tab and an entity, such as "
                f"'Ada Lovelace\\tQ7259'. {COPY_AGAIN}"
            )
        names[name] = id.strip()
    return names


def vectors_as_tensor(folder: pathlib.Path) -> dict[str, Entry]:
    """Return the vectors of a folder as a tensor of the checkpoint beside them."""
    shape = len(read_entity_numbers(folder / IDS)), _width(folder / VECTORS)
    return {f"{ENTITY_VECTORS}.weight": (shape, lambda: read_entities(folder).vectors)}


def _lines(path):
    """Yield the number and the text of each line that is not empty."""
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            try:
                text = line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise CheckpointError(
                    f"{path}, line {number}: it is not UTF-8. The file is damaged, or of another "
                    "kind: copy or download it again."
                ) from None
            if text.strip() or number == 1:
                yield number, text


def _width(path):
    with require_file(path).open("rb") as file:
        return len(file.readline(LONGEST_LINE).split())


def _read_vectors(path, rows=None):
    """Return the vectors of all rows, or of some, sorted, as (N, E) float32."""
    width, blocks = _width(path), []
    wanted = None if rows is None else iter(rows)
    next_row = None if rows is None else next(wanted, None)
    with path.open("rb") as file:
        lines = enumerate(iter(lambda: file.readline(LONGEST_LINE), b""))
        while block := list(itertools.islice(lines, BLOCK_ROWS)):
            if rows is not None:
                kept = []
                for number, line in block:
                    if number == next_row:
                        kept.append((number, line))
                        next_row = next(wanted, None)
                block = kept
            if block:
                blocks.append(_parse(path, block, width))
            if rows is not None and next_row is None:
                break
    if rows is not None and next_row is not None:
        raise CheckpointError(
            f"{path} is cut off: {IDS} names the vector {next_row}, counted from 0, which it does "
            f"not have. {COPY_AGAIN}"
        )
    return np.concatenate(blocks) if blocks else np.zeros((0, width), "float32")


def _parse(path, block, width):
    try:
        text = io.BytesIO(
            b"".join(line if line.endswith(b"\n") else line + b"\n" for _, line in block)
        )
        vectors = np.loadtxt(text, "float32", comments=None, ndmin=2)
        if vectors.shape == (len(block), width) and np.isfinite(vectors).all():
            return vectors
    except ValueError:
        pass
    for number, line in block:
        fields = line.split()
        if len(fields) != width or not all(map(_is_number, fields)):
            raise CheckpointError(
                f"{path}, line {number + 1}: it does not hold {width} numbers, as line 1 does. "
                f"{COPY_AGAIN}"
            )
    raise CheckpointError(f"{path}, lines {block[0][0] + 1} to {block[-1][0] + 1}: damaged.")


def _is_number(field):
    try:
        return bool(np.isfinite(float(field)))
    except ValueError:
        return False
