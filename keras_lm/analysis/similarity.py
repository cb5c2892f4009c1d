"""Similarity of vectors: between words, between languages, and as people judge it.

Shapes: N vectors, Q queries, D width, K neighbours.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def cosine_similarity(vectors: npt.ArrayLike, others: npt.ArrayLike | None = None) -> np.ndarray:
    """Return the cosines (N, M) of vectors with others. Zero vectors are similar to nothing.

    Args:
        vectors: (N, D) floats.
        others: (M, D) floats; None for the vectors themselves.

    Example:

        cosine_similarity([[1.0, 0.0], [3.0, 4.0]]).round(1).tolist()  # [[1.0, 0.6], [0.6, 1.0]]
    """
    left = _unit("vectors", vectors)
    return left @ (left if others is None else _unit("others", others)).T


def nearest_neighbors(
    queries: npt.ArrayLike,
    vectors: npt.ArrayLike,
    number: int = 10,
    words: Sequence[str] | None = None,
) -> list[list[tuple[Any, float]]]:
    """Return the vectors that are most similar to each query by their cosine, the best first.

    Args:
        queries: (Q, D) floats.
        vectors: (N, D) floats, such as an embedding table or `WordVectors.layers[-1]`.
        number: int. Neighbours K of a query.
        words: N str, the names of the vectors; None for their numbers.

    Returns:
        For each query, a list of pairs of word, or number, and cosine.

    Raises:
        ValueError: if shapes do not match, or `number` is out of range.

    Example:

        table = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
        (neighbors,) = nearest_neighbors(table[:1], table, 2, words=["cat", "dog", "law"])
        [word for word, _ in neighbors]  # ["cat", "dog"]
    """
    cosines = cosine_similarity(queries, vectors)
    if not 1 <= number <= cosines.shape[1]:
        raise ValueError(f"number={number}: pass 1 to {cosines.shape[1]}, the vectors there are.")
    if words is not None and len(words) != cosines.shape[1]:
        raise ValueError(f"words has {len(words)} names for {cosines.shape[1]} vectors.")
    best = np.argsort(-cosines, axis=1, kind="stable")[:, :number]
    return [
        [(int(i) if words is None else words[i], float(row[i])) for i in places]
        for row, places in zip(cosines, best, strict=True)
    ]


def spearman(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return Spearman's rank correlation; equal numbers share a rank.

    Args:
        first, second: sequences of numbers, of the same length.

    Raises:
        ValueError: if they differ in length, are shorter than two, or one does not vary.

    Example:

        spearman([1, 2, 3, 4], [10, 20, 40, 30])  # 0.8
    """
    first, second = np.asarray(first, "float64"), np.asarray(second, "float64")
    if first.ndim != 1 or first.shape != second.shape or len(first) < 2:
        raise ValueError(
            f"first and second have the shapes {first.shape} and {second.shape}: pass the "
            "same number of values in both, two or more."
        )
    ranks = [_ranks(values) for values in (first, second)]
    if any(np.ptp(values) == 0 for values in ranks):
        raise ValueError("first or second has one value only, so it has no order.")
    return round(float(np.corrcoef(*ranks)[0, 1]), 12)


def _ranks(values):
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[places]


def word_similarity(
    pairs: Sequence[tuple[str, str]], scores: Sequence[float], vectors: Mapping[str, Any]
) -> tuple[float, int]:
    """Return how well cosines agree with people's judgement of word pairs, as WordSim-353 asks it.

    Args:
        pairs: list of pairs of str.
        scores: as many numbers, people's.
        vectors: dict of str → (D,) floats. Pairs with a word that it lacks are left out.

    Returns:
        Spearman's correlation, and how many pairs counted.

    Raises:
        ValueError: if fewer than two pairs are left.

    Example:

        vectors = {"cat": [1.0, 0.0], "dog": [0.9, 0.2], "law": [0.0, 1.0]}
        pairs = [("cat", "dog"), ("cat", "law"), ("dog", "law")]
        word_similarity(pairs, [9.0, 1.0, 2.0], vectors)  # (1.0, 3)

    Source: Finkelstein et al., "Placing Search in Context", 2002.
    """
    if len(pairs) != len(scores):
        raise ValueError(f"scores has {len(scores)} numbers for {len(pairs)} pairs.")
    known = [i for i, pair in enumerate(pairs) if all(word in vectors for word in pair)]
    if len(known) < 2:
        raise ValueError(f"vectors knows both words of {len(known)} pairs: two or more are needed.")
    left, right = (_unit("vectors", [vectors[pairs[i][side]] for i in known]) for side in (0, 1))
    cosines = (left * right).sum(axis=1)
    return spearman(cosines, [scores[i] for i in known]), len(known)


def rotation(source: npt.ArrayLike, target: npt.ArrayLike) -> np.ndarray:
    """Return the rotation (D, D) that brings vectors closest to their translations.

    `source @ rotation(source, target)` is as near to `target` as an orthogonal map brings it, which
    keeps all distances between words. Scale vectors to length 1 first if only directions count.

    Args:
        source, target: (N, D) floats, the vectors of words and of their translations.

    Raises:
        ValueError: if the shapes differ.

    Example:

        turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
        english = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
        np.allclose(rotation(english, english @ turn), turn)  # True

    Source: orthogonal Procrustes; Smith et al. 2017, https://arxiv.org/abs/1702.03859, section 2.
    """
    source, target = np.asarray(source, "float64"), np.asarray(target, "float64")
    if source.ndim != 2 or source.shape != target.shape:
        raise ValueError(
            f"source and target have the shapes {source.shape} and {target.shape}: pass (N, D) "
            "each, with a word and its translation in the same row."
        )
    left, _, right = np.linalg.svd(source.T @ target)
    return left @ right


def _unit(name, vectors):
    vectors = np.asarray(vectors, "float64")
    if vectors.ndim != 2:
        raise ValueError(f"{name} has the shape {vectors.shape}: pass one vector a row, (N, D).")
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
