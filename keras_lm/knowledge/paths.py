"""Paths between two concepts. Shapes: Q paths, T concepts of the longest, M neighbours."""

import functools
import itertools
from collections.abc import Sequence

import numpy as np

from keras_lm.knowledge.concept_store import ConceptStore
from keras_lm.knowledge.trans_e import TransE
from keras_lm.utils.argument_types import PathLike

NOT_FOLLOWED = "HasContext"  # leads to fields of study, near which all their words would be
JOINED = 8  # half paths from either side that meet in a concept


class PathFinder:
    """Find the shortest paths between two concepts, from both ends.

    Of concepts with very many edges, the heaviest `max_neighbors` are followed, so that a hub costs
    no more than others: all paths of one and two edges are considered, of longer ones those along
    these. The edge's length is `1 + exp(1 - weight)`; among paths of as many edges, those with the
    smallest sum are kept.

    Args:
        store: `ConceptStore`.
        trans_e: `TransE` over the store's triples, or None to prune nothing.
        max_hops: int from 1 to 4. Edges of the longest path.
        max_paths: int. No longer paths are looked for once there are as many.
        max_neighbors: int.
        threshold: float. A path is dropped if its score is less: the product over its edges of the
            score of the best relation, see `TransE.scores`.

    Raises:
        ValueError: if a number is out of range, or `trans_e` is not of this store.

    Example:

        edges = [("ice", 11, "slippery", 1.0), ("slippery", 4, "fall", 2.0)]
        store = keras_lm.knowledge.ConceptStore.build(edges, "winter")
        finder = keras_lm.knowledge.PathFinder(store)
        finder.find(store.find("ice"), store.find("fall"))  # [(2, 3, 1)]

    Source: Lin et al. 2019, https://arxiv.org/abs/1909.02151, sections 3.2 and 3.3; INK-USC/KagNet,
    `pathfinder`: up to 4 edges, 100 paths, pruned at 0.15. There, which of more paths are found
    depends on the order of the file.
    """

    def __init__(
        self,
        store: ConceptStore | PathLike,
        trans_e: TransE | PathLike | None = None,
        max_hops: int = 4,
        max_paths: int = 100,
        max_neighbors: int = 100,
        threshold: float = 0.15,
    ):
        if not 1 <= max_hops <= 4:
            raise ValueError(f"max_hops={max_hops}: pass 1 to 4.")
        for name, value in {"max_paths": max_paths, "max_neighbors": max_neighbors}.items():
            if value < 1:
                raise ValueError(f"{name}={value}: pass 1 or more.")
        sizes = (store.num_concepts, len(store.relations) + 1)
        if trans_e is not None:
            trained = (len(trans_e.entities), len(trans_e.relations))
            if trained != sizes:
                raise ValueError(
                    f"trans_e has {trained} entities and relations, and the store {sizes}: train "
                    "it on store.triples()."
                )
        self.store, self.trans_e = store, trans_e
        names = [store.relation_name(kind).lstrip("-") for kind in range(1, store.num_relations)]
        self.is_followed: np.ndarray = np.array([False, *(name != NOT_FOLLOWED for name in names)])
        self.max_hops, self.max_paths = max_hops, max_paths
        self.max_neighbors, self.threshold = max_neighbors, threshold
        self._near = functools.lru_cache(maxsize=2**14)(self._heaviest_neighbors)
        self._two_away = functools.lru_cache(maxsize=2**10)(self._ends_of_two)

    def find(self, concept: int, other: int) -> list[tuple[int, ...]]:
        """Return the paths from one concept to another, tuples of concepts, the shortest first."""
        if not concept or not other or concept == other:
            return []
        paths = []
        for hops in range(1, self.max_hops + 1):
            more = self._paths(hops, concept, other)
            paths += more[: self.max_paths - len(paths)]
            if len(paths) >= self.max_paths:
                break
        return [path for path in paths if self._is_likely(path)]

    def relations(self, path: Sequence[int]) -> list[int]:
        """Return the number of the heaviest relation of each of a path's edges."""
        return [self._followed(*edge)[0] for edge in itertools.pairwise(path)]

    def _followed(self, concept, other):
        kinds = self.store.relations_between(concept, other)
        return [kind for kind in kinds if self.is_followed[kind]]

    def _is_likely(self, path):
        if self.trans_e is None:
            return True
        return self.score(path) >= self.threshold

    def score(self, path: Sequence[int]) -> float:
        """Return the product over a path's edges of the best score of their relations."""
        score = 1.0
        for head, tail in itertools.pairwise(path):
            edges = np.array([(head, kind, tail) for kind in self._followed(head, tail)])
            score *= float(self.scores_of(edges).max())
        return score

    def scores_of(self, edges: np.ndarray) -> np.ndarray:
        """Return the scores of edges from either end, (E, 3), see `TransE.scores`."""
        is_inverse = edges[:, 1] > len(self.store.relations)
        turned = edges[:, ::-1] - [0, len(self.store.relations), 0]
        return self.trans_e.scores(np.where(is_inverse[:, None], turned, edges))

    # === Paths of as many edges ===

    def _paths(self, hops, concept, other):
        if self._degree(concept) > self._degree(other):  # fewer ways lead on from the other end
            return [path[::-1] for path in self._paths_from(hops, other, concept)]
        return self._paths_from(hops, concept, other)

    def _degree(self, concept):
        return len(self.store.edges_of(concept)[0])

    def _paths_from(self, hops, concept, other):
        """Return the shortest `max_paths` paths of `hops` edges, as tuples."""
        near, lengths = self._neighbors(concept)
        ends, end_lengths = self._neighbors(other)
        if hops == 1:
            return [(concept, other)] if other in near else []
        if hops == 2:
            middle, i, j = np.intersect1d(near, ends, assume_unique=True, return_indices=True)
            return self._best(concept, middle[:, None], other, lengths[i] + end_lengths[j])
        first, second, two_lengths = self._two_away(concept)
        if hops == 3:
            at = np.minimum(np.searchsorted(ends, second), max(len(ends) - 1, 0))
            meets = ends[at] == second if len(ends) else np.zeros(len(second), bool)
            inner = np.stack([first, second], axis=1)[meets]
            return self._best(concept, inner, other, two_lengths[meets] + end_lengths[at[meets]])
        last, middle, last_lengths = self._two_away(other)
        i, j = _joined(second, two_lengths, middle, last_lengths)
        inner = np.stack([first[i], second[i], last[j]], axis=1)
        return self._best(concept, inner, other, two_lengths[i] + last_lengths[j])

    def _best(self, concept, inner, other, lengths):
        """Return the shortest of some paths that meet no concept twice."""
        is_simple = ((inner != concept) & (inner != other)).all(axis=1)
        if inner.shape[1] == 3:  # next to each other, concepts differ
            is_simple &= inner[:, 0] != inner[:, 2]
        inner, lengths = inner[is_simple], lengths[is_simple]
        order = np.lexsort((*inner.T[::-1], lengths))[: self.max_paths]
        return [(concept, *row, other) for row in inner[order].tolist()]

    def _neighbors(self, concept):
        """Return all neighbours, (M,) ascending, and the lengths of the edges to them."""
        targets, relations, weights = self.store.edges_of(concept)
        is_followed = self.is_followed[relations]
        targets, weights = targets[is_followed], weights[is_followed]
        is_first = np.diff(targets, prepend=-1) > 0  # the heaviest edge
        return targets[is_first], self.lengths(weights[is_first])

    def lengths(self, weights: np.ndarray) -> np.ndarray:
        """Return the lengths of edges with some weights."""
        return 1 + np.exp(1 - weights.astype("float64"))

    def _heaviest_neighbors(self, concept):
        near, lengths = self._neighbors(concept)
        if len(near) > self.max_neighbors:
            kept = np.sort(np.lexsort((near, lengths))[: self.max_neighbors])
            near, lengths = near[kept], lengths[kept]
        return near, lengths

    def _ends_of_two(self, concept):
        """Return what is two edges away: the first and second concept, and the length."""
        near, lengths = self._near(concept)
        further = [self._near(one) for one in near.tolist()]
        sizes = [len(ends) for ends, _ in further]
        if not sizes:
            return np.zeros(0, "int32"), np.zeros(0, "int32"), np.zeros(0)
        second = np.concatenate([ends for ends, _ in further])
        total = np.repeat(lengths, sizes) + np.concatenate([length for _, length in further])
        return np.repeat(near, sizes), second, total


def _joined(left, left_lengths, right, right_lengths):
    """Return the places in two arrays at which both have the same value, the `JOINED` shortest."""
    left_order, right_order = (
        _shortest_of_each(values, lengths)
        for values, lengths in ((left, left_lengths), (right, right_lengths))
    )
    sorted_right = right[right_order]
    start = np.searchsorted(sorted_right, left[left_order], "left")
    count = np.searchsorted(sorted_right, left[left_order], "right") - start
    i = np.repeat(left_order, count)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return i, right_order[np.repeat(start, count) + within]


def _shortest_of_each(values, lengths):
    """Return the order by value and length, of each value only the first `JOINED`."""
    order = np.lexsort((lengths, values))
    ordered = values[order]
    place = np.arange(len(order)) - np.searchsorted(ordered, ordered, "left")
    return order[place < JOINED]
