"""Unicode's normal forms in TensorFlow's own operations are those of TensorFlow Text."""

import random
import unicodedata

import pytest
import tensorflow as tf

from keras_lm.tokenizers import tokenizer, unicode_forms
from keras_lm.tokenizers.strings import FORMS, without_text_operations

# What composes, is sorted or has parts; Hangul in all states; vowel signs that compose; others.
LETTERS = (
    *"ae\u00e9\u00e2\u1ea5\u0301\u0323\u0327\u0302\u0338\u0345\u1dce qQ",
    *"\u1100\u1161\u11a8\uac00\uac01\ubdd4\u11c1\u0dd9\u0dcf\u0dca\u0b47\u0b3e\u0b57",
    *"\ufb01\u00bd\u00df\u0130\u03a3\uff21\U0001d400\u2260\uf93f\u212b\u0344\u0958\0\n中🙂\u00ad",
)


def texts(number, seed=0):
    generator = random.Random(seed)
    letters = [*LETTERS, *map(chr, generator.choices(range(0xA0, 0x3100), k=200))]
    made = ["".join(generator.choices(letters, k=generator.randrange(12))) for _ in range(number)]
    return tf.constant([text.encode() for text in made])


@pytest.mark.parametrize("form", [*FORMS, unicode_forms.FOLDED])
def test_texts_in_a_form(form):
    batch = texts(500)

    def call():
        if form == unicode_forms.FOLDED:
            return tokenizer.folded(batch).numpy().tolist()
        return tokenizer.normalized(batch, form).numpy().tolist()

    expected = call()
    with without_text_operations():
        assert call() == expected
        if form in FORMS:
            python = [unicodedata.normalize(form, text.decode()) for text in batch.numpy()]
            assert [text.decode() for text in call()] == python


@pytest.mark.slow
@pytest.mark.parametrize("form", [*FORMS, unicode_forms.FOLDED])
def test_every_character(form):
    """Characters that are newer than Python's Unicode stay as they are."""
    characters = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]
    characters = [c for c in characters if unicodedata.category(c) != "Cn"]
    batch = tf.constant([c.encode() for c in characters])
    function = tokenizer.folded
    if form in FORMS:
        function = lambda batch: tokenizer.normalized(batch, form)  # noqa: E731
    expected = function(batch).numpy()
    with without_text_operations():
        assert (function(batch).numpy() == expected).all()


@pytest.mark.parametrize("form", FORMS)
def test_places_are_those_of_the_text_as_it_was(form):
    """They are TensorFlow Text's, unless several marks follow a letter in another order."""
    batch = tf.constant(
        ["", "a\u00e9b", "ae\u0301b", "\ufb01x\ufb01 ½", "\uac01\uac00", "e\u0323\u0302", "中\xa0 "]
        + ["\uf93f a", b"\xff \xc3\xa9", "x\u212b\u0130\r\n", "\u1100\u1161 \u1100\u1161"]
    )

    def places(normal):
        ends = tf.ragged.range(tf.strings.length(normal) + 1)
        ends = tf.cast(ends.with_row_splits_dtype(tf.int64), tf.int64)
        return ends, ends, ends

    *_, expected = tokenizer.offsets_in_form(batch, form, places)
    with without_text_operations():
        ids, starts, ends = tokenizer.offsets_in_form(batch, form, places)
    assert starts.to_list() == ends.to_list() == expected.to_list()
    assert starts.dtype == tf.int64 and ids.to_list()[0] == starts.to_list()[0] == [0]
