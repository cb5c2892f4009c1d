"""Text files on Beam's filesystems → documents, in parts for several workers."""

import gzip
import itertools
import zlib
from typing import NamedTuple

import apache_beam as beam

from keras_lm.data.documents import LARGEST_DOCUMENT, UNITS
from keras_lm.pipelines.beam_files import open_bytes
from keras_lm.pipelines.running import input_error
from keras_lm.utils import input_files
from keras_lm.utils.table_files import format_of, read_texts

PART_BYTES = 2**24  # bytes of a file that a worker reads at a time


class Part(NamedTuple):
    """The documents of a file that start from byte `start` on, before `end` if it is not None."""

    path: str
    start: int = 0
    end: int | None = None


def cut_into_parts(inputs, document, part_bytes=PART_BYTES):
    """Divide files, `(path, bytes)` each, into parts; compressed files and tables are not divided.

    Raises:
        ValueError: if `document` is unknown.
    """
    if document not in UNITS:
        raise ValueError(f"document={document!r}: use one of {UNITS}.")
    parts = []
    for path, size in inputs:
        is_whole = document == "file" or path.endswith(".gz") or format_of(path)
        if is_whole or size <= part_bytes:
            parts.append(Part(path))
        else:
            parts += [Part(path, i, i + part_bytes) for i in range(0, size, part_bytes)]
    return parts


class ReadDocuments(beam.DoFn):
    """`Part` → its documents, as UTF-8, those of `keras_lm.data.read_documents`."""

    def __init__(self, document):
        super().__init__()
        self.document = document

    def process(self, part):
        """Yield the documents of a part."""
        try:
            with open_unpacked(part.path) as file:
                for start, text in self._documents(file, part):
                    text = text.removeprefix(input_files.BYTE_ORDER_MARK) if not start else text
                    try:
                        text.decode()
                    except UnicodeDecodeError as error:
                        raise input_error(
                            f"{part.path}, {_line(part.path, start + error.start)}: not UTF-8 "
                            f"({error.reason}). Save the file as UTF-8 first."
                        ) from error
                    if text.strip():
                        yield text
        except (input_files.TooLong, input_files.NotText) as error:
            raise input_error(str(error)) from error
        except (OSError, EOFError, zlib.error) as error:
            raise input_error(f"{part.path} cannot be read: {error}") from error

    def _documents(self, file, part):
        """Return `(position, document)` of a part."""
        if format_of(part.path):
            return ((0, text) for text in read_texts(part.path, file))
        if self.document == "file":
            text = input_files.whole(file, part.path, LARGEST_DOCUMENT)
            input_files.check_start(part.path, text)
            return iter([(0, text)])
        lines = _lines(file, part.path, part.start)
        if self.document == "line":
            lines = ((at, line.rstrip(b"\r\n")) for at, line in lines)
            return itertools.takewhile(lambda one: part.end is None or one[0] < part.end, lines)
        return _blocks(lines, part)


def open_unpacked(path):
    """Open a file for reading bytes; `.gz` files are decompressed."""
    file = open_bytes(path)
    return gzip.GzipFile(fileobj=file) if path.endswith(".gz") else file


def _lines(file, path, start):
    """Yield `(position, line)` of the lines that start from `start` on."""
    position = start
    if start:  # the line with the byte before `start` belongs to the previous part
        file.seek(start - 1)
        position += len(file.readline(input_files.LONGEST_LINE)) - 1
    for line in input_files.lines(file, path):
        yield position, line
        position += len(line)


def _blocks(lines, part):
    """Yield `(position, text)` of the blocks between blank lines.

    A block belongs to the part in which the blank line before it starts; the first block of a file
    belongs to the first part.
    """
    blank = 0 if not part.start else None  # where the last blank line started
    block, first = [], 0
    for position, line in lines:
        if line.strip():
            if blank is not None:
                first = first if block else position
                block.append(line)
                if position - first > LARGEST_DOCUMENT:
                    raise input_files.TooLong(
                        f"{part.path}: a block is longer than {LARGEST_DOCUMENT} bytes: put blank "
                        "lines between documents."
                    )
            continue
        if block:
            yield first, b"".join(block).rstrip(b"\r\n")
            block = []
        blank = position
        if part.end is not None and blank >= part.end:
            return
    if block:
        yield first, b"".join(block).rstrip(b"\r\n")


def _line(path, position):
    """Return the number of the line with a byte of a file, in words."""
    with open_unpacked(path) as file:
        ends = itertools.accumulate(map(len, file))
        return f"line {1 + sum(1 for _ in itertools.takewhile(lambda e: e <= position, ends))}"
