"""Measures of vectors: sentence-transformers' numbers."""

import json

import numpy as np
import pytest

from keras_lm.evaluation import (
    evaluate_paraphrases,
    evaluate_retrieval,
    evaluate_similarity,
    evaluate_triplets,
)
from keras_lm.search import Index


@pytest.fixture(scope="module")
def expected(goldens):
    return json.loads((goldens("embedding-losses") / "evaluators.json").read_text())


class Encoder:
    prompts = {}

    def __init__(self, vectors):
        self.vectors = np.array(vectors, "float32")

    def embed(self, texts, batch_size, verbose, prompt_name=None):
        return {"embedding": np.stack([self.vectors[int(text)] for text in texts])}


@pytest.fixture
def encoder(expected):
    return Encoder(expected["vectors"])


TEXTS = [str(number) for number in range(60)]


def test_retrieval(expected, encoder):
    documents, queries = TEXTS[:40], TEXTS[40:]
    measured = evaluate_retrieval(encoder, queries, documents, expected["relevant"])
    assert measured == pytest.approx(expected["retrieval"], abs=1e-6)
    index = Index(encoder, documents)
    assert evaluate_retrieval(encoder, queries, index, expected["relevant"]) == measured


def test_similarity(expected, encoder):
    measured = evaluate_similarity(encoder, TEXTS[:20], TEXTS[20:40], expected["scores"])
    wanted = {name.removesuffix("_cosine"): x for name, x in expected["similarity"].items()}
    assert measured == pytest.approx(wanted, abs=1e-5)


def test_triplets(expected, encoder):
    measured = evaluate_triplets(encoder, TEXTS[:20], TEXTS[20:40], TEXTS[40:])
    assert measured["accuracy"] == pytest.approx(expected["triplets"]["cosine_accuracy"])


@pytest.mark.parametrize("case", [0, 1, 2])
def test_paraphrases(expected, case):
    """Of random vectors, and of vectors with many equal cosines."""
    wanted = expected["paraphrases"][case]
    encoder = Encoder(wanted["vectors"] or expected["vectors"])
    texts = TEXTS[: len(encoder.vectors)]
    measured = evaluate_paraphrases(encoder, texts, wanted["duplicates"], wanted["k"])
    assert measured == pytest.approx(wanted["measures"], abs=1e-6)


def test_classes_say_which_texts_are_paraphrases(encoder):
    classes = ["a", "b", "a", "c", "b", "a"]
    pairs = [(0, 2), (0, 5), (5, 2), (1, 4), (4, 1), (3, 3)]
    by_class = evaluate_paraphrases(encoder, TEXTS[:6], classes)
    assert by_class == evaluate_paraphrases(encoder, TEXTS[:6], pairs)
    assert by_class["recall"] > 0
    far = evaluate_paraphrases(Encoder(np.eye(4)), ["0", "1", "2", "3"], [(1, 2)], k=1)
    assert far["average_precision"] == far["threshold"] == 0  # the pair was not among them


@pytest.mark.parametrize(
    "duplicates, message",
    [
        ([(0, 6)], "duplicates has the rows 0 to 6: pass rows of texts, 0 to 5"),
        ([(1, 1)], "has no two texts that say the same"),
        (["a", "b"], r"has the shape \(2,\): pass the rows .* class for each of the 6 texts"),
        ([[0.5, 1.0]], r"has the shape \(1, 2\)"),
    ],
)
def test_duplicates_that_do_not_fit(encoder, duplicates, message):
    with pytest.raises(ValueError, match=message):
        evaluate_paraphrases(encoder, TEXTS[:6], duplicates)


def test_more_places_than_documents(encoder):
    measured = evaluate_retrieval(encoder, ["3"], ["5", "3"], [1])
    assert measured["recall@10"] == measured["mrr@10"] == measured["ndcg@10"] == 1
    assert measured["precision@10"] == 0.1


@pytest.mark.parametrize(
    "relevant, message",
    [
        ([0], "relevant has 1 entries for 2 queries"),
        ([0, 2], r"relevant\[1\] is \[2\]: pass rows of documents, 0 to 1"),
        ([0, []], r"relevant\[1\] is \[\]: pass rows"),
    ],
)
def test_rows_that_do_not_fit(encoder, relevant, message):
    with pytest.raises(ValueError, match=message):
        evaluate_retrieval(encoder, ["3", "4"], ["5", "6"], relevant)


def test_columns_of_different_lengths(encoder):
    with pytest.raises(ValueError, match=r"scores are all 1\.0"):
        evaluate_similarity(encoder, TEXTS[:2], TEXTS[:2], [1, 1])
    with pytest.raises(ValueError, match=r"{'first': 2, 'second': 3, 'scores': 2} rows"):
        evaluate_similarity(encoder, TEXTS[:2], TEXTS[:3], [1, 2])
