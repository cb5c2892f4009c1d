"""Lines, tables and JSON objects in text files; errors name the line.

Text is UTF-8, with or without a byte order mark. If a line cannot be read but those after it can,
the error is returned in place of its row.
"""

import collections
import csv
import json
import re

from keras_lm.utils import input_files
from keras_lm.utils.input_files import BYTE_ORDER_MARK, not_utf8, unpacking
from keras_lm.utils.user_arguments import warn

STRING_OR_BRACE = re.compile(r'("(?:[^"\\]|\\.)*")\s*(:?)|[{}]')  # of JSON
WHOLLY = re.compile(r'".*"')
QUOTED = re.compile(r'"[^"]*(""[^"]*)+"')  # as a writer of CSV quotes a field with quotes in it


def undecoded(name, stream):
    """Yield (number, line with its ending, as bytes); `name` is the file's name for messages."""
    with unpacking(name):
        for number, line in enumerate(input_files.lines(stream, name), start=1):
            yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line


def decoded(name, stream):
    """Yield (number, line with its ending); only a line feed ends a line."""
    return decode(name, undecoded(name, stream))


def decode(name, lines):
    """Decode the lines of `undecoded`: yield (number, line)."""
    for number, line in lines:
        try:
            yield number, line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise not_utf8(name, number, error) from error


def whole_text(name, stream, first_line=1):
    """Return the rest of a file as one text; `first_line` is its line number, for messages."""
    with unpacking(name):
        content = input_files.whole(stream, name)
    input_files.check_start(name, content)
    content = content.removeprefix(BYTE_ORDER_MARK) if first_line == 1 else content
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        number = first_line + content.count(b"\n", 0, error.start)
        raise not_utf8(name, number, error) from error


def chomp(line):
    """Return a line without its ending."""
    return line.removesuffix("\n").removesuffix("\r")


def json_value(text):
    """Return the value of JSON.

    Raises:
        ValueError: if it is not JSON, or an object has a key twice; the message has the line in
            `text`, but not the file.
    """
    try:
        return JSON.decode(text)
    except KeyError:
        key, place = _repeated_key(text)
        error = json.JSONDecodeError("", text, place)
        line = f"line {error.lineno} " * ("\n" in text.strip())
        raise ValueError(
            f"the key {key!r} stands twice in an object ({line}column {error.colno}): leave one out"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON, or cut off ({error})") from error


def _unique(pairs):
    members = dict(pairs)
    if len(members) < len(pairs):
        raise KeyError
    return members


JSON = json.JSONDecoder(object_pairs_hook=_unique)


def _repeated_key(text):
    """Return the first key that its object has had before, and its place."""
    objects = []
    for match in STRING_OR_BRACE.finditer(text):
        if match[0] == "{":
            objects.append(set())
        elif match[0] == "}":
            objects.pop()
        elif match[2]:
            key = json.loads(match[1])
            if key in objects[-1]:
                return key, match.start()
            objects[-1].add(key)


def json_rows(name, lines):
    """Yield (number, dict) for the undecoded lines of a JSONL file; blank lines are skipped."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = json_value(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            row = not_utf8(name, number, error)
        except ValueError as error:
            row = ValueError(f"{name}, line {number}: {error}.")
        if not isinstance(row, (dict, Exception)):
            row = ValueError(
                f"{name}, line {number}: a line must be a JSON object, such as "
                '{"text": "…"}, but this is a ' + type(row).__name__ + "."
            )
        yield number, row


def csv_rows(name, text):
    """Yield (number of a row's last line, fields) of CSV; blank lines are skipped."""
    csv.field_size_limit(input_files.LONGEST_LINE)  # the module's own limit is 128 KiB
    reader = csv.reader((line for _, line in text), strict=True)
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        raise ValueError(
            f"{name}, line {reader.line_num}: {error}. Inside a quoted field, write a quote twice."
        ) from error


def delimited_rows(name, text, separator):
    """Yield (line, fields) of CSV, or of a table separated by tabs."""
    return tab_rows(name, text) if separator == "\t" else csv_rows(name, text)


def tab_rows(name, text):
    """Yield (line, fields) of a table separated by tabs, in which quotes have no meaning.

    Blank lines are skipped. Fields in quotes, as CSV has them, are read with their quotes; of the
    first one with a quote that is written twice in it, there is a warning, and at the end of a
    column where all are in quotes.
    """
    has_warned, rows, in_quotes = False, 0, set()
    for number, line in text:
        if not line.strip(" \r\n"):
            continue
        fields = chomp(line).split("\t")
        rows += 1
        if rows == 2:  # after what may be a header
            in_quotes = {*range(len(fields))}
        in_quotes = {i for i in in_quotes if i < len(fields) and WHOLLY.fullmatch(fields[i])}
        if not has_warned and any(map(QUOTED.fullmatch, fields)):
            has_warned = True
            warn(
                f"{name}, line {number}: a field is in quotes, with quotes written twice in it. In "
                "a table separated by tabs they are letters of the text: save the file as CSV if "
                "they are not."
            )
        yield number, fields
    if in_quotes and rows > 2 and not has_warned:
        warn(
            f"{name}: all fields of column {min(in_quotes) + 1} are in quotes. In a table "
            "separated by tabs they are letters of the text: save the file as CSV if they are not."
        )


def wrong_number_of_fields(name, line, fields, expected, separator):
    """Return the error for a row of a table with too few or too many fields."""
    remedy = (
        "A field must not contain a tab or a line break, not even in quotes: save such texts as "
        "CSV or JSONL."
        if separator == "\t"
        else "Put quotes around fields that contain a separator or a line break."
    )
    return ValueError(f"{name}, line {line}: {len(fields)} fields, but {expected}. {remedy}")


def table_rows(name, rows, separator):
    """Return `(rows, columns)` of a table with a header: (line, dict) per row, and the names.

    `rows` is an iterator of (line, fields), see `delimited_rows`.
    """
    _, header = next(rows, (0, []))
    repeated = sorted(column for column, n in collections.Counter(header).items() if n > 1)
    if repeated:
        raise ValueError(f"{name} names the column {repeated[0]!r} twice.")

    def dicts():
        for line, fields in rows:
            if len(fields) != len(header):
                expected = f"the header has {len(header)}"
                yield line, wrong_number_of_fields(name, line, fields, expected, separator)
            else:
                yield line, dict(zip(header, fields, strict=True))

    return dicts(), header
