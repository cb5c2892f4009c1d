"""SentencePiece's table of characters, the `precompiled_charsmap`, and what is added to it.

Lower-casing and the like, which ALBERT's and XLNet's code does before the model, become rules of
the table: there they cost no time, run wherever the model runs, and the model tracks the offsets.

Characters without a piece become one byte, so that unigram scores add up as in the reference. Such
a character costs a penalty: once per character in the reference, once per byte in TF Text's
operation. The scores of what follows would be rounded differently, and of ways to split a word that
are equally good, or almost, another one would win.
"""

import collections
import dataclasses
import functools
import itertools
import struct
import unicodedata

import numpy as np

from keras_lm.tokenizers.unicode_ranges import character_class

# === The table ===

# It maps characters, or runs of characters, to text. It is a double array, as darts-clone writes
# it, after its length and before the texts. Each unit has a label (8 bits), a flag for "a key ends
# here" and the distance (by exclusive or) to its base, where its children are. Nodes that change
# are appended; all others are shared.

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
                if (replacement := self.text(node)) is not None:
                    longest = end, replacement
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


# === Lower case and the like, and characters without a piece ===

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


# === Tables for steps of a tokenizer.json that SentencePiece has no table for ===

# Transformers 5 writes them for tokenizers whose model's own table it leaves out.

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
