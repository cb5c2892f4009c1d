"""A graph of concepts on disk, read through memory maps.

Shapes: N concepts, where number 0 stands for no concept; E edges, each in both directions; K keys.
"""

import hashlib
import json
import math
import operator
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from keras_lm.knowledge.conceptnet import RELATIONS
from keras_lm.knowledge.lemmas import key_of, lemmatizer
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import check_sums, on_disk, replacing, write_sums
from keras_lm.utils.user_arguments import warn

DESCRIPTION = "store.json"
FORMAT_VERSION = 1
PARTS = (
    *("names", "name_ends", "keys", "key_ends", "key_concepts"),
    *("starts", "targets", "edge_relations", "weights"),
)


class ConceptStore:
    """Concepts with edges between them, of any number, in a folder.

    Each edge is there twice: from its head, with its relation's number, and from its tail, with
    the number of the inverse relation, `number + len(relations)`. Number 0 stands for none, of
    either. What is asked for is read from the disk, so that opening takes no time or memory.

    Args:
        folder: path of what `ConceptStore.build` or `keras-lm knowledge` wrote.

    Attributes:
        num_concepts: int. With number 0, and so the rows that a table of concepts needs.
        num_relations: int. With number 0 and the inverse relations.
        num_edges: int, in both directions.
        num_bytes: int, of all arrays.
        key_concepts: array of the concept of each of `strings("key")`.
        relations: list of str.
        fingerprint: str, of all that is in it.
        lemmatizer: str, the name and the version of what made the lemmas of names; None in a store
            of an earlier version, which does not state it.

    Raises:
        FileNotFoundError: if there is no store.
        ValueError: if a file is cut or of another version; it is named.

    Example:

        edges = [("ice", 11, "slippery", 1.0), ("slippery", 4, "fall", 2.0)]
        store = keras_lm.knowledge.ConceptStore.build(edges, "winter")
        ice = store.find("ice")
        store.edges_of(ice)[0]  # the numbers of its neighbours
    """

    _has_warned = False

    def __init__(self, folder: PathLike):
        self.folder: Path = on_disk(folder)
        description = self.folder / DESCRIPTION
        if not description.is_file():
            raise FileNotFoundError(
                f"{self.folder} is not a graph of concepts: it has no {DESCRIPTION}. Build one "
                "with keras-lm knowledge."
            )
        stated = json.loads(description.read_text(encoding="utf-8"))
        if stated.get("format_version") != FORMAT_VERSION:
            raise ValueError(
                f"{description}: format_version is {stated.get('format_version')}, and this "
                f"version of keras_lm reads {FORMAT_VERSION}: build it again."
            )
        self.relations: list[str] = stated["relations"]
        self.fingerprint: str = stated["fingerprint"]
        self.lemmatizer: str | None = stated.get("lemmatizer")
        self._parts = {name: self._open(name, stated["bytes"][name]) for name in PARTS}
        check_sums(self.folder, "copy the folder again, or build it again")
        self.num_concepts: int = len(self._parts["name_ends"])
        self.num_edges: int = len(self._parts["targets"])
        self.num_relations: int = 2 * len(self.relations) + 1
        self.num_bytes: int = sum(part.nbytes for part in self._parts.values())
        self.key_concepts: np.ndarray = self._parts["key_concepts"]  # of `strings("key")`

    def _open(self, name, size):
        path = self.folder / f"{name}.npy"
        actual = path.stat().st_size if path.is_file() else 0
        if actual != size:
            raise ValueError(
                f"{path} has {actual} bytes, and was written with {size}: the store is cut or was "
                "changed, build it again."
            )
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        return np.asarray(mapped)  # a view, as slices of memmap are slow

    # === Names ===

    def check_lemmatizer(self) -> None:
        """Raise a ValueError if the lemmas of texts are made by another version than the store's.

        Of a store that does not state it, there is a warning, once.
        """
        installed = lemmatizer()
        if self.lemmatizer is None and not self._has_warned:
            self._has_warned = True
            warn(
                f"{self.folder / DESCRIPTION} does not state what made the lemmas by which its "
                f"concepts are found, and {installed} may make others, so that concepts are "
                "missing: build it again with keras-lm knowledge."
            )
        elif self.lemmatizer not in (None, installed):
            raise ValueError(
                f"{self.folder / DESCRIPTION}: {self.lemmatizer} made the lemmas by which its "
                f"concepts are found, and {installed} makes others. Build it again with keras-lm "
                f"knowledge, or pip install {self.lemmatizer.replace(' ', '==')}."
            )

    def name(self, concept: int) -> str:
        """Return the name of a concept, with `_` between its words; `""` for 0."""
        return self._string("name", concept).decode()

    def find(self, name: str) -> int:
        """Return the number of the concept with a name, 0 if there is none."""
        name = name.encode("utf-8", "replace")
        at = self._first("name", name)
        is_there = at < self.num_concepts and self._string("name", at) == name
        return at if is_there else 0

    def find_key(self, key: str) -> Any:
        """Return the numbers of the concepts whose lemmas are `key`, the shortest names first."""
        key, concepts = key.encode("utf-8", "replace"), []
        at, number = self._first("key", key), len(self._parts["key_ends"])
        while at < number and self._string("key", at) == key:
            concepts.append(int(self._parts["key_concepts"][at]))
            at += 1
        return concepts

    def _string(self, kind, row):
        ends = self._parts[f"{kind}_ends"]
        return self._parts[f"{kind}s"][ends[row - 1] if row else 0 : ends[row]].tobytes()

    def _first(self, kind, wanted):
        """Return the first row that is not before a string: strings are sorted."""
        low, high = 0, len(self._parts[f"{kind}_ends"])
        while low < high:
            middle = (low + high) // 2
            if self._string(kind, middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def strings(self, kind: str) -> list[str]:
        """Return all names (`"name"`), or all lemmas (`"key"`), sorted by their bytes."""
        joined = self._parts[f"{kind}s"].tobytes()
        ends = self._parts[f"{kind}_ends"].tolist()
        return [joined[start:end].decode() for start, end in zip([0, *ends], ends)]

    # === Edges ===

    def edges_of(self, concept: int) -> tuple[np.ndarray, ...]:
        """Return the targets, relations and weights of the edges from a concept.

        They are sorted by target; of several to the same one, the heaviest is first.
        """
        start, end = self._parts["starts"][concept : concept + 2]
        return tuple(self._parts[name][start:end] for name in PARTS[-3:])

    def relations_between(self, concept: int, other: int) -> list[int]:
        """Return the numbers of the relations from one concept to another, the heaviest first."""
        targets, relations, _ = self.edges_of(concept)
        # Of the same type as the targets, which are copied otherwise: a hub has very many.
        start, end = np.searchsorted(targets, np.array([other, other + 1], targets.dtype))
        return relations[start:end].tolist()

    def relation_name(self, relation: int) -> str:
        """Return the name of a relation, with `-` in front of an inverse one."""
        number = len(self.relations)
        if relation > number:
            return f"-{self.relations[relation - number - 1]}"
        return self.relations[relation - 1]

    def triples(self) -> np.ndarray:
        """Return all edges in their own direction as (E / 2, 3) int32: head, relation, tail.

        Entities are concepts and relations numbers, so that `TransE(store.num_concepts,
        len(store.relations) + 1)` learns from them.
        """
        triples, _ = self.edges()
        return triples[triples[:, 1] <= len(self.relations)]

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Return all edges, from either end, (E, 3) int32, and their weights, (E,).

        They are sorted by their ends; of several between the same ones, the heaviest is first.
        """
        heads = np.repeat(np.arange(self.num_concepts), np.diff(self._parts["starts"]))
        columns = [heads, self._parts["edge_relations"], self._parts["targets"]]
        return np.stack(columns, axis=1).astype("int32"), self._parts["weights"]

    # === Building ===

    @classmethod
    def build(
        cls,
        edges: Iterable[tuple[str, int, str, float]],
        folder: PathLike,
        relations: Sequence[str] = RELATIONS,
    ) -> Self:
        """Write a store, in one step, and return it opened.

        Args:
            edges: iterable of (head, relation, tail, weight): names of concepts, in lower case with
                `_` between words, the number of the relation, from 1, and a float. The same edge
                several times has its largest weight.
            folder: path. A store there is replaced.
            relations: list of str, at most 63.

        Raises:
            ImportError: if `simplemma` is missing; the message has the command that installs it.
            ValueError: if there is no edge, or one has another form, a relation's number that is
                out of range, a weight that is not finite, or an empty name.
        """
        heads, kinds, tails = array("i"), array("b"), array("i")
        weights, numbers = array("f"), {"": 0}
        number = min(len(relations), 63)
        for edge in edges:
            head, relation, tail, weight = _checked(edge, number)
            heads.append(numbers.setdefault(head, len(numbers)))
            tails.append(numbers.setdefault(tail, len(numbers)))
            kinds.append(relation)
            weights.append(weight)
        if not heads:
            raise ValueError("edges is empty: there is no English edge between two concepts.")
        names = sorted(name.encode() for name in numbers)
        place = np.empty(len(names), "int32")  # in the order in which they were met → by name
        for row, name in enumerate(names):
            place[numbers[name.decode()]] = row
        arrays = _sorted_edges(
            place[np.array(heads)],
            np.array(kinds, "int8"),
            place[np.array(tails)],
            np.array(weights, "float32"),
            (len(names), len(relations)),
        )
        arrays |= _strings("key", *_keys(names)) | _strings("name", names)
        digest = hashlib.sha256(json.dumps(list(relations)).encode())
        with replacing(on_disk(folder)) as new:
            new.mkdir()
            for name in PARTS:
                np.save(new / f"{name}.npy", arrays[name])
                digest.update(arrays[name].tobytes())
            stated = {
                "format_version": FORMAT_VERSION,
                "fingerprint": digest.hexdigest()[:16],
                "lemmatizer": lemmatizer(),
                "relations": list(relations),
                "bytes": {name: (new / f"{name}.npy").stat().st_size for name in PARTS},
            }
            (new / DESCRIPTION).write_text(json.dumps(stated, indent=2), encoding="utf-8")
            write_sums(new, [path.name for path in new.iterdir()])
        return cls(folder)


def _checked(edge, number):
    """Return an edge; ValueError if it has another form, or a relation above `number`."""
    try:
        head, relation, tail, weight = edge
        is_edge = head.encode() and tail.encode() and math.isfinite(weight)
        is_edge = is_edge and operator.index(relation) == relation
    except (AttributeError, TypeError, ValueError):
        is_edge = False
    if not is_edge:
        raise ValueError(
            f"edges has {edge!r}: pass (head, relation, tail, weight), two names, the number of a "
            "relation and its weight, a finite number."
        )
    if not 1 <= relation <= number:
        raise ValueError(
            f"({head!r}, {relation}, {tail!r}): relations have the numbers from 1 to {number}."
        )
    return edge


def _sorted_edges(heads, kinds, tails, weights, sizes):
    """Return the edges in both directions, by their source and target, the heaviest first."""
    num_concepts, num_relations = sizes
    sources, targets = np.concatenate([heads, tails]), np.concatenate([tails, heads])
    kinds = np.concatenate([kinds, kinds + np.int8(num_relations)])
    weights = np.concatenate([weights, weights])
    order = np.lexsort((-weights, kinds, targets, sources))
    same = [np.diff(column[order], prepend=-1) == 0 for column in (sources, targets, kinds)]
    order = order[~np.logical_and.reduce(same)]  # of the same edge, the heaviest
    order = order[np.lexsort((-weights[order], targets[order], sources[order]))]
    starts = np.searchsorted(sources[order], np.arange(num_concepts + 1))
    return {
        "starts": starts.astype("int64"),
        "targets": targets[order].astype("int32"),
        "edge_relations": kinds[order],
        "weights": weights[order],
    }


def _keys(names):
    """Return the lemmas of all concepts, sorted, then by the length of the name; and concepts."""
    keys = [key_of(name.decode()).encode() for name in names]
    order = sorted(range(1, len(names)), key=lambda row: (keys[row], len(names[row]), names[row]))
    return [keys[row] for row in order], {"key_concepts": np.array(order, "int32")}


def _strings(kind, strings, more=None):
    ends = np.cumsum([len(one) for one in strings], dtype="int64")
    joined = np.frombuffer(b"".join(strings), "uint8")
    return {f"{kind}s": joined, f"{kind}_ends": ends} | (more or {})
