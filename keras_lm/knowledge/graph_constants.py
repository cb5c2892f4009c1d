"""A graph of concepts as arrays, small enough for constants of a TensorFlow graph that searches it.

Shapes: N concepts, E pairs of neighbours, S nodes of the tree of lemmas, W words.
"""

import dataclasses
import itertools
from typing import Self

import numpy as np

from keras_lm.knowledge.concepts import LONGEST
from keras_lm.knowledge.lemmas import words_of
from keras_lm.knowledge.schema_graphs import SchemaGraphs

MOST_HOPS = 2
MOST_EDGES = 4_000_000  # in both directions
MOST_BYTES = 250_000_000  # of the store's arrays
SCORED_AT_ONCE = 100_000


def why_too_large(graphs: SchemaGraphs) -> str:
    """Return why no constants can hold the graph that is searched, "" if they can."""
    store, hops = graphs.store, graphs.finder.max_hops
    if hops > MOST_HOPS:
        return f"max_hops={hops}, and a search in constants goes {MOST_HOPS} hops: pass max_hops=2"
    for what, size, most in (
        ("edges in both directions", store.num_edges, MOST_EDGES),
        ("bytes", store.num_bytes, MOST_BYTES),
    ):
        if size > most:
            return (
                f"{store.folder} has {size:,} {what}, and constants hold {most:,}: build a graph "
                "of the edges that your questions need"
            )
    return ""


@dataclasses.dataclass(frozen=True)
class GraphConstants:
    """What `SchemaGraphs` reads from the disk, for a search without it.

    Args:
        words: dict of the words of texts → the number of their lemma, of `num_lemmas`.
        steps: (S - 1,) int64, ascending: `node * num_lemmas + lemma` leads to the node with its
            place + 1. Node 0 is the root.
        concepts, first_concept: those of the lemmas that lead to a node, the rows from
            `first_concept[node]` to that of the next one, int32.
        stems: (2, N) int32, the concept without `er` and without `e` at its end, 0 for none.
        edges: (E,) int64, ascending: `concept * N + neighbour`.
        first_edge: (N + 1,) int32, where a concept's begin.
        relations: (E,) int32, the heaviest that is followed, 0 for none.
        lengths: (E,) float64.
        scores: (E,) float32 of `TransE`, 1 without one.
        names, relation_names: lists of str.
    """

    words: dict[str, int]
    num_lemmas: int
    steps: np.ndarray
    concepts: np.ndarray
    first_concept: np.ndarray
    stems: np.ndarray
    edges: np.ndarray
    first_edge: np.ndarray
    relations: np.ndarray
    lengths: np.ndarray
    scores: np.ndarray
    names: list[str]
    relation_names: list[str]

    @classmethod
    def of(cls, graphs: SchemaGraphs) -> Self:
        """Read what a search needs.

        Raises:
            ValueError: if it is too large.
        """
        if why := why_too_large(graphs):
            raise ValueError(f"graphs: {why}.")
        store = graphs.store
        names = store.strings("name")
        numbers = {name: number for number, name in enumerate(names)}
        stems = [
            [numbers.get(name.removesuffix(end), 0) if name.endswith(end) else 0 for name in names]
            for end in ("er", "e")
        ]
        return cls(
            **_tree(graphs.concepts),
            **_edges(graphs.finder),
            stems=np.array(stems, "int32"),
            names=names,
            relation_names=["", *map(store.relation_name, range(1, store.num_relations))],
        )


def _tree(concepts):
    """Return the tree of the lemmas by which concepts are found."""
    store, by_lemmas = concepts.store, {}
    rows = zip(store.strings("key"), store.key_concepts.tolist(), strict=True)
    for key, group in itertools.groupby(rows, key=lambda row: row[0]):
        chosen = concepts.chosen(key, [concept for _, concept in group])
        lemmas = tuple(key.split("_"))
        if chosen and len(lemmas) <= LONGEST:
            by_lemmas[lemmas] = chosen
    numbers = {
        lemma: n for n, lemma in enumerate(sorted({one for key in by_lemmas for one in key}))
    }
    by_lemmas = {tuple(map(numbers.get, key)): chosen for key, chosen in by_lemmas.items()}
    # Level by level, so that a node's number is higher than those of the nodes before it.
    beginnings = {key[:length] for key in by_lemmas for length in range(1, len(key) + 1)}
    nodes = {key: n for n, key in enumerate(sorted(beginnings, key=lambda key: (len(key), key)), 1)}
    steps = [nodes.get(key[:-1], 0) * len(numbers) + key[-1] for key in nodes]
    of_nodes = [(), *(by_lemmas.get(key, ()) for key in nodes)]
    lemmas = words_of(numbers)
    return {
        "words": {word: numbers[lemma] for word, lemma in lemmas.items()},
        "num_lemmas": len(numbers),
        "steps": np.array(steps, "int64"),
        "concepts": np.array([one for some in of_nodes for one in some], "int32"),
        "first_concept": np.cumsum([0, *map(len, of_nodes)]).astype("int32"),
    }


def _edges(finder):
    """Return all pairs of neighbours, and the heaviest relation between them that is followed."""
    store = finder.store
    size = store.num_concepts
    triples, weights = store.edges()  # from either end
    keys = triples[:, 0].astype("int64") * size + triples[:, 2]
    edges = np.unique(keys)
    relations, lengths = np.zeros(len(edges), "int32"), np.zeros(len(edges))
    scores = np.ones(len(edges), "float32")
    followed = np.flatnonzero(finder.is_followed[triples[:, 1]])
    if len(followed):
        pairs, first = np.unique(keys[followed], return_index=True)
        at = np.searchsorted(edges, pairs)
        relations[at] = triples[followed[first], 1]
        lengths[at] = finder.lengths(weights[followed[first]])
        if finder.trans_e is not None:
            parts = [
                finder.scores_of(triples[followed[start : start + SCORED_AT_ONCE]])
                for start in range(0, len(followed), SCORED_AT_ONCE)
            ]
            scores[at] = np.maximum.reduceat(np.concatenate(parts), first)
    return {
        "edges": edges,
        "first_edge": np.searchsorted(edges, np.arange(size + 1) * size).astype("int32"),
        "relations": relations,
        "lengths": lengths,
        "scores": scores,
    }
