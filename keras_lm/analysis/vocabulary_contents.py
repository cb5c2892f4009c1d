"""What a vocabulary holds: beginnings of words, their other pieces, letters, and scripts."""

import collections
import dataclasses
import re
import unicodedata

import numpy as np

from keras_lm.tokenizers.tokenizer import Tokenizer

# Entries that no text is made of: [CLS], [unused7], <pad>, <extra_id_3>, <|endoftext|>.
RESERVED = re.compile(r"\[[A-Za-z]+[0-9]*\]|</?[A-Za-z_|]+[0-9]*(_[0-9]+)?>|</?s>NOTUSED")
# What the names of letters begin with, if not with their script.
WIDTHS = {"FULLWIDTH", "HALFWIDTH"}
NO_SCRIPTS = {"Modifier", "Superscript", "Subscript", "Feminine", "Masculine", "Micro", "Script"}
NO_SCRIPTS |= {"Double", "Mathematical", "Black", "Planck", "Blackletter", "Circled"}
CONTINUED = "##"  # WordPiece's mark, which a piece alone keeps as text


@dataclasses.dataclass(frozen=True)
class VocabularyContents:
    """The entries of a vocabulary, counted.

    Attributes:
        size: int, all entries.
        reserved: int, special tokens and unused places.
        word_starts, continuations: int, the other entries: those that begin a word, and those that
            go on with one. Where pieces mark the end of a word, as in GPT-1: those that end one,
            and those that do not.
        characters, continued_characters: int, how many of these are a single character.
        lengths: dict of a number of characters → entries of that length, of all but the reserved.
        scripts: dict of a script, such as `"Latin"` → entries, the most frequent first; by their
            first letter, `"Digits"` for numbers and `"Other"` for the rest.
    """

    size: int
    reserved: int
    word_starts: int
    continuations: int
    characters: int
    continued_characters: int
    lengths: dict[int, int]
    scripts: dict[str, int]


def vocabulary_contents(tokenizer: Tokenizer) -> VocabularyContents:
    """Return what a tokenizer's vocabulary holds: `VocabularyContents`.

    Args:
        tokenizer: `keras_lm.tokenizers.Tokenizer`.

    Raises:
        ValueError: if the tokenizer spells words, as ELMo's.

    Example:

        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "##s", "я"]
        tokenizer = keras_lm.tokenizers.WordPieceTokenizer(words, lowercase=False)
        contents = vocabulary_contents(tokenizer)
        contents.reserved, contents.word_starts, contents.continuations  # (5, 3, 1)
        contents.scripts  # {"Latin": 3, "Cyrillic": 1}

    Source: J. Ács, "Exploring BERT's Vocabulary", 2019, of multilingual BERT: 106 reserved, and
    9,997 characters that begin a word and go on with one.
    """
    if hasattr(tokenizer, "characters_per_word"):
        raise ValueError(
            f"{type(tokenizer).__name__} spells words by their bytes, so there is no vocabulary."
        )
    entries, special = tokenizer.vocabulary, set(tokenizer.all_special_tokens)
    is_reserved = np.array([e in special or bool(RESERVED.fullmatch(e)) for e in entries])
    texts = tokenizer.detokenize(np.arange(len(entries))[:, np.newaxis]).numpy()
    begins = np.asarray(tokenizer.begins_word)
    if not begins[~is_reserved].any():  # as in GPT-1
        begins = np.asarray(tokenizer.ends_word)
    lengths, scripts = collections.Counter(), collections.Counter()
    singles = np.zeros(len(entries), bool)
    for i in np.flatnonzero(~is_reserved):
        text = texts[i].decode("utf-8", "replace").strip().removeprefix(CONTINUED)
        singles[i] = len(text) == 1
        lengths[len(text)] += 1
        scripts[_script(text)] += 1
    return VocabularyContents(
        size=len(entries),
        reserved=int(is_reserved.sum()),
        word_starts=int((begins & ~is_reserved).sum()),
        continuations=int((~begins & ~is_reserved).sum()),
        characters=int((singles & begins).sum()),
        continued_characters=int((singles & ~begins).sum()),
        lengths=dict(sorted(lengths.items())),
        scripts=dict(scripts.most_common()),
    )


def _script(text):
    """Return the script of the first letter, by the first word of its name in Unicode."""
    for character in text:
        if character.isalpha():
            first, *rest = unicodedata.name(character, "OTHER").split()
            first = rest[0] if first in WIDTHS and rest else first
            script = first.split("-")[0].capitalize()
            return "Other" if script in NO_SCRIPTS else {"Cjk": "Han"}.get(script, script)
    return "Digits" if any(character.isdigit() for character in text) else "Other"
