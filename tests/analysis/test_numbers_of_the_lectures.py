"""Small facts: the variance of a dot product, maps of positions, what a vocabulary holds."""

import numpy as np
import pytest

from keras_lm import analysis, layers
from keras_lm.tokenizers import WordPieceTokenizer


def test_the_variance_of_a_dot_product_is_its_width():
    for row in analysis.dot_product_variance([4, 64, 1024]):
        assert row["variance"] == pytest.approx(row["dim"], rel=0.05)
        assert row["scaled_variance"] == pytest.approx(1, rel=0.05)
        assert row["largest"] > row["scaled_largest"]
    assert row["largest"] > 0.9 and row["scaled_largest"] < 0.5
    with pytest.raises(ValueError, match=r"dims=\[0\]"):
        analysis.dot_product_variance([0])


@pytest.mark.parametrize("interleaved", [True, False])
def test_sines_at_an_offset_are_a_rotation(interleaved):
    layer = layers.SinusoidalPositionEmbedding(400, 16, interleaved)
    layer.build((None, 400, 16))
    actual = analysis.offset_map(layer.embeddings, 7)
    assert actual.error < 1e-6
    sine, cosine = (0, 1) if interleaved else (0, 8)  # of the highest frequency, 1
    expected = [[np.cos(7), -np.sin(7)], [np.sin(7), np.cos(7)]]
    block = actual.matrix[np.ix_([sine, cosine], [sine, cosine])]
    np.testing.assert_allclose(block, expected, atol=1e-3)


def test_random_positions_are_no_map_of_the_offset():
    table = np.random.default_rng(0).normal(size=(400, 16))
    assert analysis.offset_map(table, 1).error > 0.9
    with pytest.raises(ValueError, match="offset=0"):
        analysis.offset_map(table, 0)
    with pytest.raises(ValueError, match=r"\(40, 16\)"):
        analysis.offset_map(table[:40], 1)


def test_a_vocabulary_is_counted():
    words = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words += ["film", "a", "##a", "##ing", "я", "книга", "電", "##電", "7", "##!", "कa", "ª", "ﾊ"]
    actual = analysis.vocabulary_contents(WordPieceTokenizer(words, lowercase=False))
    assert (actual.size, actual.reserved) == (19, 6)
    assert (actual.word_starts, actual.continuations) == (9, 4)
    assert (actual.characters, actual.continued_characters) == (6, 3)
    assert actual.lengths == {1: 9, 2: 1, 3: 1, 4: 1, 5: 1}
    expected = {"Latin": 4, "Cyrillic": 2, "Han": 2, "Other": 2}
    assert actual.scripts == expected | {"Digits": 1, "Devanagari": 1, "Katakana": 1}


@pytest.mark.parametrize(
    "kind, entry",
    [
        ("bytebpe-gpt2", "Ġf"),
        ("bpe-gpt1", "the</w>"),
        ("sentencepiece-t5", "▁the"),
        ("words", "film"),
    ],
)
def test_every_kind_of_vocabulary_is_counted(kind, entry, tokenizer_of):
    tokenizer = tokenizer_of(kind)
    actual = analysis.vocabulary_contents(tokenizer)
    assert actual.size == tokenizer.vocabulary_size
    assert actual.reserved >= len(tokenizer.all_special_tokens)
    assert actual.reserved + actual.word_starts + actual.continuations == actual.size
    assert (
        sum(actual.scripts.values())
        == sum(actual.lengths.values())
        == actual.size - actual.reserved
    )
    assert next(iter(actual.scripts)) in ("Latin", "Other")
    # Marks of pieces are no letters: the entry has the length of what it stands for.
    assert entry in tokenizer.vocabulary
    plain = entry.strip("Ġ▁").removesuffix("</w>")
    assert actual.lengths[len(plain)] >= 1
    assert max(actual.lengths) <= max(len(e) for e in tokenizer.vocabulary)


def test_a_tokenizer_without_a_vocabulary_is_refused(tokenizer_of):
    with pytest.raises(ValueError, match="CharacterTokenizer spells words"):
        analysis.vocabulary_contents(tokenizer_of("characters"))
