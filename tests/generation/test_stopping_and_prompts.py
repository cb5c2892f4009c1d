"""Stop strings, and prompts side by side."""

import types

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.generation.decoding import NOWHERE, align, cut, first_place, longest_stop, real_tokens
from keras_lm.generation.streaming import _text, settled

TEXTS = ["a--b", "--", "", "a-b", "b.a--", "xé--", b"\xff--\x80", "a--b--c"]


@pytest.mark.parametrize(
    "stops", [[], ["--"], ["--", "."], ["b", "a--", "-"], ["é"], [b"\x80"], ["(?:.)*"]]
)
def test_texts_end_before_the_first_of_several_strings(stops):
    texts = [text.encode() if isinstance(text, str) else text for text in TEXTS]
    sought = [stop.encode() if isinstance(stop, str) else stop for stop in stops]
    places = [min([t.find(s) for s in sought if s in t], default=NOWHERE) for t in texts]
    stops = tf.constant(stops, tf.string)
    np.testing.assert_array_equal(first_place(tf.constant(texts), stops), places)
    assert cut(tf.constant(texts), stops).numpy().tolist() == [
        text[:place] for text, place in zip(texts, places)
    ]
    assert int(longest_stop(stops)) == max(map(len, sought), default=0)


def test_prompts_end_in_one_column_and_keep_their_last_tokens():
    rows = tf.ragged.constant([[1, 2, 3, 4], [5], [], [6, 7]], tf.int32)
    ids, mask = align(rows, tf.constant([3, 9, 9, 0]))
    np.testing.assert_array_equal(ids, [[2, 3, 4], [0, 0, 5], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(mask, [[1, 1, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
    assert real_tokens(ids, mask).to_list() == [[2, 3, 4], [5], [], []]


def test_a_piece_ends_with_its_row():
    """Columns after the end of a row, which others still fill, are left out."""
    ids, end = tf.constant([[9, 1, 2, 3], [9, 4, 0, 0]]), tf.constant([4, 2])
    state = types.SimpleNamespace(token_ids=ids, end=end)
    ending = types.SimpleNamespace(
        detokenize=lambda ids: tf.strings.reduce_join(tf.strings.as_string(ids), axis=1),
        strings=tf.constant(["3"]),
    )
    assert _text(1, state, ending).numpy().tolist() == [b"12", b"4"]


def test_no_prompts_at_all():
    ids, mask = align(tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int32), [0]), [])
    assert ids.shape == mask.shape == (0, 1)


@pytest.mark.parametrize(
    "text, stops, certain",
    [
        ("a b", [], "a b"),
        ("a b\ufffd\ufffd", [], "a b"),  # the first bytes of a character
        ("a\ufffdb", [], "a\ufffdb"),
        ("one--", ["---"], "one"),
        ("one-- ", ["---"], "one-- "),
        ("stops", ["psst", "top"], "sto"),
        ("stop\n", ["\n\n", "p\nx"], "sto"),
        ("", ["x"], ""),
    ],
)
def test_what_a_stream_may_show_is_what_no_further_token_changes(text, stops, certain):
    assert text[: settled(text, stops)] == certain
