"""Documents with coreference clusters, in the columns of CoNLL-2012."""

import collections
import re

from keras_lm.datasets.text_lines import decoded
from keras_lm.datasets.word_columns import DOCUMENT, FIRST_ROLES, PART, WORD

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
