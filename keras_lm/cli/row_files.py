"""Rows of CSV, TSV and JSONL files, of published data sets and of plain lines, read one at a time.

Text is UTF-8, with or without a byte order mark, whatever the locale is; `.gz` is unpacked on the
way. An error names the file and the line.
"""

import contextlib
import gzip
import itertools
import json
import sys
from pathlib import Path

import click

from keras_lm.cli.terminal import progress
from keras_lm.published import PUBLISHED, files_of
from keras_lm.published.text_lines import (
    chomp,
    csv_rows,
    decoded,
    json_rows,
    table_rows,
    undecoded,
)

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".txt": "lines",
    ".conll": "conll",
    ".json": "squad",
}  # by suffix
DELIMITERS = {"csv": ",", "tsv": "\t"}
# What a column may be called where the user does not say.
GUESSES = {
    "text": ("text", "sentence", "sentence1", "prompt"),
    "text_pair": ("text_pair", "sentence2"),
    "labels": ("labels", "label"),
    # Of texts to write for texts.
    "source": ("text", "source", "sentence", "article", "document", "prompt"),
    "target": ("labels", "label", "target", "translation", "summary"),
    # Of words with a label each, and of multiple choice.
    "words": ("words", "tokens", "text"),
    "tags": ("labels", "tags", "ner_tags", "label"),
    "situation": ("text", "sentence", "sent1", "question", "context", "prompt"),
    "choices": ("choices", "choice", "ending"),
    "question": ("question",),
    "context": ("context",),
    "answers": ("answers", "labels", "label"),
}
# The options that name such columns, unless they are called as the role.
OPTIONS = {
    **{"words": "text", "tags": "labels", "situation": "text"},
    **{"source": "text", "target": "labels"},
    **{"question": "text", "context": "text_pair", "answers": "labels"},
}


class Rows:
    """Rows from a file, from standard input or from the command line; iterate once.

    Iterating yields `(line number, dict)`; where a line is no row it raises what is wrong, or if
    `with_errors` yields that in the place of the row. `columns=None` takes those of the first row.
    `size` is the number of bytes, None if unknown, and `position` returns how many of them are
    read.
    """

    unit = "line"  # what the numbers of rows count
    published = None  # the `PublishedSet` that they are of
    left_out = 0  # how many rows so far are damaged as published, or have no label
    refuses_blank = False  # texts, in data that a model is to learn from

    def __init__(self, name, lines, columns=None, size=None, position=lambda: 0, with_errors=False):
        self.name = name
        self.size = size
        self.position = position
        self._lines = self._kept(lines if with_errors else _raising(lines))
        self.columns = columns or []
        first = []
        for line, row in self._lines if columns is None else ():
            first.append((line, row))
            if isinstance(row, dict):
                self.columns = [*row]
                break
        self._lines = itertools.chain(first, self._lines)

    def __iter__(self):
        return self._lines

    def leave_out_unlabelled(self):
        """Leave out rows of a published set that have no label, where others have one."""
        self._lines = self._kept(self._lines, needs_label=True)

    def _kept(self, lines, needs_label=False):
        for line, row in lines:
            if row is None or (needs_label and self.published and row.get("labels", "") is None):
                self.left_out += 1
            else:
                yield line, row

    def error(self, line, message):
        """Return a `click.ClickException` that says where."""
        return click.ClickException(f"{self.name}, {self.unit} {line}: {message}")

    def find(self, role, given=None, required=True):
        """Return the column for a role: what the user named, or a name that is usual for it.

        If there is none, raise an error; but return None if the user named none and `required` is
        False.
        """
        candidates = [given] if given else GUESSES.get(role, (role,))
        found = next((name for name in candidates if name in self.columns), None)
        if found is None and (given or required):
            remedy = (
                f" Name the column: --{OPTIONS.get(role, role).replace('_', '-')} NAME."
                if role in GUESSES
                else ""
            )
            remedy = _other_delimiter(self.columns) or remedy
            wanted = " or ".join(repr(name) for name in candidates)
            has = ", ".join(self.columns) or "nothing: it is empty"
            raise click.UsageError(f"{self.name} has no column {wanted}; it has {has}.{remedy}")
        return found

    def value(self, line, row, column):
        """Return what a row has in a column; raise an error if that is nothing or null."""
        if row.get(column) is None:
            raise self.error(line, f"no {column!r}.")
        return row[column]

    def text(self, line, row, column):
        """Return what a row has in a column; raise an error if that is no string."""
        value = self.value(line, row, column)
        if not isinstance(value, str):
            raise self.error(line, f"{column!r} is {json.dumps(value)[:40]}, and not a string.")
        return value

    def filled(self, line, row, column):
        """Return the text of a row; raise an error if it is blank, where `refuses_blank`."""
        value = self.text(line, row, column)
        if self.refuses_blank and not value.strip():
            raise self.error(line, f"{column!r} is empty: write a text there, or delete the row.")
        return value

    def text_or_list(self, line, row, column):
        """Return what a row has in a column: a string, or of words or choices the list."""
        if column == "predicate" and isinstance(row.get(column), int):
            return str(row[column])
        if column in ("words", "choices") and isinstance(row.get(column), list):
            return self.strings(line, row, column)
        return self.text(line, row, column)

    def strings(self, line, row, column):
        """Return what a row has in a column; raise an error if that is no list of strings."""
        value = self.value(line, row, column)
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise self.error(
                line, f"{column!r} is {json.dumps(value)[:40]}, and not a list of strings."
            )
        return value


def _other_delimiter(columns):
    """Return what to do if a header of one column is one of several, parted by something else."""
    found = [each for each in (";", "\t", ",", "|") if len(columns) == 1 and each in columns[0]]
    if not found:
        return None
    formats = {delimiter: name for name, delimiter in DELIMITERS.items()}
    if found[0] in formats:
        remedy = f"pass --format {formats[found[0]]}"
    else:
        remedy = "save it with commas, or with tabs and --format tsv"
    return f" Its columns seem to be parted by {found[0]!r}: {remedy}."


def find_format(path):
    """Return what a file is by its suffix, before `.gz`; UsageError for an unknown one."""
    suffix = Path(path.lower().removesuffix(".gz")).suffix
    if suffix not in FORMATS:
        raise click.UsageError(
            f"{path} does not end in {', '.join(FORMATS)} (or these and .gz): say what it is with "
            "--format."
        )
    return FORMATS[suffix]


@contextlib.contextmanager
def open_rows(path, format=None):
    """Yield the `Rows` of a file; a path of `"-"` is standard input.

    Without a `format`, the suffix says what a file is, and standard input is lines.
    """
    if path == "-":
        name, stream = "standard input", sys.stdin.buffer
        yield _rows(name, stream, format or "lines")
        return
    format = format or find_format(path)
    if Path(path).is_dir():
        yield _rows_of_folder(path, format)
        return
    is_packed = path.lower().endswith(".gz")
    with open(path, "rb") as file:
        stream = gzip.GzipFile(fileobj=file) if is_packed else file
        size = Path(path).stat().st_size
        yield _rows(str(path), stream, format, size=size, position=file.tell)


def parse_rows(name, stream, format):
    """Return the `Rows` of an open file, with what is wrong with a line in the place of its row."""
    return _rows(name, stream, format, with_errors=True)


def open_input(texts, path, format):
    """Return a context with the `Rows` of texts from the command line, a file or standard input."""
    if texts and path:
        raise click.UsageError("texts are given and --input, too: choose one.")
    if texts:
        numbered = enumerate(({"text": text} for text in texts), start=1)
        return contextlib.nullcontext(Rows("the command line", numbered, ["text"]))
    if path is None and sys.stdin.isatty():
        raise click.UsageError("no texts: give them as arguments, by --input FILE, or by a pipe.")
    return open_rows(path or "-", format)


def choose_columns(rows, inputs, given):
    """Return a dict of a model's input → the column that it is read from."""
    is_words = rows.published and "words" in rows.columns and not given["text"]
    roles = {"text": "words"} if is_words else {}
    if len(inputs) == 1:  # whatever it is called
        return {inputs[0]: rows.find(roles.get("text", "text"), given["text"])}
    if rows.columns == ["text"]:
        raise click.UsageError(
            f"the model takes {' and '.join(inputs)}: give them as columns of a CSV, TSV or JSONL "
            "file, by --input."
        )
    found = {name: roles.get(name, name) for name in inputs}
    return {name: rows.find(r, given.get(OPTIONS.get(r, r))) for name, r in found.items()}


def batches(rows, columns, batch_size, label):
    """Yield `(rows, columns)` batch by batch: a list of dicts, and a dict of lists of strings.

    Of words and choices, it is a dict of lists of lists.
    """
    read = 0
    with progress(rows.size, label) as advance:
        while batch := list(itertools.islice(rows, batch_size)):
            texts = {
                name: [rows.text_or_list(line, row, column) for line, row in batch]
                for name, column in columns.items()
            }
            yield [row for _, row in batch], texts
            advance(rows.position() - read)
            read = rows.position()


def _rows(name, stream, format, **options):
    rows = Rows(name, *_parse(name, stream, format), **options)
    if format in PUBLISHED:
        rows.published = PUBLISHED[format]
        rows.unit = rows.published.unit
        if not rows.columns:
            raise click.ClickException(f"{name} has no rows.")
    return rows


def _rows_of_folder(path, format):
    """Return the `Rows` of all files of a folder, as RACE is published."""
    if format not in PUBLISHED or not PUBLISHED[format].in_folder:
        raise click.UsageError(f"{path} is a folder: give a file.")
    lines = (line for file in files_of(path) for line in _rows_of_file(file, format))
    rows = Rows(path, ((n, row) for n, (_, row) in enumerate(lines, start=1)))
    rows.published, rows.unit = PUBLISHED[format], PUBLISHED[format].unit
    return rows


def _rows_of_file(file, format):
    with open(file, "rb") as stream:
        yield from _parse(str(file), stream, format)[0]


def as_messages(lines):
    """Yield numbers and rows; what is wrong with the file or a line is a `ClickException`."""
    try:
        for line, row in lines:
            yield line, click.ClickException(str(row)) if isinstance(row, ValueError) else row
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def _raising(lines):
    """Yield numbers and rows, but raise what stands in the place of one."""
    for line, row in lines:
        if isinstance(row, Exception):
            raise row
        yield line, row


def _parse(name, stream, format):
    """Return (iterator of rows, columns); JSONL says its columns row by row: None.

    In the place of a row may stand an exception, if lines after it can be read all the same.
    """
    if format in PUBLISHED:
        return as_messages(PUBLISHED[format].rows(name, stream)), None
    if format == "jsonl":
        return as_messages(json_rows(name, undecoded(name, stream))), None
    text = decoded(name, stream, "replace" if format == "lines" else "strict")
    if format == "lines":
        return as_messages((line, {"text": chomp(value)}) for line, value in text), ["text"]
    try:
        rows, header = table_rows(name, csv_rows(name, text, DELIMITERS[format]))
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    return as_messages(rows), header
