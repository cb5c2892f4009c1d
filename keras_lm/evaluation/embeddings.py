"""How good vectors are: what a search finds, how similarities rank pairs and triples.

Shapes: Q queries, N documents.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from keras_lm.analysis.similarity import spearman
from keras_lm.objectives.late_interaction import max_sim
from keras_lm.search import Index, prompt_for
from keras_lm.utils.user_arguments import check_whole

PLACES = (1, 3, 5, 10)


def evaluate_retrieval(
    encoder: Any,
    queries: Sequence[str],
    documents: Sequence[str] | Index,
    relevant: Sequence[int | Collection[int]],
    k: int = 10,
    batch_size: int = 32,
) -> dict[str, float]:
    """Return how well a search finds the documents that answer queries.

    Args:
        encoder: `keras_lm.tasks.SentenceEncoder`, `SparseEncoder` or `MultiVectorEncoder`, which
            compares as it does itself: by cosines, dot products, or `score`.
        queries: list of str, Q of them.
        documents: list of str, N of them; or an `Index` of these.
        relevant: for each query, the rows of the documents that answer it, from 0: an int, or a
            list or set of int.
        k: int. How many of the nearest documents count for `"ndcg@k"` and `"mrr@k"`.
        batch_size: int, see `SentenceEncoder.embed`.

    Returns:
        Dict of means over the queries: `"accuracy@1"` (whether an answer is the first), `…@3`,
        `…@5` and `…@10`; `"precision@…"` and `"recall@…"` likewise; `"ndcg@k"`, `"mrr@k"` and
        `"map@100"`. Of documents as near as each other, the one with the lower row comes first.

    Raises:
        ValueError: if `relevant` has another length than `queries`, none for a query, or a row that
            there is not.

    Example:

        evaluate_retrieval(encoder, questions, answers, range(len(questions)))["recall@1"]

    Source: Manning et al., "Introduction to Information Retrieval", section 8.4; the numbers of
    sentence-transformers' `InformationRetrievalEvaluator`.
    """
    check_whole("k", k, 1)
    most = max(100, k, *PLACES)
    if isinstance(documents, Index):
        index, documents = documents, documents.documents
    elif _similarity(encoder) != "max_sim":
        index = Index(encoder, documents, verbose=0)
    else:
        index = None
    relevant = _relevant(relevant, len(queries), len(documents))
    if index is None:
        scores = encoder.score(queries, documents, batch_size, 0)
        rows = np.argsort(-scores, axis=1, kind="stable")[:, :most]
    else:
        rows = index.search(queries, most, batch_size)["rows"]
    totals: dict[str, list[float]] = {}
    for hits, answers in zip(rows, relevant, strict=True):
        right = np.isin(hits, list(answers))
        for name, value in _of_query(right, len(answers), k).items():
            totals.setdefault(name, []).append(value)
    return {name: float(np.mean(values)) for name, values in totals.items()}


def _of_query(right, number, k):
    """Return the measures of a query, given which hits are right and how many answers there are."""
    measures = {}
    for place in PLACES:
        measures[f"accuracy@{place}"] = float(right[:place].any())
    for place in PLACES:
        measures[f"precision@{place}"] = right[:place].sum() / place
    for place in PLACES:
        measures[f"recall@{place}"] = right[:place].sum() / number
    gains = 1 / np.log2(np.arange(2, k + 2))
    best = gains[: min(number, k)].sum()
    first = np.flatnonzero(right[:k])[:1]
    measures[f"ndcg@{k}"] = (right[:k] * gains[: len(right[:k])]).sum() / best
    measures[f"mrr@{k}"] = 1 / (first[0] + 1) if len(first) else 0.0
    precisions = right[:100].cumsum() / np.arange(1, len(right[:100]) + 1)
    measures["map@100"] = (precisions * right[:100]).sum() / min(100, number)
    return measures


def _relevant(relevant, queries, documents):
    """Return the rows that answer each query, as sets."""
    relevant = [*relevant]
    if len(relevant) != queries:
        raise ValueError(
            f"relevant has {len(relevant)} entries for {queries} queries: pass one for each."
        )
    sets = []
    for i, rows in enumerate(relevant):
        rows = {int(rows)} if isinstance(rows, (int, np.integer)) else {int(row) for row in rows}
        if not rows or not all(0 <= row < documents for row in rows):
            raise ValueError(
                f"relevant[{i}] is {sorted(rows)}: pass rows of documents, 0 to {documents - 1}, "
                "at least one."
            )
        sets.append(rows)
    return sets


def evaluate_similarity(
    encoder: Any,
    first: Sequence[str],
    second: Sequence[str],
    scores: Sequence[float],
    batch_size: int = 32,
) -> dict[str, float]:
    """Return how well similarities follow the scores of pairs: `"pearson"` and `"spearman"`.

    Args:
        encoder: see `evaluate_retrieval`.
        first, second: lists of str, the two texts of each pair.
        scores: list of numbers, how similar they are.
        batch_size: int, see `SentenceEncoder.embed`.

    Raises:
        ValueError: if the three differ in length, have fewer than two rows, or scores that are all
            equal.

    Source: the STS tasks of SemEval; the cosines of sentence-transformers'
    `EmbeddingSimilarityEvaluator`.
    """
    _check_lengths(first=first, second=second, scores=scores)
    similarities = _similarities(encoder, first, second, batch_size)
    scores = np.asarray(scores, "float64")
    if np.ptp(scores) == 0:
        raise ValueError(f"scores are all {scores[0]}: pass those of pairs that differ.")
    return {
        "pearson": float(np.corrcoef(similarities, scores)[0, 1]),
        "spearman": spearman(similarities, scores),
    }


def evaluate_triplets(
    encoder: Any,
    anchors: Sequence[str],
    positives: Sequence[str],
    negatives: Sequence[str],
    batch_size: int = 32,
) -> dict[str, float]:
    """Return the share of anchors that are nearer to their positive: `"accuracy"`.

    Args:
        encoder: see `evaluate_retrieval`. Its prompts stand before texts as in `fit`.
        anchors, positives, negatives: lists of str of one length.
        batch_size: int, see `SentenceEncoder.embed`.

    Raises:
        ValueError: if the three differ in length, or have fewer than two rows.
    """
    _check_lengths(anchors=anchors, positives=positives, negatives=negatives)
    roles = ("query", "document")
    near, far = (
        _similarities(encoder, anchors, texts, batch_size, roles)
        for texts in (positives, negatives)
    )
    return {"accuracy": float(np.mean(near > far))}


def evaluate_paraphrases(
    encoder: Any,
    texts: Sequence[str],
    duplicates: Any,
    k: int = 100,
    batch_size: int = 32,
) -> dict[str, float]:
    """Return how well the most similar pairs of texts are those that say the same.

    Args:
        encoder: see `evaluate_retrieval`, except a `MultiVectorEncoder`.
        texts: list of str, N of them.
        duplicates: the rows of each two texts that say the same, int (P, 2); or a class for each
            text, (N,), int or str, of which any two texts say the same.
        k: int. How many of the nearest others each text is paired with.
        batch_size: int, see `SentenceEncoder.embed`.

    Returns:
        Dict of `"average_precision"`; and of the similarity from which on pairs are taken, so that
        F1 is highest, `"threshold"`, with `"f1"`, `"precision"` and `"recall"` there. Duplicates
        that are not paired count as missed.

    Raises:
        ValueError: if there are fewer than two texts, no duplicates, or rows that there are not.

    Example:

        evaluate_paraphrases(encoder, questions, [(0, 3), (1, 7)])["average_precision"]

    Source: the numbers of sentence-transformers' `ParaphraseMiningEvaluator`.
    """
    _check_lengths(texts=texts)
    pairs, scores = Index(encoder, texts, batch_size=batch_size, verbose=0).nearest_pairs(k)
    is_right, number = _duplicates(duplicates, pairs, len(texts))
    taken = np.arange(1, len(scores) + 1)
    right = np.cumsum(is_right)
    ends = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))  # of equal scores, the last
    ends = ends[np.diff(right[ends], prepend=0) > 0]  # where more are right than before
    precision, recall = right[ends] / taken[ends], right[ends] / number
    if not len(ends):
        return dict.fromkeys(("average_precision", "f1", "precision", "recall", "threshold"), 0.0)
    f1 = 2 * precision * recall / (precision + recall)
    best = int(np.argmax(f1))
    after = min(ends[best] + 1, len(scores) - 1)
    return {
        "average_precision": float(np.sum(precision * np.diff(recall, prepend=0))),
        "f1": float(f1[best]),
        "precision": float(precision[best]),
        "recall": float(recall[best]),
        "threshold": float((scores[ends[best]] + scores[after]) / 2),
    }


def _duplicates(duplicates, pairs, number):
    """Return which of pairs (P, 2) are duplicates, bool (P,), and how many duplicates there are."""
    duplicates = np.asarray(duplicates)
    if duplicates.ndim == 1 and len(duplicates) == number:  # a class for each text
        counts = np.unique(duplicates, return_counts=True)[1]
        is_right = duplicates[pairs[:, 0]] == duplicates[pairs[:, 1]]
        total = int(np.sum(counts * (counts - 1) // 2))
    elif duplicates.ndim == 2 and duplicates.shape[1] == 2 and duplicates.dtype.kind in "iu":
        if not ((duplicates >= 0) & (duplicates < number)).all():
            raise ValueError(
                f"duplicates has the rows {duplicates.min()} to {duplicates.max()}: pass rows of "
                f"texts, 0 to {number - 1}."
            )
        known = {(min(pair), max(pair)) for pair in duplicates.tolist() if pair[0] != pair[1]}
        is_right = np.array([pair in known for pair in map(tuple, pairs.tolist())])
        total = len(known)
    else:
        raise ValueError(
            f"duplicates has the shape {duplicates.shape}: pass the rows of each two texts that "
            f"say the same, or a class for each of the {number} texts."
        )
    if not total:
        raise ValueError("duplicates has no two texts that say the same: pass one pair or more.")
    return is_right, total


def _check_lengths(**columns):
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1 or min(lengths.values()) < 2:
        raise ValueError(f"the columns have {lengths} rows: pass two or more, of equal number.")


def _similarity(encoder):
    return getattr(encoder, "similarity", "cosine")


def _similarities(encoder, first, second, batch_size, roles=None):
    """Return how similar the texts of each pair are, as the encoder compares them."""
    kind = _similarity(encoder)
    if kind == "max_sim":
        roles = ("query", "document")
    vectors = []
    for texts, role in zip((first, second), roles or (None, None), strict=True):
        name = role and prompt_for(encoder, role)
        rows = encoder.embed([*texts], batch_size, 0, prompt_name=name)["embedding"]
        if kind == "cosine":
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        vectors.append(rows)
    if kind == "max_sim":
        pairs = zip(*vectors, strict=True)
        return np.array([float(max_sim(a[None], b[None])[0, 0]) for a, b in pairs])
    return np.sum(vectors[0] * vectors[1], axis=1)
