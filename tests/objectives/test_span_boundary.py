"""The span-boundary objective: which spans it finds, and how they come to the head."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import SpanBertBackbone
from keras_lm.objectives import (
    IGNORED,
    MaskedSpans,
    SentenceOrder,
    SpanBoundary,
)
from keras_lm.tasks import Pretrainer
from keras_lm.tokenizers import WordPieceTokenizer

PAD, CLS, SEP, MASK = 0, 2, 3, 4
X = IGNORED


def find(objective, ids, masked, shuffle=False):
    """Corrupt one row of which `masked` places are masked, in this order."""
    ids, places = np.array([ids], "int32"), np.array([masked], "int32")
    labels = np.take_along_axis(ids, places, axis=1)
    after = ids.copy()
    np.put_along_axis(after, places, MASK, axis=1)
    # As the objectives do, with places that are not masked at the end.
    rest = np.setdiff1d(np.arange(ids.shape[1]), places)[None, :2]
    inputs = {
        "token_ids": tf.constant(after),
        "padding_mask": tf.constant((ids != PAD).astype("int32")),
        "mask_positions": tf.constant(np.concatenate([places, rest], axis=1).astype("int32")),
        "mask_labels": tf.constant(np.pad(labels, [[0, 0], [0, 2]], constant_values=X)),
    }
    corrupted, labels = objective.corrupt(inputs)
    targets = {}
    for label, ends, place in zip(
        labels.numpy()[0, :, 0],
        corrupted["span_boundaries"].numpy()[0],
        corrupted["span_places"].numpy()[0],
        strict=True,
    ):
        if label != X:
            targets.setdefault(tuple(ends.tolist()), {})[int(place)] = int(label)
    return targets


def test_spans_are_what_is_masked_in_a_row():
    ids = [CLS, 10, 11, 12, 13, 14, 15, 16, 17, SEP, PAD]
    one = SpanBoundary(special_ids=[PAD, CLS, SEP, MASK])
    expected = {(1, 4): {0: 11, 1: 12}, (5, 7): {0: 15}}
    assert find(one, ids, [2, 3, 6]) == expected
    assert find(one, ids, [6, 3, 2]) == expected  # however they are ordered
    # Beside a special token there are no two words around a span.
    assert find(one, ids, [1, 2, 5, 8]) == {(4, 6): {0: 14}}
    assert find(one, ids, list(range(1, 9))) == {}
    assert find(one, [*range(10, 16)], [0, 2, 5]) == {(1, 3): {0: 12}}


def test_the_first_tokens_of_long_spans_are_predicted():
    ids = [CLS, *range(10, 40), SEP]
    one = SpanBoundary(special_ids=[CLS, SEP])
    targets = find(one, ids, list(range(2, 30)))
    assert targets == {(1, 30): {place: 11 + place for place in range(28)}}
    one = SpanBoundary(special_ids=[CLS, SEP], max_span_length=2)
    assert find(one, ids, [4, 5, 6]) == {(3, 7): {0: 13, 1: 14}}


def test_what_it_needs_is_said():
    with pytest.raises(ValueError, match="max_span_length=0: pass"):
        SpanBoundary(max_span_length=0)
    inputs = {name: tf.zeros([1, 3], tf.int32) for name in ("token_ids", "padding_mask")}
    with pytest.raises(ValueError, match=r"such as MaskedSpans\(\)"):
        SpanBoundary(special_ids=[]).corrupt(inputs)
    with pytest.raises(ValueError, match="no special_ids: give the task a tokenizer"):
        SpanBoundary().corrupt(inputs | {"mask_labels": inputs["token_ids"]})


# === With a model ===

WORDS = ["the", "film", "was", "very", "good", "##ly", "and", "dull", "story", "i", "saw", "it"]
TEXTS = ["the film was very dully good and the story i saw was dull", "i saw it"] * 2


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], True)


@pytest.fixture
def make(tokenizer):
    def make(objectives=None, **options):
        backbone = SpanBertBackbone(
            tokenizer.vocabulary_size, 1, 2, 16, 24, max_sequence_length=32, dropout=0.0, **options
        )
        task = Pretrainer(backbone, objectives, tokenizer=tokenizer, sequence_length=24)
        task.compile(optimizer="adam", run_eagerly=True)
        return task

    return make


def test_each_token_is_read_from_its_place(make):
    task = make()
    spans, boundary = task.objectives  # those that SpanBERT was pretrained with
    assert [type(spans), type(boundary)] == [MaskedSpans, SpanBoundary]
    packed = task.preprocess({"text": tf.constant(TEXTS)})
    corrupted, labels = boundary.corrupt(spans.corrupt(packed)[0])
    assert (labels.numpy() != IGNORED).any()
    actual = task(corrupted)["span_boundary_logits"]
    assert actual.shape == (*labels.shape, task.tokenizer.vocabulary_size)
    assert boundary.max_span_length == task.backbone.config["max_span_length"] == 20
    assert make(max_span_length=4).objectives[1].max_span_length == 4
    with pytest.raises(
        ValueError, match=r"max_span_length=5, but the backbone's head has .* for 4"
    ):
        make([MaskedSpans(), SpanBoundary(max_span_length=5)], max_span_length=4)
    places = corrupted.pop("span_places")
    every = task(corrupted)["span_boundary_logits"]  # (B, M, L, V)
    expected = tf.gather(every, places, batch_dims=2)[:, :, None]
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "in_graph",
    [pytest.param(False, marks=pytest.mark.eager), pytest.param(True, marks=pytest.mark.thorough)],
)
def test_it_is_trained_with_the_masks_of_another(make, in_graph):
    task = make([MaskedSpans(rate=0.4, seed=1), SpanBoundary()])
    if in_graph:
        task.compile(optimizer="adam")
    task.optimizer.learning_rate = 0.05
    history = task.fit(TEXTS * 4, epochs=3, batch_size=16, verbose=0).history
    for name in ("token_logits_loss", "span_boundary_logits_loss"):
        assert history[name][-1] < history[name][0]


def test_a_swap_of_the_texts_keeps_the_spans(make, tokenizer):
    spans, swap, boundary = MaskedSpans(rate=0.4), SentenceOrder(seed=0), SpanBoundary()
    packed = make([spans, boundary]).preprocess(
        {"text": tf.constant(TEXTS * 5), "text_pair": tf.constant(TEXTS * 5)}
    )
    masked, _ = spans.corrupt(packed, training=False)
    swapped, order = swap.corrupt(masked)
    assert 0 < (order.numpy() == 1).sum() < len(order)
    (_, before), (_, after) = (boundary.corrupt(x) for x in (masked, swapped))
    assert (before.numpy() != IGNORED).any()
    for row in range(len(order)):
        assert sorted(before[row].numpy().ravel()) == sorted(after[row].numpy().ravel())


def test_a_place_beyond_the_head_is_an_error(make):
    task = make(max_span_length=2)
    inputs = {"token_ids": np.array([[CLS, 6, 7, 8, 9, SEP]])}
    inputs["span_boundaries"] = np.array([[[0, 4]] * 2])
    task(inputs | {"span_places": np.array([[0, 1]])})
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_span_length=2: predict the"):
        task(inputs | {"span_places": np.array([[0, 2]])})
