"""What ALBERT and XLNet do to text first, written into a SentencePiece model's own rules.

A model carries a table, its `precompiled_charsmap`: which characters, or runs of characters,
become which text. Lower-casing and the like are such rules, too. In the table they cost no time,
run wherever the model runs, and the model itself keeps account of which character came from where.

The table is a double array, as darts-clone writes it, behind its length and before the texts. Each
unit has a label (8 bits), a flag for "a key ends here" and the distance (by exclusive or) to where
its children are. Nodes that change are written behind the old ones; all others are shared.
"""

import dataclasses
import functools
import struct
import unicodedata

import numpy as np

# Hangul has neither case nor marks; nine tenths of a table compose it, and stay as they are.
HANGUL = ("\u1100\u11ff", "\u3131\u318e", "\uac00\ud7a3", "\uffa0\uffdc")
# Beyond these, no character is cased, decomposes or is a mark.
CHANGEABLE = (range(0xD800), range(0xE000, 0x20000), range(0x2F800, 0x2FA20))

HAS_VALUE = 1 << 8
IS_VALUE = 1 << 31
LABEL = 0xFF
BLOCK = 256


@dataclasses.dataclass(frozen=True)
class Preparation:
    """What is done to text before SentencePiece sees it, in the order of its reference.

    Args:
        lowercase: bool. Lower-case each character.
        strip_accents: bool. Decompose (NFKD) and drop combining marks.
        straighten_quotes: bool. Make `` and '' one straight double quote.
        collapse_whitespace: bool. Make every white space of Unicode a plain space.
    """

    lowercase: bool = False
    strip_accents: bool = False
    straighten_quotes: bool = False
    collapse_whitespace: bool = False

    def __bool__(self):
        return any(dataclasses.astuple(self))

    def __call__(self, text):
        if self.lowercase:
            text = _lower(text)
        if self.collapse_whitespace:
            text = "".join(" " if character.isspace() else character for character in text)
        if self.straighten_quotes:
            text = text.replace("``", '"').replace("''", '"')
        if self.strip_accents:
            text = unicodedata.normalize("NFKD", text)
            text = "".join(character for character in text if not unicodedata.combining(character))
        return _lower(text) if self.lowercase else text

    def changing(self):
        """Yield every character that changes, and the runs that change as a whole."""
        for numbers in CHANGEABLE:
            for character in map(chr, numbers):
                if (
                    (self.lowercase and character.lower() != character)
                    or (self.collapse_whitespace and character.isspace())
                    or (
                        self.strip_accents
                        and (
                            unicodedata.decomposition(character) or unicodedata.combining(character)
                        )
                    )
                ):
                    yield character
        if self.straighten_quotes:
            yield from ("``", "''")


def _lower(text):
    # Character by character: as a whole, Python would give a word-final sigma.
    return "".join(map(str.lower, text))


@functools.lru_cache(maxsize=8)
def compose(charsmap, prepare):
    """Return the table of rules that does what `prepare` and then `charsmap` do.

    Args:
        charsmap: bytes, a model's `precompiled_charsmap`, which may be empty.
        prepare: `Preparation`.

    Raises:
        ValueError: if the table is damaged.
    """
    table = _Table(charsmap)
    groups = {}  # first character → the keys that begin with it
    for first, runs in table.runs():
        # Where a part of a run changes, so does what the whole becomes.
        if any(prepare(run) != run for run in runs) or prepare(first) != first:
            groups[first] = [first, *runs]
    for key in prepare.changing():
        if not _is_hangul(key):
            groups.setdefault(key[0], [key[0]]).append(key)
    for first, keys in groups.items():
        texts = {key: table.apply(prepare(key)) for key in sorted(keys, key=len)}
        if all(table.apply(key) == text for key, text in texts.items()):
            continue
        rules = {}
        for key, text in texts.items():
            # A run that becomes what its characters become one by one needs no rule.
            if len(key) == 1 or text != _apply(rules, key, lambda c: table.apply(prepare(c))):
                rules[key] = text
        table.replace(first, rules)
    return table.to_bytes()


def _is_hangul(character):
    return any(first <= character <= last for first, last in HANGUL)


def _apply(rules, text, otherwise):
    """Replace the longest key at each place, and characters that begin none by `otherwise`."""
    parts, start, longest = [], 0, max(map(len, rules))
    while start < len(text):
        keys = (text[start:end] for end in range(start + longest, start, -1))
        key = next((key for key in keys if key in rules), None)
        parts.append(otherwise(text[start]) if key is None else rules[key])
        start += len(key or text[start])
    return "".join(parts)


class _Table:
    """A `precompiled_charsmap`: looked up as it is, and written with changes."""

    def __init__(self, charsmap):
        size = struct.unpack_from("<I", charsmap)[0] if len(charsmap) > 4 else 0
        if size % 4 or size + 4 > max(len(charsmap), 4):
            raise ValueError("the model's table of characters (precompiled_charsmap) is damaged.")
        units = np.frombuffer(charsmap, "<u4", size // 4, 4) if size else np.zeros(1, "<u4")
        blocks = -(-len(units) // BLOCK)
        self._units = units.tolist() + [0] * (blocks * BLOCK - len(units))
        self._labels = np.asarray(self._units) & (IS_VALUE | LABEL)
        self._texts = bytearray(charsmap[4 + size :])
        if not self._texts.endswith(b"\0"):
            self._texts += b"\0"
        self.apply = functools.cache(self.apply)  # texts are few, and asked for again and again
        self._changes = {}  # nested dicts from byte to subtree; under 0 the text of the key

    # Looking up

    def _base(self, node):
        """Return where a node's children are: each at this place, exclusive-or its label."""
        unit = self._units[node]
        return node ^ ((unit >> 10) << ((unit & 0x200) >> 6))

    def _child(self, node, label):
        child = self._base(node) ^ label
        if child < len(self._units) and self._units[child] & (IS_VALUE | LABEL) == label:
            return child
        return None

    def _children(self, node):
        labels = np.arange(1, BLOCK)
        places = self._base(node) ^ labels
        inside = places < len(self._labels)
        places, labels = places[inside], labels[inside]
        found = self._labels[places] == labels
        return zip(labels[found].tolist(), places[found].tolist())

    def _text(self, node):
        """Return the text of the key that ends at a node, or None."""
        if not self._units[node] & HAS_VALUE:
            return None
        start = self._units[self._base(node)] & (IS_VALUE - 1)
        return self._texts[start : self._texts.index(0, start)].decode()

    def apply(self, text):
        """Return what the table makes of a text."""
        parts, data, start = [], text.encode(), 0
        while start < len(data):
            node, end, longest = 0, start, None
            while end < len(data) and (node := self._child(node, data[end])) is not None:
                end += 1
                if (found := self._text(node)) is not None:
                    longest = end, found
            if longest is None:
                length = len(data[start:].decode()[0].encode())
                longest = start + length, data[start : start + length].decode()
            parts.append(longest[1])
            start = longest[0]
        return "".join(parts)

    def runs(self):
        """Yield each character, but Hangul, with the longer keys that begin with it, if any."""
        for first, node in self._keys(0, b""):
            if not _is_hangul(first):
                found, ends = [], [(first, node)]
                while ends:
                    key, node = ends.pop()
                    for character, longer in self._keys(node, b""):
                        ends.append((key + character, longer))
                        if self._units[longer] & HAS_VALUE:
                            found.append(key + character)
                if found:
                    yield first, found

    def _keys(self, node, data):
        """Yield (character, node) for each character that goes on from a node."""
        for label, child in self._children(node):
            more = data + bytes([label])
            length = 1 + sum(more[0] >= least for least in (0xC0, 0xE0, 0xF0))
            if len(more) == length:
                yield more.decode(), child
            else:
                yield from self._keys(child, more)

    # Changing

    def replace(self, first, rules):
        """Let these rules be all whose keys begin with one character."""
        for key, text in rules.items():
            tree = self._changes
            for byte in key.encode():
                tree = tree.setdefault(byte, {})
            tree[0] = text
        # (The mark that the old subtree of this character is not to be shared.)
        tree = self._changes
        for byte in first.encode():
            tree = tree[byte]
        tree[None] = True

    def to_bytes(self):
        """Return the changed table."""
        self._added = []  # the units behind the old ones
        self._bases, self._places, self._starts = set(), {}, {}
        base, _ = self._write(self._changes, 0)
        added = [self._unused(i) if unit is None else unit for i, unit in enumerate(self._added)]
        units = [base << 10, *self._units[1:], *added]
        data = np.asarray(units, "<u4").tobytes()
        return struct.pack("<I", len(data)) + data + bytes(self._texts)

    def _write(self, tree, node):
        """Write a node's children; return their base, and whether a key ends at the node."""
        old = None if None in tree else node
        children, text = {}, tree.get(0)
        if old is not None:
            text = self._text(old) if text is None else text
            for label, child in self._children(old):
                if label not in tree:
                    children[label] = self._base(child), bool(self._units[child] & HAS_VALUE)
        for label, subtree in tree.items():
            if label:
                child = None if old is None else self._child(old, label)
                children[label] = self._write(subtree, child)
        labels = [*children] if text is None else [0, *children]
        base = self._find_base(labels)
        for label, (child_base, has_value) in children.items():
            place = base ^ label
            unit = label | has_value * HAS_VALUE | (place ^ child_base) << 10
            self._added[place - len(self._units)] = unit
        if text is not None:
            self._added[base - len(self._units)] = IS_VALUE | self._place_of(text)
        return base, text is not None

    def _find_base(self, labels):
        """Return a base that no other node has and where the places of these labels are free."""
        # Bases differ, so a unit's label tells whose child it is.
        base = self._starts.get(len(labels), 0)
        while True:
            if base + BLOCK > len(self._added):
                self._added += [None] * BLOCK
            if base not in self._bases and all(self._added[base ^ n] is None for n in labels):
                break
            base += 1
        for label in labels:
            self._added[base ^ label] = 0
        self._bases.add(base)
        self._starts[len(labels)] = base  # nodes of this size found no room before it
        return base + len(self._units)

    def _unused(self, place):
        # No node may take it for its child, not even for one labelled 0.
        return next(label for label in range(1, BLOCK) if place ^ label not in self._bases)

    def _place_of(self, text):
        if text not in self._places:
            self._places[text] = len(self._texts)
            self._texts += text.encode() + b"\0"
        return self._places[text]
