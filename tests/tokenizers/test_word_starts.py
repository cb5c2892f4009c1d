"""Where words begin, by the mark of each kind of tokenizer."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.tokenizers import Tokenizer, WordPieceTokenizer

TEXT = "The film was unbelievably good!"
# The words that pieces make up; byte-level BPE does not part punctuation from words.
APART = ["the", "film", "was", "unbelievably", "good", "!"]
TOGETHER = ["the", "film", "was", "unbelievably", "good!"]
WORDS = {
    "wordpiece-uncased": APART,
    "bpe-gpt1": APART,
    "bytebpe-gpt2": TOGETHER,
    "bytebpe-roberta": TOGETHER,
    "sentencepiece-albert": APART,
    "sentencepiece-t5": APART,
    "sentencepiece-xlnet": APART,
}


def words(tokenizer, ids):
    """Pieces put together again, from one start of a word to the next."""
    results = []
    pieces = [piece.decode() for piece in tokenizer.tokens(ids).numpy()]
    for piece, starts in zip(pieces, tokenizer.word_starts(ids).numpy(), strict=True):
        for mark in ("##", "Ġ", "▁", "</w>"):
            piece = piece.replace(mark, "")
        results += [""] if starts else []
        results[-1] += piece.lower()
    return results


@pytest.mark.parametrize("kind", WORDS)
def test_pieces_make_words(tokenizer_of, kind):
    tokenizer = tokenizer_of(kind)
    ids = tokenizer(TEXT)
    assert words(tokenizer, ids) == WORDS[kind]
    assert len(ids) > len(WORDS[kind])  # some words have several pieces


@pytest.mark.parametrize("kind", [*WORDS, "words"])
def test_rows_of_every_form_in_the_graph(tokenizer_of, kind):
    tokenizer = tokenizer_of(kind)
    ids = tokenizer([TEXT, "", "good", ""])
    expected = [tokenizer.word_starts(row).numpy().tolist() for row in ids]
    assert tokenizer.word_starts(ids).to_list() == expected
    nested = tf.RaggedTensor.from_uniform_row_length(ids, 2)
    assert tokenizer.word_starts(nested).to_list() == [expected[:2], expected[2:]]
    for spec, given in [
        (tf.RaggedTensorSpec([None, None], tf.int32), ids),
        (tf.TensorSpec([None, None], tf.int32), ids.to_tensor()),
    ]:
        starts = tf.function(tokenizer.word_starts, [spec], autograph=False)(given)
        for row, actual in zip(expected, starts, strict=True):
            assert actual.numpy()[: len(row)].tolist() == row
    assert all(row[:1] == [True] for row in expected if row)


def test_every_word_is_one(tokenizer_of):
    tokenizer = tokenizer_of("words")
    assert all(tokenizer.word_starts(tokenizer("The film was good.")).numpy())
    characters = tokenizer_of("characters")
    ids = characters(["The film", "", "good"])
    assert characters.word_starts(ids).to_list() == [[True, True], [], [True]]
    assert characters.word_starts(ids.to_tensor()).shape == (3, 2)
    assert characters.word_starts(ids[0]).numpy().tolist() == [True, True]


def test_words_stand_between_special_tokens(tokenizer_of):
    roberta = tokenizer_of("bytebpe-roberta")
    begin, end, mask, unknown = (roberta.special_id(r) for r in ("cls", "sep", "mask", "unknown"))
    word = roberta("unbelievably").numpy().tolist()  # without a space before it
    more = [False] * (len(word) - 1)
    starts = roberta.word_starts([begin, *word, end, end, *word, mask, *word, unknown, *word[1:]])
    whole = [True, *more]
    assert starts.numpy().tolist() == [True, *whole, True, True, *whole, True, *whole, False, *more]


def test_a_line_begins_with_a_word(tokenizer_of):
    gpt2 = tokenizer_of("bytebpe-gpt2")
    assert words(gpt2, gpt2("good\nfilm")) == ["good", "ċ", "film"]  # lower-cased, as all here


def test_tables_say_which_pieces(tokenizer_of):
    tokenizer = WordPieceTokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able"], lowercase=True
    )
    assert tokenizer.begins_word.tolist() == [True] * 6 + [False] * 2
    assert tokenizer.ends_word.tolist() == [True, False, True, True, True] + [False] * 3
    for kind in WORDS:
        tokenizer: Tokenizer = tokenizer_of(kind)
        for table in (tokenizer.begins_word, tokenizer.ends_word):
            assert table.shape == (tokenizer.vocabulary_size,) and table.dtype == np.bool_


def test_marks_are_words_of_sentence_piece(tokenizer_of):
    """Each piece against the rule that XLNet's authors wrote."""
    marks = '!"#$%&()*+,-./:;?@[\\]^_`{|}~'
    for kind in ("sentencepiece-albert", "sentencepiece-t5", "sentencepiece-xlnet"):
        tokenizer = tokenizer_of(kind)
        expected = [t[0] in "▁<" or t in list(marks) for t in tokenizer.vocabulary]
        special = [t in tokenizer.all_special_tokens for t in tokenizer.vocabulary]
        np.testing.assert_array_equal(tokenizer.begins_word, np.logical_or(expected, special))
    # After a mark, a piece without a space goes on with its word.
    actual = words(tokenizer, tokenizer("good, film don't (was) a.film"))
    assert actual == ["good", ",", "film", "don't", "(was", ")", "a", ".film"]
