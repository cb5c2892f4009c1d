"""Text files → documents → sentences. A document is a string; its sentences are its lines."""

import gzip
import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_lm.argument_types import PathLike
from keras_lm.input_files import TooLong, find_files, lines, whole
from keras_lm.tensorflow import tf
from keras_lm.user_columns import iterable

UNITS = ("line", "block", "file")
DOCUMENTS_AT_ONCE = 64  # tokenized together
LARGEST_DOCUMENT = 2**28  # bytes, if it has several lines
READ_AT_ONCE = 2**20  # bytes
# The end of a sentence with its closing quotes and brackets, and the opening ones of the next.
SENTENCE_BORDER = r"""([.!?…]["'”’)\]]*)\s+(["'“‘(\[]*\p{Lu})"""


def read_documents(files: PathLike | Iterable[PathLike], document: str = "line") -> tf.data.Dataset:
    """Return a `tf.data.Dataset` of the documents in text files, in order.

    Args:
        files: see `find_files`. Files that end in `.gz` are decompressed.
        document: what a document is: `"line"` (blank lines are skipped), `"block"` (the lines
            between blank lines, as in BERT's format with one sentence per line) or `"file"`. Each
            must fit into memory. Blocks and decompressed files may have up to 256 MiB, and their
            lines up to 64 MiB.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if `document` is none of these. Documents and lines that are too long raise an
            error of TensorFlow during iteration, which names the file and the line.

    Example:

        documents = keras_lm.data.read_documents("corpus/**/*.txt.gz")
    """
    if document not in UNITS:
        raise ValueError(f"document={document!r}: use one of {UNITS}.")
    paths = find_files(files)
    # TensorFlow's own readers have no limit, and a small .gz can decompress to any size.
    if document == "block" or any(path.endswith(".gz") for path in paths):
        return tf.data.Dataset.from_generator(
            lambda: _batches(paths, document), output_signature=tf.TensorSpec([None], tf.string)
        ).unbatch()
    return tf.data.Dataset.from_tensor_slices(paths).flat_map(
        _lines if document == "line" else _whole
    )


def split_sentences(documents: Iterable[Any]) -> tf.data.Dataset:
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
        documents = iterable(documents, "documents")
        if isinstance(documents, (str, bytes)) or not all(
            isinstance(document, (str, bytes)) for document in documents
        ):
            raise ValueError("documents must be a list of strings or a tf.data.Dataset of these.")
        documents = tf.data.Dataset.from_tensor_slices(tf.constant(list(documents), tf.string))
    spec = documents.element_spec
    if (
        not isinstance(spec, tf.TensorSpec)
        or spec.dtype != tf.string
        or spec.shape.rank not in (0, 1)
    ):
        raise ValueError(f"documents must yield strings, alone or in batches (B,); got {spec}.")
    return documents.batch(DOCUMENTS_AT_ONCE) if spec.shape.rank == 0 else documents


def _lines(path):
    lines = tf.data.TextLineDataset(path)
    return lines.filter(lambda line: tf.strings.strip(line) != "")


def _whole(path):
    return tf.data.Dataset.from_tensors(tf.io.read_file(path))


def _batches(paths, document):
    """Yield documents in arrays (B,), large enough that the overhead of each does not matter."""
    found, size = [], 0
    for text in itertools.chain.from_iterable(_documents(path, document) for path in paths):
        found.append(text)
        size += len(text)
        if size >= READ_AT_ONCE:
            yield np.array(found, object)
            found, size = [], 0
    if found:
        yield np.array(found, object)


def _documents(path, document):
    """Yield the documents of a file, bytes."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        if document == "file":
            yield whole(file, path, LARGEST_DOCUMENT)
        elif document == "line":
            # Carriage returns are removed, as by TensorFlow's reader of lines.
            found = (line.rstrip(b"\n").replace(b"\r", b"") for line in lines(file, path))
            yield from (line for line in found if line.strip())
        else:
            yield from _blocks(lines(file, path), path)


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
