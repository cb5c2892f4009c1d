"""Files that users give: which there are, and their lines or content, within limits."""

import contextlib
import contextvars
import functools
import gc
import glob
import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import find_remote, is_remote, open_file

LONGEST_LINE = 2**26  # bytes
LARGEST_CONTENT = 2**28  # bytes of a file that is read at once
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# What the files of other programs begin with, and how to save what is in them.
AS_PARQUET = "save it as Parquet, by pandas.read_{} and to_parquet."
NAMED = "save it as JSONL, or end its name in {} where a command or a function reads rows."
UNPACK, AS_UTF_8 = "unpack it first.", "save it as UTF-8."
NOT_TEXT = {
    b"PK\x03\x04": "a spreadsheet (.xlsx, .ods) or another archive: save it as CSV, in UTF-8.",
    b"\xd0\xcf\x11\xe0": "a spreadsheet of an older format (.xls): save it as CSV, in UTF-8.",
    b"PAR1": f"Parquet: {NAMED.format('.parquet')}",
    b"ARROW1": f"Arrow (Feather): {NAMED.format('.arrow')}",
    b"FEA1": f"Feather: {AS_PARQUET.format('feather')}",
    b"\xff\xff\xff\xff": f"a stream of Arrow: {NAMED.format('.arrow')}",
    b"Obj\x01": "Avro: save it as JSONL.",
    b"\x80[\x02-\x05]": "a pickle of Python: save it as JSONL where it was made.",
    b"\x93NUMPY": "an array of numpy (.npy): save its texts in a file, one a line.",
    b"\x89HDF": f"HDF5: {AS_PARQUET.format('hdf')}",
    b"SQLite format 3": "a database of SQLite: save the table as CSV or JSONL.",
    b"(?s:.{8})DUCK": "a database of DuckDB: save the table as CSV or JSONL, by COPY … TO.",
    b"version https://git-lfs": "a pointer of Git LFS: get the file itself by git lfs pull.",
    b"%PDF-": "a PDF: save its text in UTF-8.",
    rb"\{\\rtf": "RTF: save its text in UTF-8.",
    b"\x1f\x8b": "packed by gzip: unpack it, or end its name in .gz.",
    b"BZh[1-9]1AY": f"packed by bzip2: {UNPACK}",
    b"\xfd7zXZ": f"packed by xz: {UNPACK}",
    rb"\x28\xb5\x2f\xfd": f"packed by zstd: {UNPACK}",
    b"\x04\x22\x4d\x18": f"packed by lz4: {UNPACK}",
    b"7z\xbc\xaf": f"a 7z archive: {UNPACK}",
    b"Rar!": f"a RAR archive: {UNPACK}",
    b"\xff\xfe\x00\x00|\x00\x00\xfe\xff": f"text in UTF-32: {AS_UTF_8}",
    b"\xff\xfe|\xfe\xff": f"text in UTF-16: {AS_UTF_8}",
}
TABLES = (".parquet", ".arrow", ".feather")
START = 1024  # bytes by which a file is judged
CONTROLS = bytes({*range(32)} - set(b"\b\t\n\v\f\r\x1a\x1b"))  # that are rare in texts


def find_files(files: PathLike | Iterable[PathLike], tables: bool = False) -> list[str]:
    """Return the files that match paths and glob patterns, without duplicates, sorted per pattern.

    Args:
        files: path or glob pattern (`**` includes subfolders), on a disk or an address such as
            `gs://bucket/corpus/*.txt`, or a list of these.
        tables: bool. Whether files that end in `.parquet`, `.arrow` or `.feather` are read, too.

    Raises:
        FileNotFoundError: if a path or pattern matches no file.
        ValueError: if a file is not text, such as a spreadsheet, or Parquet.
    """
    patterns = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    paths = []
    for pattern in map(os.fspath, patterns):
        if is_remote(pattern):
            matching = find_remote(pattern)
        elif os.path.isfile(pattern):
            matching = [pattern]
        else:
            matching = sorted(filter(os.path.isfile, glob.glob(pattern, recursive=True)))
        if not matching:
            raise FileNotFoundError(f"files={pattern!r}: there is no such file.")
        for path in matching:
            if not (tables and path.lower().endswith(TABLES)):
                require_text(path)
        paths += matching
    return list(dict.fromkeys(paths))


class TooLong(ValueError):
    """A file is larger than the limit; a small packed file can unpack to more than fits memory."""


class NotText(ValueError):
    """A file that should be text is of another format, such as Parquet, or in another encoding."""


def lines(stream, name, longest=None):
    """Yield the lines of an open file, as bytes with their endings.

    `name` is the file's name for messages, `longest` the most bytes of a line; the default is
    `LONGEST_LINE`.

    Raises:
        TooLong: if a line is longer; the message names the file and the line.
        NotText: if the first line shows that it is not text.
    """
    longest = LONGEST_LINE if longest is None else longest
    read = functools.partial(stream.readline, longest + 1)
    for number, line in enumerate(iter(read, b""), start=1):
        if number == 1:
            check_start(name, line)
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


@contextlib.contextmanager
def unpacking(name):
    """Name the file in errors of a damaged `.gz`."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise NotText(f"{name} cannot be unpacked: {error}.") from error


def not_utf8(name, number, error):
    """Return the NotText for a line that is not UTF-8."""
    return NotText(
        f"{name}, line {number}: not UTF-8 ({error.reason}). Save the file as UTF-8 first, or "
        "drop such bytes: iconv -f UTF-8 -t UTF-8 -c."
    )


def require_text(path):
    """Raise a NotText if a file is not text but, say, a spreadsheet, by its start."""
    with open_file(path) as file:
        is_packed = os.fspath(path).lower().endswith(".gz")
        try:
            start = (gzip.GzipFile(fileobj=file) if is_packed else file).read(START)
        except (EOFError, OSError, zlib.error):
            return  # which the reader finds, too, and says
    check_start(path, start)


def check_start(name, start):
    """Raise a NotText if the first bytes of a file show that it is not text in lines."""
    start = start[:START]
    for mark, remedy in NOT_TEXT.items():
        if re.match(mark, start):
            raise NotText(f"{name} is {remedy}")
    if start.count(b"\r") > 1 and b"\n" not in start:
        raise NotText(f"{name}, line 1: a carriage return within the line: end lines with \\n.")
    rare = len(start) - len(start.translate(None, CONTROLS))
    if rare > 2 and rare > len(start) / 16:
        raise NotText(
            f"{name} is not text in UTF-8: {rare} of its first {len(start)} bytes are control "
            "characters, as in binary files and other encodings, such as UTF-16. Save it as text "
            "in UTF-8; of a table, as CSV or JSONL."
        )


# === Files that several functions read ===

_HAVE_BEEN_READ = contextvars.ContextVar("have_been_read", default=None)


@contextlib.contextmanager
def reading_once() -> Iterator[None]:
    """A context in which `read_once` reads a file once; what it returns is not to be changed.

    Python's garbage collector rests: it would go through long vocabularies again and again.
    """
    token = _HAVE_BEEN_READ.set({} if _HAVE_BEEN_READ.get() is None else _HAVE_BEEN_READ.get())
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        _HAVE_BEEN_READ.reset(token)
        if collects:
            gc.enable()


def read_once(path: str, read: Callable[[str], Any]) -> Any:
    """Return `read(path)`, or what that returned before in the same context of `reading_once`."""
    contents = _HAVE_BEEN_READ.get()
    if contents is None:
        return read(path)
    if path not in contents:
        contents[path] = read(path)
    return contents[path]
