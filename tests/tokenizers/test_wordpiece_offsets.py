"""Offsets of WordPiece's tokens in the original text."""

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_lm.tokenizers import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [
    *("un", "##aff", "##able", "hello", "world", "cafe", "café", "Hello", "new", "york", "[", "]"),
    *("!", ",", "-", "a", "b", "##b", "中", "文", "ß", "i", "각", "\u1100", "##\u1161"),
]
# Letters of several scripts, marks, punctuation, spaces and controls.
ALPHABET = (
    "abAB129'!#[]-_$.,: \t\n\r\x00\x07\x7f\x85\xa0\xad\u200b\u200d\u2028\u3000\ufeff\ufffd\ue000"
    "éÉüßİıñ\u0301\u0323ﬁПриветЁйשלוםمرحباनमस्तेสวัสดี안녕中文日本テスト。，！ａＡ１½²™€№–—…“”🙂👍🏽𝐀𠀀"
)


def make(lowercase=True, vocabulary=(*SPECIAL, *PIECES), **kwargs):
    return WordPieceTokenizer(list(vocabulary), lowercase=lowercase, **kwargs)


@pytest.fixture(scope="module")
def uncased():
    return make()


@pytest.fixture(scope="module")
def cased():
    return make(lowercase=False)


def parts(tokenizer, text):
    """A list of (token, what it stands for), counted in bytes and in characters alike."""
    return parts_of_each(tokenizer, [text])[0]


def parts_of_each(tokenizer, texts):
    """The same of several texts, in one call."""
    data = [text if isinstance(text, bytes) else text.encode() for text in texts]
    ids, *places = tokenizer.tokenize_with_offsets(data)
    assert [x.dtype for x in (ids, *places)] == [tf.int32, tf.int64, tf.int64]
    assert ids.to_list() == tokenizer(data).to_list()
    rows = tokenizer.tokens(ids).to_list()
    tokens = [[token.decode() for token in row] for row in rows]
    actual = cut(data, *places)
    characters = cut(texts, *tokenizer.tokenize_with_offsets(data, unit="character")[1:])
    for i, text in enumerate(texts):
        if isinstance(text, str):
            assert [part.decode() for part in actual[i]] == characters[i]
            actual[i] = characters[i]
    return [list(zip(*pair)) for pair in zip(tokens, actual)]


def cut(texts, starts, ends):
    """What stands at the places in each text."""
    return [
        [text[start:end] for start, end in zip(*places)]
        for text, *places in zip(texts, starts.to_list(), ends.to_list())
    ]


def test_plain_text(uncased):
    assert parts_of_each(uncased, ["  Unaffable, HELLO!", " \t\u3000", ""]) == [
        [
            *(("un", "Un"), ("##aff", "aff"), ("##able", "able"), (",", ","), ("hello", "HELLO")),
            ("!", "!"),
        ],
        [],
        [],
    ]


def test_accents(uncased, cased):
    # A mark of its own becomes nothing.
    assert parts_of_each(uncased, ["a CAFÉ a", "a cafe\u0301 a", "ca\u0301fe a"]) == [
        [("a", "a"), ("cafe", "CAFÉ"), ("a", "a")],
        [("a", "a"), ("cafe", "cafe"), ("a", "a")],
        [("cafe", "ca\u0301fe"), ("a", "a")],
    ]
    assert parts(cased, "a café a") == [("a", "a"), ("café", "café"), ("a", "a")]


def test_characters_that_change_their_size(uncased):
    unknown, capital, syllable = parts_of_each(uncased, ["ßİa가b", "a İ b", "a 가 b"])
    assert unknown == [("[UNK]", "ßİa가b")]
    assert capital == [("a", "a"), ("i", "İ"), ("b", "b")]
    # One syllable becomes several letters, and each of them stands for all of it.
    assert syllable == [
        ("a", "a"),
        ("\u1100", "가"),
        ("##\u1161", "가"),
        ("b", "b"),
    ]


def test_ideographs(uncased):
    assert parts(uncased, "hello中文。a") == [
        *(("hello", "hello"), ("中", "中"), ("文", "文"), ("[UNK]", "。"), ("a", "a")),
    ]


def test_what_is_dropped_lies_between_or_within(uncased):
    assert parts(uncased, "\x00a\u200b b\ufffd") == [("a", "a"), ("b", "b")]
    assert parts(uncased, "hel\x00l\u200bo\x85 world") == [
        ("hello", "hel\x00l\u200bo"),
        ("world", "world"),
    ]


def test_bytes_that_are_not_utf8(uncased):
    text = b"\xff a\xfe\xe4\xb8 hel\xc3lo \xe4\xb8\xad\x80 \xf0"
    assert parts(uncased, text) == [
        *(("a", b"a"), ("hello", b"hel\xc3lo"), ("中", "中".encode())),
    ]


def test_unknown_covers_its_word(uncased):
    words = [letter * size for letter in ("x", "é", "𝐀") for size in (1, 100, 101, 1000)]
    actual = parts_of_each(uncased, [f"a {word}-b" for word in words])
    assert actual == [[("a", "a"), ("[UNK]", word), ("-", "-"), ("b", "b")] for word in words]
    assert parts(uncased, "a" * 100_000 + " b") == [("[UNK]", "a" * 100_000), ("b", "b")]


def test_added_tokens_cover_what_they_are_written_as():
    tokenizer = make(
        vocabulary=[*SPECIAL, *PIECES, "New York", "b-b"], added_tokens=["New York", "b-b"]
    )
    assert parts(tokenizer, "a NEW\u200b Yörk, b-b" + "a" * 101) == [
        *(("a", "a"), ("New York", "NEW\u200b Yörk"), (",", ","), ("b-b", "b-b")),
        ("[UNK]", "a" * 101),
    ]


def test_batches(uncased):
    texts = ["", "hello  world", "x" * 101, b"\xff", "中 a"]
    ids, starts, ends = uncased.tokenize_with_offsets(texts)
    assert ids.to_list() == uncased(texts).to_list()
    assert starts.to_list() == [[], [0, 7], [0], [], [0, 4]]
    assert ends.to_list() == [[], [5, 12], [101], [], [3, 5]]
    _, starts, ends = uncased.tokenize_with_offsets(texts, unit="character")
    assert (starts[-1].numpy().tolist(), ends[-1].numpy().tolist()) == ([0, 2], [1, 3])
    for empty in ([], [""], [""] * 10_000):
        spans = uncased.tokenize_with_offsets(tf.constant(empty, tf.string))
        assert [s.to_list() for s in spans] == [[[] for _ in empty]] * 3


@pytest.mark.parametrize("lowercase", [True, False])
def test_spans_equal_huggingface(lowercase):
    tokenizers = pytest.importorskip("tokenizers")
    letters = sorted({c for c in ALPHABET + ALPHABET.lower() if not c.isspace() and c != "\x00"})
    vocabulary = [*SPECIAL, *dict.fromkeys([*PIECES, *letters, *("##" + c for c in letters[::2])])]
    reference = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            {token: i for i, token in enumerate(vocabulary)}, unk_token="[UNK]"
        )
    )
    reference.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    reference.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer = make(lowercase, vocabulary)
    words = st.one_of(
        st.text(ALPHABET, max_size=30),
        st.sampled_from(["unaffable", "hello", "a" * 101, "é" * 101, "안녕"]),
    )

    # Few calls of many texts, as most of the time goes into the calls.
    @settings(max_examples=7, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.lists(words, max_size=5).map("".join), min_size=20, max_size=30))
    def check(texts):
        ids, starts, ends = tokenizer.tokenize_with_offsets(texts, unit="character")
        encoded = reference.encode_batch(texts, add_special_tokens=False)
        assert ids.to_list() == [e.ids for e in encoded]
        spans = [list(zip(*row)) for row in zip(starts.to_list(), ends.to_list())]
        assert spans == [e.offsets for e in encoded]

    check()


def test_spans_are_right_for_any_bytes(uncased):
    pieces = st.one_of(st.binary(max_size=6), st.sampled_from(PIECES).map(str.encode))

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.lists(pieces, max_size=6).map(b"".join), min_size=25, max_size=35))
    def check(texts):
        ids, starts, ends = uncased.tokenize_with_offsets(texts)
        assert ids.to_list() == uncased(texts).to_list()
        results = []
        for text, row in zip(texts, zip(ids.to_list(), starts.to_list(), ends.to_list())):
            before = 0
            for token, start, end in zip(*row):
                assert before <= start < end <= len(text)
                before = start
                piece = uncased.id_to_token(token)
                if not piece.startswith("##") and piece != "[UNK]":
                    results.append((piece, text[start:end]))
        # A span alone is the token again, apart from words that go on.
        spans = uncased.tokens(uncased([span for _, span in results])).to_list()
        assert all(piece in row[0].decode() for (piece, _), row in zip(results, spans, strict=True))

    check()
