"""Sentence order: which rows are swapped, what becomes of them, and what the labels are."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.objectives import IGNORED, SentenceOrder

CLS, SEP, PAD = 2, 3, 0
KEYS = ("token_ids", "segment_ids", "padding_mask", "mask_positions")


def row(first, second, columns, on_the_left=0):
    """[CLS] first [SEP] second [SEP] between padding: its ids, segments and mask."""
    ids = [CLS, *first, SEP, *second, *[SEP] * bool(second)]
    segments = [0] * (len(first) + 2) + [1] * (len(ids) - len(first) - 2)
    after = columns - len(ids) - on_the_left
    return [[0] * on_the_left + part + [0] * after for part in (ids, segments, [1] * len(ids))]


PAIRS = [
    ([11, 12, 13], [21, 22], 0),
    ([11], [21, 22, 23, 24], 3),
    ([], [21, 22], 0),
    ([11, 12], [], 0),
]


@pytest.fixture
def inputs():
    rows = np.array([row(a, b, 12, left) for a, b, left in PAIRS * 8], "int32")
    masked = np.tile([[1, 3, 5], [4, 6, 9], [2, 3, 9], [1, 2, 9]], (8, 1))
    return {
        name: tf.constant(value, tf.int32)
        for name, value in zip(KEYS, [*rows.transpose(1, 0, 2), masked], strict=True)
    }


def test_what_is_swapped(inputs):
    actual, labels = SentenceOrder(seed=0).corrupt(inputs)
    labels = labels.numpy()
    assert set(labels[::4]) == set(labels[1::4]) == {0, 1}
    assert set(labels[2::4]) | set(labels[3::4]) == {IGNORED}  # there is nothing to swap
    for i, (label, (first, second, left)) in enumerate(zip(labels, PAIRS * 8, strict=True)):
        pair = (second, first) if label == 1 else (first, second)
        expected = row(*pair, 12, left)
        for name, value in zip(KEYS[:3], expected):
            np.testing.assert_array_equal(actual[name][i], value)
        # A masked token is the same one, wherever it is now.
        before, after = (
            np.array(x["token_ids"][i])[np.array(x["mask_positions"][i])] for x in (inputs, actual)
        )
        np.testing.assert_array_equal(after, before)


def test_chance_and_evaluation(inputs):
    many = {name: tf.repeat(value[:1], 4000, axis=0) for name, value in inputs.items()}
    share = np.mean(SentenceOrder(seed=1).corrupt(many)[1])
    assert abs(share - 0.5) < 0.04
    one = SentenceOrder(seed=0)
    first, again = (one.corrupt(inputs, training=False)[1] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    first, again = (one.corrupt(many)[1].numpy() for _ in range(2))
    assert (first != again).any()
    same = (SentenceOrder(seed=7).corrupt(many)[1] for _ in range(2))
    np.testing.assert_array_equal(*same)


def test_shapes_may_be_unknown_until_the_call(inputs):
    one = SentenceOrder()
    spec = dict.fromkeys(inputs, tf.TensorSpec([None, None], tf.int32))
    function = tf.function(
        lambda x: one.corrupt(x, training=False), input_signature=[spec], autograph=False
    )
    actual, labels = function(inputs)
    expected, expected_labels = one.corrupt(inputs, training=False)
    np.testing.assert_array_equal(labels, expected_labels)
    for name in expected:
        np.testing.assert_array_equal(actual[name], expected[name])


def test_under_xla(inputs):
    corrupt = tf.function(SentenceOrder(seed=0).corrupt, jit_compile=True, autograph=False)
    actual, labels = corrupt(inputs)
    assert {0, 1, IGNORED} == set(labels.numpy())
    swapped = labels.numpy() == 1
    moved = (actual["token_ids"].numpy() != inputs["token_ids"].numpy()).any(axis=1)
    np.testing.assert_array_equal(moved, swapped)
