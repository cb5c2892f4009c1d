"""The graph between the concepts of a question and of an answer, and its packed form.

Shapes: G nodes, E edges, P pairs of concepts, Q paths, T concepts of the longest path.
"""

import base64
import itertools
import math
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from keras_lm.knowledge.concept_store import DESCRIPTION, ConceptStore
from keras_lm.knowledge.concepts import Concepts
from keras_lm.knowledge.paths import PathFinder
from keras_lm.knowledge.trans_e import TransE
from keras_lm.utils.argument_types import PathLike, Tensor
from keras_lm.utils.files import on_disk

# The parts of a graph, as they are packed: name → numbers per row; None is T.
WIDTHS = {
    "node_concepts": 1,
    "edges": 2,
    "pair_concepts": 2,
    "pair_nodes": 2,
    "path_pairs": 1,
    "path_nodes": None,
    "path_relations": None,
}


class SchemaGraphs:
    """Find the graph between the concepts of a question and those of an answer.

    Its nodes are the concepts on the paths between each of the question's and each of the answer's;
    its edges are those of the paths, and those among the concepts of either side. If there is no
    path at all, each pair is an edge.

    Args:
        store: `ConceptStore`, or the path of one.
        trans_e: `TransE`, the path of one, or None; see `PathFinder`.
        cache: path of a file (SQLite) in which found paths are kept, for later calls, other texts
            and other processes; None for none.
        max_hops, max_paths, max_neighbors, threshold: see `PathFinder`.

    Raises:
        FileNotFoundError, ImportError, ValueError: see `ConceptStore`, `Concepts`, `PathFinder`.

    Example:

        edges = [("ice", 11, "slippery", 1.0), ("slippery", 4, "fall", 2.0)]
        store = keras_lm.knowledge.ConceptStore.build(edges, "winter")
        graphs = keras_lm.knowledge.SchemaGraphs(store, max_hops=2)
        graph = graphs.find("What can one do on ice?", "fall")
        graph["path_concepts"].tolist()  # [[2, 3, 1]]
        keras_lm.models.join_graphs([graph])["edges"].shape  # (4, 2)

    Source: Lin et al. 2019, https://arxiv.org/abs/1909.02151, section 3; INK-USC/KagNet,
    `graph_generation/graph_gen.py`, the plain graph.
    """

    def __init__(
        self,
        store: ConceptStore | PathLike,
        trans_e: TransE | PathLike | None = None,
        cache: PathLike | None = None,
        **search: Any,
    ):
        self.store: ConceptStore = store if isinstance(store, ConceptStore) else ConceptStore(store)
        if trans_e is not None and not isinstance(trans_e, TransE):
            trans_e = TransE.load(trans_e)
        self.finder: PathFinder = PathFinder(self.store, trans_e, **search)
        self.search, self.cache = search, cache
        self.concepts: Concepts = Concepts(self.store)
        self.path_length: int = self.finder.max_hops + 1  # T
        self._cache = None if cache is None else _Cache(cache, self._settings())

    def describe_source(self) -> dict[str, Any]:
        """Return where the graphs come from, for `from_source`, and their sizes; JSON can hold it.

        Raises:
            ValueError: if `trans_e` was not saved.
        """
        trans_e = self.finder.trans_e
        if trans_e is not None and trans_e.folder is None:
            raise ValueError(
                "trans_e was not saved, so that nothing could find these graphs again: call "
                "trans_e.save(folder) first."
            )
        return {
            "store": str(self.store.folder.resolve()),
            "fingerprint": self.store.fingerprint,
            "num_concepts": self.store.num_concepts,
            "num_relations": self.store.num_relations,
            "path_length": self.path_length,
            "trans_e": trans_e and str(trans_e.folder.resolve()),
            "cache": self.cache and str(self.cache),
            "search": self.search,
        }

    @classmethod
    def from_source(cls, source: Any) -> Self | None:
        """Return what `describe_source` described, or None if its store is not on this machine.

        Raises:
            ValueError: if another store is in its place.
        """
        if not (Path(source["store"]) / DESCRIPTION).is_file():
            return None
        graphs = cls(source["store"], source["trans_e"], source["cache"], **source["search"])
        if graphs.store.fingerprint != source["fingerprint"]:
            raise ValueError(
                f"{source['store']} is another graph than the task was trained with: pass "
                "graphs=keras_lm.knowledge.SchemaGraphs(…) with that one."
            )
        return graphs

    def _settings(self):
        finder, trans_e = self.finder, self.finder.trans_e
        pruned = "" if trans_e is None else f"{finder.threshold} {trans_e.entities.sum():.6f}"
        return (
            f"{self.store.fingerprint} {finder.max_hops} {finder.max_paths} "
            f"{finder.max_neighbors} {pruned}"
        )

    def find(self, question: str, answer: str) -> dict[str, Any]:
        """Return the graph of a question and an answer, strings: a dict, see `join_graphs`."""
        return self.between(*self.concepts.of_choice(question, answer))

    def between(self, questions: Sequence[int], answers: Any) -> dict[str, Any]:
        """Return the graph between two lists of concepts."""
        pairs = [(question, answer) for question in questions for answer in answers]
        of_pairs, paths = [], []
        for number, pair in enumerate(pairs):
            pair_paths = self._paths(*pair)
            of_pairs += [number] * len(pair_paths)
            paths += pair_paths
        edges = {edge for path in paths for edge in itertools.pairwise(path)}
        for concepts in (questions, answers):
            edges |= {
                edge
                for edge in itertools.combinations(concepts, 2)
                if self.store.relations_between(*edge)
            }
        edges = edges if paths else edges | set(pairs)
        nodes = sorted({concept for edge in edges for concept in edge})
        number = {concept: row for row, concept in enumerate(nodes)}
        both = {(number[a], number[b]) for a, b in edges} | {
            (number[b], number[a]) for a, b in edges
        }
        length = self.path_length

        def filled(rows, end):
            return _ints([[*row, *[end] * (length - len(row))] for row in rows], length)

        return {
            "node_concepts": _ints(nodes),
            "edges": _ints(sorted(both), 2),
            "pair_concepts": _ints(pairs, 2),
            "pair_nodes": _ints([[number.get(c, -1) for c in pair] for pair in pairs], 2),
            "path_pairs": _ints(of_pairs),
            "path_concepts": filled(paths, 0),
            "path_nodes": filled([[number[c] for c in path] for path in paths], -1),
            "path_relations": filled([self.finder.relations(path) for path in paths], 0),
        }

    def _paths(self, concept, other):
        if self._cache is None:
            return self.finder.find(concept, other)
        paths = self._cache.get(concept, other)
        if paths is None:
            paths = self.finder.find(concept, other)
            self._cache.put(concept, other, paths)
        return paths

    def pack(self, questions: Sequence[str], choices: Sequence[Any]) -> list[list[str]]:
        """Return the graphs of questions and their choices, packed: a list of str for each.

        Args:
            questions: list of str.
            choices: a list of str for each.
        """
        return [
            [pack_graph(self.find(question, choice)) if choice else "" for choice in row]
            for question, row in zip(questions, choices, strict=True)
        ]

    def describe(
        self, graph: dict[str, Any], pair_attention: Tensor, path_attention: Tensor
    ) -> list[dict[str, Any]]:
        """Return what a graph holds in words, with the attention of each part, sorted by it.

        Args:
            graph: dict, see `find`.
            pair_attention: (P,).
            path_attention: (Q,).

        Returns:
            list of dicts: `question` and `answer`, names of concepts, `attention`, and `paths`, a
            list of dicts of `concepts`, `relations` and `attention`.
        """
        store, pairs = self.store, []
        for pair, (question, answer) in enumerate(graph["pair_concepts"].tolist()):
            paths = []
            for row in np.flatnonzero(graph["path_pairs"] == pair):
                concepts = [c for c in graph["path_concepts"][row].tolist() if c]
                relations = [r for r in graph["path_relations"][row].tolist() if r]
                paths.append(
                    {
                        "concepts": [store.name(concept) for concept in concepts],
                        "relations": [store.relation_name(relation) for relation in relations],
                        "attention": float(path_attention[row]),
                    }
                )
            pairs.append(
                {
                    "question": store.name(question),
                    "answer": store.name(answer),
                    "attention": float(pair_attention[pair]),
                    "paths": sorted(paths, key=lambda path: -path["attention"]),
                }
            )
        return sorted(pairs, key=lambda pair: -pair["attention"])


def pack_graph(graph: dict[str, Any]) -> str:
    """Return a graph as a string, to travel beside a text: base64 of its numbers, int32.

    The first five are T and the numbers of nodes, edges, pairs and paths. The concepts of paths are
    those of their nodes.

    Args:
        graph: dict, see `keras_lm.models.join_graphs`.

    Example:

        graph = {
            "node_concepts": [7, 9],
            "edges": [[0, 1]],
            "pair_concepts": [[7, 9]],
            "pair_nodes": [[0, 1]],
            "path_pairs": [0],
            "path_nodes": [[0, 1]],
            "path_relations": [[3, 0]],
        }
        keras_lm.knowledge.pack_graph(graph)[:8]  # "AgAAAAIA"
    """
    parts = {name: np.asarray(graph[name], "<i4") for name in WIDTHS}
    length = parts["path_nodes"].shape[1] if parts["path_nodes"].ndim == 2 else 1
    sizes = [len(parts[name]) for name in ("node_concepts", "edges", "pair_nodes", "path_pairs")]
    flat = [np.array([length, *sizes], "<i4"), *(part.reshape(-1) for part in parts.values())]
    return base64.urlsafe_b64encode(np.concatenate(flat).tobytes()).decode().rstrip("=")


def unpack_graph(numbers):
    """Return the graph that `pack_graph` packed, from its numbers, (L,), with zeros after it."""
    length, *sizes = numbers[:5].tolist()
    nodes, edges, pairs, paths = sizes
    rows = dict(zip(WIDTHS, (nodes, edges, pairs, pairs, paths, paths, paths), strict=True))
    graph, start = {}, 5
    for name, width in WIDTHS.items():
        shape = (rows[name], *([] if width == 1 else [width or length]))
        graph[name] = numbers[start : start + math.prod(shape)].reshape(shape)
        start += math.prod(shape)
    concepts = np.append(graph["node_concepts"], 0)
    return graph | {"path_concepts": concepts[graph["path_nodes"]]}


def _ints(rows, width=None):
    return np.array(rows, "int32").reshape(-1, *([] if width is None else [width]))


class _Cache:
    """Paths between pairs of concepts in a file; several processes may use it."""

    def __init__(self, path, settings):
        self._settings = settings
        self._lock = threading.Lock()
        path = on_disk(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(path, timeout=60, check_same_thread=False)
        try:
            with self._connection as connection:
                # Otherwise each pair waits for the disk, which takes longer than to find its paths.
                connection.execute("pragma journal_mode = wal")
                connection.execute("pragma synchronous = normal")
                connection.execute(
                    "create table if not exists paths (settings text, concept integer, "
                    "other integer, found blob, primary key (settings, concept, other)) "
                    "without rowid"
                )
        except sqlite3.DatabaseError as error:
            raise ValueError(f"cache={str(path)!r} is not a cache of paths: {error}.") from error

    def get(self, concept, other):
        """Return the kept paths, or None."""
        with self._lock:
            row = self._connection.execute(
                "select found from paths where settings = ? and concept = ? and other = ?",
                (self._settings, concept, other),
            ).fetchone()
        if row is None:
            return None
        flat, paths = np.frombuffer(row[0], "<i4").tolist(), []
        while flat:
            size = flat[0]
            paths.append(tuple(flat[1 : size + 1]))
            flat = flat[size + 1 :]
        return paths

    def put(self, concept, other, paths):
        flat = [number for path in paths for number in (len(path), *path)]
        with self._lock, self._connection as connection:
            connection.execute(
                "insert or replace into paths values (?, ?, ?, ?)",
                (self._settings, concept, other, np.array(flat, "<i4").tobytes()),
            )
