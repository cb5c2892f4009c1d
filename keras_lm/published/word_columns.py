"""Files with one word per line and an empty line after each sentence."""

import dataclasses
import re
from collections.abc import Callable

from keras_lm.published.tag_schemes import convert_tags
from keras_lm.published.text_lines import decoded


@dataclasses.dataclass(frozen=True)
class WordColumns:
    """Words with a label each.

    Args:
        labels: int, the column of the labels; -1 is the last one.
        fields: int, the number of columns; None for any number from 2.
        clean: function that is applied to each word.
        tags: bool. Whether labels mark spans; they are converted to BIO.
    """

    labels: int = -1
    fields: int | None = None
    clean: Callable = str
    tags: bool = False

    def rows(self, name, stream):
        """Yield (first line, dict of `words` and `labels`) for each sentence."""
        for lines in sentences(name, decoded(name, stream)):
            words, labels = [], []
            for number, fields, line in lines:
                is_whole = len(fields) == (self.fields or max(len(fields), 2))
                words.append(self.clean(fields[0]) if is_whole else "")
                if not words[-1]:
                    expected = f"a word and its label in {self.fields} columns"
                    expected = expected if self.fields else "a word and its label"
                    raise ValueError(
                        f"{name}, line {number}: {line.strip()[:40]!r} is not {expected}, with a "
                        "space or a tab between them."
                    )
                labels.append(fields[self.labels])
            yield (
                lines[0][0],
                {"words": words, "labels": convert_tags(labels) if self.tags else labels},
            )


def sentences(name, text):
    """Yield the sentences of a file: lists of (line number, fields, line)."""
    found = []
    for number, line in text:
        fields = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
        fields = [field.strip() for field in fields]
        if not line.strip() or fields[0] == "-DOCSTART-" or re.match("#(begin|end) document", line):
            if found:
                yield found
            found = []
        else:
            found.append((number, fields, line))
    if found:
        yield found


def without_language(word):
    """Return a word of WikiANN, `en:word`, without the language."""
    return re.sub("^[a-z-]+:", "", word)


# CoNLL-2012's columns: document, part, position, word, part of speech, …, frame set, …, one for
# each predicate, coreference.
DOCUMENT, PART, WORD, FRAME_SET, FIRST_ROLES = 0, 1, 3, 7, 11


def role_rows(name, stream):
    """Yield (number, row) for each predicate in an OntoNotes file in CoNLL-2012's columns.

    A row has `id`, `words`, `predicate` (the position of its word) and `labels`, the semantic roles
    in BIO. Sentences without predicates have no rows.
    """
    number = 0
    for lines in sentences(name, decoded(name, stream)):
        width = len(lines[0][1])
        for line, fields, _ in lines:
            if len(fields) != width or width < FIRST_ROLES + 1:
                raise ValueError(
                    f"{name}, line {line}: {len(fields)} columns, but the sentence's first line "
                    f"has {width}, and CoNLL-2012 at least {FIRST_ROLES + 1}."
                )
        words = [fields[WORD] for _, fields, _ in lines]
        framed = [n for n, (_, fields, _) in enumerate(lines) if fields[FRAME_SET] != "-"]
        first, document, part = lines[0][0], lines[0][1][DOCUMENT], lines[0][1][PART]
        for nth in range(width - FIRST_ROLES - 1):
            cells = [(line, fields[FIRST_ROLES + nth]) for line, fields, _ in lines]
            labels = _roles(name, cells)
            predicate = labels.index("B-V") if "B-V" in labels else (framed + [None] * width)[nth]
            if predicate is None:
                raise ValueError(f"{name}, line {first}: predicate {nth + 1} has no word (V*).")
            number += 1
            id = f"{document}/{part}/{first}/{nth}"
            yield number, {"id": id, "words": words, "predicate": predicate, "labels": labels}


def _roles(name, cells):
    """Return BIO labels for a column of (line, cell) with brackets, `(ARG0*`, `*`, `*)`."""
    labels, role = [], None
    for line, cell in cells:
        parts = re.fullmatch(r"(?:\(([^()*]+))?\*(\))?", cell)
        if not parts or (parts[1] and role) or (parts[2] and not (parts[1] or role)):
            raise ValueError(
                f"{name}, line {line}: {cell!r} is not a bracket of a role, as in (ARG0* * *)."
            )
        role = parts[1] or role
        labels.append(("B-" if parts[1] else "I-") + role if role else "O")
        role = None if parts[2] else role
    if role:
        raise ValueError(f"{name}, line {cells[-1][0]}: the role {role!r} is not closed.")
    return labels
