"""Triples of a knowledge graph in OpenKE's plain files."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import as_local, on_disk, replacing
from keras_lm.utils.input_files import require_text

ENTITIES, RELATIONS = "entity2id.txt", "relation2id.txt"


def read_triples(folder: PathLike, split: str = "train") -> tuple[list[str], list[str], np.ndarray]:
    """Return the names of entities, those of relations, and the triples of a folder of OpenKE's.

    Args:
        folder: path, with `entity2id.txt`, `relation2id.txt` and `SPLIT2id.txt`: a count in the
            first line, then a name and its number, or head, tail and relation.
        split: `"train"`, `"valid"`, `"test"`.

    Returns:
        two lists of str, and an int32 array (N, 3) of head, relation, tail. The files have another
        order: head, tail, relation.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if a line is not of this form, or the counts do not fit; it names the file and
            the line.

    Example:

        entities, relations = ["ice", "slippery"], ["HasProperty"]
        keras_lm.knowledge.write_triples("wordless", entities, relations, [[0, 0, 1]])
        entities, relations, triples = keras_lm.knowledge.read_triples("wordless")
    """
    folder = as_local(folder)
    entities, relations = (_read_names(folder / name) for name in (ENTITIES, RELATIONS))
    path = folder / f"{split}2id.txt"
    limits = {"head": len(entities), "tail": len(entities), "relation": len(relations)}
    rows = []
    for number, line in _lines(path):
        fields = line.split()
        if len(fields) != 3 or not all(field.isdecimal() for field in fields):
            raise _wrong(path, number, line, "expected the numbers of head, tail and relation")
        row = [int(field) for field in fields]
        for (name, limit), value in zip(limits.items(), row, strict=True):
            if value >= limit:
                raise _wrong(path, number, line, f"{name} {value} is not below {limit}")
        rows.append(row)
    return entities, relations, np.array(rows, "int32").reshape(-1, 3)[:, [0, 2, 1]]


def write_triples(
    folder: PathLike,
    entities: Sequence[str],
    relations: Sequence[str],
    triples: Any,
    split: str = "train",
) -> None:
    """Write OpenKE's files, each in one step; see `read_triples`.

    Args:
        folder: path.
        entities, relations: lists of str, by their numbers.
        triples: (N, 3) integers, head, relation, tail.
        split: `"train"`, `"valid"`, `"test"`.

    Raises:
        ValueError: if a name is empty or has white space in it at which it would be parted, or a
            number has no name.

    Example:

        keras_lm.knowledge.write_triples("held", ["ice", "fall"], ["Causes"], [[0, 0, 1]], "test")
    """
    triples = checked_triples(triples, len(entities), len(relations))
    folder = on_disk(folder)
    for file, names in ((ENTITIES, entities), (RELATIONS, relations)):
        for name in names:
            if not name.strip() or name != name.strip() or "\t" in name or "\n" in name:
                raise ValueError(f"{file}: {name!r} cannot be a name there: rename it.")
        _write(folder / file, [f"{name}\t{number}" for number, name in enumerate(names)])
    rows = [" ".join(map(str, row)) for row in triples[:, [0, 2, 1]].tolist()]
    _write(folder / f"{split}2id.txt", rows)


def checked_triples(triples, num_entities, num_relations):
    """Return triples as an int32 array (N, 3); ValueError if a number is out of range."""
    triples = np.asarray(triples)
    if triples.ndim != 2 or triples.shape[1] != 3 or triples.dtype.kind not in "iu":
        raise ValueError(
            f"triples has shape {triples.shape} and dtype {triples.dtype}: pass (N, 3) integers, "
            "head, relation and tail."
        )
    for column, (name, limit) in enumerate(
        [("head", num_entities), ("relation", num_relations), ("tail", num_entities)]
    ):
        is_wrong = (triples[:, column] < 0) | (triples[:, column] >= limit)
        for row in np.flatnonzero(is_wrong)[:1]:
            raise ValueError(
                f"triples[{row}]={triples[row].tolist()}: the {name} must be from 0 to {limit - 1}."
            )
    return triples.astype("int32")


def _read_names(path):
    names = {}
    for number, line in _lines(path):
        name, _, value = line.replace("\t", " ").rpartition(" ")
        name = name.strip()
        if not name or not value.isdecimal():
            raise _wrong(path, number, line, "expected a name and its number")
        if int(value) in names:
            raise _wrong(path, number, line, f"{value} is {names[int(value)]!r} already")
        names[int(value)] = name
    for expected, value in enumerate(sorted(names)):
        if expected != value:
            raise ValueError(f"{path}: nothing has the number {expected}, but something {value}.")
    return [names[number] for number in range(len(names))]


def _lines(path):
    """Yield the numbers and the contents of lines after the first, which counts them."""
    require_text(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or not lines[0].strip().isdecimal():
        raise _wrong(path, 1, lines[0] if lines else "", "expected the number of lines that follow")
    rows = [(number, line) for number, line in enumerate(lines[1:], start=2) if line.strip()]
    yield from rows
    if len(rows) != int(lines[0]):
        raise _wrong(path, 1, lines[0], f"{len(rows)} lines follow")


def _wrong(path, number, line, reason):
    return ValueError(f"{path}, line {number}: {line[:100]!r}: {reason}.")


def _write(path, rows):
    with replacing(path) as new:
        new.write_text("\n".join([str(len(rows)), *rows, ""]), encoding="utf-8")
