"""Tables of characters for steps of a tokenizer.json that SentencePiece has no table for.

Transformers 5 writes them for tokenizers whose model's own table it leaves out.
"""

import functools
import itertools
import unicodedata

from keras_lm.tokenizers.sentence_piece_table import SYLLABLES, Table

# What `\\s` is in the regular expressions of `tokenizers`.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
LINES_AND_TABS = "\n\r\t"
LONGEST_RUN = 3
# Beyond these, no character has a canonical decomposition.
COMPOSED = (range(0xD800), range(0xF900, 0x20000), range(0x2F800, 0x2FA20))


@functools.cache
def table_of(composes, joins_spaces, is_any_space=False):
    """Return a `precompiled_charsmap`.

    Args:
        composes: bool. Compose characters and the marks after them (NFC). Left as they are are
            letters of Hangul, and three or more marks on a letter in an order that is not NFC's.
        joins_spaces: bool. Make a space of two or more characters of white space, and of a single
            tab or end of a line. Of a run of more than three, characters may be left over that are
            neither space, tab nor end of a line; one that begins a text joins the model's space.
        is_any_space: bool. Make a space of each character of white space.
    """
    tree = {}
    for key, text in _compositions() if composes else ():
        _node(tree, key)[0] = text
    if joins_spaces:
        after = {}
        for _ in range(LONGEST_RUN - 1):  # the same tree after each of them
            after = _every(WHITE_SPACE, lambda _, after=after: {0: " ", **after})
        first = _every(
            WHITE_SPACE, lambda space: after | ({0: " "} if space in LINES_AND_TABS else {})
        )
        _merge(tree, first)
    if is_any_space:
        _merge(tree, _every(WHITE_SPACE, lambda _: {0: " "}))
    table = Table(b"")
    table.add(tree)
    return table.to_bytes()


def _compositions():
    """Yield texts that are not in NFC, and what they are in it."""
    for numbers in COMPOSED:
        for number in numbers:
            character = chr(number)
            parts = unicodedata.decomposition(character)
            if not parts or parts.startswith("<") or number in SYLLABLES:
                continue
            composed = unicodedata.normalize("NFC", character)
            base, *marks = unicodedata.normalize("NFD", character)
            forms = {character, *("".join([base, *m]) for m in itertools.permutations(marks))}
            # With some of the marks composed already, such as a letter with a circumflex.
            for form in [*forms]:
                forms |= {
                    unicodedata.normalize("NFC", form[:end]) + form[end:]
                    for end in range(2, len(form))
                }
            for form in forms:
                if form != composed and unicodedata.normalize("NFC", form) == composed:
                    yield form, composed


def _node(tree, key):
    for byte in key.encode():
        tree = tree.setdefault(byte, {})
    return tree


def _every(characters, node):
    """Return a tree whose keys are characters, and what `node(character)` returns after each."""
    tree = {}
    for character in characters:
        *first, last = character.encode()
        above = tree
        for byte in first:
            above = above.setdefault(byte, {})
        above[last] = node(character)
    return tree


def _merge(tree, other):
    for label, node in other.items():
        if label in tree and label:
            _merge(tree[label], node)
        else:
            tree[label] = node
