"""Text files → documents → sentences. A document is a string; its sentences are its lines."""

import gzip
import itertools

import numpy as np
import tensorflow as tf

from keras_lm.files import TooLong, find_files, lines, whole

UNITS = ("line", "block", "file")
DOCUMENTS_AT_ONCE = 64  # tokenized together
LARGEST_DOCUMENT = 2**28  # bytes, of several lines
READ_AT_ONCE = 2**20  # bytes
# The end of a sentence, with quotes and brackets that it closes, and what opens the next.
SENTENCE_BORDER = r"""([.!?…]["'”’)\]]*)\s+(["'“‘(\[]*\p{Lu})"""


def read_documents(files, document="line"):
    """Return a `tf.data.Dataset` of the documents of text files, in their order.

    Args:
        files: see `find_files`. What ends in `.gz` is decompressed.
        document: `"line"` (blank lines are skipped), `"block"` (the lines between blank lines, such
            as a sentence a line, BERT's format) or `"file"`. One must fit into memory; blocks, and
            what comes out of `.gz`, have 256 MiB at most, their lines 64 MiB.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if `document` is none of these. While it is read, a document or a line that is
            longer ends in an error of TensorFlow, which names the file and the line.

    Example:

        documents = keras_lm.data.read_documents("corpus/**/*.txt.gz")
    """
    if document not in UNITS:
        raise ValueError(f"document={document!r}: use one of {UNITS}.")
    paths = find_files(files)
    # TensorFlow's own readers know no limit, and a small packed file may hold any size.
    if document == "block" or any(path.endswith(".gz") for path in paths):
        return tf.data.Dataset.from_generator(
            lambda: _batches(paths, document), output_signature=tf.TensorSpec([None], tf.string)
        ).unbatch()
    return tf.data.Dataset.from_tensor_slices(paths).flat_map(
        _lines if document == "line" else _whole
    )


def split_sentences(documents):
    """Return documents with a sentence a line, split by a rule: a `tf.data.Dataset` of strings.

    A sentence ends after `.`, `!`, `?` or `…` (and closing quotes or brackets) if white space and a
    capital letter follow (perhaps after opening quotes or brackets). Lines stay apart.

    The rule also splits after abbreviations ("Dr. Smith"), and not before a number or a name in
    lower case, nor in scripts without capitals. That is good enough for pretraining; elsewhere let
    a sentence splitter write a sentence a line.

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
    """Return documents, see `split_sentences`, as a dataset of strings in batches (B,).

    Raises:
        ValueError: if they are something else.
    """
    if not isinstance(documents, tf.data.Dataset):
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
    """Yield documents in arrays (B,), so many that their number costs no time."""
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
            # As TensorFlow reads lines: no carriage return is left.
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
                    f"{path}, line {number}: the block is longer than {LARGEST_DOCUMENT} bytes. "
                    "Put blank lines between documents."
                )
        elif block:
            yield b"".join(block).rstrip(b"\r\n")
            block, size = [], 0
