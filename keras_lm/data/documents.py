"""Text files → documents → sentences. A document is a string; its sentences are its lines."""

import gzip
import itertools

import tensorflow as tf

from keras_lm.files import find_files

UNITS = ("line", "block", "file")
DOCUMENTS_AT_ONCE = 64  # tokenized together
# The end of a sentence, with quotes and brackets that it closes, and what opens the next.
SENTENCE_BORDER = r"""([.!?…]["'”’)\]]*)\s+(["'“‘(\[]*\p{Lu})"""


def read_documents(files, document="line"):
    """Return a `tf.data.Dataset` of the documents of text files, in their order.

    Args:
        files: see `find_files`. What ends in `.gz` is decompressed.
        document: `"line"` (blank lines are skipped), `"block"` (the lines between blank lines, such
            as a sentence a line, BERT's format) or `"file"`. One must fit into memory.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if `document` is none of these.

    Example:

        documents = keras_lm.data.read_documents("corpus/**/*.txt.gz")
    """
    if document not in UNITS:
        raise ValueError(f"document={document!r}: use one of {UNITS}.")
    paths = find_files(files)
    if document == "block":
        return tf.data.Dataset.from_generator(
            lambda: itertools.chain.from_iterable(map(_blocks, paths)),
            output_signature=tf.TensorSpec([], tf.string),
        )
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


def _is_gzip(path):
    return tf.strings.regex_full_match(path, r"(?s).*\.gz")


def _lines(path):
    compression = tf.where(_is_gzip(path), "GZIP", "")
    lines = tf.data.TextLineDataset(path, compression_type=compression)
    return lines.filter(lambda line: tf.strings.strip(line) != "")


def _whole(path):
    content = tf.io.read_file(path)
    content = tf.cond(
        _is_gzip(path), lambda: tf.io.decode_compressed(content, "GZIP"), lambda: content
    )
    return tf.data.Dataset.from_tensors(content)


def _blocks(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        for is_text, lines in itertools.groupby(file, lambda line: bool(line.strip())):
            if is_text:
                yield b"".join(lines).rstrip(b"\r\n")
