"""Words of strings, found by the places of tokens; words of lists, with the space before them."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import BertBackbone
from keras_lm.packers import Packer, WordEnds, Words, WordWindows
from keras_lm.packers.words import pieces_in_text

pytestmark = pytest.mark.eager


def first_pieces(tokenizer, text, **arguments):
    """The words of a string or a list, and the first piece of each, None for none."""
    rows = Words(**arguments)
    packer = Packer(BertBackbone.TEMPLATE, None, 1, rows=rows)
    packer.tokenizer = tokenizer
    column = tf.constant([text]) if isinstance(text, str) else tf.ragged.constant([text])
    words, _, (ids, first, end) = rows.read(packer, column)
    tokens = [tokenizer.id_to_token(int(id)) for id in ids.values]
    places = zip(first.numpy(), end.numpy(), strict=True)
    words = [word.decode() for word in words.values.numpy()]
    return tokens, dict(zip(words, [tokens[i] if j > i else None for i, j in places], strict=True))


def test_words_of_a_string_have_the_pieces_that_they_have_in_it(tokenizer_of):
    tokenizer = tokenizer_of("bytebpe-roberta")
    text = "The film was good."
    tokens, first = first_pieces(tokenizer, text)
    assert tokens == [tokenizer.id_to_token(int(id)) for id in tokenizer(text)]
    assert first["The"] == "The" and first["film"] == "Ġf" and first["."] == "."
    alone, _ = first_pieces(tokenizer, text, whole_texts=False)
    assert not any(token.startswith("Ġ") for token in alone)


@pytest.mark.parametrize("text", ["ok", " ok", "a ok"])
def test_a_space_that_is_a_piece_is_no_first_piece(tokenizer_of, text):
    tokenizer = tokenizer_of("sentencepiece-xlnet")
    tokens, first = first_pieces(tokenizer, text)
    assert "▁" in tokens and first["ok"] == tokens[tokens.index("▁") + 1]


def test_words_of_a_list_have_a_space_before_them(tokenizer_of):
    tokenizer = tokenizer_of("bytebpe-roberta")
    words = ["The", "film", ".", ""]
    tokens, first = first_pieces(tokenizer, words)
    spaced = tokenizer([" " + word for word in words[:3]])
    assert tokens == [tokenizer.id_to_token(int(id)) for id in spaced.values]
    assert first["The"].startswith("Ġ") and first[""] is None
    assert tokenizer.with_space.with_space is tokenizer.with_space
    alone, _ = first_pieces(tokenizer, words, whole_texts=False)
    assert alone == [tokenizer.id_to_token(int(id)) for id in tokenizer(words[:3]).values]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe-gpt1", "sentencepiece-xlnet"])
def test_other_tokenizers_read_words_of_lists_as_they_are(tokenizer_of, kind):
    tokenizer = tokenizer_of(kind)
    assert tokenizer.with_space is tokenizer
    tokens, _ = first_pieces(tokenizer, ["the", "film", "."])
    assert tokens == [tokenizer.id_to_token(int(i)) for i in tokenizer(["the", "film", "."]).values]


@pytest.mark.parametrize("kind", ["bytebpe-gpt2", "sentencepiece-albert", "wordpiece", "bpe-gpt1"])
def test_every_word_has_the_piece_with_its_first_character(tokenizer_of, kind):
    tokenizer = tokenizer_of(kind)
    texts = [
        "  It was good, 'twas… (very)!",
        "",
        "日本のfilm ไทย",
        " ",
        "don't \u200b x",
        'a."), b',
    ]
    words, places = Words().words(tf.constant(texts))
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts, "character")
    _, first, end = pieces_in_text(ids, starts, ends, words, places["start"], places["end"])
    first, end = (words.with_values(x).to_list() for x in (first, end))
    for row, text in enumerate(texts):
        spans = list(zip(starts[row].numpy(), ends[row].numpy(), strict=True))
        before = 0
        bounds = zip(places["start"][row].numpy(), places["end"][row].numpy(), strict=True)
        for n, (begin, stop) in enumerate(bounds):
            own = [i for i, (s, e) in enumerate(spans) if e > begin and s < stop]
            later = [i for i in own if spans[i][0] >= before]
            if not own:
                assert first[row][n] >= end[row][n], (text, n)
                continue
            # Where a piece is also of the word before, the next one within the word.
            expected = later[0] if later else own[0]
            if begin and not text[begin - 1].isspace() and not later:
                expected = own[0]
            assert first[row][n] <= expected, (text, n)
            assert end[row][n] == own[-1] + 1, (text, n)
            s, e = spans[first[row][n]]
            assert s < stop and e >= begin
            before = stop


def test_two_words_may_share_a_token():
    """Places as `don't.)` has them, split into `don`, `'t` and `.)`; a space is its own token."""
    ids = tf.ragged.constant([[7, 8, 9, 5], [3]], tf.int32)
    starts, ends = tf.ragged.constant([[0, 3, 5, 7], [0]]), tf.ragged.constant([[3, 5, 7, 8], [1]])
    words = tf.ragged.constant([["do", "n't", ".", ")", "x"], ["a", "b"]])
    begins = tf.ragged.constant([[0, 2, 5, 6, 8], [0, 2]])
    stops = tf.ragged.constant([[2, 5, 6, 7, 9], [1, 3]])
    _, first, end = pieces_in_text(ids, starts, ends, words, begins, stops)
    has_any = (end > first).numpy().tolist()
    assert has_any == [True] * 4 + [False, True, False]
    assert first.numpy()[:4].tolist() == [0, 1, 2, 2] and first.numpy()[5] == 0


def test_windows_and_ends_are_of_the_whole_text(tokenizer_of):
    tokenizer = tokenizer_of("bytebpe-modernbert")
    text = tf.constant(["The film was good.", "It."])
    whole = tokenizer(text)
    packer = Packer(BertBackbone.TEMPLATE, tokenizer, 30, rows=WordEnds())
    packed = packer({"text": text})
    assert (
        packed["token_ids"][0, 1 : 1 + len(whole[0])].numpy().tolist() == whole[0].numpy().tolist()
    )
    _, starts, ends = tokenizer.tokenize_with_offsets(text, "character")
    last = np.searchsorted(starts[0].numpy(), [3, 8, 12, 17, 18])
    # 1 more for [CLS].
    assert packed["word_positions"][0].numpy().tolist() == (last + 1).tolist()
    packer = Packer(BertBackbone.TEMPLATE, tokenizer, 4, rows=WordWindows())
    packed = packer({"text": text})
    row, mask = packed["token_ids"][0].numpy(), packed["padding_mask"][0].numpy()
    special = {tokenizer.special_id("cls"), tokenizer.special_id("sep")}
    flat = [id for id in row[mask > 0] if id not in special]
    assert flat == whole[0].numpy().tolist()
    for place, word in zip(packed["word_positions"][0].numpy(), [0, 3, 8, 12, 17], strict=True):
        index = np.flatnonzero(ends[0].numpy() > word)[0]
        assert row.reshape(-1)[place - 1] == whole[0][index]


def test_special_tokens_that_strings_spell_have_places(tokenizer_of):
    for kind, token in (
        ("bytebpe-roberta", "</s>"),
        ("wordpiece", "[SEP]"),
        ("wordpiece", "[UNK]"),
    ):
        tokenizer = tokenizer_of(kind)
        text = f"it was \u2603{token} good"
        ids, starts, ends = tokenizer.tokenize_with_offsets(text, "character", [token])
        assert ids.numpy().tolist() == tokenizer(text, [token]).numpy().tolist()
        place = text.index(token)
        index = starts.numpy().tolist().index(place)
        assert ids[index] == tokenizer.token_to_id(token)
        assert ends[index] == place + len(token)
        assert text[starts[-1] : ends[-1]].strip() in "good"
