"""Tables in Parquet and Arrow files, read and written a few rows at a time, by pyarrow.

Columns of strings become plain ones as they are read: a dictionary may be another in each part of
a file, so its numbers mean nothing, and the files of Arrow cannot have such a column. Arrow's files
are of its format for files, as Feather's of version 2 are, or streams, as `datasets` writes them.
"""

import datetime
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from keras_lm.utils import input_files
from keras_lm.utils.json_values import first_line
from keras_lm.utils.optional_dependencies import require

SUFFIXES = dict(zip(input_files.TABLES, ("parquet", "arrow", "arrow"), strict=True))
FORMATS = {"parquet": "Parquet", "arrow": "Arrow"}  # and what messages call them
MARKS = {"parquet": (b"PAR1",), "arrow": (b"ARROW1", b"\xff\xff\xff\xff")}  # at the start
ROWS_READ = 2048
BYTES_READ = 2**26  # of rows at once, if they are large
BUFFER = 2**20  # bytes of a column
ROWS_WRITTEN, BYTES_WRITTEN = 2**16, 2**26  # of a group of rows
RENAMED = {"labels": "label"}  # answers that a column calls by another name


def format_of(path: str | os.PathLike) -> str | None:
    """Return the format of a table by its suffix, or None if it is not the name of a table."""
    return SUFFIXES.get(Path(str(path).lower()).suffix)


def _arrow(name):
    return require("pyarrow", f"{name}, a table of Parquet or Arrow,")


# === Reading ===


class TableFile:
    """An open file of Parquet or Arrow.

    Args:
        name: str, the file's name for messages.
        stream: the file, open for reading bytes, in which one can seek.
        format: `"parquet"` or `"arrow"`.

    Attributes:
        schema: `pyarrow.Schema` of what `batches` yields.
        num_rows: int, or None if only reading shows it.

    Raises:
        ImportError: if pyarrow is not installed.
        ValueError: if it is not such a file, or names a column twice.
    """

    def __init__(self, name: str, stream: Any, format: str):
        self.name, self.format, self.num_rows = name, format, None
        self._arrow = _arrow(name)
        _check_start(name, stream, format)
        self._read = self._opened(stream)
        names = self._stored.names
        if repeated := sorted(column for column in names if names.count(column) > 1):
            raise input_files.NotText(f"{name} names the column {repeated[0]!r} twice.")
        fields = [field.with_type(plain_type(field.type)) for field in self._stored]
        self.schema = self._arrow.schema(fields, self._stored.metadata)

    def _opened(self, stream):
        """Set what the file states; return a function from a number of rows to their batches."""
        with self._naming():
            if self.format == "parquet":
                file = require("pyarrow.parquet", self.name).ParquetFile(stream, buffer_size=BUFFER)
                self._stored, self.num_rows = file.schema_arrow, file.metadata.num_rows
                groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
                each = sum(group.total_byte_size for group in groups) / max(self.num_rows, 1)
                most = max(1, int(BYTES_READ / max(each, 1)))
                return lambda size: file.iter_batches(batch_size=min(size, most))
            ipc = self._arrow.ipc
            is_file = stream.read(6) == MARKS["arrow"][0]
            stream.seek(0)
            reader = ipc.open_file(stream) if is_file else ipc.open_stream(stream)
            self._stored = reader.schema
            whole = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
            return lambda size: (
                batch[start : start + size]
                for batch in whole
                for start in range(0, batch.num_rows, size)
            )

    def _naming(self):
        return _Naming(f"{self.name} cannot be read as {FORMATS[self.format]}", self._arrow)

    def batches(self, size: int = ROWS_READ) -> Iterator[tuple[int, Any]]:
        """Yield `(number of the first row, pyarrow.RecordBatch)`, of up to `size` rows; once.

        The first row has the number 1.
        """
        number, batches = 1, iter(self._read(size))
        while True:
            with self._naming():
                batch = next(batches, None)
                if batch is None:
                    return
                arrays = [
                    _plain_array(array, field.type)
                    for array, field in zip(batch.columns, self.schema, strict=True)
                ]
                batch = self._arrow.RecordBatch.from_arrays(arrays, schema=self.schema)
            yield number, batch
            number += batch.num_rows


class _Naming:
    """Turns errors of pyarrow into a NotText that begins with a message."""

    def __init__(self, message, arrow):
        self.message, self.arrow = message, arrow

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if isinstance(error, (self.arrow.ArrowException, UnicodeError)):
            raise input_files.NotText(f"{self.message}: {first_line(error)}") from error


def _check_start(name, stream, format):
    start = stream.read(input_files.START)
    stream.seek(0)
    if start.startswith(MARKS[format]):
        return
    others = [mark for kind in MARKS for mark in MARKS[kind]]
    if not start.startswith(tuple(others)):
        input_files.check_start(name, start)
    raise input_files.NotText(
        f"{name} is not a file of {FORMATS[format]}: name what it is by format=NAME, or write it "
        "again."
    )


def plain_type(kind: Any) -> Any:
    """Return a type of pyarrow with strings as `string`, and without dictionaries, at any depth."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    is_list = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view)
    if any(check(kind) for check in is_list):
        inner = plain_type(kind.value_type)
        return kind if inner == kind.value_type else pa.list_(inner)
    if types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    return kind


def _plain_array(array, kind):
    import pyarrow as pa

    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except pa.ArrowNotImplementedError:  # of lists and structs with dictionaries in them
        return pa.array(array.to_pylist(), kind)


def types_that_are_no_text(schema: Any) -> dict[str, str]:
    """Return columns → names of types, of all columns that hold no strings and no lists."""
    import pyarrow.types as types

    return {
        field.name: str(field.type)
        for field in schema
        if not (types.is_string(field.type) or types.is_null(field.type) or _is_list(field.type))
    }


def _is_list(kind):
    import pyarrow.types as types

    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def refuse_binary(name: str, schema: Any) -> None:
    """Raise a ValueError if a column has bytes, which JSON does not have."""
    for field in schema:
        if "binary" in str(field.type):
            raise ValueError(
                f"{name}: the column {field.name!r} is of type {field.type}, which JSON does not "
                "have: write a .parquet file, or leave the column out."
            )


def row_dicts(batch: Any) -> list[dict[str, Any]]:
    """Return the rows of a batch as JSON has them: times in ISO 8601, decimals as strings.

    Bytes, which JSON does not have, are left as they are.

    Raises:
        ValueError: if a string is not UTF-8; names the column.
    """
    import pyarrow as pa

    columns = {}
    for name, column in zip(batch.schema.names, batch.columns):
        if getattr(column.type, "unit", None) == "ns":  # finer than Python's types
            finer = {"timestamp": pa.timestamp("us", getattr(column.type, "tz", None))}
            finer |= {"time64": pa.time64("us"), "duration": pa.duration("us")}
            column = column.cast(finer[str(column.type).partition("[")[0]], safe=False)
        try:
            values = column.to_pylist()
        except UnicodeDecodeError as error:
            raise input_files.NotText(
                f"the column {name!r} has strings that are not UTF-8 ({error.reason}): write the "
                "table again."
            ) from error
        is_plain = pa.types.is_string(column.type) or pa.types.is_primitive(column.type)
        is_time = pa.types.is_temporal(column.type)
        columns[name] = values if is_plain and not is_time else [*map(_json_value, values)]
    return [dict(zip(columns, row)) for row in zip(*columns.values(), strict=True)]


def _json_value(value):
    if isinstance(value, dict):
        return {key: _json_value(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(part) for part in value]
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    is_json = value is None or isinstance(value, (str, int, float, bytes))
    return value if is_json else str(value)


def read_texts(path: str, stream: Any) -> Iterator[bytes]:
    """Yield the texts in a table of documents, as UTF-8.

    They are in the column `text`, or in the only column of strings.

    Raises:
        ValueError: if there is no such column, or a text is null; names the file and the row.
    """
    table = TableFile(path, stream, format_of(path))
    others = types_that_are_no_text(table.schema)
    strings = [f.name for f in table.schema if f.name not in others and not _is_list(f.type)]
    column = "text" if "text" in table.schema.names else None
    column = strings[0] if column is None and len(strings) == 1 else column
    if column not in strings:
        wrong = f", but of type {table.schema.field(column).type}" if column else ""
        names = ", ".join(map(repr, table.schema.names)) or "no columns"
        raise input_files.NotText(
            f"{path} has no column 'text' of strings{wrong}: rename the column of the texts; there "
            f"are {names}."
        )
    for number, batch in table.batches():
        with table._naming():
            texts = batch.column(column).to_pylist()
        for row, text in enumerate(texts, start=number):
            if text is None:
                raise input_files.NotText(
                    f"{path}, row {row}: {column!r} is null: add a text, or delete the row."
                )
            if text.strip():
                yield text.encode()


# === Writing ===


class TableWriter:
    """Writes rows and their answers to a new file of Parquet or Arrow, by groups of rows.

    A context manager. The types of columns are those of the table that is read, or follow from the
    first rows and answers. Of answers, `labels` are the column `label`; if the rows have a column
    of that name, `answer_label`, and so on.

    Args:
        path: path of the file to write; its suffix is its format.
        name: str, the input's name for messages.
        schema: `pyarrow.Schema` of the rows, or None if they are no table.
    """

    def __init__(self, path: Path, name: str, schema: Any = None):
        self.path, self.name, self.schema = path, name, schema
        self._arrow = _arrow(str(path))
        self._answers, self._writer = AnswerColumns(name), None
        self._pending, self._rows, self._bytes = [], 0, 0

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if kind is None:
            self._flush()
            if self._writer is None:  # there were no rows
                self._writer = self._opened(self.schema or self._arrow.schema([]))
        if self._writer is not None:
            self._writer.close()

    def write(self, rows: Any, answers: list[dict[str, Any]]) -> None:
        """Write rows, a `pyarrow.RecordBatch` or a list of dicts, and a dict for each of them."""
        if not answers:
            return
        batch = rows if isinstance(rows, self._arrow.RecordBatch) else self._of_dicts(rows)
        answered = self._answers.beside(batch, answers)
        if self._writer is None:
            self._writer = self._opened(answered.schema)
        self._pending.append(answered)
        self._rows += batch.num_rows
        self._bytes += answered.nbytes
        if self._rows >= ROWS_WRITTEN or self._bytes >= BYTES_WRITTEN:
            self._flush()

    def _opened(self, schema):
        if format_of(self.path) == "parquet":
            return require("pyarrow.parquet", str(self.path)).ParquetWriter(self.path, schema)
        compression = "lz4" if self.path.suffix.lower() == ".feather" else None
        options = self._arrow.ipc.IpcWriteOptions(compression=compression)
        return self._arrow.ipc.new_file(self.path, schema, options=options)

    def _flush(self):
        if self._pending:
            table = self._arrow.Table.from_batches(self._pending)
            self._writer.write_table(table.combine_chunks())
        self._pending, self._rows, self._bytes = [], 0, 0

    def _of_dicts(self, rows):
        """Return rows of a file of text as a batch, of the types of the first ones."""
        arrow = self._arrow
        if self.schema is None:
            names = dict.fromkeys(name for row in rows for name in row)
            columns = {name: self._column(name, [row.get(name) for row in rows]) for name in names}
            types = {name: column.type for name, column in columns.items()}
            unknown = [name for name, kind in types.items() if arrow.types.is_null(kind)]
            self.schema = arrow.schema({**types, **dict.fromkeys(unknown, arrow.string())})
        known = {*self.schema.names}
        if new := next((name for row in rows for name in row if name not in known), None):
            raise ValueError(
                f"{self.name} has the column {new!r} in a later row, but not in the first ones: "
                "write JSONL, or add it to the first row."
            )
        columns = [
            self._column(field.name, [row.get(field.name) for row in rows], field.type)
            for field in self.schema
        ]
        return arrow.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, name, values, kind=None):
        return _column_of(self._arrow, self.name, name, values, kind)


class AnswerColumns:
    """Answers to the rows of a table as further columns, of the types of the first ones.

    Args:
        name: str, of the table, for errors.
    """

    def __init__(self, name: str):
        self.name = name
        self._arrow = require("pyarrow", name)
        self._kinds = {}  # of the parts of answers, by the first ones

    def beside(self, batch: Any, answers: list[dict[str, Any]]) -> Any:
        """Return a `pyarrow.RecordBatch` with the columns of another and those of answers.

        Raises:
            ValueError: if the other has a column of an answer's name, and `answer_…` of it, too.
        """
        order = sorted(answers[0], key=lambda name: name not in RENAMED)
        names = {name: self._free_name(RENAMED.get(name, name), batch) for name in order}
        columns = {
            name: self._column(column, [answer[name] for answer in answers], self._kinds.get(name))
            for name, column in names.items()
        }
        self._kinds = self._kinds or {name: array.type for name, array in columns.items()}
        fields = [(column, self._kinds[name]) for name, column in names.items()]
        # The rows' own columns stay as they are: those of another part of a table may differ.
        schema = self._arrow.schema([*batch.schema, *fields], metadata=batch.schema.metadata)
        arrays = [*batch.columns, *columns.values()]
        return self._arrow.RecordBatch.from_arrays(arrays, schema=schema)

    def _free_name(self, name, batch):
        """Return the column of a part of the answers, which is called otherwise than those read."""
        taken = {column.lower() for column in batch.schema.names}  # for engines that ignore case
        for column in (name, f"answer_{name}"):
            if column not in taken:
                return column
        raise ValueError(
            f"{self.name} has the columns {name!r} and 'answer_{name}', as the answers are called: "
            "rename one, or leave it out."
        )

    def _column(self, name, values, kind):
        """Return one part of all answers as an array of pyarrow; of their own type without one."""
        arrow, first = self._arrow, values[0]
        dtype = getattr(first, "dtype", None)
        if dtype is not None and dtype.kind in "biuf" and first.ndim == 1:  # scores, vectors
            ends = np.cumsum([0, *map(len, values)], dtype="int32")
            return arrow.ListArray.from_arrays(ends, arrow.array(np.concatenate(values)))
        kind = kind or _answer_type(arrow, first)
        return _column_of(arrow, self.name, name, [*map(_answer_value, values)], kind)


def _column_of(arrow, table, name, values, kind=None):
    """Return a list as an array of pyarrow; raise a ValueError if its values have several types."""
    try:
        return arrow.array(values, kind)
    except (arrow.ArrowException, UnicodeError, OverflowError) as error:
        raise ValueError(
            f"{table}: the values of {name!r} have no type in common "
            f"({first_line(error)[:200]}) Write JSONL, or give the column one type."
        ) from error


def _answer_type(arrow, value):
    """Return the type of an answer, or None if it follows from its values."""
    dtype, depth = getattr(value, "dtype", None), getattr(value, "ndim", 0)
    if dtype is not None and dtype.kind in "biuf":
        kind = arrow.from_numpy_dtype(dtype)
    else:
        while isinstance(value, (list, tuple, np.ndarray)):
            depth += not isinstance(value, np.ndarray)
            value = value[0] if len(value) else ""
        if not isinstance(value, (str, bytes)):
            return None
        kind = arrow.string()
    for _ in range(depth):
        kind = arrow.list_(kind)
    return kind


def _answer_value(value):
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {name: _answer_value(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_answer_value(part) for part in value]
    return value.item() if hasattr(value, "item") else value
