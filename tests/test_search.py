"""An index finds what brute force finds, and comes back from its folder."""

import numpy as np
import pytest

from keras_lm.search import ApproximateIndex, Index

RANDOM = np.random.default_rng(0)


class Encoder:
    """Vectors by a table, and the prompts that were asked for."""

    prompts = {"query": "q"}

    def __init__(self, table):
        self.table, self.asked = table, []

    def embed(self, texts, batch_size=32, verbose=0, prompt_name=None):
        self.asked.append(prompt_name)
        return {"embedding": np.stack([self.table[text] for text in texts])}


@pytest.fixture
def encoder():
    texts = [f"text {i}" for i in range(300)]
    return Encoder({text: RANDOM.normal(size=8).astype("float32") for text in texts})


def test_it_finds_what_brute_force_finds(encoder):
    texts = list(encoder.table)
    documents, queries = texts[:200], texts[200:]
    answers = Index(encoder, documents).search(queries, k=5)
    assert encoder.asked == [None, "query"]
    vectors = np.stack([encoder.table[text] for text in texts])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors[200:] @ vectors[:200].T
    rows = np.argsort(-cosines, axis=1)[:, :5]
    np.testing.assert_array_equal(answers["rows"], rows)
    np.testing.assert_allclose(
        answers["scores"], np.take_along_axis(cosines, rows, axis=1), rtol=1e-5
    )
    assert answers["documents"].tolist() == [[documents[row] for row in hits] for hits in rows]


def test_of_equal_documents_the_first_is_first(encoder):
    encoder.table |= dict.fromkeys(["a", "b", "c"], np.ones(8, "float32"))
    answers = Index(encoder, ["text 0", "c", "a", "b"]).search(["a"], k=9)
    assert answers["rows"].tolist()[0][:3] == [1, 2, 3] and answers["rows"].shape == (1, 4)
    texts = [text for i in range(200) for text in ("a", f"text {i}")]  # more than there are hits
    for k in (1, 5, 40):
        rows = Index(encoder, texts).search(["b", "c"], k)["rows"]
        np.testing.assert_array_equal(rows, [np.arange(0, 2 * k, 2)] * 2)


def test_nearest_pairs_are_those_of_all_pairs(encoder):
    documents = list(encoder.table)[:50]
    index = Index(encoder, documents)
    rows, scores = index.nearest_pairs(k=49)
    cosines = index.vectors @ index.vectors.T
    assert len(rows) == 50 * 49 // 2 and (rows[:, 0] < rows[:, 1]).all()
    np.testing.assert_allclose(scores, cosines[tuple(rows.T)], atol=1e-6)
    assert (np.diff(scores) <= 0).all()
    rows, _ = index.nearest_pairs(k=1)
    np.fill_diagonal(cosines, -1)
    nearest = np.sort(np.stack([np.arange(50), cosines.argmax(axis=1)], axis=1), axis=1)
    assert {*map(tuple, rows)} == {*map(tuple, nearest)}
    twins = Index(encoder, ["text 0"] * 5)  # of which each may miss itself
    assert len(twins.nearest_pairs(k=1)[0]) == 4


def test_it_comes_back_from_its_folder(encoder, tmp_path):
    documents = list(encoder.table)[:20]
    encoder.table["\ud800 é"] = np.ones(8, "float32")  # a lone surrogate
    index = Index(encoder, [*documents, "\ud800 é"])
    index.save(tmp_path / "index")
    loaded = Index.load(tmp_path / "index", encoder)
    assert loaded.documents == index.documents
    np.testing.assert_array_equal(
        loaded.search(["text 99"])["rows"], index.search(["text 99"])["rows"]
    )


@pytest.mark.parametrize(
    "documents, options, message",
    [
        ([], {}, "documents has no texts"),
        (["a", 1], {}, r"documents\[1\] is 1, and not a string"),
        ("text 1", {}, "is one text: pass a list"),
        (["text 1"], {"vectors": np.ones((2, 8))}, r"vectors has the shape \(2, 8\): pass a row"),
        (["text 1"], {"vectors": np.full((1, 8), np.nan)}, "numbers that are not finite"),
        (range(200_001), {}, "has 200001 texts: pass at most 200,000"),
    ],
)
def test_documents_that_do_not_fit(encoder, documents, options, message):
    with pytest.raises(ValueError, match=message):
        Index(encoder, documents, **options)


def test_a_number_of_hits_that_is_none(encoder):
    with pytest.raises(ValueError, match="k=0"):
        Index(encoder, ["text 1"]).search(["text 2"], k=0)
    with pytest.raises(ValueError, match="texts='text 2' is one text: pass a list of texts"):
        Index(encoder, ["text 1"]).search("text 2")


def test_an_approximate_index_finds_nearly_all(tmp_path):
    pytest.importorskip("usearch")
    vectors = RANDOM.normal(size=(3000, 16)).astype("float32")
    table = {f"text {i}": vector for i, vector in enumerate(vectors)}
    documents, queries = [*table][:2900], [*table][2900:]
    exact = Index(Encoder(table), documents).search(queries, 5)
    index = ApproximateIndex(Encoder(table), documents, candidates=100)
    answers = index.search(queries, 5)
    assert np.mean(answers["rows"] == exact["rows"]) > 0.97
    same = answers["rows"] == exact["rows"]
    np.testing.assert_allclose(answers["scores"][same], exact["scores"][same], atol=1e-6)
    assert index.search(queries[:1], 1)["rows"].shape == (1, 1)
    index.save(tmp_path / "index")
    loaded = ApproximateIndex.load(tmp_path / "index", Encoder(table), candidates=100)
    np.testing.assert_array_equal(loaded.search(queries, 5)["rows"], answers["rows"])
    with pytest.raises(ValueError, match="has 2900 documents, and there are 10"):
        graph = tmp_path / "index" / "graph.usearch"
        ApproximateIndex(Encoder(table), documents[:10], graph=graph)
    few = ApproximateIndex(Encoder(table), documents[:3])
    assert sorted(few.search(queries[:2], 9)["rows"][0]) == [0, 1, 2]
