"""`keras-lm search`, and an encoder that `finetune` trains and `evaluate` measures."""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.cli import search
from keras_lm.cli.finetune import _loss_for
from keras_lm.datasets.examples import read_examples
from keras_lm.evaluation import evaluate_retrieval
from keras_lm.search import Index
from keras_lm.tasks import MultiVectorEncoder, SentenceEncoder, SparseEncoder

DOCUMENTS = ["the film was good", "a loud song", "the song is bad !"]
QUERIES = ["a good film", "the bad song"]
PAIRS = "\n".join(
    [
        "query,answer",
        "a good film,the film was good",
        "a bad song,the song is bad",
        "a loud film,the film is loud",
        "the good song,a song was good",
    ]
)


@pytest.fixture
def documents(tmp_path):
    path = tmp_path / "documents.csv"
    path.write_text("document,id\n" + "\n".join(f"{t},{i}" for i, t in enumerate(DOCUMENTS)))
    return path


@pytest.fixture
def nearest(tiny):
    return Index(SentenceEncoder.from_preset(tiny), DOCUMENTS, verbose=0).search(QUERIES, 2)


@pytest.mark.eager
def test_questions_from_the_line_and_from_a_file(run, tiny, documents, nearest, tmp_path):
    said = run("search", tiny, documents, *QUERIES, "--k", 2).splitlines()
    assert said[0] == QUERIES[0]
    assert said[1].split(maxsplit=2) == [
        f"{nearest['scores'][0, 0]:.4f}",
        str(nearest["rows"][0, 0]),
        nearest["documents"][0, 0],
    ]
    questions, hits = tmp_path / "questions.txt", tmp_path / "hits.jsonl"
    questions.write_text("\n".join(QUERIES))
    run("search", tiny, documents, "--input", questions, "--k", 2, "--output", hits)
    rows = [json.loads(line) for line in hits.read_text().splitlines()]
    assert [row["text"] for row in rows] == QUERIES
    assert [row["rows"] for row in rows] == nearest["rows"].tolist()
    assert [row["documents"] for row in rows] == nearest["documents"].tolist()
    np.testing.assert_allclose([row["scores"] for row in rows], nearest["scores"], atol=1e-6)


@pytest.mark.eager
def test_an_index_is_written_and_searched(run, fail, tiny, documents, nearest, tmp_path):
    index = tmp_path / "index"
    said = run("search", tiny, documents, "--index", index)
    assert "documents" in said and "index" in said
    said = run("search", tiny, index, QUERIES[1], "--k", 1).splitlines()
    assert said[1].endswith(nearest["documents"][1, 0])
    assert "is a saved index already" in fail("search", tiny, documents, "--index", index)
    run("search", tiny, documents, "--index", index, "--overwrite")
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    message = fail("search", tiny, documents, "--index", other, "--overwrite")
    assert "exists and is not a saved index" in message
    with pytest.raises(FileExistsError, match="is not an index"):
        Index.load(index, SentenceEncoder.from_preset(tiny)).save(other)


def test_an_artefact_that_searches(run, tiny, documents, nearest, tmp_path):
    run("search", tiny, documents, "--export", tmp_path / "exported", "--k", 2)
    search = tf.saved_model.load(str(tmp_path / "exported" / "1")).signatures["search"]
    answer = search(text=tf.constant(QUERIES))
    assert answer["rows"].numpy().tolist() == nearest["rows"].tolist()


def test_documents_that_are_missing(fail, tiny, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    assert "is empty" in fail("search", tiny, empty, "a film")
    assert "does not exist" in fail("search", tiny, tmp_path / "none.txt", "a film")
    assert "not one that --index has written" in fail("search", tiny, tiny, "a film")


def test_what_a_search_does_not_do_is_refused_before_it_begins(
    fail, tiny, documents, tmp_path, monkeypatch
):
    export = ["--export", tmp_path / "exported"]
    assert "--text-pair is for pairs" in fail("search", tiny, documents, "--text-pair", "id", "a")
    assert "--k 10 of 3 documents" in fail("search", tiny, documents, *export, "--k", 10)
    monkeypatch.setattr(search, "MOST_DOCUMENTS", 2)
    assert "searches 2 documents at most" in fail("search", tiny, documents, *export)
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "documents.json").write_text('["a"]')
    assert "--text is about a file" in fail("search", tiny, tmp_path / "index", "--text", "b", "a")
    assert not (tmp_path / "exported").exists()


def test_the_loss_follows_from_the_columns(tmp_path):
    rows = {
        "in-batch-negatives": [{"query": "a", "answer": "b"}, {"text": "a"}],
        "cosent": [{"anchor": "a", "positive": "b", "score": 0.5}],
        "supervised-contrastive": [{"text": "a", "label": "good"}],
    }
    for loss, forms in rows.items():
        for row in forms:
            file = tmp_path / "rows.jsonl"
            file.write_text(json.dumps(row))
            assert _loss_for(read_examples(file, "sentence-encoder")) == loss
    file.write_text(json.dumps({"anchor": "a", "positive": "b", "negative": ["c", "d"]}))
    assert read_examples(file, "sentence-encoder").texts["negative"] == [["c", "d"]]


@pytest.mark.eager
def test_pairs_are_learned_and_measured(run, tiny, tmp_path):
    file, encoder = tmp_path / "pairs.csv", tmp_path / "encoder"
    file.write_text(PAIRS)
    arguments = ["--task", "sentence-encoder", "--epochs", 1, "--batch-size", 4]
    run("finetune", tiny, file, "--output", encoder, *arguments)
    assert isinstance(SentenceEncoder.from_preset(encoder), SentenceEncoder)
    measures = json.loads(run("evaluate", encoder, file, "--json"))
    assert measures["texts"] == 4
    assert 0 <= measures["recall@1"] <= measures["recall@3"] <= 1
    assert run("predict", encoder, "a film")


@pytest.mark.eager
@pytest.mark.parametrize("kind", [SparseEncoder, MultiVectorEncoder])
def test_other_encoders_are_trained_measured_and_asked(run, fail, tiny, documents, tmp_path, kind):
    file, encoder = tmp_path / "pairs.csv", tmp_path / "encoder"
    file.write_text(PAIRS)
    is_sparse = kind is SparseEncoder
    name = "sparse-encoder" if is_sparse else "multi-vector-encoder"
    arguments = ["--task", name, "--epochs", 1, "--batch-size", 4]
    if not is_sparse:  # which is given a task, and a length of queries that the model has
        assert "query_length=32" in fail("finetune", tiny, file, "--output", encoder, *arguments)
        kind.from_preset(tiny, query_length=8).save_to_preset(tmp_path / "late")
        tiny, arguments = tmp_path / "late", arguments[2:]
    run("finetune", tiny, file, "--output", encoder, *arguments)
    task = kind.from_preset(encoder)
    measures = json.loads(run("evaluate", encoder, file, "--json"))
    questions, answers = zip(*(line.split(",") for line in PAIRS.splitlines()[1:]), strict=True)
    expected = evaluate_retrieval(task, questions, answers, range(4))
    assert measures == pytest.approx({"texts": 4} | expected)
    run("predict", encoder, *DOCUMENTS, "--output", tmp_path / "vectors.npz")
    vectors = np.load(tmp_path / "vectors.npz")
    embedded = task.embed(DOCUMENTS, verbose=0)
    expected = embedded["embedding"]
    if not is_sparse:
        expected = expected[embedded["mask"] > 0]
        np.testing.assert_array_equal(np.diff(vectors["offsets"]), embedded["mask"].sum(axis=1))
    np.testing.assert_allclose(vectors["embedding"], expected, atol=1e-6)
    if not is_sparse:
        assert "holds a MultiVectorEncoder" in fail("search", encoder, documents, *QUERIES)
        return
    said = json.loads(run("predict", encoder, DOCUMENTS[0]))["answer"]
    assert len(said["terms"]) == len(said["weights"]) == (expected[0] > 0).sum()
    best = task.expand(DOCUMENTS[:1], k=3, verbose=0)
    assert said["terms"][:3] == best["terms"][0].tolist()
    np.testing.assert_allclose(said["weights"][:3], best["weights"][0], rtol=1e-5)
    run("predict", encoder, "a film", "--output", tmp_path / "terms.parquet")
    hits = Index(task, DOCUMENTS, verbose=0).search(QUERIES, 1)
    said = run("search", encoder, documents, *QUERIES, "--k", 1).splitlines()
    score, _, document = said[1].split(maxsplit=2)
    assert score == f"{hits['scores'][0, 0]:.4f}" and document == hits["documents"][0, 0]
    export = ["--export", tmp_path / "exported"]
    assert "is for a sentence-encoder" in fail("search", encoder, documents, *export)


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize(
    ("row", "measure"),
    [
        ({"anchor": "a film", "positive": "the film", "score": 0.5}, "spearman"),
        ({"anchor": "a film", "positive": "a bad film", "negative": "a song"}, "triplet_accuracy"),
        ({"anchor": "a film", "positive": "film", "negative": ["a song", "."]}, "triplet_accuracy"),
        ({"text": "a film", "label": "good"}, "average_precision"),
        ({"text": "a film"}, None),
    ],
)
def test_other_forms_of_a_file_have_other_losses(run, fail, tiny, tmp_path, row, measure):
    file, encoder = tmp_path / "rows.jsonl", tmp_path / "encoder"
    other = row | {next(iter(row)): "the song"} | ({"score": 0.1} if "score" in row else {})
    file.write_text("\n".join(map(json.dumps, [row, other])))
    arguments = ["--task", "sentence-encoder", "--epochs", 1]
    run("finetune", tiny, file, "--output", encoder, *arguments)
    if measure is None:
        assert "has single texts" in fail("evaluate", encoder, file)
    else:
        assert measure in json.loads(run("evaluate", encoder, file, "--json"))


@pytest.mark.eager
def test_negatives_are_mined_for_pairs(run, fail, tiny, tmp_path):
    file, encoder = tmp_path / "pairs.csv", tmp_path / "encoder"
    file.write_text(PAIRS)
    arguments = ["--task", "sentence-encoder", "--epochs", 1, "--mine-negatives", 2]
    arguments += ["--loss", "triplet", "--output", encoder]  # which needs negatives
    assert "negatives  8 for 4 pairs" in run("finetune", tiny, file, *arguments)
    assert isinstance(SentenceEncoder.from_preset(encoder), SentenceEncoder)
    rows = {
        "single texts": {"text": "a film"},
        "the column negative": {"anchor": "a", "positive": "film", "negative": "song"},
        "scores": {"anchor": "a", "positive": "film", "score": 0.5},
    }
    for has, row in rows.items():
        file = tmp_path / "rows.jsonl"
        file.write_text(json.dumps(row))
        message = fail("finetune", tiny, file, "--overwrite", *arguments)
        assert f"--mine-negatives is for pairs alone, and {file} has {has}" in message


SCORED = {"anchor": "a film", "positive": "the film", "score": 0.5}
CLASSES = {"text": "a film", "label": "good"}


@pytest.mark.eager
@pytest.mark.parametrize(
    ("name", "rows", "more", "message"),
    [
        ("sparse-encoder", CLASSES, [], "has classes, which a sparse-encoder does not learn from"),
        ("multi-vector-encoder", SCORED, [], "has scores, which a multi-vector-encoder does not"),
        ("multi-vector-encoder", SCORED, ["--loss", "cosent"], "--loss is not for --task multi"),
        ("multi-vector-encoder", SCORED, ["--mine-negatives", 1], "--mine-negatives is not for"),
        ("sparse-encoder", SCORED, ["--loss", "supervised-contrastive"], "learns from pairs"),
        ("sparse-encoder", SCORED, [], None),
        ("sparse-encoder", SCORED | {"negative": "a song"}, ["--loss", "triplet"], "y is given"),
    ],
)
def test_what_other_encoders_learn_from(run, fail, tiny, tmp_path, name, rows, more, message):
    file = tmp_path / "rows.jsonl"
    other = rows | {next(iter(rows)): "the song"} | ({"score": 0.1} if "score" in rows else {})
    file.write_text("\n".join(map(json.dumps, [rows, other])))
    command = ["finetune", tiny, file, "--output", tmp_path / "out", "--task", name, *more]
    if message is not None:
        assert message in fail(*command, "--epochs", 1)
        return
    run(*command, "--epochs", 1)
    assert "spearman" in json.loads(run("evaluate", tmp_path / "out", file, "--json"))


def test_what_does_not_fit_an_encoder(fail, tiny, tmp_path):
    file = tmp_path / "pairs.csv"
    file.write_text(PAIRS)
    output = ["--output", tmp_path / "encoder"]
    message = fail("finetune", tiny, file, *output, "--loss", "cosent")
    assert "--loss is not for" in message
    arguments = ["--task", "sentence-encoder", "--loss", "triplet"]
    assert "negative" in fail("finetune", tiny, file, *output, *arguments)
