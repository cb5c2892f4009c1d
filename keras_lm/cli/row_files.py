"""Rows of CSV, TSV, JSONL, CoNLL and SQuAD files and of plain lines, read one at a time.

Text is UTF-8, with or without a byte order mark, whatever the locale is; `.gz` is unpacked on the
way. An error names the file and the line.
"""

import contextlib
import csv
import gzip
import itertools
import json
import sys
import zlib
from pathlib import Path

import click

from keras_lm.cli.terminal import progress
from keras_lm.squad_files import squad_rows

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

    def __init__(self, name, lines, columns=None, size=None, position=lambda: 0, with_errors=False):
        self.name = name
        self.size = size
        self.position = position
        self._lines = lines if with_errors else _raising(lines)
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

    def strings(self, line, row, column):
        """Return what a row has in a column; raise an error if that is no list of strings."""
        value = self.value(line, row, column)
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise self.error(
                line, f"{column!r} is {json.dumps(value)[:40]}, and not a list of strings."
            )
        return value


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
    is_packed = path.lower().endswith(".gz")
    format = format or find_format(path)
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
    if len(inputs) == 1:  # whatever it is called
        return {inputs[0]: rows.find("text", given["text"])}
    if rows.columns == ["text"]:
        raise click.UsageError(
            f"the model takes {' and '.join(inputs)}: give them as columns of a CSV, TSV or JSONL "
            "file, by --input."
        )
    return {name: rows.find(name, given.get(OPTIONS.get(name, name))) for name in inputs}


def batches(rows, columns, batch_size, label):
    """Yield `(rows, columns)` batch by batch: a list of dicts, and a dict of lists of strings."""
    read = 0
    with progress(rows.size, label) as advance:
        while batch := list(itertools.islice(rows, batch_size)):
            texts = {
                name: [rows.text(line, row, column) for line, row in batch]
                for name, column in columns.items()
            }
            yield [row for _, row in batch], texts
            advance(rows.position() - read)
            read = rows.position()


def _rows(name, stream, format, **options):
    rows = Rows(name, *_parse(name, stream, format), **options)
    rows.unit = "question" if format == "squad" else "line"
    return rows


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
    if format == "jsonl":
        return _json_rows(name, _undecoded(name, stream)), None
    text = _decoded(name, stream, "replace" if format == "lines" else "strict")
    if format == "lines":
        return ((line, {"text": _chomp(value)}) for line, value in text), ["text"]
    if format == "conll":
        return _conll_rows(name, text), ["words", "labels"]
    if format == "squad":
        return _squad_rows(name, text), ["id", "question", "context", "answers"]
    rows = _csv_rows(name, text, DELIMITERS[format])
    _, header = next(rows, (0, []))
    repeated = sorted({column for column in header if header.count(column) > 1})
    if repeated:
        raise click.ClickException(f"{name} names the column {repeated[0]!r} twice.")

    def dicts():
        for line, fields in rows:
            if len(fields) != len(header):
                numbers = f"{len(fields)} fields, and the header has {len(header)}"
                wrong = click.ClickException(
                    f"{name}, line {line}: {numbers}. A field with a separator or a line break in "
                    "it needs quotes around it."
                )
                yield line, wrong
            else:
                yield line, dict(zip(header, fields, strict=True))

    return dicts(), header


def _decoded(name, stream, errors):
    """Yield (number, line with its ending); only a line feed ends a line."""
    for number, line in _undecoded(name, stream):
        try:
            yield number, line.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise _not_utf8(name, number, error) from error


def _undecoded(name, stream):
    """Yield (number, bytes of a line with its ending)."""
    try:
        for number, line in enumerate(stream, start=1):
            yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise click.ClickException(f"{name} cannot be unpacked: {error}.") from error


def _not_utf8(name, number, error):
    return click.ClickException(
        f"{name}, line {number}: not UTF-8 ({error.reason}). Save the file as UTF-8 first."
    )


def _chomp(line):
    return line.removesuffix("\n").removesuffix("\r")


def _json_rows(name, lines):
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            row = _not_utf8(name, number, error)
        except (ValueError, RecursionError) as error:
            row = click.ClickException(f"{name}, line {number}: not JSON ({error}).")
        if not isinstance(row, (dict, Exception)):
            row = click.ClickException(
                f"{name}, line {number}: a JSON object is needed, such as "
                '{"text": "…"}, and this is a ' + type(row).__name__ + "."
            )
        yield number, row


def _squad_rows(name, text):
    """Yield (number, question); the file is one JSON object, which is read whole."""
    try:
        yield from enumerate(squad_rows("".join(line for _, line in text), name), start=1)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def _conll_rows(name, text):
    """Yield (line, sentence): words are in the first column and labels in the last one."""
    start, words, labels = 1, [], []
    for number, line in itertools.chain(text, [(0, "")]):
        fields = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
        if not line.strip() or fields[0] == "-DOCSTART-":
            if words:
                yield start, {"words": words, "labels": labels}
            words, labels = [], []
        elif len(fields) == 1 or not fields[0]:
            raise click.ClickException(
                f"{name}, line {number}: {line.strip()[:40]!r} is not a word and its label, with "
                "a space or a tab between them."
            )
        else:
            start = start if words else number
            words.append(fields[0].strip())
            labels.append(fields[-1].strip())


def _csv_rows(name, text, delimiter):
    """Yield (line, fields); the line is that in which the row ends. Blank lines are left out."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # the module's own limit is 128 KiB
    reader = csv.reader((line for _, line in text), delimiter=delimiter, strict=True)
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        raise click.ClickException(
            f"{name}, line {reader.line_num}: {error}. Inside a quoted field, a quote is written "
            "twice."
        ) from error
