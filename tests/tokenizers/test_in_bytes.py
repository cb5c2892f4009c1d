"""Tokenizers read the bytes of texts as they read strings, by operations of integers alone."""

import random

import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_lm.litert import in_bytes
from keras_lm.tokenizers import (
    BytePairTokenizer,
    SentencePieceTokenizer,
    WordPieceTokenizer,
    strings,
)
from keras_lm.tokenizers.lite_operations import Speller, cleaning
from keras_lm.tokenizers.strings import without_text_operations

KINDS = (
    *("wordpiece-uncased", "wordpiece-cased", "bytebpe-gpt2", "bytebpe-roberta", "bpe-gpt1"),
    *("characters", "bytes"),
    *(pytest.param(k, marks=pytest.mark.slow) for k in ("sentencepiece-albert", "marian")),
)
TEXTS = [
    "",
    "Hello, world! It's naïve CAFÉ, ΟΔΥΣΣΕΥΣ, Straße ı İ ﬁ ½",
    "東京タワーに行きました。 한국어 각 ไทย",
    "e\u0301 \u00a0\u3000 tabs\tand\nlines  ",
    b"bad \xff\xfe bytes \xf0\x9f \xe2\x82",
    "a\x00b \x00",
    "the film was good, " * 50,
    " ",
]


def given_in_bytes(texts):
    return strings.from_bytes(*map(tf.constant, in_bytes({"text": texts}).values()))


@pytest.mark.eager
@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_strings(kind, tokenizer_of):
    tokenizer = tokenizer_of(kind)
    texts = TEXTS
    if "sentencepiece" in kind or kind == "marian":  # whose own operation reads valid UTF-8 alone
        texts = [t.decode("utf-8", "replace") if isinstance(t, bytes) else t for t in TEXTS]
    for batch in (texts, texts[:1], texts[1:2], ["", ""]):
        expected = tokenizer.tokenize_lite(tf.constant(batch)).to_list()
        with without_text_operations():
            assert tokenizer.tokenize_lite(given_in_bytes(batch)).to_list() == expected


def assert_special_tokens(tokenizer, more=()):
    """Special tokens in random texts, beside spaces of all kinds, are those of a call."""
    chosen = random.Random(0)
    special = [token for token in tokenizer.all_special_tokens if token]
    parts = [
        *special * 2,
        *more,
        *(" ", "  ", "\t", "\u00a0", "\u3000", "a", "the film", "naïve", "日本"),
    ]
    parts += ["½", "[", "<", "mask>", "\0", "x\u0301", "."]
    texts = ["".join(chosen.choices(parts, k=chosen.randrange(12))) for _ in range(200)]
    for batch in (texts, [""], ["", "", special[0]], [special[0] * 40, " "]):
        expected = tokenizer(batch, parse_special=True).to_list()
        with without_text_operations():
            actual = tokenizer.tokenize_lite_with(given_in_bytes(batch), parse_special=True)
        assert actual.to_list() == expected


@pytest.mark.eager
@pytest.mark.parametrize("kind", ["wordpiece-uncased", "bytebpe-roberta", "bytes", *KINDS[-2:-1]])
def test_special_tokens_in_text(kind, tokenizer_of):
    assert_special_tokens(tokenizer_of(kind))


@pytest.mark.eager
def test_tokens_may_overlap_and_include_spaces(goldens):
    more = ["<pad><", "d>a", "><"]
    tokenizer = BytePairTokenizer.from_files(
        goldens("tokenizers") / "bytebpe-roberta",
        additional_special_tokens=["<mask>", "</s>", "<s>"],
        lstrip_tokens=["<s>", "<mask>"],
        rstrip_tokens=["<s>", "</s>"],
    ).with_special_tokens(more)
    assert_special_tokens(tokenizer)


@pytest.mark.eager
@pytest.mark.parametrize(
    "kind",
    ["bytebpe-modernbert", pytest.param("sentencepiece-albert", marks=pytest.mark.slow)],
)
def test_added_tokens_are_always_found(kind):
    """Runs of spaces, as ModernBERT has them: a mask includes those before it."""
    plain = tiny.TOKENIZERS[kind]()
    added = ["  ", "    ", "\t\t", "|||IP|||", "||", "the film"]
    config = plain.get_config() | {"added_tokens": added, "rstrip_tokens": ["[CLS]"]}
    if isinstance(plain, SentencePieceTokenizer):
        tokenizer = SentencePieceTokenizer(plain._data, **config)
    else:
        tokenizer = BytePairTokenizer([*plain.vocabulary, *added], plain._rules.merges, **config)
    assert_special_tokens(tokenizer, added)
    texts = ["a   b", "\t\t\tthe film [MASK]", "     [MASK]  [CLS]   ", "  ", ""]
    with without_text_operations():
        for spelled in (False, ["[MASK]"], True):
            expected = tokenizer(texts, spelled).to_list()
            actual = tokenizer.tokenize_lite_with(given_in_bytes(texts), spelled)
            assert actual.to_list() == expected
    assert tokenizer.tokens(expected[2]).numpy().tolist() == [b"[MASK]", b"  ", b"[CLS]"]


def test_tokens_that_are_found_otherwise_are_refused(goldens, tokenizer_of):
    model = goldens("tokenizers") / "sentencepiece-t5"
    once = SentencePieceTokenizer.from_files(model, prefix_once=True)
    for tokenizer in (once, tokenizer_of("characters")):
        with without_text_operations(), pytest.raises(ValueError, match="special tokens in text"):
            tokenizer.tokenize_lite_with(given_in_bytes(["a"]), parse_special=True)


@pytest.mark.eager
def test_a_text_may_begin_with_the_last_letter_of_the_table():
    """What adds nothing is looked up, too, of the first letter: as far as the longest word goes."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "👍"]
    tokenizer = WordPieceTokenizer(tokens, lowercase=True)
    for texts in (["👍"], ["👍 a", "a👍"], ["a 👍"]):
        with without_text_operations():
            assert tokenizer.tokenize_lite(given_in_bytes(texts)).to_list() == [
                [tokens.index(token) if token in tokens else 1 for token in text.split()]
                for text in texts
            ]


def test_texts_as_bytes():
    texts = given_in_bytes(["né", "", "abc"])
    choices = given_in_bytes([["a", ""], ["né", "b"]])

    def listed(texts):
        return [bytes(row) for row in texts.to_list()]

    data, ends = strings.to_bytes(texts)
    assert bytes(data.numpy()) == "néabc\0".encode() and ends.numpy().tolist() == [3, 3, 6]
    assert strings.to_bytes(choices)[1].numpy().tolist() == [[1, 1], [4, 5]]
    assert strings.number_of(texts) == 3 and strings.number_of(choices) == 4
    assert strings.shape_of(choices).numpy().tolist() == [2, 2]
    cube = strings.in_rows(given_in_bytes([*"abcdef"]), tf.zeros([1, 3, 2]))
    assert strings.to_bytes(cube)[1].numpy().tolist() == [[[1, 2], [3, 4], [5, 6]]]
    assert strings.are_full(choices).numpy().tolist() == [[True, False], [True, True]]
    assert listed(strings.flat(choices)) == [b"a", b"", "né".encode(), b"b"]
    assert listed(strings.gathered(texts, tf.constant([2, 0, 1]))) == [b"abc", "né".encode(), b""]
    assert listed(strings.after("ü ", texts)) == ["ü né".encode(), "ü ".encode(), b"\xc3\xbc abc"]
    parts = strings.substrings(
        texts, tf.constant([[0, 1], [0, 0], [1, 3]]), tf.constant([[1, 2], [0, 0], [3, 3]])
    )
    assert [listed(row) for row in parts] == [[b"n", "é".encode()], [b"", b""], [b"bc", b""]]
    # What follows the last end does not count, and ends are not beyond the bytes.
    some = strings.from_bytes(tf.constant([*b"abcd"], tf.uint8), tf.constant([1, 3]))
    assert listed(some) == [b"a", b"bc"]
    some = strings.from_bytes(tf.constant([*b"abcd"], tf.uint8), tf.constant([2, 9]))
    assert listed(some) == [b"ab", b"cd"]


def test_rows_are_filled_up_without_text_operations():
    rows = tf.ragged.constant([[1, 2], [], [3]])
    with without_text_operations():
        assert strings.padded(rows, 7).numpy().tolist() == rows.to_tensor(7).numpy().tolist()
        assert strings.padded(rows[1:2], 7).numpy().tolist() == [[7]]
    assert strings.padded(rows[1:2], 7).shape == (1, 0)
    assert strings.padded(rows.with_values(np.float32([0.5, 1, 2])))[0].numpy().tolist() == [0.5, 1]


# === Ids to text ===

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a", "##", "'", "n't", "##n't", "s"),
    *("##'", "'s", "'ve", "##.", ".", "!", "?", ",", "x y", "x ##y", " ", "## ", "é", "##é"),
]


@pytest.mark.eager
@pytest.mark.parametrize("clean_up", [True, False, "punctuation"])
def test_pieces_are_joined_as_by_a_call(clean_up):
    tokenizer = WordPieceTokenizer(PIECES, lowercase=True, clean_up=clean_up)
    chosen = random.Random(1)
    rows = [[], *([PIECES.index("'")] * n for n in range(7))]
    for size in [1, 2, 3, 20] * 60:
        rows.append([chosen.randrange(len(PIECES) + 2) for _ in range(size)])
    ids = tf.ragged.constant(rows, tf.int32, ragged_rank=1)
    texts = [bytes(row) for row in tokenizer.detokenize_lite(ids).to_list()]
    assert texts == tokenizer.detokenize(ids).numpy().tolist()


def test_texts_are_cleaned_as_strings():
    chosen = random.Random(2)
    texts = ["".join(chosen.choices(" '.,?ntmsvreaé", k=chosen.randrange(30))) for _ in range(500)]
    ids = tf.ragged.constant([[*text.encode()] for text in texts], tf.int32, ragged_rank=1)
    for clean_up in (True, "punctuation"):
        spell = Speller([bytes([b]) for b in range(256)], *cleaning(clean_up))
        expected = strings.cleaned_up(tf.constant(texts), clean_up).numpy().tolist()
        assert [bytes(row) for row in spell(ids).to_list()] == expected
