"""Texts with target texts: parallel files of WMT, and news with summaries."""

import html
import itertools
import re
from pathlib import Path

from keras_lm.datasets.text_lines import chomp, decoded, whole_text

MARKED = re.compile(r"\s*<(\?xml|!doctype|srcset|refset|tstset|mteval|dataset)\b", re.IGNORECASE)
TAG = re.compile(r"<(/?)(doc|src|ref|hyp|seg)\b([^>]*)>", re.IGNORECASE)
SIDES = {"src": "text", "ref": "labels"}
HIGHLIGHT = re.compile(r"^@highlight\s*$", re.MULTILINE)
ENDS = (".", "!", "?", "…", "'", '"', ")", "’", "”", "`")


def aligned(first, second, names):
    """Join two iterators of (number, row); the `labels` are the texts of the second.

    Raises:
        ValueError: if the files, named `names`, have different numbers of rows, or the ids of two
            rows differ.
    """
    pairs = itertools.zip_longest(first, second)
    for number, (source, target) in enumerate(pairs, start=1):
        if source is None or target is None:
            longer, left = (first, source) if target is None else (second, target)
            rows = left[0] + sum(1 for _ in longer)
            longer, shorter = names if target is None else names[::-1]
            raise ValueError(
                f"{longer} has {rows:,} lines, but {shorter} has {number - 1:,}: each line needs "
                "its target, or an empty line, on the same line of the other file."
            )
        for row in (source[1], target[1]):
            if isinstance(row, Exception):
                raise row
        ids = [row.get("id") for row in (source[1], target[1])]
        if ids[0] != ids[1]:
            raise ValueError(
                f"{names[0]} has the segment {ids[0]} where {names[1]} has {ids[1]}: the segments "
                "must be in the same order."
            )
        yield number, source[1] | {"labels": target[1]["text"]}


def wmt_rows(name, stream):
    """Yield (number, row) from a file of WMT.

    A row has the `text` of a line, or of an `.sgm` segment with its id. For `.xml` with sources and
    references, a row also has `labels`: the first reference, or None.
    """
    lines = decoded(name, stream)
    first = next(lines, None)
    if first is None:
        return iter(())
    if MARKED.match(first[1]):
        return _segments(name, first[1] + whole_text(name, stream, first_line=2))
    lines = itertools.chain([first], lines)
    return ((number, {"text": chomp(line)}) for number, line in lines)


def _segments(name, content):
    root = re.search(r"<(\w+)", content)
    if not root or not content.rstrip().lower().endswith(f"</{root[1].lower()}>"):
        raise ValueError(f"{name}: cut off, the last tag does not close {root and root[1]}.")
    rows, doc, side, start = {}, "", "text", None
    for tag in TAG.finditer(content):
        closes, kind, attributes = tag[1], tag[2].lower(), tag[3]
        if (start is not None) != bool(closes and kind == "seg"):
            line = content.count("\n", 0, tag.start()) + 1
            raise ValueError(
                f"{name}, line {line}: {tag[0]!r}, but a segment has to begin or end here."
            )
        if kind == "doc":
            doc, side = "" if closes else _attribute(attributes, "(?:doc)?id"), "text"
            has_reference = False
        elif kind in ("src", "ref", "hyp") and not closes:
            side = SIDES.get(kind)
            if kind == "ref":  # the first of several
                side, has_reference = (None if has_reference else side), True
        elif kind == "seg" and not closes:
            id, start = f"{doc}-{_attribute(attributes, 'id')}", tag.end()
        elif kind == "seg":
            text = " ".join(html.unescape(content[start : tag.start()]).split())
            start = None
            if side:
                rows.setdefault(id, {"id": id})[side] = text
    both = any("labels" in row for row in rows.values())
    for number, row in enumerate(rows.values(), start=1):
        if "text" not in row:
            raise ValueError(f"{name}: the segment {row['id']} has no source.")
        yield number, row | ({"labels": row.get("labels")} if both else {})


def _attribute(attributes, name):
    attribute = re.search(rf"\b{name}\s*=\s*([\"'])(.*?)\1", attributes, re.IGNORECASE)
    return attribute[2] if attribute else ""


def news_rows(name, stream):
    """Yield (number, row) from a `.story` of CNN or the Daily Mail, or from a file of lines.

    A story is an article and its highlights; the lines of each become one text, with missing full
    stops added. Other files have a `text` on each line; its sentences may be in `<t>`.

    Source: See et al. 2017, https://arxiv.org/abs/1704.04368, and its code.
    """
    if not name.removesuffix(".gz").endswith(".story"):
        for number, line in decoded(name, stream):
            yield number, {"text": " ".join(re.sub("</?t>", " ", chomp(line)).split())}
        return
    article, *highlights = HIGHLIGHT.split(whole_text(name, stream))
    highlights = [_sentences(part) for part in highlights]
    if not highlights or not all(highlights):
        yield 1, ValueError(f"{name}: cut off, there is no @highlight, or no text after it.")
        return
    id = Path(name.removesuffix(".gz")).stem
    text = _sentences(article)
    # Some published stories have no article.
    yield 1, {"id": id, "text": text, "labels": " ".join(highlights)} if text else None


def _sentences(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(line if line.endswith(ENDS) else f"{line}." for line in lines)
