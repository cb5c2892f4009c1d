"""SentencePiece's table of characters, the `precompiled_charsmap`.

It maps characters, or runs of characters, to text. It is a double array, as darts-clone writes it,
after its length and before the texts. Each unit has a label (8 bits), a flag for "a key ends here"
and the distance (by exclusive or) to its base, where its children are. Nodes that change are
appended; all others are shared.
"""

import collections
import functools
import struct

import numpy as np

# Hangul has neither case nor accents. If a table composes it, decomposing it first changes nothing,
# except in rare texts that spell syllables by compatibility letters, or letters after a syllable.
# Nine tenths of such tables are about Hangul, and are left as they are.
SYLLABLES = range(0xAC00, 0xD7A4)
HANGUL = frozenset(
    chr(number)
    for numbers in (
        *(range(0x1100, 0x1200), range(0x3131, 0x318F), range(0x3260, 0x327C)),
        *(SYLLABLES, range(0xFFA0, 0xFFDD)),
    )
    for number in numbers
)

HAS_VALUE = 1 << 8
IS_VALUE = 1 << 31
LABEL = 0xFF
BLOCK = 256
UNUSED = -1
# Many times more than published tables have.
MAX_KEY_BYTES, MAX_NODES, MAX_TEXT_BYTES = 1000, 1_000_000, 1000
DAMAGED = (
    "`model` holds a damaged table of characters (precompiled_charsmap); copy the published file "
    "again, in binary form."
)
BYTES = [bytes([i]) for i in range(256)]


def check_charsmap(charsmap):
    """Raise ValueError if SentencePiece would read beyond a table, or make too long texts of it."""
    units, texts = _parts(charsmap)
    places = np.arange(len(units), dtype=np.int64)
    bases = places ^ (units >> 10 << ((units & 0x200) >> 6)).astype(np.int64)
    is_node = (units & IS_VALUE) == 0
    ends = np.flatnonzero(np.frombuffer(texts + b"\0", np.uint8) == 0)
    longest = np.diff(ends, prepend=-1).max()
    if (bases[is_node] >= max(len(units), BLOCK)).any() or longest > MAX_TEXT_BYTES:
        raise ValueError(DAMAGED)


def _parts(charsmap):
    """Return a table's units, uint32, and its texts, bytes; ValueError if it is cut off."""
    size = struct.unpack_from("<I", charsmap)[0] if len(charsmap) > 4 else 0
    if size % 4 or size + 4 > max(len(charsmap), 4):
        raise ValueError(DAMAGED)
    return np.frombuffer(charsmap[4 : 4 + size], "<u4"), charsmap[4 + size :]


class Table:
    """A `precompiled_charsmap`, to look up and to change."""

    def __init__(self, charsmap):
        units, texts = _parts(charsmap)
        units = units if len(units) else np.zeros(1, "<u4")
        blocks = -(-len(units) // BLOCK)
        units = np.pad(units, (0, blocks * BLOCK - len(units)))
        self._units = units.tolist()
        self._texts = bytearray(texts)
        if not self._texts.endswith(b"\0"):
            self._texts += b"\0"
        # base → a dict from label to child
        self._children_at = collections.defaultdict(dict)
        labels = units & (IS_VALUE | LABEL)
        children = np.flatnonzero((labels > 0) & (labels <= LABEL))
        labels = labels[children]
        for base, label, child in zip(*(x.tolist() for x in (children ^ labels, labels, children))):
            self._children_at[base][label] = child
        self._changes = {}  # nested dicts from byte to subtree; under 0 the text of the key
        self._places = {}  # new text → its place
        # Filled by `read`: key → text, without keys that begin with a character in `left_out`.
        self.rules, self.left_out = {}, frozenset()

    def read(self):
        """Read all keys; ValueError if the table is damaged."""
        try:
            if self.apply("\u1100\u1161") == "\uac00":
                self.left_out = HANGUL
            self._read()
        except (IndexError, ValueError) as error:
            raise ValueError(DAMAGED) from error

    # === Looking up ===

    def _base(self, node):
        """Return the base of a node: its children are at the base, exclusive-or their label."""
        unit = self._units[node]
        return node ^ ((unit >> 10) << ((unit & 0x200) >> 6))

    def children(self, node):
        return self._children_at.get(self._base(node), {})

    def text(self, node):
        """Return the text of the key that ends at a node, or None."""
        if not self._units[node] & HAS_VALUE:
            return None
        return self._text_at(self._units[self._base(node)] & (IS_VALUE - 1))

    def _text_at(self, start):
        return self._texts[start : self._texts.index(0, start, start + MAX_TEXT_BYTES + 1)].decode()

    def apply(self, text):
        if text in self.rules:
            return self.rules[text]
        if len(text) == 1 and text not in self.left_out:
            return text
        parts, data, start = [], text.encode(), 0
        while start < len(data):
            node, end, longest = 0, start, None
            while end < len(data) and (node := self.children(node).get(data[end])) is not None:
                end += 1
                if (found := self.text(node)) is not None:
                    longest = end, found
            if longest is None:
                length = len(data[start:].decode()[0].encode())
                longest = start + length, data[start : start + length].decode()
            parts.append(longest[1])
            start = longest[0]
        return "".join(parts)

    def _read(self):
        nodes, num_nodes = [(b"", 0)], 0
        while nodes:
            data, node = nodes.pop()
            num_nodes += 1
            is_circle = len(data) > MAX_KEY_BYTES or num_nodes > MAX_NODES
            if is_circle or self._base(node) >= len(self._units):
                raise ValueError(DAMAGED)
            if len(data) == 3 and 0xE0 <= data[0] < 0xF0 and data.decode() in self.left_out:
                continue
            if self._units[node] & HAS_VALUE:
                self.rules[data.decode()] = self.text(node)
            nodes += [(data + BYTES[label], child) for label, child in self.children(node).items()]

    # === Changing ===

    def change_texts(self, function):
        """Apply a function to the texts that keys become."""
        changed = functools.cache(lambda start: self._place_of(function(self._text_at(start))))
        for place, unit in enumerate(self._units):
            if unit & IS_VALUE:
                self._units[place] = IS_VALUE | changed(unit & (IS_VALUE - 1))

    def add(self, tree):
        """Add keys: a tree of nested dicts from byte to subtree, under 0 the text of the key."""
        self._changes = tree

    def replace(self, first, rules):
        """Replace all rules whose keys begin with one character."""
        for key, text in rules.items():
            self._changed(key)[0] = text
        # (None marks that the old subtree of this character is not shared.)
        self._changed(first)[None] = True

    def keep(self, texts):
        """Make these texts become themselves, whatever follows them."""
        for text in texts:
            self._changed(text).update({0: text, None: True})

    def _changed(self, key):
        tree = self._changes
        for byte in key.encode():
            tree = tree.setdefault(byte, {})
        return tree

    def to_bytes(self):
        self._added, self._is_base = np.zeros(0, np.int64), np.zeros(0, bool)  # appended
        self._starts, self._leaves, self._written = {}, {}, {}
        base, _ = self._write(self._changes, 0)
        for place in np.flatnonzero(self._added == UNUSED):
            self._added[place] = self._unused(place)
        data = np.asarray([base << 10, *self._units[1:], *self._added], "<u4").tobytes()
        return struct.pack("<I", len(data)) + data + bytes(self._texts)

    def _write(self, tree, node):
        """Write a node's children; return their base, and whether a key ends at the node."""
        old = None if None in tree else node
        if old is None and id(tree) in self._written:
            return self._written[id(tree)]
        children, text = {}, tree.get(0)
        if old is not None:
            text = self.text(old) if text is None else text
            for label, child in self.children(old).items():
                if label not in tree:
                    children[label] = self._base(child), bool(self._units[child] & HAS_VALUE)
        for label, subtree in tree.items():
            if label:
                child = None if old is None else self.children(old).get(label)
                children[label] = self._write(subtree, child)
        if not children and text in self._leaves:
            return self._leaves[text], True
        labels = [*children] if text is None else [0, *children]
        base = self._find_base(labels)
        if not children:
            self._leaves[text] = base
        for label, (child_base, has_value) in children.items():
            place = base ^ label
            unit = label | has_value * HAS_VALUE | (place ^ child_base) << 10
            self._added[place - len(self._units)] = unit
        if text is not None:
            self._added[base - len(self._units)] = IS_VALUE | self._place_of(text)
        if old is None:
            self._written[id(tree)] = base, text is not None
        return base, text is not None

    def _find_base(self, labels):
        """Return a base that no other node has and where the places of these labels are free."""
        # Bases differ, so the label of a unit identifies its parent.
        block = self._starts.get(len(labels), 0)
        while True:
            if block == len(self._added):
                self._added = np.append(self._added, np.full(BLOCK, UNUSED))
                self._is_base = np.append(self._is_base, np.zeros(BLOCK, bool))
            bases = np.arange(block, block + BLOCK)
            is_free = (self._added[bases[:, np.newaxis] ^ labels] == UNUSED).all(1)
            is_free &= ~self._is_base[bases]
            if is_free.any():
                break
            block += BLOCK
        base = int(bases[is_free.argmax()])
        self._added[base ^ np.asarray(labels)] = 0
        self._is_base[base] = True
        self._starts[len(labels)] = block  # there was no room for nodes of this size before it
        return base + len(self._units)

    def _unused(self, place):
        # It must not look like the child of any node, not even one labelled 0.
        return next(label for label in range(1, BLOCK) if not self._is_base[place ^ label])

    def _place_of(self, text):
        if text not in self._places:
            self._places[text] = len(self._texts)
            self._texts += text.encode() + b"\0"
        return self._places[text]
