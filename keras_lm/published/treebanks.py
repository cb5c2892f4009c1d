"""Files of trees in the Penn Treebank's brackets."""

import re

from keras_lm.published.text_lines import decoded
from keras_lm.published.trees import read_tree


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
