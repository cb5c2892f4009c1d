"""`keras-lm evaluate` against scikit-learn, and `keras-lm features` against the library."""

import json

import numpy as np
import pytest

from keras_lm import tasks

pytestmark = pytest.mark.eager

TEXTS = [
    "the film was good",
    "a bad song",
    "",
    "loud , loud !",
    "good good film",
    "is the song bad",
]


@pytest.fixture
def labelled(write):
    """`labelled(labels)` is a JSONL file of the texts with these labels."""

    def labelled(labels, **columns):
        rows = [{"text": text, "label": label} for text, label in zip(TEXTS, labels)]
        for name, column in columns.items():
            rows = [row | {name: value} for row, value in zip(rows, column)]
        return write("data.jsonl", "\n".join(map(json.dumps, rows)))

    return labelled


def test_classifier_is_measured_as_scikit_learn_measures(run, critic, task, labelled):
    metrics = pytest.importorskip("sklearn.metrics")
    labels = ["good", "bad", "good", "good", "bad", "good"]
    message = json.loads(run("evaluate", critic, labelled(labels), "--json", "--batch-size", 4))
    answers = task.classify(TEXTS)
    predicted = list(answers["labels"])
    scores = metrics.precision_recall_fscore_support(
        labels, predicted, labels=["bad", "good"], zero_division=0
    )
    for index, name in enumerate(["bad", "good"]):
        row = message["classes"][name]
        expected = [column[index] for column in scores]
        assert [*row.values()] == pytest.approx(expected, abs=1e-6)
    assert message["texts"] == 6
    assert message["accuracy"] == pytest.approx(metrics.accuracy_score(labels, predicted))
    assert message["macro_f1"] == pytest.approx(np.mean(scores[2]))
    of_label = [row[int(label == "good")] for row, label in zip(answers["scores"], labels)]
    assert message["loss"] == pytest.approx(-np.mean(np.log(of_label)), rel=1e-4)


def test_table_has_a_row_for_every_class(run, critic, labelled):
    lines = run("evaluate", critic, labelled(["1", "0"] * 3)).splitlines()
    assert lines[0].split() == ["texts", "6"]
    assert [line.split()[0] for line in lines[-2:]] == ["bad", "good"]


def test_several_labels_are_measured(run, make_backbone, tokenizer, labelled, tmp_path):
    metrics = pytest.importorskip("sklearn.metrics")
    names = ["x", "y", "z"]
    task = tasks.TextClassifier(
        make_backbone(), tokenizer=tokenizer, class_names=names, multi_label=True
    )
    task.save_to_preset(tmp_path / "topics")
    labels = ["x;y", "", "z", "x", "y;z", "x;y;z"]
    file = labelled(labels)
    output = run("evaluate", tmp_path / "topics", file, "--json", "--label-separator", ";")
    message = json.loads(output)
    truth = np.array([[name in label.split(";") for name in names] for label in labels])
    answers = task.classify(TEXTS)["scores"] >= 0.5
    scores = metrics.precision_recall_fscore_support(truth, answers, zero_division=0)
    for index, name in enumerate(names):
        expected = [column[index] for column in scores]
        assert [*message["classes"][name].values()] == pytest.approx(expected, abs=1e-6)
    assert message["accuracy"] == pytest.approx(np.mean(truth == answers))


def test_regressor_of_pairs_is_measured(run, matcher, labelled):
    labels = [0.5, 1.5, -1, 2, 0, 3]
    file = labelled(labels, text_pair=TEXTS[::-1])
    message = json.loads(run("evaluate", matcher, file, "--json"))
    task = tasks.TextRegressor.from_preset(str(matcher))
    scores = task.regress((TEXTS, TEXTS[::-1]))["scores"]
    assert message["mean_squared_error"] == pytest.approx(np.mean((scores - labels) ** 2), rel=1e-4)
    assert message["mean_absolute_error"] == pytest.approx(np.mean(abs(scores - labels)), rel=1e-4)
    expected = np.corrcoef(scores, labels)[0, 1]
    assert message["pearson_correlation"] == pytest.approx(expected, abs=1e-4)


def test_masked_lm_is_measured_alike_twice(run, make_backbone, tokenizer, write, tmp_path):
    tasks.MaskedLM(make_backbone(), tokenizer=tokenizer).save_to_preset(tmp_path / "mlm")
    file = write("texts.txt", "\n".join(TEXTS))
    first = json.loads(run("evaluate", tmp_path / "mlm", file, "--json"))
    assert first["loss"] > 0
    assert first == json.loads(run("evaluate", tmp_path / "mlm", file, "--json"))


def test_evaluate_refuses_what_it_cannot_measure(fail, critic, matcher, tiny, labelled):
    assert "holds no task" in fail("evaluate", tiny, labelled("ababab"))
    unknown = fail("evaluate", critic, labelled(["good", "bad", "ugly"] * 2))
    assert "line 3: the label 'ugly' is not one of bad, good" in unknown
    assert "no column 'text_pair' or 'sentence2'" in fail("evaluate", matcher, labelled(range(6)))


# === features ===


@pytest.fixture(scope="module")
def embed(tiny):
    """`embed(**options)` is what the library itself gives for the texts."""

    def embed(**options):
        task = tasks.FeatureExtractor.from_preset(str(tiny), **options)
        return task.embed(TEXTS)["embedding"]

    return embed


def test_vectors_are_those_of_the_library(run, tiny, embed, write, tmp_path):
    file = write("texts.txt", "\n".join(TEXTS) + "\n")
    output = tmp_path / "vectors.npz"
    options = ["--layers", "0", "--pooling", "max", "--normalize", "--batch-size", 4]
    options += ["--prompt", "a good "]
    assert run("features", tiny, "--input", file, "--output", output, *options) == ""
    actual = np.load(output)
    assert actual.files == ["embedding"]
    assert actual["embedding"].dtype == np.float32
    expected = embed(layers=0, pooling="max", normalize=True, prompt="a good ")
    np.testing.assert_allclose(actual["embedding"], expected, atol=1e-6)
    assert {path.name for path in tmp_path.iterdir()} == {"texts.txt", "vectors.npz"}


def test_jsonl_goes_to_a_file_or_to_standard_output(run, answers, tiny, embed, tmp_path):
    printed = run("features", tiny, *TEXTS, "--output", "-")
    run("features", tiny, *TEXTS, "--output", tmp_path / "vectors.jsonl")
    assert (tmp_path / "vectors.jsonl").read_text() == printed
    rows = answers(printed)
    assert [row["input"] for row in rows] == [{"text": text} for text in TEXTS]
    actual = np.array([row["answer"]["embedding"] for row in rows])
    np.testing.assert_allclose(actual, embed(), atol=1e-6)


def test_vectors_of_tokens_are_ragged(run, answers, tiny, embed, tmp_path):
    output = tmp_path / "vectors.npz"
    arguments = ["features", tiny, *TEXTS, "--pooling", "none", "--batch-size", 2]
    run(*arguments, "--output", output)
    actual = np.load(output)
    offsets, padded = actual["offsets"], embed(pooling="none")
    assert np.diff(offsets).tolist() == [6, 5, 2, 6, 5, 6]  # [CLS] and [SEP] are tokens too
    lines = answers(run(*arguments, "--output", "-"))
    for i, row in enumerate(lines):
        vectors = actual["embedding"][offsets[i] : offsets[i + 1]]
        np.testing.assert_allclose(vectors, padded[i, : len(vectors)], atol=1e-5)
        np.testing.assert_allclose(row["answer"]["embedding"], vectors, atol=1e-6)


@pytest.mark.parametrize(
    "spelled, layers, pooling",
    [
        ("all", "all", "first"),
        ("0,-1,0", [0, -1, 0], "none"),
        pytest.param("all", "all", "none", marks=pytest.mark.thorough),
        pytest.param("0,-1,0", [0, -1, 0], "first", marks=pytest.mark.thorough),
    ],
)
def test_layers_stand_before_the_width(
    run, answers, tiny, embed, tmp_path, spelled, layers, pooling
):
    output = tmp_path / "layers.npz"
    arguments = ["features", tiny, *TEXTS, "--pooling", pooling, "--batch-size", 4]
    run(*arguments, "--layers", spelled, "--output", output)
    actual, expected = np.load(output), embed(layers=layers, pooling=pooling)
    offsets = np.arange(7) if pooling == "first" else actual["offsets"]
    number = 2 if layers == "all" else 3
    assert actual["embedding"].shape == (offsets[-1], number, 16)
    lines = answers(run(*arguments, "--layers", spelled, "--output", "-"))
    for i, row in enumerate(lines):
        vectors = actual["embedding"][offsets[i] : offsets[i + 1]]
        own = expected[i : i + 1] if pooling == "first" else expected[i, : len(vectors)]
        np.testing.assert_allclose(vectors, own, atol=1e-5)
        np.testing.assert_allclose(
            np.reshape(row["answer"]["embedding"], own.shape), own, atol=1e-5
        )


def test_each_layer_is_the_one_of_its_number(embed):
    layers = embed(layers=[-1, 0])
    np.testing.assert_allclose(layers[:, 0], embed(layers="last"), atol=1e-5)
    np.testing.assert_allclose(layers[:, 1], embed(layers="embedding"), atol=1e-5)


def test_no_texts_are_no_rows(run, tiny, write, tmp_path):
    output = tmp_path / "vectors.npz"
    run("features", tiny, "--input", write("texts.txt", ""), "--output", output)
    assert np.load(output)["embedding"].shape == (0, 0)


def test_features_refuse(fail, tiny, tmp_path):
    assert "neither .npz nor .jsonl" in fail("features", tiny, "x", "--output", "vectors.csv")
    output = ["--output", tmp_path / "vectors.npz"]
    assert "--layers '0;1'" in fail("features", tiny, "x", *output, "--layers", "0;1")
    assert "2 hidden states" in fail("features", tiny, "x", *output, "--layers", "7")
    assert "2 hidden states" in fail("features", tiny, "x", *output, "--layers", "0,7")
    assert not list(tmp_path.iterdir())


def test_an_ensemble_is_measured_and_several_tasks_are_not(run, fail, task, labelled, tmp_path):
    data = labelled(["good", "bad", "good", "good", "bad", "good"])
    other = tasks.TextClassifier(task.backbone, tokenizer=task.tokenizer, num_classes=2)
    both = tasks.Ensemble([task, other])
    both.save_to_preset(tmp_path / "both")
    message = json.loads(run("evaluate", tmp_path / "both", data, "--json"))
    right = both.classify(TEXTS)["labels"] == ["good", "bad", "good", "good", "bad", "good"]
    assert message["accuracy"] == pytest.approx(np.mean(right))
    tasks.MultiTask({"a": task, "b": other}).save_to_preset(tmp_path / "several")
    assert "not compared with labels" in fail("evaluate", tmp_path / "several", data)
    assert "holds several tasks" in fail("predict", tmp_path / "several", "a")


def test_vectors_are_a_form_of_predict(run, fail, tiny, critic, embed, write, tmp_path):
    file, output = write("texts.txt", "\n".join(TEXTS) + "\n"), tmp_path / "vectors.npz"
    vectors = ["--task", "feature-extractor", "--pooling", "max"]
    assert run("predict", tiny, "--input", file, "--output", output, *vectors) == ""
    np.testing.assert_allclose(np.load(output)["embedding"], embed(pooling="max"), atol=1e-6)
    printed = run("predict", tiny, *TEXTS, "--pooling", "max")  # which says that it is for vectors
    assert printed == run("features", tiny, *TEXTS, "--pooling", "max", "--output", "-")
    assert "is for --task feature-extractor" in fail(
        "predict", critic, "x", "--output", tmp_path / "answers.npz"
    )
    assert "are for vectors" in fail("predict", critic, "x", *vectors[2:], "--task", "masked-lm")
    assert "leave out --server" in fail(
        "predict", "x", "--server", "http://a", "--model", "b", *vectors
    )
    assert not (tmp_path / "answers.npz").exists()
