"""Words in the manner of CoNLL-2003: by hand, in the original's characters, as LiteRT has it."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.tokenizers.splitting import words_and_places, words_and_places_lite

# Words of CoNLL-2003 and of the Penn Treebank, with a bar where no space stands between them.
SENTENCES = [
    "We do|n't support any such recommendation|,|\"| the Commission|'s chief spokesman",
    "EU|, not anti-EU mad-cow disease |(|BSE|) |--| it|'s in the U.S.|, said J. Smith|.",
    "They|'ve cost |$|1,000.50|, |£50 or 3.5|%|; players|'| wages rose +5 to -44 at 10:30|...",
    "AT&T|, O'Brien and Germany|’s 1995/96 «|Zoë|»|: no|?|!",
    "So do I|.",
    "I ca|n't|, he|'d WO|N'T|, rock |'|n|'| roll|, e.g. a@b.com|.",
    "日本語|、|です|。|a|,|b 3|,|b C|.",
    "St|. Louis |[|A. B. Cee|.|]|*|*|—|…|_|a_b|/",
]


def traced(function):
    """A function of texts, which makes its table of characters once and not for each call."""
    texts = [tf.TensorSpec([None], tf.string)]
    graph = tf.function(lambda text: function(text, "conll")[:3], texts, autograph=False)
    return lambda texts: [part.to_list() for part in graph(tf.constant(texts, tf.string))]


@pytest.fixture(scope="module")
def split():
    return traced(words_and_places)


def test_words_by_hand():
    texts = [sentence.replace("|", "") for sentence in SENTENCES]
    actual = words_and_places(tf.constant(texts), "conll")
    for sentence, text, words, *places in zip(SENTENCES, texts, *(x.to_list() for x in actual)):
        expected = [word for part in sentence.split() for word in part.split("|") if word]
        assert [word.decode() for word in words] == expected
        assert [text[s:e] for s, e in zip(*places)] == expected


def test_places_are_those_of_the_original(split):
    texts = ["", " \u3000\t", b"a\xff, \xe6\x97's", "a\x00b."]
    words, starts, ends = split(texts)
    assert words[2:] == [["a\ufffd".encode(), b",", "\ufffd".encode(), b"'s"], [b"a\0b", b"."]]
    assert starts == [[], [], [0, 2, 4, 5], [0, 3]]
    assert ends == [[], [], [2, 3, 5, 7], [3, 4]]
    assert split([]) == [[], [], []]


def test_litert_splits_the_same(split):
    random = np.random.default_rng(0)
    signs = np.array([*"aBnItsdmlrev019  ''’..,,:-+/&@_()…\u00a0é日😀"])
    texts = ["".join(random.choice(signs, size=random.integers(30))) for _ in range(2000)]
    actual = split(texts)
    assert traced(words_and_places_lite)(texts) == actual
    # In invalid UTF-8, places are the same, and words keep their bytes.
    pieces = np.array(
        [b"a", b" ", b",", b"\xff", b"\xe4\xb8", b"\xc3", b"\x80", b"\xed\xa0\x80", b"1"]
    )
    texts = [b"".join(random.choice(pieces, size=random.integers(9))) for _ in range(500)]
    (words, *places), (words_lite, *places_lite) = (
        split(texts),
        traced(words_and_places_lite)(texts),
    )
    assert places_lite == places
    valid = [[w.decode(errors="replace").encode() for w in row] for row in words_lite]
    assert valid == words
    texts = ["".join(random.choice(signs, size=random.integers(30))) for _ in range(40)]
    actual = split(texts)
    # A text's words do not depend on the texts around it.
    assert [split([text])[0][0] for text in texts[:40]] == actual[0][:40]


# Scripts without spaces: each letter is a word, with the signs that join it.
WITHOUT_SPACES = [
    "東|京|都|は|2024|年|に|COVID-19|（|日|本|）|。",
    "Ada|说|：|“|你|好|”",
    "กั|ก|ไ|ท|ย|123 a|กิ่|b|-|ก",
    "ລ|າ|ວ ຄໍ|ຂ",
    "ខ្|ម|ែ|រ".replace("ម|ែ", "មែ"),
    "မြ|န်|မ|ာ".replace("မ|ာ", "မာ"),
    "ｶﾞ|ｷ カ|タ|ー カ\u3099|ナ",
    "\U00020000|\U000323af|x\U0001f600 한국어 Tiếng",
]


@pytest.mark.parametrize("splitter", ["conll", "punctuation"])
def test_scripts_without_spaces(splitter):
    sentences = WITHOUT_SPACES if splitter == "conll" else WITHOUT_SPACES[1:]
    texts = [sentence.replace("|", "") for sentence in sentences]
    actual = words_and_places(tf.constant(texts), splitter, True)
    for sentence, text, words, *places in zip(sentences, texts, *(x.to_list() for x in actual)):
        expected = [word for part in sentence.split() for word in part.split("|") if word]
        assert [word.decode() for word in words] == expected
        assert [text[s:e] for s, e in zip(*places)] == expected
    lite = words_and_places_lite(tf.constant(texts), splitter, True)
    assert [x.to_list() for x in lite[:3]] == [x.to_list() for x in actual]


@pytest.mark.parametrize("splitter", ["conll", "punctuation", "whitespace"])
def test_other_scripts_are_split_as_before(splitter):
    texts = ["We don't. (AT&T, 3.5%)  x", "", "ça 😀! Ελλάδα 한국어 ", " \u3000"]
    for split in (words_and_places, words_and_places_lite):
        some = split(tf.constant(texts), splitter, True)[:3]
        assert [x.to_list() for x in some] == [
            x.to_list() for x in split(tf.constant(texts), splitter)[:3]
        ]
    for text in ("日本", "ไทย"):  # white space alone, or as earlier presets
        assert words_and_places(tf.constant([text]), "whitespace", True)[0].to_list() == [
            [text.encode()]
        ]
        assert words_and_places(tf.constant([text]), splitter)[0].to_list() == [[text.encode()]]


def test_litert_splits_scripts_without_spaces_the_same():
    random = np.random.default_rng(1)
    signs = np.array([*"aB0 .,'-日本かカｶﾞไทย\u0e31\u0e48កខ\u17d2\U00020000😀\u3099é"])
    texts = ["".join(random.choice(signs, size=random.integers(30))) for _ in range(500)]
    for splitter in ("conll", "punctuation", "whitespace"):
        actual, lite = (
            [x.to_list() for x in split(tf.constant(texts), splitter, True)[:3]]
            for split in (words_and_places, words_and_places_lite)
        )
        assert lite == actual
