"""What is added to a SentencePiece model's own rules for text, its table of characters.

Lower-casing and the like, which ALBERT's and XLNet's code does before the model, become rules of
the table: there they cost no time, run wherever the model runs, and the model tracks the offsets.

Characters without a piece become one byte, so that unigram scores add up as in the reference. Such
a character costs a penalty: once per character in the reference, once per byte in TF Text's
operation. The scores of what follows would be rounded differently, and of ways to split a word that
are equally good, or almost, another one would win.
"""

import dataclasses
import functools
import itertools
import unicodedata

from keras_lm.tokenizers.sentence_piece_table import DAMAGED, SYLLABLES, Table
from keras_lm.tokenizers.unicode_ranges import character_class

# Beyond these, no character has a case, a decomposition or is a mark.
CHANGEABLE = (
    range(0xD800),
    range(0xE000, 0x20000),
    range(0x2F800, 0x2FA20),
    range(0xE0100, 0xE01F0),
)
# The value of `strip_accents` by which vowel signs and the like are dropped, too.
ALL_MARKS = "all_marks"


# The first bytes of characters beyond ASCII, by how many bytes follow.
FIRST_BYTES = {1: range(0xC2, 0xE0), 2: range(0xE0, 0xF0), 3: range(0xF0, 0xF5)}
CONTINUING = range(0x80, 0xC0)
# After these, fewer second bytes are valid.
SECOND_BYTES = {
    0xE0: range(0xA0, 0xC0),
    0xED: range(0x80, 0xA0),
    0xF0: range(0x90, 0xC0),
    0xF4: range(0x80, 0x90),
}


@dataclasses.dataclass(frozen=True)
class Preparation:
    """Text preparation in the order of the reference, with settings of `SentencePieceTokenizer`."""

    lowercase: bool = False
    strip_accents: bool | str = False
    straighten_quotes: bool = False
    collapse_whitespace: bool = False

    def __bool__(self):
        return any(dataclasses.astuple(self))

    def __call__(self, text):
        if self.straighten_quotes:
            text = text.replace("``", '"').replace("''", '"')
        return text.translate(self._characters)

    @functools.cached_property
    def _characters(self):
        return _Characters(self._prepare_character)

    def _prepare_character(self, character):
        # Decomposed text needs no reordering: everything that would move is dropped.
        if self.collapse_whitespace and character.isspace():
            return " "
        text = _lower(character) if self.lowercase else character
        if self.strip_accents:
            text = unicodedata.normalize("NFKD", text)
            text = "".join(character for character in text if not self._drops(character))
        return _lower(text) if self.lowercase else text

    def _drops(self, character):
        if self.strip_accents == ALL_MARKS:
            return unicodedata.category(character)[0] == "M"
        return bool(unicodedata.combining(character))

    def changing(self, left_out):
        """Yield all characters that change, except for some, and runs that change as a whole."""
        for numbers in CHANGEABLE:
            for number, character in zip(numbers, map(chr, numbers)):
                may_change = (
                    character.lower() != character
                    or character.isspace()
                    or unicodedata.decomposition(character)
                    or (self.strip_accents and self._drops(character))
                    or number in SYLLABLES
                )
                if may_change and character not in left_out and self(character) != character:
                    yield character
        if self.straighten_quotes:
            yield from ("``", "''")


@functools.cache
def marks():
    """Return a regular expression for the characters that `strip_accents=True` drops."""
    numbers = [n for part in CHANGEABLE for n in part if unicodedata.combining(chr(n))]
    runs = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ends = [[n for _, n in run] for _, run in runs]
    return "[" + character_class(" ".join(f"{run[0]:X}-{run[-1]:X}" for run in ends)) + "]"


class _Characters(dict):
    """The prepared text of each character, by its code point, for `str.translate`."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def __missing__(self, number):
        self[number] = self.function(chr(number))
        return self[number]


def _lower(text):
    # Character by character: Python would make a final sigma of the last one of a word.
    return "".join(map(str.lower, text))


@functools.lru_cache(maxsize=8)
def compose(charsmap, prepare):
    """Return the table for `prepare` and then `charsmap`, bytes; ValueError if it is damaged."""
    table = Table(charsmap)
    table.read()
    groups = {}  # first character → the longer keys that begin with it
    for key in table.rules:
        if len(key) > 1:
            groups.setdefault(key[0], []).append(key)
    for key in prepare.changing(table.left_out):
        groups.setdefault(key[0], []).extend([key] if len(key) > 1 else [])
    become = functools.cache(lambda character: table.apply(prepare(character)))
    for first, runs in groups.items():
        # If a part of a run changes, the result of the whole changes, too.
        keys = [first, *sorted(runs, key=len)]
        prepared = [prepare(key) for key in keys]
        if prepared == keys:
            continue
        texts = {key: table.apply(text) for key, text in zip(keys, prepared)}
        if all(table.apply(key) == text for key, text in texts.items()):
            continue
        rules = {}
        for key, text in texts.items():
            # A run that becomes what its characters become one by one needs no rule.
            if len(key) == 1 or text != _apply(rules, key, become):
                rules[key] = text
        table.replace(first, rules)
    return table.to_bytes()


def _apply(rules, text, otherwise):
    """Replace the longest key at each place; apply `otherwise` to characters that begin none."""
    if len(rules) == 1:
        return "".join(rules[c] if c in rules else otherwise(c) for c in text)
    parts, start, longest = [], 0, max(map(len, rules))
    while start < len(text):
        keys = (text[start:end] for end in range(start + longest, start, -1))
        key = next((key for key in keys if key in rules), None)
        parts.append(otherwise(text[start]) if key is None else rules[key])
        start += len(key or text[start])
    return "".join(parts)


@functools.lru_cache(maxsize=8)
def shorten_unknown(charsmap, known, kept):
    """Return a `precompiled_charsmap` that also makes characters not in `known` a byte each.

    The texts in `kept` stay as they are, as the reference keeps `user_defined_symbols`.

    Raises:
        ValueError: if the table is damaged.
    """
    byte = next(c for c in map(chr, range(1, 128)) if c not in known)

    def shorten(text):
        return "".join(c if c.isascii() or c in known else byte for c in text)

    try:
        table = Table(charsmap)
        table.change_texts(shorten)
        table.add(_Missing(table, known, byte).tree())
        table.keep(sorted(kept))
    except (IndexError, ValueError) as error:
        raise ValueError(DAMAGED) from error
    return table.to_bytes()


class _Missing:
    """Makes the tree of all characters beyond ASCII that are unknown and not keys of a table."""

    def __init__(self, table, known, byte):
        self._table, self._byte, self._letters = table, byte, known
        known = [c.encode() for c in known]
        self._known = {data[:end] for data in known for end in range(1, len(data) + 1)}
        # All that have the same prefix; these trees are shared.
        self._all = [{0: byte}]
        for _ in range(2):
            self._all.append(dict.fromkeys(CONTINUING, self._all[-1]))

    def tree(self):
        first = self._table.children(0)
        # The fast operation would take these for spaces.
        lines = {
            number: {0: self._byte}
            for number in b"\t\n\r"
            if number not in first and chr(number) not in self._letters
        }
        trees = {
            byte: self._after(bytes([byte]), first.get(byte), more)
            for more, first_bytes in FIRST_BYTES.items()
            for byte in first_bytes
        }
        return lines | {byte: tree for byte, tree in trees.items() if tree}

    def _after(self, prefix, node, more):
        if node is None and prefix not in self._known and len(prefix) > 1:
            return self._all[more]
        if not more:
            is_there = node is not None and self._table.text(node) is not None
            return {} if is_there or prefix in self._known else self._all[0]
        children = {} if node is None else self._table.children(node)
        continuing = SECOND_BYTES.get(prefix[0], CONTINUING) if len(prefix) == 1 else CONTINUING
        trees = {
            byte: self._after(prefix + bytes([byte]), children.get(byte), more - 1)
            for byte in continuing
        }
        return {byte: tree for byte, tree in trees.items() if tree}
