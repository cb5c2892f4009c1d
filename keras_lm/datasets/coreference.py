"""Documents with coreference clusters: lists of mentions, which are (start, end) in words.

Files have the columns of CoNLL-2012.
"""

import collections
import re

import numpy as np

from keras_lm.datasets.text_lines import decoded
from keras_lm.datasets.word_columns import DOCUMENT, FIRST_ROLES, PART, WORD


def mentions_of(clusters):
    """Return the mentions in a text's clusters as (start, end, number of the cluster from 1)."""
    cluster_of = {}
    clusters = clusters.tolist() if hasattr(clusters, "tolist") else clusters  # numpy's arrays
    if not isinstance(clusters, (list, tuple)):
        raise ValueError(f"{clusters!r} is not a list of clusters; if there are none, pass [].")
    for number, cluster in enumerate(clusters, start=1):
        for mention in cluster if isinstance(cluster, (list, tuple)) else [cluster]:
            if isinstance(mention, dict) and {"start", "end"} <= set(mention):
                mention = mention["start"], mention["end"]
            is_pair = isinstance(mention, (list, tuple)) and len(mention) == 2
            if not is_pair or not all(isinstance(n, (int, np.integer)) for n in mention):
                raise ValueError(
                    f"{mention!r} is not a mention. A cluster is a list of pairs (start, end): "
                    "[[(0, 2), (5, 6)]] is one cluster of two mentions."
                )
            mention = tuple(map(int, mention))
            if mention in cluster_of:
                raise ValueError(f"the mention {mention} occurs twice: leave it in one cluster.")
            cluster_of[mention] = number
    return [(*mention, number) for mention, number in cluster_of.items()]


def check_place(mention, size, unit="words", where=""):
    """Raise a ValueError if a mention is outside of a text of `size` words or characters."""
    if not 0 <= mention[0] < mention[1] <= size:
        raise ValueError(
            f"{where}the mention {mention} is not within the text of {size} {unit}: a start counts "
            "from 0, and an end is exclusive."
        )


BEGIN, END = "#begin document", "#end document"


def coreference_rows(name, stream):
    """Yield (number, row) for each part of an OntoNotes document in CoNLL-2012's columns.

    A row has `id`, `words` and `labels`. Labels are clusters in the order of their first mentions,
    each a list of mentions (start, exclusive end), in words.
    """
    lines, begun = [], None
    number = 0
    for line, text in decoded(name, stream):
        text = text.strip()
        if text.startswith((BEGIN, END)):
            if text.startswith(BEGIN) != (begun is None):
                where = f"that of line {begun} has not ended" if begun else "no document has begun"
                raise ValueError(f"{name}, line {line}: {text[:40]!r}, but {where}.")
            if begun:
                number += 1
                yield number, _row(name, lines, begun)
            begun, lines = (None if begun else line), []
        elif text and begun is None:
            raise ValueError(f"{name}, line {line}: {text[:40]!r} is before a {BEGIN!r}.")
        elif text:
            fields = text.split()
            if len(fields) <= FIRST_ROLES:
                raise ValueError(
                    f"{name}, line {line}: {len(fields)} columns, but CoNLL-2012 has at least "
                    f"{FIRST_ROLES + 1}."
                )
            lines.append((line, fields))
    if begun:
        raise ValueError(f"{name}: cut off, the document of line {begun} has no {END!r}.")


def _row(name, lines, begun):
    if not lines:
        raise ValueError(f"{name}, line {begun}: the document has no words.")
    # For each cluster: start and line of its open mentions, and its mentions, in order.
    open_, clusters = collections.defaultdict(list), {}
    for place, (line, fields) in enumerate(lines):
        cell = fields[-1]
        for part in [] if cell in ("-", "_") else cell.split("|"):
            bracket = re.fullmatch(r"(\()?(\d+)(\))?", part)
            if not bracket or not (bracket[1] or bracket[3]):
                raise ValueError(
                    f"{name}, line {line}: {cell!r} is not a bracket of a mention, such as (0, 0) "
                    "or (0)|(1."
                )
            if bracket[1]:
                open_[bracket[2]].append((place, line))
            if bracket[3]:
                if not open_[bracket[2]]:
                    raise ValueError(
                        f"{name}, line {line}: {part!r} ends a mention that has not begun."
                    )
                first, _ = open_[bracket[2]].pop()
                clusters.setdefault(bracket[2], {})[first, place + 1] = None
    left = [(mentions[0], cluster) for cluster, mentions in open_.items() if mentions]
    if left:
        (_, line), cluster = min(left)
        raise ValueError(f"{name}, line {line}: the mention '({cluster}' is not closed.")
    fields = lines[0][1]
    return {
        "id": f"{fields[DOCUMENT]}/{fields[PART]}",
        "words": [fields[WORD] for _, fields in lines],
        "labels": sorted(sorted(mentions) for mentions in clusters.values()),
    }
