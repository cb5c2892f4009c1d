"""Entities beside tokens: rows of every form, and tasks from strings to exports."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks
from keras_lm.export.fresh_process import load_tflite
from keras_lm.models import ErnieBackbone
from keras_lm.tokenizers import EntityTokenizer, WordPieceTokenizer

WORDS = ["the", "film", "was", "good", "a", "great", "story", "cast", ",", "of", "##s"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
MENTIONS = {"film": "Q0", "the film": "Q1", "great story": "Q2", "cast": "Q3"}
FILM, THE_FILM, STORY, CAST = range(4)
TEXTS = ["the film was good, the FILM", "great story", "", "great  story of the fi\x00lm " * 4]
LIMIT = 16


@pytest.fixture(scope="module")
def tokenizer():
    return EntityTokenizer(VOCABULARY, lowercase=True, mentions=MENTIONS)


@pytest.fixture(scope="module")
def backbone():
    sizes = {"num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24, "entity_dim": 8}
    backbone = ErnieBackbone(len(VOCABULARY), 2, max_sequence_length=LIMIT, **sizes)
    random = np.random.default_rng(0)
    for weight in backbone.trainable_weights:
        weight.assign(random.normal(size=weight.shape, scale=0.3))
    return backbone.with_entities(np.eye(4, 8))


def entities(task, x):
    return task.preprocess(x)["entity_ids"].numpy().tolist()


@pytest.mark.eager
def test_rows(backbone, tokenizer):
    task = tasks.TextClassifier(backbone, tokenizer=tokenizer, num_classes=2)
    actual = entities(task, TEXTS)
    assert actual[0] == [-1, THE_FILM, -1, -1, -1, -1, THE_FILM] + [-1] * 9
    assert actual[2] == [-1] * LIMIT
    # Cut off after 14 tokens of 20.
    assert [i for i, row in enumerate(actual[3]) if row == STORY] == [1, 6, 11]
    assert [i for i, row in enumerate(actual[3]) if row == THE_FILM] == [4, 9, 14]
    # A mention that is cut off keeps its entity, as in the authors' code.
    assert entities(task, ["a " * 13 + "great story"]) == [[-1] * 14 + [STORY, -1]]
    # One begins and ends in one text.
    assert entities(task, (["a great"], ["story cast"])) == [[-1] * 5 + [CAST, -1]]
    task = tasks.TokenClassifier(backbone, tokenizer=tokenizer, class_names=["O", "B-X"])
    assert entities(task, [["a", "great", "story"]]) == [[-1, -1, STORY, -1, -1]]
    task = tasks.MultipleChoice(backbone, tokenizer=tokenizer)
    x = {"text": ["film"], "choices": [["cast", "a"]]}
    assert entities(task, x) == [[[-1, FILM, -1, CAST, -1], [-1, FILM, -1, -1, -1]]]


@pytest.mark.eager
def test_other_tokenizers(backbone, tokenizer):
    plain = WordPieceTokenizer(VOCABULARY, lowercase=True)
    task = tasks.TextClassifier(backbone, tokenizer=plain, num_classes=2)
    assert "entity_ids" not in task.preprocess(TEXTS)
    for number in (3, 5):
        with pytest.raises(ValueError, match=f"finds 4 entities, .* table has {number} rows"):
            tasks.FeatureExtractor(backbone.with_entities(np.eye(number, 8)), tokenizer=tokenizer)


@pytest.fixture(scope="module")
def task(backbone, tokenizer):
    """A classifier that was trained on strings, and its scores."""
    task = tasks.TextClassifier(backbone, tokenizer=tokenizer, class_names=["no", "yes"])
    task.fit(TEXTS, ["yes", "no", "no", "yes"], verbose=0)
    return task


def scores(task):
    return task.classify(TEXTS, verbose=0)["scores"]


@pytest.mark.slow
@pytest.mark.eager
def test_entities_count(task, backbone, tokenizer):
    other = task.with_backbone(task.backbone.with_entities(np.zeros((4, 8))), tokenizer)
    for weight, trained in zip(other.trainable_weights, task.trainable_weights, strict=True):
        weight.assign(trained)
    change = np.abs(scores(task) - scores(other)).max(axis=1)
    assert (change > 1e-6).tolist() == [True, True, False, True]  # the third text mentions none
    np.testing.assert_array_equal(task.backbone.entity_table.embeddings, np.eye(4, 8))


@pytest.mark.slow
def test_saved_and_exported(task, tmp_path):
    expected = scores(task)
    task.save_to_preset(tmp_path / "preset")
    again = tasks.Task.from_preset(tmp_path / "preset")
    assert again.tokenizer.mentions == MENTIONS and again.tokenizer.entities == [
        "Q0",
        "Q1",
        "Q2",
        "Q3",
    ]
    np.testing.assert_allclose(scores(again), expected, atol=1e-6)
    task.save(tmp_path / "task.keras")
    again = keras.saving.load_model(tmp_path / "task.keras")
    np.testing.assert_allclose(scores(again), expected, atol=1e-6)
    served = tf.saved_model.load(task.export(tmp_path / "served")).signatures
    actual = served["serving_default"](text=tf.constant(TEXTS))
    np.testing.assert_allclose(actual["scores"], expected, atol=1e-6)
    # Bytes that are no text, marks, other letters, what looks like special tokens, and no end.
    nasty = [b"\xff the FI\xccLM \xe2\x82", "the\u2028film\u0301 \U0001f6ac", "[SEP] cast[MASK]"]
    nasty = tf.constant([*nasty, "great\t story\0 " * 50, " \n"])
    actual = served["serving_default"](text=nasty)
    np.testing.assert_allclose(actual["scores"], task.answer({"text": nasty})["scores"], atol=1e-6)
    # What the texts mention, and where, as a page shows it.
    nasty = [
        "the film was good, the FILM",
        "",
        "\ufffd\U0001f6ac a cast",
    ]
    actual = served["mentions"](text=tf.constant(nasty))
    actual = {name: value.numpy().tolist() for name, value in actual.items()}
    assert actual["entities"] == [[b"Q1", b"Q1"], [b"", b""], [b"Q3", b""]]
    assert actual["text"][0] == [b"the film", b"the FILM"] and actual["text"][1:] == [
        [b"", b""],
        [b"cast", b""],
    ]
    for text, starts, ends, said in zip(
        nasty, *(actual[name] for name in ("start", "end", "text"))
    ):
        assert [text[a:b].encode() for a, b in zip(starts, ends)] == said


@pytest.mark.slow
def test_an_export_holds_the_entities_of_its_dictionary(backbone, tmp_path):
    """The table has a thousand entities, as if `kg_embed` had been read whole, and texts name 3."""
    ids = [f"Q{number}" for number in range(1_000)][::-1]
    mentions = {"film": "Q7", "cast": "Q3", "great story": "Q7", "story": "unknown"}
    tokenizer = EntityTokenizer(VOCABULARY, lowercase=True, mentions=mentions, entities=ids)
    whole = backbone.with_entities(np.random.default_rng(0).normal(size=(1_000, 8)))
    task = tasks.TextClassifier(whole, tokenizer=tokenizer, class_names=["no", "yes"])
    expected = scores(task)
    trimmed = task.trimmed()
    assert trimmed.tokenizer.entities == ["Q7", "Q3"] and trimmed.tokenizer.mentions == mentions
    assert trimmed.trimmed() is trimmed and task.backbone.config["num_entities"] == 1_000
    served = tf.saved_model.load(task.export(tmp_path / "served"))
    actual = served.signatures["serving_default"](text=tf.constant(TEXTS))["scores"]
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    assert [v.shape for name, v in served.weights.items() if "entity_table" in name] == [(2, 8)]
    said = served.signatures["mentions"](text=tf.constant(["a story, the CAST of a film"]))
    assert said["entities"].numpy().tolist() == [[b"", b"Q3", b"Q7"]]


@pytest.mark.thorough
def test_litert(task, tmp_path):
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    path = task.export(tmp_path / "model.tflite", format="litert")
    serve, _ = load_tflite(str(path))
    texts = np.array([text.encode() for text in TEXTS], object)
    expected = scores(task)
    for size in (4, 1, 3):
        actual = serve(text=texts[:size])["scores"]
        np.testing.assert_allclose(actual, expected[:size], atol=1e-5)


@pytest.mark.thorough
def test_windows_of_questions(backbone, tokenizer):
    task = tasks.QuestionAnswerer(backbone, tokenizer=tokenizer, sequence_length=12, stride=3)
    x = {"question": ["the film"], "context": ["a great story of the cast " * 3]}
    actual = task.preprocess(x)["entity_ids"].numpy()
    assert len(actual) > 2 and (actual[:, 1] == THE_FILM).all()
    assert {STORY, CAST} < {*actual.ravel().tolist()}
    task.fit({k: v * 2 for k, v in x.items()}, [{"text": "great story", "start": 2}] * 2, verbose=0)
    assert len(task.answer(x, verbose=0)) == 1
