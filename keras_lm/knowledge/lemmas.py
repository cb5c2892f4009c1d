"""The lemmas of English words, by which texts and concepts are compared."""

import functools
import importlib.metadata
import re
import unicodedata

from keras_lm.utils.optional_dependencies import require

# Letters and digits, without the letter that is an apostrophe.
WORDS = re.compile(r"[^\W_\u02bc]+")
# What simplemma's rules for English take from the end of a word, and put there.
RULES = (("", "s"), ("", "d"), ("y", "ies"))


def lemmatizer():
    """Return the name and the version of what makes lemmas: each version makes other ones."""
    require("simplemma", "Recognising concepts")
    return f"simplemma {importlib.metadata.version('simplemma')}"


def lemmas_of(text):
    """Return the lemmas of the words of a text, lower-cased."""
    text = unicodedata.normalize("NFC", text)  # an accent of its own would end a word
    return [_lemma(word) for word in WORDS.findall(text.lower())]


def key_of(name):
    """Return the lemmas of a concept's words, with `_` between them."""
    return "_".join(lemmas_of(name.replace("_", " ")))


def words_of(lemmas):
    """Return the words that have some lemmas, a dict of word → lemma."""
    require("simplemma", "Recognising concepts")
    from simplemma.strategies.dictionaries.dictionary_factory import DefaultDictionaryFactory

    entries = [*DefaultDictionaryFactory().get_dictionary("en")]
    words = {*lemmas, *(entry.lower() for entry in entries)}
    # It also looks for a word with a capital, which "ı" shares with "i".
    letters = _letters_with_shared_capitals()
    capitals = tuple(letters.values())
    for entry in (entry for entry in entries if entry.startswith(capitals)):
        shared = {first: capital for first, capital in letters.items() if entry.startswith(capital)}
        words |= {first + entry.removeprefix(capital) for first, capital in shared.items()}
    for end, other in RULES:
        words |= {lemma.removesuffix(end) + other for lemma in lemmas if lemma.endswith(end)}
    words = filter(WORDS.fullmatch, words)
    return {word: lemma for word in words if (lemma := _lemma(word)) in lemmas}


def _letters_with_shared_capitals():
    """Return small letters whose capital is another one's, too, with it: "ı" → "I"."""
    letters = filter(str.islower, map(chr, range(0x110000)))
    capitals = {letter: letter.title() for letter in letters}
    return {letter: capital for letter, capital in capitals.items() if capital.lower() != letter}


@functools.lru_cache(maxsize=2**20)
def _lemma(word):
    return _lemmatizer()(word, lang="en").lower()


@functools.cache
def _lemmatizer():
    return require("simplemma", "Recognising concepts").lemmatize
