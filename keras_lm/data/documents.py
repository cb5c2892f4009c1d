"""Text files → documents → sentences. A document is a string; its sentences are its lines."""

import gzip
import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import open_file, size
from keras_lm.utils.input_files import (
    BYTE_ORDER_MARK,
    TooLong,
    find_files,
    lines,
    not_utf8,
    unpacking,
    whole,
)
from keras_lm.utils.table_files import format_of, read_texts
from keras_lm.utils.user_arguments import iterable

UNITS = ("line", "block", "file")
DOCUMENTS_AT_ONCE = 64  # tokenized together
LARGEST_DOCUMENT = 2**28  # bytes, if it has several lines
READ_AT_ONCE = 2**20  # bytes
# The end of a sentence with its closing quotes and brackets, and the opening ones of the next.
SENTENCE_BORDER = r"""([.!?…]["'”’)\]]*)\s+(["'“‘(\[]*\p{Lu})"""


def read_documents(
    files: PathLike | Iterable[PathLike], document: str = "line"
) -> tf.data.Dataset[Any]:
    """Return a `tf.data.Dataset` of the documents in text files, in order.

    Args:
        files: see `find_files`. Text is UTF-8; a byte order mark at the start of a file is left
            out. Files that end in `.gz` are decompressed.
            Of tables that end in `.parquet`, `.arrow` or `.feather`, each row is a document, in
            the column `text`, or in the only column of strings.
        document: what a document is, in text: `"line"` (blank lines are skipped), `"block"` (the
            lines between blank lines, as in BERT's format with one sentence per line) or `"file"`.
            Each must fit into memory. Blocks and decompressed files may have up to 256 MiB, and
            their lines up to 64 MiB.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if `document` is not one of these. Text that is not UTF-8, and documents and
            lines that are too long, raise an error of TensorFlow during iteration, which names the
            file and the line.

    Example:

        documents = keras_lm.data.read_documents("corpus/**/*.txt.gz")
    """
    if document not in UNITS:
        raise ValueError(f"document={document!r}: use one of {UNITS}.")
    paths = find_files(files, tables=True)
    # TensorFlow's own readers have no limit, check no encoding, and are slower than batches.
    return tf.data.Dataset.from_generator(
        lambda: itertools.chain.from_iterable(_batches(path, document) for path in paths),
        output_signature=tf.TensorSpec([None], tf.string),
    ).unbatch()


def split_sentences(documents: Iterable[Any]) -> tf.data.Dataset[Any]:
    """Split documents into one sentence per line, by a rule; return a `tf.data.Dataset` of strings.

    A sentence ends after `.`, `!`, `?` or `…` (and closing quotes or brackets) if white space and a
    capital letter (perhaps after opening quotes or brackets) follow. It also ends with its line.

    The rule wrongly splits after abbreviations ("Dr. Smith"), and misses ends before numbers and
    lower-case names, and in scripts without capital letters. That is good enough for pretraining;
    for other uses, run a sentence splitter that writes one sentence per line.

    Args:
        documents: `tf.data.Dataset` of strings, alone or in batches (B,), or a list of strings.

    Example:

        documents = keras_lm.data.read_documents("corpus/*.txt")
        documents = keras_lm.data.split_sentences(documents)
    """
    return (
        document_batches(documents)
        .unbatch()
        .map(
            lambda text: tf.strings.regex_replace(text, SENTENCE_BORDER, "\\1\n\\2"),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
    )


def document_batches(documents):
    """Return documents as a dataset of strings in batches (B,).

    Args:
        documents: see `split_sentences`.

    Raises:
        ValueError: if they have another form.
    """
    if not isinstance(documents, tf.data.Dataset):
        is_one = isinstance(documents, (str, bytes))
        texts = [] if is_one else [*iterable(documents, "documents")]  # an iterator is read once
        if is_one or not all(isinstance(document, (str, bytes)) for document in texts):
            raise ValueError("documents must be a list of strings or a tf.data.Dataset of these.")
        documents = tf.data.Dataset.from_tensor_slices(tf.constant(texts, tf.string))
    spec = documents.element_spec
    if (
        not isinstance(spec, tf.TensorSpec)
        or spec.dtype != tf.string
        or spec.shape.rank not in (0, 1)
    ):
        raise ValueError(f"documents must yield strings, alone or in batches (B,); got {spec}.")
    return documents.batch(DOCUMENTS_AT_ONCE) if spec.shape.rank == 0 else documents


def _batches(path, document):
    """Yield a file's documents in arrays (B,), so large that a check of each costs little."""
    with unpacking(path), _open(path) as file:
        is_table = format_of(path)
        documents = read_texts(path, file) if is_table else _documents(file, path, document)
        while batch := [*_up_to(READ_AT_ONCE, documents)]:
            try:
                b"\n".join(batch).decode()
            except UnicodeDecodeError:
                _refuse(path)
            yield np.array(batch, object)


def _open(path):
    file = open_file(path)
    return gzip.open(file) if path.endswith(".gz") else file


def _up_to(size, documents):
    """Yield the next documents until they have `size` bytes together."""
    for text in documents:
        yield text
        size -= len(text)
        if size <= 0:
            return


def _refuse(path):
    """Raise the error for the first line of a file that is not UTF-8."""
    with _open(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raise not_utf8(path, number, error) from None


def _documents(file, path, document):
    """Yield the documents of an open file, bytes."""
    # Parts of a file are no larger than the file, but a small .gz can unpack to any size.
    limit = None if path.endswith(".gz") else size(path)
    if document == "file":
        yield whole(file, path, limit or LARGEST_DOCUMENT).removeprefix(BYTE_ORDER_MARK)
        return
    file_lines = lines(file, path, limit if document == "line" else None)
    file_lines = itertools.chain([next(file_lines, b"").removeprefix(BYTE_ORDER_MARK)], file_lines)
    if document == "block":
        yield from _blocks(file_lines, path)
    else:
        file_lines = (line.rstrip(b"\r\n") for line in file_lines)
        yield from (line for line in file_lines if line.strip())


def _blocks(lines, path):
    block, size = [], 0
    for number, line in enumerate(itertools.chain(lines, [b""]), start=1):
        if line.strip():
            block.append(line)
            size += len(line)
            if size > LARGEST_DOCUMENT:
                raise TooLong(
                    f"{path}, line {number}: the block is longer than {LARGEST_DOCUMENT} bytes: "
                    "put blank lines between documents."
                )
        elif block:
            yield b"".join(block).rstrip(b"\r\n")
            block, size = [], 0
