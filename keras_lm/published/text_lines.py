"""Lines, tables and JSON objects of text files, with the line that is wrong.

Text is UTF-8, with or without a byte order mark. Where a line is no row and those after it can be
read all the same, the error stands in the place of the row.
"""

import collections
import contextlib
import csv
import gzip
import json
import zlib

from keras_lm import files

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def undecoded(name, stream):
    """Yield (number, bytes of a line with its ending); `name` is what errors call the file."""
    with _unpacking(name):
        for number, line in enumerate(files.lines(stream, name), start=1):
            yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line


@contextlib.contextmanager
def _unpacking(name):
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{name} cannot be unpacked: {error}.") from error


def decoded(name, stream, errors="strict"):
    """Yield (number, line with its ending); only a line feed ends a line."""
    return decode(name, undecoded(name, stream), errors)


def decode(name, lines, errors="strict"):
    """Yield (number, line) of undecoded ones."""
    for number, line in lines:
        try:
            yield number, line.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise _not_utf8(name, number, error) from error


def whole_text(name, stream, first_line=1):
    """Return what is left of a file, from its line `first_line` on, as one text."""
    with _unpacking(name):
        content = files.whole(stream, name)
    content = content.removeprefix(BYTE_ORDER_MARK) if first_line == 1 else content
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        number = first_line + content.count(b"\n", 0, error.start)
        raise _not_utf8(name, number, error) from error


def _not_utf8(name, number, error):
    return ValueError(
        f"{name}, line {number}: not UTF-8 ({error.reason}). Save the file as UTF-8 first."
    )


def chomp(line):
    """Return a line without its ending."""
    return line.removesuffix("\n").removesuffix("\r")


def json_rows(name, lines):
    """Yield (number, dict) of the undecoded lines of a JSONL file; blank ones are left out."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            row = _not_utf8(name, number, error)
        except (ValueError, RecursionError) as error:
            row = ValueError(f"{name}, line {number}: not JSON ({error}).")
        if not isinstance(row, (dict, Exception)):
            row = ValueError(
                f"{name}, line {number}: a JSON object is needed, such as "
                '{"text": "…"}, and this is a ' + type(row).__name__ + "."
            )
        yield number, row


def csv_rows(name, text, delimiter):
    """Yield (line, fields); the line is that in which the row ends. Blank lines are left out."""
    csv.field_size_limit(files.LONGEST_LINE)  # the module's own limit is 128 KiB
    reader = csv.reader((line for _, line in text), delimiter=delimiter, strict=True)
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        raise ValueError(
            f"{name}, line {reader.line_num}: {error}. Inside a quoted field, a quote is written "
            "twice."
        ) from error


def tab_rows(text):
    """Yield (line, fields) of a table whose fields hold no tab and whose quotes mean nothing."""
    for number, line in text:
        if line.strip():
            yield number, chomp(line).split("\t")


def wrong_number_of_fields(name, line, fields, expected):
    """Return the error for a row of a table with too few fields or too many."""
    return ValueError(
        f"{name}, line {line}: {len(fields)} fields, and {expected}. A field with a separator or a "
        "line break in it needs quotes around it."
    )


def table_rows(name, rows):
    """Return `(rows, columns)` of a table's rows with a header: (line, dict), and the names."""
    _, header = next(rows, (0, []))
    repeated = sorted(column for column, n in collections.Counter(header).items() if n > 1)
    if repeated:
        raise ValueError(f"{name} names the column {repeated[0]!r} twice.")

    def dicts():
        for line, fields in rows:
            if len(fields) != len(header):
                expected = f"the header has {len(header)}"
                yield line, wrong_number_of_fields(name, line, fields, expected)
            else:
                yield line, dict(zip(header, fields, strict=True))

    return dicts(), header
