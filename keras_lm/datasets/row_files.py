"""Rows of CSV, TSV, JSONL, Parquet and Arrow files, published data sets, and plain lines.

They are read one at a time. Text is UTF-8, with or without a byte order mark, in any locale; `.gz`
is unpacked. An error names the file and the line.

Here, too: which columns hold what, what counts as empty, and the names of classes that a data set
of Hugging Face states beside its files.
"""

import contextlib
import gzip
import itertools
import json
import math
import os
import re
import sys
from pathlib import Path

from keras_lm.datasets import PUBLISHED, files_of
from keras_lm.datasets.aligned_texts import aligned
from keras_lm.datasets.text_lines import (
    chomp,
    decoded,
    delimited_rows,
    json_rows,
    json_value,
    table_rows,
    undecoded,
)
from keras_lm.utils import files, input_files, table_files
from keras_lm.utils.files import as_path
from keras_lm.utils.registry import advice
from keras_lm.utils.user_arguments import names_of_feature, warn

PLAIN = ("csv", "tsv", "jsonl", "lines", *table_files.FORMATS)
FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".txt": "lines",
    ".conll": "conll",
    ".conllu": "conll",
    ".json": "squad",
    **table_files.SUFFIXES,
}  # by suffix
DELIMITERS = {"csv": ",", "tsv": "\t"}
# The usual names of columns, which are looked for if the user names none.
GUESSES = {
    "text": ("text", "sentence", "sentence1", "prompt"),
    "text_pair": ("text_pair", "sentence2"),
    "labels": ("labels", "label"),
    # Text to text.
    "source": ("text", "source", "sentence", "article", "document", "prompt"),
    "target": ("labels", "label", "target", "translation", "summary"),
    # Words with labels, and multiple choice.
    "words": ("words", "tokens", "text"),
    "tags": ("labels", "tags", "ner_tags", "label"),
    "situation": ("text", "sentence", "sent1", "question", "context", "prompt"),
    "choices": ("choices", "choice", "ending"),
    "question": ("question",),
    "context": ("context",),
    "answers": ("answers", "labels", "label"),
    # Texts that belong together.
    "anchor": ("anchor", "query", "question", "text", "sentence", "sentence1"),
    "positive": ("positive", "answer", "text_pair", "sentence2"),
    "negative": ("negative", "negatives"),
    "scores": ("scores", "score", "labels", "label"),
}
OF_LABELS = ("labels", "target", "tags", "answers", "scores")
# The arguments that name such columns, if their names differ from the role.
ARGUMENTS = {
    **{"words": "text", "tags": "labels", "situation": "text"},
    **{"source": "text", "target": "labels"},
    **{"question": "text", "context": "text_pair", "answers": "labels"},
    **{"anchor": "text", "positive": "text_pair", "scores": "labels"},
}
MISSING = ("nan", "NaN", "<NA>")  # how a missing label is written as a string
# Where `datasets`, which stores labels as numbers, states what they mean; the last is older.
FEATURE_FILES = ("dataset_info.json", "features.json", "dataset_infos.json")


class EmptyRow(ValueError):
    """A row lacks a text or a label."""


def lacks_text(row, columns):
    """Return whether a row, a dict or an error, has nothing in one of the columns."""
    return isinstance(row, dict) and any(is_empty(row.get(name)) for name in columns)


def is_empty(value):
    """Return whether a value of a row is missing: null, NaN, a blank text, or a list of these."""
    if isinstance(value, list):
        return all(map(is_empty, value))
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (isinstance(value, str) and not value.strip())


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
    kinds = {}  # columns of a table that hold no strings → their types

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
        column = next((name for name in candidates if name in self.columns), None)
        if column is None and (given or required):
            raise self.empty() if not self.columns else no_column(self, role, candidates)
        others = [name for name in candidates if name in self.columns and name != column]
        if others and role in OF_LABELS:
            warn(
                f"{self.name} has the columns {column!r} and {others[0]!r}: {column!r} is read as "
                f"the labels. Name another by labels={others[0]!r}."
            )
        self.used.add(column)
        return column

    def value(self, line, row, column):
        """Return a row's value in a column; raise an error if it is missing or null."""
        if row.get(column) is None:
            raise self.error(line, f"there is no {column!r}.", EmptyRow)
        return row[column]

    def text(self, line, row, column):
        """Return a row's string in a column; raise an error if it is not a string."""
        value = self.value(line, row, column)
        if column in self.kinds:
            raise self.error(
                line,
                f"{column!r} is {_shown(value)}, of the type {self.kinds[column]}, not a string: "
                "make it a column of strings, or name another.",
            )
        if not isinstance(value, str):
            raise self.error(line, f"{column!r} is {_shown(value)}, not a string.")
        return value

    def windows(self, size, columns):
        """Yield the next rows and `(line, dict)` of each, up to `size` at once; see `batches`."""
        while numbered := list(itertools.islice(self._lines, size)):
            yield [row for _, row in numbered], numbered

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
            raise self.error(line, f"{column!r} is {_shown(value)}, not a list of strings.")
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


class TableRows(Rows):
    """The rows of a `keras_lm.utils.table_files.TableFile`; iterate once, or read by `windows`.

    A row is a dict as JSON has it.
    """

    unit = "row"

    def __init__(self, file, size=None):
        self.file = file
        self.schema = file.schema
        self.kinds = table_files.types_that_are_no_text(file.schema)
        self._needed, self._read = (), 0
        size = size if file.num_rows else None
        super().__init__(file.name, self._dicts(), file.schema.names, size, self._position)

    def empty(self):
        """Return the `ValueError` for a table without rows, or without columns."""
        return super().empty() if self.columns else ValueError(f"{self.name} has no columns.")

    def _position(self):
        return int(self.size * self._read / self.file.num_rows) if self.size else 0

    def _dicts(self):
        for start, batch in self._batches():
            yield from enumerate(table_files.row_dicts(batch), start=start)

    def _batches(self, *size):
        for start, batch in self.file.batches(*size):
            self._read += batch.num_rows
            yield start, batch

    def leave_out_empty(self, columns):
        self._needed = [*columns]
        super().leave_out_empty(columns)

    def windows(self, size, columns):
        """The same with a `pyarrow.RecordBatch` of all columns, and dicts of those in `columns`."""
        for start, batch in self._batches(size):
            rows = table_files.row_dicts(batch.select(list(dict.fromkeys(columns))))
            numbered = [*enumerate(rows, start=start)]
            if self._needed:
                kept = [n for n, row in enumerate(rows) if not lacks_text(row, self._needed)]
                self.num_empty += len(rows) - len(kept)
                if not kept:  # an empty list has no type by which pyarrow could take
                    continue
                numbered, batch = [numbered[n] for n in kept], batch.take(kept)
            if numbered:
                yield batch, numbered


def _shown(value):
    return json.dumps(value, default=str)[:40]


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
        path: str, on a disk or an address, see `utils.files`; `"-"` is standard input.
        format: `"csv"`, `"tsv"`, `"jsonl"`, `"lines"`, `"parquet"`, `"arrow"`, or the name of a
            published data set, see `read_published`. None infers it from the suffix; standard input
            is then lines.
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
    elif not files.is_remote(path) and Path(path).is_dir():
        yield _rows_of_folder(path, format or find_format(path))
    else:
        format = format or find_format(path)
        if format not in table_files.FORMATS:
            input_files.require_text(path)
        with files.open_file(path) as file:
            is_packed = path.lower().endswith(".gz")
            stream = gzip.GzipFile(fileobj=file) if is_packed else file
            size = files.size(path)
            rows = parse_rows(str(path), stream, format, labels, size=size, position=file.tell)
            if format in PLAIN and format != "lines":
                rows.name_classes(class_names_in(rows) or class_names_beside(path))
            yield rows


def parse_rows(name, stream, format, labels=None, **options):
    """Return the `Rows` of an open file; `options` are arguments of `Rows`."""
    if format in table_files.FORMATS:
        if name.lower().endswith(".gz") or not stream.seekable():
            raise ValueError(
                f"{name} cannot be read as {table_files.FORMATS[format]}, which is not read from "
                "its beginning to its end: pass a file on a disk, unpacked."
            )
        return TableRows(table_files.TableFile(name, stream, format), options.get("size"))
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
    in_pairs = [None, "lines", *(name for name, kind in PUBLISHED.items() if kind.in_pairs)]
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


# === Columns ===


def no_column(rows, role, candidates):
    """Return the `ValueError` for `Rows` that have none of the columns for a role."""
    remedy = f" Name the column: {ARGUMENTS.get(role, role)}=NAME." if role in GUESSES else ""
    if role == "words":
        remedy += " If there is a word and its label on each line, pass format=conll."
    remedy = _other_delimiter(rows.columns) or _word_lines(rows.columns) or remedy
    wanted = " or ".join(repr(name) for name in candidates)
    near = advice(candidates[0], rows.columns) if len(candidates) == 1 else ""
    return ValueError(
        f"{rows.name} has no column {wanted}, only {', '.join(rows.columns)}.{near}{remedy}"
    )


def _other_delimiter(columns):
    """Return a remedy if a header of one column contains another separator."""
    delimiters = [
        delimiter
        for delimiter in (";", "\t", ",", "|")
        if len(columns) == 1 and delimiter in columns[0]
    ]
    if not delimiters:
        return None
    formats = {delimiter: name for name, delimiter in DELIMITERS.items()}
    if delimiters[0] in formats:
        remedy = f"pass format={formats[delimiters[0]]}"
    else:
        remedy = "save it with commas, or with tabs and format=tsv"
    return f" Its columns seem to be separated by {delimiters[0]!r}: {remedy}."


def _word_lines(columns):
    """Return a remedy if a header seems to belong to a file with a word and its label on a line."""
    is_tag = columns and re.fullmatch("O|[BIESLU]-.+", columns[-1])
    if not is_tag and not {"word", "token"} & {name.lower() for name in columns}:
        return None
    remedy = "pass format=conll" if is_tag else "remove the header and pass format=conll"
    return (
        f" There seems to be a word and its label on each line: {remedy}, with a tab or a space "
        "between them and an empty line after each sentence."
    )


def choose_columns(rows, inputs, given):
    """Return a dict of the model's inputs → columns.

    Args:
        rows: `Rows`.
        inputs: list of str, the model's inputs.
        given: dict of `"text"` and `"text_pair"` → the user's column, or None.

    Raises:
        ValueError: if there is no column for an input.
    """
    is_words = rows.published and "words" in rows.columns and not given["text"]
    roles = {"text": "words"} if is_words else {}
    if len(inputs) == 1:  # whatever it is called
        return {inputs[0]: rows.find(roles.get("text", "text"), given["text"])}
    if rows.columns == ["text"]:
        raise ValueError(
            f"the model takes {' and '.join(inputs)}: pass a CSV, TSV or JSONL file with these "
            "columns."
        )
    role_of = {name: roles.get(name, name) for name in inputs}
    return {name: rows.find(r, given.get(ARGUMENTS.get(r, r))) for name, r in role_of.items()}


def batches(rows, columns, batch_size, skip_empty=False):
    """Yield `(rows, columns)` batch by batch: a list of dicts, and a dict of lists of strings.

    The rows of a table are a `pyarrow.RecordBatch` instead. For words and choices, the lists
    contain lists. With `skip_empty`, rows that lack a text are left out.
    """
    if skip_empty:
        rows.leave_out_empty(columns.values())
    for window, numbered in rows.windows(batch_size, columns.values()):
        try:
            texts = {
                name: [rows.text_or_list(line, row, column) for line, row in numbered]
                for name, column in columns.items()
            }
        except EmptyRow as error:
            raise EmptyRow(f"{error} skip_empty=True leaves such rows out.") from error
        yield window, texts


# === Names of classes, stated beside a file ===


def class_names_beside(path):
    """Return a dict of column → names of its classes; empty if no file beside `path` states any.

    Raises:
        ValueError: if such a file cannot be read.
    """
    for file in (as_path(path).with_name(name) for name in FEATURE_FILES):
        if not file.is_file():
            continue
        try:
            with file.open("rb") as stream:
                stated = json_value(input_files.whole(stream, str(file)).decode("utf-8-sig"))
        except ValueError as error:
            raise ValueError(
                f"{file}: {error}. It should name the classes of {path}: write it "
                "again, or move it to another folder."
            ) from error
        return _names_of_columns(stated)
    return {}


def class_names_in(rows):
    """Return the same for what `datasets` states within a table, in the metadata of its schema."""
    metadata = getattr(rows, "schema", None) and rows.schema.metadata
    if not metadata or b"huggingface" not in metadata:
        return {}
    stated = json_value(metadata[b"huggingface"].decode("utf-8", "replace"))
    return _names_of_columns(stated.get("info") if isinstance(stated, dict) else None)


def _names_of_columns(stated):
    if isinstance(stated, dict) and "features" not in stated and len(stated) == 1:
        (stated,) = stated.values()  # dataset_infos.json: one for each subset
    features = stated.get("features", stated) if isinstance(stated, dict) else stated
    if isinstance(features, list):  # as the Hub's viewer has them
        features = {feature.get("name"): feature.get("type") for feature in features}
    if not isinstance(features, dict):
        return {}
    names = {column: names_of_feature(feature) for column, feature in features.items()}
    return {column: classes for column, classes in names.items() if classes}


def named(rows, names):
    """Yield rows, (line, dict), in which numbers of classes are replaced by their names.

    Args:
        rows: iterator of (line, dict), or of (line, error).
        names: dict of column → list of names. -1 stands for a missing label.
    """
    for line, row in rows:
        if isinstance(row, dict):
            row = {key: _named(value, names.get(key)) for key, value in row.items()}
        yield line, row


def _named(value, names):
    if names is None or isinstance(value, bool):
        return value
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    if isinstance(value, str) and value not in names:  # of CSV
        value = int(value) if value.isdecimal() or value == "-1" else value
    if value == -1:
        return None
    is_number = isinstance(value, int) and 0 <= value < len(names)
    return names[value] if is_number else value
