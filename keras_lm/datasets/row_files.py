"""Rows of CSV, TSV and JSONL files, of published data sets and of plain lines, read one at a time.

Text is UTF-8, with or without a byte order mark, in any locale; `.gz` is unpacked. An error names
the file and the line.
"""

import contextlib
import gzip
import itertools
import json
import math
import os
import sys
from pathlib import Path

from keras_lm.datasets import PUBLISHED, files_of
from keras_lm.datasets.aligned_texts import aligned
from keras_lm.datasets.columns import DELIMITERS, GUESSES, no_column
from keras_lm.datasets.empty_rows import MISSING, EmptyRow, is_empty, lacks_text
from keras_lm.datasets.feature_names import class_names_beside, named
from keras_lm.datasets.text_lines import (
    chomp,
    decoded,
    delimited_rows,
    json_rows,
    table_rows,
    undecoded,
)
from keras_lm.utils import input_files

PLAIN = ("csv", "tsv", "jsonl", "lines")
FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".txt": "lines",
    ".conll": "conll",
    ".conllu": "conll",
    ".json": "squad",
}  # by suffix


class Rows:
    """Rows from a file, from standard input or from a list; iterate once.

    Iterating yields `(line number, dict)`. An error in place of a row is raised, or with
    `with_errors` yielded.

    Args:
        name: str, the file's name for messages.
        lines: iterator of `(number, dict)`. Instead of a dict it may yield None, which is left out,
            or an error.
        columns: list of str; None for those of the first row.
        size: int, bytes of the file; None if unknown.
        position: function that returns how many bytes have been read.
        with_errors: bool, see above.
    """

    unit = "line"  # what the number of a row counts
    published = None  # the `PublishedSet` of the file
    chosen_labels = None  # the user's column of a file of words, which is `labels` of the rows
    left_out = 0  # how many rows were damaged in the published file, or have no label, so far
    refuses_blank = False  # whether an empty text is an error, as in training data
    skips_empty = False  # whether rows that lack a text or a label are left out
    num_empty = 0  # how many such rows have been left out so far

    def __init__(self, name, lines, columns=None, size=None, position=lambda: 0, with_errors=False):
        self.name = name
        self.size = size
        self.position = position
        self._lines = self._kept(lines if with_errors else _raising(lines))
        self.columns = columns or []
        self.used = set()  # those that have been found for a role
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
        """Leave out rows of a published set that have no label, if other rows have one."""
        self._lines = self._kept(self._lines, needs_label=True)

    def name_classes(self, names):
        """Replace the numbers of classes by names, a dict of column → list of str."""
        if names:
            self._lines = named(self._lines, names)

    def _kept(self, lines, needs_label=False):
        for line, row in lines:
            if row is None or (needs_label and self.published and row.get("labels", "") is None):
                self.left_out += 1
            else:
                yield line, row

    def leave_out_empty(self, columns):
        """Leave out rows that lack a text in one of the columns."""

        def kept(lines):
            for line, row in lines:
                if lacks_text(row, columns):
                    self.num_empty += 1
                else:
                    yield line, row

        self._lines = kept(self._lines)

    def error(self, line, message, kind=ValueError):
        """Return a `ValueError` whose message names the file and the line."""
        return kind(f"{self.name}, {self.unit} {line}: {message}")

    def empty(self):
        """Return the `ValueError` for a file without rows."""
        return ValueError(f"{self.name} is empty: it has no rows.")

    def find(self, role, given=None, required=True):
        """Return the column for a role: the one that the user names, or one with a usual name.

        If there is none, it raises an error; without `required`, and a name from the user, it
        returns None.
        """
        given = "labels" if given and given == self.chosen_labels else given
        candidates = [given] if given else GUESSES.get(role, (role,))
        found = next((name for name in candidates if name in self.columns), None)
        if found is None and (given or required):
            raise self.empty() if not self.columns else no_column(self, role, candidates)
        self.used.add(found)
        return found

    def value(self, line, row, column):
        """Return a row's value in a column; raise an error if it is missing or null."""
        if row.get(column) is None:
            raise self.error(line, f"there is no {column!r}.", EmptyRow)
        return row[column]

    def text(self, line, row, column):
        """Return a row's string in a column; raise an error if it is not a string."""
        value = self.value(line, row, column)
        if not isinstance(value, str):
            raise self.error(line, f"{column!r} is {json.dumps(value)[:40]}, not a string.")
        return value

    def filled(self, line, row, column):
        """Return a row's string in a column; raise an error if `refuses_blank` and it is blank."""
        value = self.text(line, row, column)
        if self.refuses_blank and not value.strip():
            raise self.error(line, f"{column!r} is empty: add a text, or delete the row.", EmptyRow)
        return value

    def text_or_list(self, line, row, column):
        """Return a row's value in a column: a string, or a list of words or choices."""
        if column == "predicate" and isinstance(row.get(column), int):
            return str(row[column])
        if column in ("words", "choices") and isinstance(row.get(column), list):
            return self.strings(line, row, column)
        return self.text(line, row, column)

    def strings(self, line, row, column):
        """Return a row's list of strings in a column; raise an error if it is not such a list."""
        value = self.value(line, row, column)
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise self.error(
                line, f"{column!r} is {json.dumps(value)[:40]}, not a list of strings."
            )
        return value

    def labels(self, line, value, separator=None):
        """Return a label as a string, or with a separator labels as a list of strings.

        The value may be a string, a number, a bool, or with a separator also a list of these.
        """
        if separator is not None:
            parts = value.split(separator) if isinstance(value, str) else value
            parts = parts if isinstance(parts, list) else [parts]
            return [label for label in (self._label(line, part) for part in parts) if label]
        label = "" if is_empty(value) else self._label(line, value)
        if not label:
            raise self.error(line, "the label is empty: write one, or delete the row.", EmptyRow)
        if self.skips_empty and label in MISSING:
            raise self.error(line, f"the label is {label!r}.", EmptyRow)
        return label

    def _label(self, line, value):
        if isinstance(value, bool):
            return str(value).lower()  # as JSON writes it
        # NaN is what pandas writes for a missing label; it would be a class of its own.
        if isinstance(value, (int, str)) or (isinstance(value, float) and math.isfinite(value)):
            return str(value).strip()
        raise self.error(line, f"the label {value!r} is neither a string nor a number.")

    def number(self, line, value):
        """Return a label as a finite number, for a regressor."""
        is_missing = is_empty(value) or value in MISSING
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if not math.isfinite(number):
            raise self.error(
                line,
                f"the label {value!r} is not a number, which a regressor needs.",
                EmptyRow if is_missing else ValueError,
            )
        return number


def _raising(lines):
    for line, row in lines:
        if isinstance(row, Exception):
            raise row
        yield line, row


def find_format(path):
    """Return the format of a file, inferred from its suffix before `.gz`.

    Raises:
        ValueError: if the suffix is unknown.
    """
    suffix = Path(path.lower().removesuffix(".gz")).suffix
    if suffix not in FORMATS:
        if os.path.isfile(path):
            input_files.require_text(path)
        raise ValueError(
            f"{path} does not end in {', '.join(FORMATS)} (or one of these and .gz): name its "
            "format with format=NAME."
        )
    return FORMATS[suffix]


@contextlib.contextmanager
def open_rows(path, format=None, targets=None, labels=None):
    """Yield the `Rows` of a file.

    Args:
        path: str; `"-"` is standard input.
        format: `"csv"`, `"tsv"`, `"jsonl"`, `"lines"`, or the name of a published data set, see
            `read_published`. None infers it from the suffix; standard input is then lines.
        targets: str, the path of a second file of lines, or of WMT's segments, which become the
            column `labels`. Both files need the same number of lines.
        labels: str, the column of the labels, by which files of words are read.

    Raises:
        ValueError: if the format is unknown, or a row cannot be read.
    """
    if targets is not None:
        format = format or "lines"
        with open_rows(path, format) as first, open_rows(targets, format) as second:
            pairs = aligned(iter(first), iter(second), [first.name, second.name])
            yield Rows(f"{path} and {targets}", pairs, ["text", "labels"])
    elif path == "-":
        yield parse_rows("standard input", sys.stdin.buffer, format or "lines", labels)
    elif Path(path).is_dir():
        yield _rows_of_folder(path, format or find_format(path))
    else:
        format = format or find_format(path)
        input_files.require_text(path)
        with open(path, "rb") as file:
            is_packed = path.lower().endswith(".gz")
            stream = gzip.GzipFile(fileobj=file) if is_packed else file
            size = os.fstat(file.fileno()).st_size
            rows = parse_rows(str(path), stream, format, labels, size=size, position=file.tell)
            if format in DELIMITERS or format == "jsonl":
                rows.name_classes(class_names_beside(path))
            yield rows


def parse_rows(name, stream, format, labels=None, **options):
    """Return the `Rows` of an open file; `options` are arguments of `Rows`."""
    chosen = labels if format in PUBLISHED and PUBLISHED[format].chooses_labels else None
    rows = Rows(name, *_parse(name, stream, format, chosen), **options)
    if format in PUBLISHED:
        rows.published = PUBLISHED[format]
        rows.chosen_labels = chosen
        rows.unit = rows.published.unit
        if not rows.columns:
            raise rows.empty()
    return rows


def _parse(name, stream, format, labels=None):
    """Return (iterator of rows, columns); columns is None for JSONL, where rows name them."""
    if format in PUBLISHED:
        chosen = [] if labels in (None, "labels") else [labels]
        return PUBLISHED[format].rows(name, stream, *chosen), None
    if format == "jsonl":
        return json_rows(name, undecoded(name, stream)), None
    text = decoded(name, stream)
    if format == "lines":
        return ((line, {"text": chomp(value)}) for line, value in text), ["text"]
    separator = DELIMITERS[format]
    return table_rows(name, delimited_rows(name, text, separator), separator)


def _rows_of_folder(path, format):
    """Return the `Rows` of all files in a folder, such as RACE's."""
    if format not in PUBLISHED or not PUBLISHED[format].in_folder:
        raise ValueError(f"{path} is a folder: pass a file.")
    lines = (line for file in files_of(path) for line in _rows_of_file(file, format))
    rows = Rows(path, ((n, row) for n, (_, row) in enumerate(lines, start=1)))
    rows.published, rows.unit = PUBLISHED[format], PUBLISHED[format].unit
    return rows


def _rows_of_file(file, format):
    with open(file, "rb") as stream:
        yield from _parse(str(file), stream, format)[0]


def check_targets(path, targets, format=None):
    """Raise an error if two files do not match, which `open_rows` would notice at their ends.

    Standard input and other streams are not checked, because they can be read only once.
    """
    in_pairs = [None, "lines", *(name for name, each in PUBLISHED.items() if each.in_pairs)]
    if format not in in_pairs:
        raise ValueError(
            f"targets={targets} is for files of lines, but format={format}: leave one of the two "
            "out."
        )
    if os.path.isfile(path) and os.path.isfile(targets):
        with open_rows(path, format, targets) as rows:
            if not sum(1 for _ in rows):
                raise rows.empty()
    elif path == targets:
        raise ValueError("targets='-': only one file can be standard input, so pass a file.")
