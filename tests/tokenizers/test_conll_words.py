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


def split(texts, words_and_places=words_and_places):
    found = words_and_places(tf.constant(texts, tf.string), "conll")[:3]
    return [part.to_list() for part in found]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_words_by_hand(sentence):
    words, starts, ends = split([text := sentence.replace("|", "")])
    expected = [word for part in sentence.split() for word in part.split("|") if word]
    assert [word.decode() for word in words[0]] == expected
    assert [text[s:e] for s, e in zip(starts[0], ends[0])] == expected


def test_places_are_those_of_the_original():
    texts = ["", " \u3000\t", b"a\xff, \xe6\x97's", "a\x00b."]
    words, starts, ends = split(texts)
    assert words[2:] == [["a\ufffd".encode(), b",", "\ufffd".encode(), b"'s"], [b"a\0b", b"."]]
    assert starts == [[], [], [0, 2, 4, 5], [0, 3]]
    assert ends == [[], [], [2, 3, 5, 7], [3, 4]]
    assert split([]) == [[], [], []]


def test_litert_splits_the_same():
    random = np.random.default_rng(0)
    signs = np.array([*"aBnItsdmlrev019  ''’..,,:-+/&@_()…\u00a0é日😀"])
    texts = ["".join(random.choice(signs, size=random.integers(30))) for _ in range(2000)]
    assert split(texts, words_and_places_lite) == split(texts)
    # A text's words do not depend on the texts around it.
    assert [split([text])[0][0] for text in texts[:40]] == split(texts)[0][:40]
