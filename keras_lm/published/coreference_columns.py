"""Documents with clusters of mentions, in the columns of CoNLL-2012."""

import collections
import re

from keras_lm.published.text_lines import decoded
from keras_lm.published.word_columns import DOCUMENT, FIRST_ROLES, PART, WORD

BEGIN, END = "#begin document", "#end document"


def coreference_rows(name, stream):
    """Yield (number, row) for each part of a document of OntoNotes in CoNLL-2012's columns.

    A row has `id`, `words` and `labels`: clusters, lists of mentions (first word, the one after the
    last), in the order of their first mentions.
    """
    lines, begun = [], None
    number = 0
    for line, text in decoded(name, stream):
        text = text.strip()
        if text.startswith((BEGIN, END)):
            if text.startswith(BEGIN) != (begun is None):
                where = f"the one of line {begun} has not ended" if begun else "none has begun"
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
                    f"{name}, line {line}: {len(fields)} columns, and CoNLL-2012 has at least "
                    f"{FIRST_ROLES + 1}."
                )
            lines.append((line, fields))
    if begun:
        raise ValueError(f"{name}: cut off, the document of line {begun} has no {END!r}.")


def _row(name, lines, begun):
    if not lines:
        raise ValueError(f"{name}, line {begun}: the document has no words.")
    # By cluster: first words and lines of mentions that have not ended, and the mentions, in order.
    open_, clusters = collections.defaultdict(list), {}
    for place, (line, fields) in enumerate(lines):
        cell = fields[-1]
        for part in [] if cell in ("-", "_") else cell.split("|"):
            bracket = re.fullmatch(r"(\()?(\d+)(\))?", part)
            if not bracket or not (bracket[1] or bracket[3]):
                raise ValueError(
                    f"{name}, line {line}: {cell!r} is no bracket of a mention, such as (0 or 0) "
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
