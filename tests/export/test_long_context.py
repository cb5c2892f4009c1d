"""Exports of Transformer-XL, XLNet and Reformer, beside what is shown of every model."""

import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_lm import litert, tasks

pytestmark = pytest.mark.eager  # an export is a graph anyway

IDS = np.random.default_rng(1).integers(4, 9, (2, 9)).astype("int32")
MASK = np.ones_like(IDS)
MASK[1, :2] = 0


@pytest.fixture
def make(backbone_of, tokenizer_of):
    def make(name, kind, **arguments):
        tokenizer = tokenizer_of(tiny.MODELS[name][0])
        return getattr(tasks, kind)(backbone_of(name), tokenizer=tokenizer, **arguments)

    return make


def assert_same(actual, expected):
    assert set(actual) == set(expected)
    for name, value in expected.items():
        value = np.asarray(value)
        if value.dtype == object:
            np.testing.assert_array_equal(actual[name], value)
        else:
            np.testing.assert_allclose(actual[name], value, atol=1e-4)


def test_xlnet_features(make, tmp_path):
    """Padding is before a text, and [CLS] after it. (Questions: test_xlnet_span_head.py.)"""
    task = make("XLNetBackbone", "FeatureExtractor", layers="sum_all", pooling="none")
    signatures = tf.saved_model.load(str(task.export(tmp_path))).signatures
    columns = {"text": tf.constant(["the film was good", "", "a bad story <mask> " * 8])}
    assert_same(signatures["serving_default"](**columns), task.answer(columns))
    packed = task.preprocess(columns)
    assert packed["padding_mask"][1, 0] == 0 and packed["segment_ids"][1, -1] == 2
    assert_same(signatures["tokens"](**packed), {"embedding": task(packed)})


# === LiteRT. (Classes: test_every_model.py; that MaskedLM is refused: test_tflite.py) ===


def open_lite(task, tmp_path):
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    return litert.open_interpreter(task.export(tmp_path / "model.tflite", format="litert"))


@pytest.mark.slow
def test_xlnet_answers_questions_in_litert(make, tmp_path):
    task = make("XLNetBackbone", "QuestionAnswerer", num_starts=3, sequence_length=48)
    interpreter = open_lite(task, tmp_path)
    columns = {
        "question": ["who is he?", "what film?"],
        "context": ["the film was good and a very nice cast loved it so much", "i loved it"],
    }
    actual = interpreter.get_signature_runner("serving_default")(
        **{name: np.array(x, object) for name, x in columns.items()}
    )
    columns = {name: tf.constant(x) for name, x in columns.items()}
    assert_same(actual, task.answer_lite(columns))


def segments():
    for start in range(0, 9, 3):
        part = slice(start, start + 3)
        yield {"token_ids": IDS[:, part], "padding_mask": MASK[:, part]}


@pytest.mark.slow
def test_transformer_xl_keeps_a_memory_in_litert(make, tmp_path):
    """Three segments, whose memory goes in and comes out, as the network itself reads them."""
    task = make("TransformerXLBackbone", "CausalLM")
    interpreter = open_lite(task, tmp_path)
    step = interpreter.get_signature_runner("next_token")
    memory = task.signatures.initial_state(rows=2)["memory"]
    for segment in segments():
        outputs = task.backbone(segment | {"memory": memory})
        actual = step(**segment, memory=memory)
        logits = np.asarray(task.head(outputs))[:, -1]
        assert_same(actual, {"logits": logits, "memory": outputs["memory"]})
        memory = actual["memory"]


@pytest.mark.slow
def test_reformer_reads_on_in_litert(make, tmp_path):
    """What comes next is as of the whole text, which each step reads again."""
    task = make("ReformerBackbone", "CausalLM")
    interpreter = open_lite(task, tmp_path)
    step = interpreter.get_signature_runner("next_token")
    state = task.signatures.initial_state(rows=2, length=9)
    for i, segment in enumerate(segments(), 1):
        actual = step(**segment, **state)
        whole = {"token_ids": IDS[:, : 3 * i], "padding_mask": MASK[:, : 3 * i]}
        np.testing.assert_allclose(actual.pop("logits"), task(whole)[:, -1], atol=1e-4)
        state = actual
