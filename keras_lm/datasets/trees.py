"""Constituency trees in the Penn Treebank's brackets, and files of them."""

import collections
import dataclasses
import itertools
import re
from collections.abc import Iterable

from keras_lm.datasets.text_lines import decoded

# Names of the root that treebanks put over a sentence.
ROOTS = ("", "TOP", "ROOT", "S1")
# Joins the labels of a unary chain, outermost first.
CHAIN = "::"
# The tag of words whose part of speech is unknown.
NO_TAG = "XX"
# How trees write brackets in words.
ESCAPES = {
    **{"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"},
    **{"``": '"', "''": '"'},
}


@dataclasses.dataclass(frozen=True)
class Tree:
    """The constituents of a sentence; see `read_tree`.

    Args:
        words, tags: tuples of str: the words as in a text, and their parts of speech.
        constituents: tuple of (label, start, exclusive end), in words, in pre-order. A root without
            a label of its own is left out.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    constituents: tuple[tuple[str, int, int], ...]

    def __str__(self):
        """Return the tree in brackets on one line, with the root `TOP`; "" without words."""
        if not self.words:
            return ""
        parts, begun = ["(TOP"], collections.defaultdict(list)
        ends = collections.Counter(end for _, _, end in self.constituents)
        for label, start, _ in self.constituents:
            begun[start].append(f"({label}")
        for place, (word, tag) in enumerate(zip(self.words, self.tags, strict=True)):
            parts += begun[place]
            parts.append(f"({tag} {escaped(word)}){')' * ends[place + 1]}")
        return " ".join(parts) + ")"

    def spans(self) -> list[tuple[str, int, int]]:
        """Return the constituents as a list, with one per span.

        The labels of a unary chain are joined, the outermost first: `S::VP`.
        """
        by_span = itertools.groupby(self.constituents, key=lambda constituent: constituent[1:])
        return [(CHAIN.join(label for label, *_ in chain), *span) for span, chain in by_span]


def read_tree(text: str) -> Tree:
    """Return the `Tree` of a sentence in brackets, on one line or several.

    Left out are empty elements (`-NONE-`) and constituents of nothing else, function tags and
    indices (`NP-SBJ-1` becomes `NP`), and a root without a label or named `TOP`, `ROOT` or `S1`. In
    words, `-LRB-` becomes `(`, `` and '' become `"`, and `\\/` becomes `/`.

    Args:
        text: str.

    Raises:
        ValueError: if brackets are not balanced, or a word has no tag.

    Example:

        read_tree("( (S (NP-SBJ (DT the) (NN dog)) (VP (VBZ barks))))").spans()
        # [("S", 0, 3), ("NP", 0, 2), ("VP", 2, 3)]

    Source: Marcus et al. 1993, https://aclanthology.org/J93-2004.
    """
    words, tags, constituents, is_open = [], [], [], []
    parts = re.findall(r"[()]|[^\s()]+", text)
    for place, part in enumerate(parts):
        before, after = parts[place - 1] if place else "", parts[place + 1 : place + 2]
        if part == "(":
            if place and not is_open:
                raise ValueError("there is text after the last bracket.")
            is_open.append(len(constituents))
            label = "" if after in (["("], [")"]) else "".join(after)
            if label and parts[place + 2 : place + 3] == [")"]:
                raise ValueError(f"({label}) has no word in it.")
            constituents.append([label, len(words), None])
        elif not is_open:
            raise ValueError(f"{part!r} is outside of the brackets.")
        elif part == ")":
            constituents[is_open.pop()][2] = len(words)
        elif before != "(":  # a word, after its tag
            if before in ("", ")") or parts[place - 2] != "(" or after != [")"]:
                raise ValueError(f"{part!r} has no brackets of its own: write a word as (NN dog).")
            tag = constituents[is_open[-1]][0]
            constituents[is_open[-1]][0] = None  # not a constituent
            if tag != "-NONE-":
                words.append(unescaped(part))
                tags.append(tag)
    if is_open or not parts:
        raise ValueError("a bracket is not closed: the tree is cut off.")
    constituents = itertools.dropwhile(lambda constituent: constituent[0] in ROOTS, constituents)
    kept = [
        (clean(label), start, end) for label, start, end in constituents if label and start < end
    ]
    return Tree(tuple(words), tuple(tags), tuple(kept))


def clean(label):
    """Return a label without function tags and indices."""
    return re.split("(?<=.)[-=|]", label, maxsplit=1)[0]


def unescaped(word):
    """Return a word of a tree in the form that it has in a text."""
    return ESCAPES.get(word, word.replace("\\/", "/").replace("\\*", "*"))


def escaped(word):
    """Return a word of a text in a form for trees, without brackets and white space."""
    for escape, bracket in ESCAPES.items():
        word = word.replace(bracket, escape) if bracket in "()" else word
    return "".join(word.split()) or "_"


def labels_of_trees(trees: Iterable[str]) -> list[str]:
    """Return the span labels in trees, sorted, for a parser's `class_names`.

    Args:
        trees: list of str, see `read_tree`.

    Example:

        labels_of_trees(["(S (VP (VB Speak)))", "(S (NP (NN it)))"])  # ["S::NP", "S::VP"]
    """
    return sorted({label for text in trees for label, *_ in read_tree(text).spans()})


def tree_rows(name, stream):
    """Yield (first line, row) for each tree: `words`, and as `labels` the tree on one line.

    Empty elements, function tags and indices are removed; see `read_tree`. Trees without words are
    left out. If a tree cannot be read, the error is yielded in place of its row. Lines between
    trees may be empty, or notes that begin with `*`, as in the Penn Treebank's files.
    """
    first, parts, depth = None, [], 0
    for number, line in decoded(name, stream):
        if not depth and line.startswith("*"):
            continue
        for part in re.findall(r"[()]|[^\s()]+", line):
            if not depth and part != "(":
                message = f"{part[:40]!r} is outside of the brackets of a tree."
                raise ValueError(f"{name}, line {number}: {message}")
            first = first if depth else number
            depth += (part == "(") - (part == ")")
            parts.append(part)
            if not depth:
                yield first, _row(name, first, " ".join(parts))
                parts = []
    if depth:
        raise ValueError(f"{name}, line {first}: the tree that begins here is cut off.")


def _row(name, line, text):
    try:
        tree = read_tree(text)
    except ValueError as error:
        return ValueError(f"{name}, line {line}: {error}")
    return {"words": list(tree.words), "labels": str(tree)} if tree.words else None
