"""Files that users give: which there are, and their lines or content, within limits."""

import functools
import glob
import os
from collections.abc import Iterable

from keras_lm.argument_types import PathLike

LONGEST_LINE = 2**26  # bytes
LARGEST_CONTENT = 2**28  # bytes of a file that is read at once

# What the files of other programs begin with, and how to save what is in them.
NOT_TEXT = {
    b"PK\x03\x04": "a spreadsheet (.xlsx, .ods) or another archive: save it as CSV, in UTF-8.",
    b"\xd0\xcf\x11\xe0": "a spreadsheet of an older format (.xls): save it as CSV, in UTF-8.",
    b"PAR1": "Parquet: save it as JSONL, by pandas.read_parquet and to_json(orient='records', "
    "lines=True).",
}


def find_files(files: PathLike | Iterable[PathLike]) -> list[str]:
    """Return the files that match paths and glob patterns, without duplicates, sorted per pattern.

    Args:
        files: path or glob pattern (`**` includes subfolders), or a list of these.

    Raises:
        FileNotFoundError: if a path or pattern matches no file.
        ValueError: if a file is a spreadsheet, or Parquet.
    """
    patterns = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    paths = []
    for pattern in map(os.fspath, patterns):
        found = [pattern] if os.path.isfile(pattern) else sorted(glob.glob(pattern, recursive=True))
        found = [path for path in found if os.path.isfile(path)]
        if not found:
            raise FileNotFoundError(f"files={pattern!r}: there is no such file.")
        for path in found:
            require_text(path)
        paths += found
    return list(dict.fromkeys(paths))


class TooLong(ValueError):
    """A file is larger than the limit; a small packed file can unpack to more than fits memory."""


def lines(stream, name, longest=None):
    """Yield the lines of an open file, as bytes with their endings.

    `name` is the file's name for messages, `longest` the most bytes of a line; the default is
    `LONGEST_LINE`.

    Raises:
        TooLong: if a line is longer; the message names the file and the line.
    """
    longest = LONGEST_LINE if longest is None else longest
    read = functools.partial(stream.readline, longest + 1)
    for number, line in enumerate(iter(read, b""), start=1):
        if len(line) > longest:
            raise TooLong(
                f"{name}, line {number}: longer than {longest} bytes. Add line breaks, or remove "
                "the line."
            )
        yield line


def whole(stream, name, most=None):
    """Return all bytes of an open file, `most` at most; the default is `LARGEST_CONTENT`.

    Raises:
        TooLong: if there are more; the message names the file.
    """
    most = LARGEST_CONTENT if most is None else most
    content = stream.read(most + 1)
    if len(content) > most:
        raise TooLong(f"{name} has more than {most} bytes, and is read at once: divide it.")
    return content


def require_text(path):
    """Raise a ValueError if a file is a spreadsheet or a table of another program, by its start."""
    with open(path, "rb") as file:
        start = file.read(8)
    for mark, remedy in NOT_TEXT.items():
        if start.startswith(mark):
            raise ValueError(f"{path} is {remedy}")
