"""Characters: AllenNLP's numbering, any bytes, the same in every kind of graph."""

import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_lm.tokenizers import CharacterTokenizer, Tokenizer

SPLITTERS = ("punctuation", "whitespace")
# Spaces and marks of one to four bytes, letters, and bytes that are no UTF-8.
PIECES = [
    *(" ", "\t", "\n", "\x0b", "\x1c", "\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u3000"),
    *(".", ",", "'", "-", "$", "_", "…", "。", "“", "𐄀", "¿"),
    *("a", "b", "Z", "é", "ß", "漢", "🙂", "\x00", "\u200b", "\ufeff", "<S>", "</S>"),
]
pieces = st.one_of(
    st.sampled_from(PIECES).map(str.encode),
    st.characters(codec="utf-8").map(str.encode),
    st.binary(max_size=4),
    st.lists(
        st.sampled_from([0xC0, 0xC2, 0xA0, 0xE2, 0x80, 0xA6, 0xF0, 0xE0, 0x2E]), max_size=5
    ).map(bytes),
)
hostile = st.lists(st.lists(pieces, max_size=8).map(b"".join), min_size=20, max_size=30)


@pytest.fixture(scope="module")
def tokenizer():
    return CharacterTokenizer()


def row(word, size=50):
    """AllenNLP's ids of a word: each number plus one, because 0 is for words that are not there."""
    data = word.encode()[: size - 2]
    return [258 + 1, *(b + 1 for b in data), 259 + 1] + [260 + 1] * (size - 2 - len(data))


# The numbering


def test_numbering(tokenizer):
    ids = tokenizer(["The café 🙂", "!"])
    assert ids.dtype == tf.int32
    assert ids.shape.as_list() == [2, None, 50]
    assert ids.to_list() == [[row("The"), row("café"), row("🙂")], [row("!")]]
    assert row("a")[:4] == [259, 98, 260, 261]
    # What a model takes: 0 where there is no word.
    dense = ids.to_tensor().numpy()
    assert dense.shape == (2, 3, 50)
    assert not dense[1, 1:].any()


@pytest.mark.parametrize("size", [3, 4, 50])
@pytest.mark.parametrize("length", [1, 2, 47, 48, 49, 10_000])
def test_long_words_are_cut(size, length):
    tokenizer = CharacterTokenizer(characters_per_word=size)
    assert tokenizer(["a" * length]).to_list() == [[row("a" * length, size)]]
    assert (
        tokenizer(["é" * length]).to_list()[0][0][:size]
        == ([259, *(b + 1 for b in ("é" * length).encode()[: size - 2]), 260] + [261] * size)[:size]
    )


def test_sentence_boundaries(tokenizer):
    fill = [261] * 47
    boundaries = [[259, 257, 260, *fill], [259, 258, 260, *fill]]
    words = [["<S>", "a", "</S>"]]
    assert tokenizer.tokenize_words(words).numpy().tolist() == [[row(w) for w in words[0]]]
    parsed = tokenizer.tokenize_words(words, parse_special=True).numpy().tolist()
    assert parsed == [[boundaries[0], row("a"), boundaries[1]]]
    one = tokenizer.tokenize_words(words, parse_special=["</S>"]).numpy().tolist()
    assert one == [[row("<S>"), row("a"), boundaries[1]]]
    for splitter in SPLITTERS:
        tokenizer = CharacterTokenizer(splitter=splitter)
        assert tokenizer(["a<S>b </S>"], parse_special=True).to_list() == [
            [row("a"), boundaries[0], row("b"), boundaries[1]]
        ]
    # Whoever types them changes nothing.
    assert tokenizer(["<S>"]).to_list() == [[row("<S>")]]


# Words


def words(text, splitter):
    return [w.decode() for w in CharacterTokenizer(splitter=splitter).split([text]).to_list()[0]]


def test_splitters():
    text = "Don't stop,\u3000he\xa0said…\u2028“wow”  "
    assert words(text, "punctuation") == [
        *("Don", "'", "t", "stop", ",", "he", "said", "…", "“", "wow", "”")
    ]
    assert words(text, "whitespace") == ["Don't", "stop,", "he", "said…", "“wow”"]
    for splitter in SPLITTERS:
        assert words(" \t\u2003", splitter) == []


def test_words_given_by_the_user(tokenizer):
    ragged = tf.ragged.constant([["do", "n't", "New York"], [], [""]])
    ids = tokenizer.tokenize_words(ragged)
    assert ids.shape.as_list() == [3, None, 50]
    assert ids.to_list() == [[row("do"), row("n't"), row("New York")], [], [row("")]]
    assert tokenizer.tokenize_words([["a", "b"], ["c"]]).to_list() == [
        [row("a"), row("b")],
        [row("c")],
    ]
    assert tokenizer.tokenize_words("a").numpy().tolist() == row("a")
    assert tokenizer.tokenize_words(np.array([["a"], ["b"]])).shape == (2, 1, 50)
    assert tokenizer.tokenize_words(tf.zeros([0, 3], tf.string)).shape == (0, 3, 50)
    with pytest.raises(ValueError, match="`words` must hold strings"):
        tokenizer.tokenize_words(tf.constant([1]))


def test_detokenize(tokenizer):
    texts = ["Hello, wörld!", "", "a"]
    expected = [[b"Hello", b",", "wörld".encode(), b"!"], [], [b"a"]]
    ids = tokenizer(texts)
    assert tokenizer.detokenize(ids).to_list() == expected
    assert tokenizer.detokenize(ids.to_tensor()).to_list() == expected
    assert tokenizer.detokenize(ids.to_list()).to_list() == expected
    assert tokenizer.detokenize(tokenizer("one two")).numpy().tolist() == [b"one", b"two"]
    parsed = tokenizer(["<S>a</S>"], parse_special=True)
    assert tokenizer.detokenize(parsed).to_list() == [[b"a"]]
    given_words = tf.constant([[b"\x00\xff", b"", b"x"]])
    assert tokenizer.detokenize(tokenizer.tokenize_words(given_words)).to_list() == (
        given_words.numpy().tolist()
    )
    with pytest.raises(ValueError, match=r"\(S, C\) or \(B, S, C\)"):
        tokenizer.detokenize([1, 2])


def test_vocabulary(tokenizer):
    assert tokenizer.vocabulary_size == 262
    assert tokenizer.special_id("pad") == 0
    assert [tokenizer.special_id(role) for role in ("bos", "eos")] == [257, 258]
    assert tokenizer.token_to_id("A") == ord("A") + 1
    assert tokenizer.tokens(tokenizer("é"))[0, :4].numpy().tolist() == [
        *(b"<W>", b"<0xC3>", b"<0xA9>", b"</W>")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"characters_per_word": 2}, "`characters_per_word` is 2"),
        ({"characters_per_word": "50"}, "`characters_per_word` is '50'"),
        ({"splitter": "spacy"}, "`splitter` is 'spacy'.*tokenize_words"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        CharacterTokenizer(**arguments)


# Graphs


@pytest.mark.parametrize("splitter", SPLITTERS)
def test_operations_of_litert_give_the_same(splitter):
    tokenizer = CharacterTokenizer(characters_per_word=9, splitter=splitter)
    text = tf.TensorSpec([None], tf.string)
    lite = tf.function(tokenizer.tokenize_lite, input_signature=[text], autograph=False)

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(hostile)
    def check(texts):
        texts = tf.constant(texts, tf.string)
        assert lite(texts).to_list() == tokenizer(texts).to_list()

    check()
    # Every character of the planes that have marks and spaces, and of each other block some.
    codes = {*range(0x3100), *range(0xA000, 0xAC00), *range(0xF900, 0x1F100)}
    codes |= {*range(0, 0x110000, 101), *range(0xE0000, 0xE0200), 0x10FFFF}
    every = [f"a{chr(c)}b" for c in sorted(codes) if not 0xD800 <= c < 0xE000]
    got, expected = lite(tf.constant(every)), tokenizer(every)
    np.testing.assert_array_equal(got.row_splits, expected.row_splits)
    np.testing.assert_array_equal(got.values, expected.values)


TEXTS = [
    *(
        "",
        "Hello, world!",
        "",
        " \u3000 ",
        "naïve café…\u2028漢字。",
        "a" * 10_000,
        "a b, " * 2_000,
    ),
    *(b"\xff\xfe \xe2\x80", b"\xa6. \x00", "<S> </S>", ""),
]


# (Both splitters in a graph of these operations are above.)
@pytest.mark.parametrize(
    "splitter", [SPLITTERS[0], pytest.param(SPLITTERS[1], marks=pytest.mark.thorough)]
)
def test_tflite(splitter, in_litert):
    tokenizer = CharacterTokenizer(splitter=splitter)
    tokenize = in_litert(tokenizer)
    for batch in ([""], ["", ""], ["a"], TEXTS):
        assert tokenize(batch) == tokenizer(batch).to_list()


# Files


def write(folder, options):
    data = options if isinstance(options, bytes) else json.dumps(options).encode()
    (folder / "options.json").write_bytes(data)


def elmo(**changes):
    return {"char_cnn": {"max_characters_per_token": 20, "n_characters": 262, **changes}}


def test_files_of_a_published_elmo(tmp_path):
    write(tmp_path, elmo())
    tokenizer = CharacterTokenizer.from_files(tmp_path)
    assert tokenizer.get_config() == {"characters_per_word": 20, "splitter": "punctuation"}
    assert CharacterTokenizer.from_files(tmp_path, splitter="whitespace").splitter == "whitespace"
    assert isinstance(Tokenizer.from_preset(str(tmp_path)), CharacterTokenizer)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"lstm": {}}, FileNotFoundError, "char_cnn"),
        (b"{", ValueError, "not a JSON file"),
        (elmo(n_characters=100), ValueError, "`n_characters` 100"),
        (elmo(max_characters_per_token=None), ValueError, "max_characters_per_token"),
        (elmo(max_characters_per_token=1), ValueError, "characters_per_word"),
        (elmo(max_characters_per_token=10**7), ValueError, "`characters_per_word` is 10000000"),
        ({"char_cnn": 5}, ValueError, "`char_cnn` is not an object"),
        (b"[" * 10**5, ValueError, "not a JSON file"),
    ],
)
def test_wrong_files(tmp_path, options, error, message):
    write(tmp_path, options)
    with pytest.raises(error, match=message):
        CharacterTokenizer.from_files(tmp_path)


def test_no_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"options\.json"):
        CharacterTokenizer.from_files(tmp_path)
