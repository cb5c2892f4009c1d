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
        ValueError: if the three differ in length, or have fewer than two rows.

    Source: the STS tasks of SemEval; the cosines of sentence-transformers'
    `EmbeddingSimilarityEvaluator`.
    """
    _check_lengths(first=first, second=second, scores=scores)
    similarities = _similarities(encoder, first, second, batch_size)
    scores = np.asarray(scores, "float64")
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


def _check_lengths(**columns):
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1 or min(lengths.values()) < 2:
        raise ValueError(f"the columns have {lengths} rows: pass two or more, as many of each.")


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
