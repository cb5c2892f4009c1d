"""Characters without a piece become one byte, so that unigram scores add up as in the reference.

A character that no piece holds costs a penalty. The reference takes it once a character, TF Text's
operation once a byte. The scores of what follows would then be rounded otherwise, and of ways to
part a word that are equally good, or almost, another one would win. As a rule of the model's table
of characters, it costs no time and holds in LiteRT as well.
"""

import functools

from keras_lm.tokenizers.sentence_piece.sentence_piece_normalizer import DAMAGED, Table

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
    """Makes the tree of all characters beyond ASCII that are unknown and no key of a table."""

    def __init__(self, table, known, byte):
        self._table = table
        known = [c.encode() for c in known]
        self._known = {data[:end] for data in known for end in range(1, len(data) + 1)}
        # All that have the same prefix; these trees are shared.
        self._all = [{0: byte}]
        for _ in range(2):
            self._all.append(dict.fromkeys(CONTINUING, self._all[-1]))

    def tree(self):
        first = self._table.children(0)
        trees = {
            byte: self._after(bytes([byte]), first.get(byte), more)
            for more, first_bytes in FIRST_BYTES.items()
            for byte in first_bytes
        }
        return {byte: tree for byte, tree in trees.items() if tree}

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
