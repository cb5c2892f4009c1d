"""Files with one word per line and an empty line after each sentence."""

import dataclasses
import itertools
import re
from collections.abc import Callable

from keras_lm.datasets.tag_schemes import convert_tags
from keras_lm.datasets.text_lines import chomp, decoded
from keras_lm.datasets.word_layouts import NOT_CLASS, SPAN_TAG, fixed_layout, infer_layout

SAMPLE = 1000  # sentences at the beginning of a file that show its columns
DOCUMENT_BORDER = re.compile(r"#\s*(begin|end) document|###MEDLINE:")


@dataclasses.dataclass(frozen=True)
class WordColumns:
    """Words with a label each.

    Lines that begin with `#`, or with the address of a text's source, are comments, unless they
    have a word and its label. A header is skipped, and so are the multiword tokens and the empty
    nodes of CoNLL-U.

    Args:
        labels: int, the column of the labels; -1 is the last one.
        fields: int, the number of columns; None infers which columns hold words and labels.
        clean: function that is applied to each word.
        tags: bool. Whether labels mark spans; they are converted to BIO, except labels without the
            prefixes of a scheme.
    """

    labels: int = -1
    fields: int | None = None
    clean: Callable = str
    tags: bool = False

    def rows(self, name, stream, labels=None):
        """Yield (first line, dict of `words` and `labels`) for each sentence.

        `labels` is the user's choice of the column of labels, see `infer_layout`.
        """
        blocks = sentences(name, stream)
        first = [*itertools.islice(blocks, SAMPLE)]
        if self.fields:
            layout = fixed_layout(first, self.fields, self.labels)
        else:
            layout = infer_layout(name, first, labels)
        for lines in _parts(itertools.chain(first, blocks), layout):
            for number, fields, line in lines:
                self._check(name, number, fields, line, layout, len(lines[0][1]))
            found = [layout.label(fields) for _, fields, _ in lines]
            if layout.brackets:
                found = _roles(
                    name, [(number, fields[layout.labels]) for number, fields, _ in lines]
                )
            if labels is None:
                self._refuse_no_class(name, lines, found, layout)
            is_scheme = all(tag == "O" or SPAN_TAG.fullmatch(tag) for tag in found)
            words = [layout.word(fields) for _, fields, _ in lines]
            yield (
                lines[0][0],
                {
                    "words": [self.clean(word) for word in words],
                    "labels": convert_tags(found) if self.tags and is_scheme else found,
                },
            )

    def _check(self, name, number, fields, line, layout, first):
        """Raise an error if a line has other columns than those before it, or lacks a part."""
        width = layout.width or first
        is_whole = len(fields) == width > max(layout.words, layout.labels)
        if not is_whole or not self.clean(fields[layout.words]) or not fields[layout.labels]:
            columns = f" in {width} columns" * (width > 1)
            raise ValueError(
                f"{name}, line {number}: {chomp(line)[:40]!r} is not a word and its label"
                f"{columns}, with a space or a tab between them."
            )

    def _refuse_no_class(self, name, lines, found, layout):
        for (number, _, _), label in zip(lines, found, strict=True):
            if NOT_CLASS.match(label):
                raise ValueError(
                    f"{name}, line {number}: {label[:60]!r} is not the name of a class. The file "
                    f"is read as {layout}; pass the number of another one as labels=."
                )


def _parts(blocks, layout):
    """Yield the lines of sentences that have words, where a column numbers sentences by it, too."""
    for block in blocks:
        words = _words_of(block, layout)
        yield from (list(part) for _, part in itertools.groupby(words, layout.sentence_of))


def _words_of(block, layout):
    """Yield the lines of a block that have words."""
    place = 0
    for number, fields, line in block:
        if layout.is_word(fields, line, place):
            place += 1
            yield number, fields, line


def sentences(name, stream):
    """Yield the sentences of a file, with comments: lists of (line number, fields, line)."""
    found = []
    for number, line in decoded(name, stream):
        if "\r" in line.rstrip("\r\n"):
            raise ValueError(
                f"{name}, line {number}: a carriage return within the line: end lines with \\n."
            )
        fields = split_fields(line)
        is_document = any(field.startswith("-DOCSTART-") for field in fields[:2])
        is_border = is_document or DOCUMENT_BORDER.match(line)
        if is_border or not line.strip():
            if found:
                yield found
            found = []
        else:
            found.append((number, fields, line))
    if found:
        yield found


def split_fields(line):
    """Return the fields of a line, between tabs, or else between spaces."""
    line = line.lstrip(" ").rstrip()
    if "\t" in line:
        return [field.strip(" ") for field in line.split("\t")]
    return re.split(" +", line)


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
    for lines in sentences(name, stream):
        lines = [each for each in lines if not each[2].startswith("#")]
        if not lines:
            continue
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
        parts = re.fullmatch(r"(?:\(([^()*]+))?\*?(\))?", cell)
        if not cell or not parts or (parts[1] and role) or (parts[2] and not (parts[1] or role)):
            raise ValueError(
                f"{name}, line {line}: {cell!r} is not a bracket around words, as in (ARG0* * *)."
            )
        role = parts[1] or role
        labels.append(("B-" if parts[1] else "I-") + role if role else "O")
        role = None if parts[2] else role
    if role:
        raise ValueError(f"{name}, line {cells[-1][0]}: {role!r} is not closed.")
    return labels
