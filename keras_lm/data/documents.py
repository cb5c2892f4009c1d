"""Text files → documents."""

import tensorflow as tf

from keras_lm.files import find_files

UNITS = ("line", "file")


def read_documents(files, document="line"):
    """Return a `tf.data.Dataset` of the documents of text files, in their order.

    Args:
        files: see `find_files`. What ends in `.gz` is decompressed.
        document: `"line"` (blank lines are skipped) or `"file"`, each of which must fit into
            memory.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if `document` is neither.

    Example:

        documents = keras_lm.data.read_documents("corpus/**/*.txt.gz")
    """
    if document not in UNITS:
        raise ValueError(f"document={document!r}: use one of {UNITS}.")
    return tf.data.Dataset.from_tensor_slices(find_files(files)).flat_map(
        _lines if document == "line" else _whole
    )


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
