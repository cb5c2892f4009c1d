"""The lemmas of English words, by which texts and concepts are compared."""

import functools
import re

from keras_lm.optional import require

WORDS = re.compile(r"[^\W\d_]+")


def lemmas_of(text):
    """Return the lemmas of the words of a text, lower-cased."""
    return [_lemma(word) for word in WORDS.findall(text.lower())]


def key_of(name):
    """Return the lemmas of a concept's words, with `_` between them."""
    return "_".join(lemmas_of(name.replace("_", " ")))


@functools.lru_cache(maxsize=2**20)
def _lemma(word):
    return _lemmatizer()(word, lang="en").lower()


@functools.cache
def _lemmatizer():
    return require("simplemma", "Recognising concepts").lemmatize
