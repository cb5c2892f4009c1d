"""Windows and rows of tokens on disk: tokenized once, read in every epoch and every run.

A folder holds `tokens-00000-of-00004.tfrecord`, …, each record a `tf.train.Example`, and
`tokens.json`, on how they were made. A window (format 1) has the feature `token_ids`, (S + 1,) for
S tokens to predict; a row (format 2) has those that `columns` lists with their shapes. Of each
shard the index has the number of windows or rows, the size, and the SHA-256 of the file.

The writers are here and, for corpora of any size, in `keras_lm.pipelines`; the reader is here.
"""

import dataclasses
import hashlib
import inspect
import itertools
import json
import math
from pathlib import Path, PureWindowsPath

import numpy as np
import tensorflow as tf

from keras_lm import files
from keras_lm.data.own_part import own
from keras_lm.data.packed_windows import token_windows
from keras_lm.data.pretraining_rows import pretraining_rows
from keras_lm.elements import elements

FORMAT_VERSIONS = (1, 2)
INDEX = "tokens.json"
HASHED_AT_ONCE = 2**22  # bytes


def write_token_shards(documents, tokenizer, sequence_length, folder, num_shards=1):
    """Tokenize documents, write their windows as TFRecord files, and return how many there are.

    Windows go to the shards in turn, so that each shard is a fair sample of the corpus.

    Args:
        documents, tokenizer, sequence_length: as `token_windows` takes them.
        folder: path, created when all is written. Existing shards are replaced.
        num_shards: int.

    Raises:
        FileExistsError: if `folder` holds something else.
        ValueError: if the documents do not fill `num_shards` windows, or an argument is out of
            range.

    Example:

        documents = keras_lm.data.read_documents("corpus/*.txt")
        keras_lm.data.write_token_shards(documents, tokenizer, 128, "tokens", num_shards=8)
        windows = keras_lm.data.read_token_shards("tokens", tokenizer)
    """
    windows = token_windows(documents, tokenizer, sequence_length)
    return _write(windows, tokenizer, folder, num_shards, window_index(sequence_length))


def write_row_shards(
    documents, tokenizer, template, sequence_length, folder, num_shards=1, **settings
):
    """Write the rows of `pretraining_rows` as `write_token_shards` does windows.

    Args:
        documents, tokenizer, template, sequence_length, **settings: as `pretraining_rows` takes
            them. `tokens.json` states the template and the settings.
        folder, num_shards: as `write_token_shards` takes them.

    Raises:
        FileExistsError, ValueError: as `write_token_shards` and `pretraining_rows` do.

    Example:

        documents = keras_lm.data.read_documents("corpus/*.txt", document="block")
        keras_lm.data.write_row_shards(
            documents, tokenizer, BertBackbone.TEMPLATE, 128, "rows", form="doc_sentences"
        )
        rows = keras_lm.data.read_token_shards("rows", tokenizer)
    """
    rows = pretraining_rows(documents, tokenizer, template, sequence_length, **settings)
    index = row_index(rows, template, sequence_length, settings)
    return _write(rows, tokenizer, folder, num_shards, index)


def read_token_index(folder):
    """Return what a folder of shards says of itself, the dict in its `tokens.json`.

    Args:
        folder: path, also of a file system that `tf.io.gfile` knows, such as `gs://bucket/tokens`.

    Raises:
        FileNotFoundError: if it is no such folder.
        ValueError: if a later version of keras_lm wrote it, or it is damaged.
    """
    path = _join(folder, INDEX)
    if not tf.io.gfile.exists(path):
        raise FileNotFoundError(
            f"{folder} has no {INDEX}: it is not a folder that write_token_shards, "
            "write_row_shards or keras-lm prepare wrote to the end."
        )
    with tf.io.gfile.GFile(path) as file:
        content = file.read()
    try:
        index = json.loads(content)
        version = index.get("format_version")
    except (AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}. Copy the folder again, whole.") from error
    if version not in FORMAT_VERSIONS:
        raise ValueError(
            f"{path} has format_version={str(version)[:20]}, and this keras_lm reads "
            f"{FORMAT_VERSIONS}: write the tokens anew."
        )
    _check_index(path, index)
    return index


def _check_index(path, index):
    """Raise a ValueError if an index does not say what is needed, or cannot be true."""

    def check(holds, name, value):
        if not holds:
            raise ValueError(
                f"{path} is damaged: {name!r} is {str(value)[:200]}. Copy the folder again, whole."
            )

    for name in ("sequence_length", "vocabulary_size"):
        check(_is_whole(index.get(name), 1), name, index.get(name))
    check(isinstance(index.get("vocabulary_sha256"), str), "vocabulary_sha256", None)
    columns = columns_of(index)
    is_dict = isinstance(columns, dict) and "token_ids" in columns
    shapes = [*columns.values()] if is_dict else [None]
    is_shape = [isinstance(s, list) and all(_is_whole(axis, 1) for axis in s) for s in shapes]
    check(all(is_shape), "columns", columns)
    shards = index.get("shards")
    check(isinstance(shards, list) and shards, "shards", shards)
    for shard in shards:
        check(isinstance(shard, dict), "shards", shard)
        name, windows, size = (shard.get(key) for key in ("name", "windows", "bytes"))
        # A name that leads elsewhere would make us read other files of the machine.
        check(isinstance(name, str) and PureWindowsPath(name).name == name != "..", "name", name)
        check(_is_whole(size, 0), "bytes", size)
        # A number takes a byte at least.
        check(_is_whole(windows, 0), "windows", windows)
        row = sum(map(math.prod, shapes))
        check(windows * row <= size, "windows", f"{windows}, of {row} numbers in {size} bytes")


def _is_whole(value, least):
    return type(value) is int and value >= least


def columns_of(index):
    """Return the columns of a folder with their shapes, by its index."""
    return index.get("columns", {"token_ids": [index["sequence_length"] + 1]})


def read_token_shards(folder, tokenizer=None, worker=0, num_workers=1, verify=True):
    """Return written windows or rows: a dataset of known length, in a fixed order.

    Args:
        folder: path, see `read_token_index`.
        tokenizer: `Tokenizer` that must have made the tokens; None for any.
        worker, num_workers: int. Which worker reads, from 0. Each reads windows of its own, next to
            each other, from no more shards than they are in; all together read each once. The
            dataset says so by tf.data's `AutoShardPolicy.OFF`, which `fit_windows` looks at.
        verify: bool. Whether to compare the content of the shards that are read with the index;
            their sizes are compared in any case.

    Raises:
        FileNotFoundError: if there are no shards, or one is missing.
        ValueError: if a shard is damaged, the tokens are of another vocabulary, or there are fewer
            windows than workers. A token that no vocabulary of this size has ends in an error of
            TensorFlow when it is read.

    Example:

        windows = keras_lm.data.read_token_shards("tokens", tokenizer)
        task.fit(keras_lm.data.epoch_batches(windows, batch_size=32))
    """
    index = read_token_index(folder)
    if tokenizer is not None and fingerprint(tokenizer) != index["vocabulary_sha256"]:
        raise ValueError(
            f"{folder} was written with another vocabulary, of {index['vocabulary_size']} entries "
            f"(the tokenizer has {tokenizer.vocabulary_size}): write the tokens anew."
        )
    if not 0 <= worker < num_workers:
        raise ValueError(f"worker={worker} is not between 0 and {num_workers - 1}.")
    number = sum(shard["windows"] for shard in index["shards"])
    if number < num_workers:
        raise ValueError(f"{folder} has fewer windows than num_workers={num_workers}.")
    first = worker * number // num_workers
    each = (worker + 1) * number // num_workers - first
    shards, skipped = _shards_of(index["shards"], first, each)
    for shard in index["shards"]:
        _check_shard(_join(folder, shard["name"]), shard, verify and shard in shards)
    columns, size = columns_of(index), index["vocabulary_size"]
    features = {n: tf.io.FixedLenFeature(shape, tf.int64) for n, shape in columns.items()}

    def parse(record):
        row = tf.io.parse_single_example(record, features)
        ids = row["token_ids"]  # a negative one would count from the end
        message = f"{folder} holds a token that is none of {size}: write the tokens anew."
        tf.debugging.Assert(tf.reduce_all((ids >= 0) & (ids < size)), [message])
        row = {name: tf.cast(value, tf.int32) for name, value in row.items()}
        return row if "columns" in index else row["token_ids"]

    records = tf.data.TFRecordDataset([_join(folder, shard["name"]) for shard in shards])
    records = records.skip(skipped).take(each)
    records = records.apply(tf.data.experimental.assert_cardinality(each))
    rows = records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return rows if num_workers == 1 else own(rows)


def _shards_of(shards, first, number):
    """Return the shards with `number` windows from `first` on, and how many stand before these."""
    found, skipped, start = [], 0, 0
    for shard in shards:
        end = start + shard["windows"]
        if start < first + number and end > first:
            skipped = skipped if found else first - start
            found.append(shard)
        start = end
    return found, skipped


def _check_shard(path, shard, with_content):
    """Raise an error if a shard is not the file that was written."""
    if not tf.io.gfile.exists(path):
        raise FileNotFoundError(f"{path} is missing: copy the folder again, whole.")
    size = tf.io.gfile.stat(path).length
    if size != shard["bytes"]:
        raise ValueError(
            f"{path} has {size} bytes and was written with {shard['bytes']}: copy it again."
        )
    # Folders of the first versions have no digests.
    if with_content and "sha256" in shard and digest_of(path) != shard["sha256"]:
        raise ValueError(
            f"{path} has another content than when it was written (its SHA-256 differs): copy it "
            "again."
        )


def _join(folder, name):
    return f"{str(Path(folder).expanduser()) if '://' not in str(folder) else folder}/{name}"


# === Writing ===


def window_index(sequence_length):
    """Return what the index of a folder of windows begins with."""
    return {"format_version": 1, "sequence_length": sequence_length}


def row_index(rows, template, sequence_length, settings):
    """Return what the index of a folder of rows begins with.

    `settings` are those which `pretraining_rows` made the rows with, if they are not its defaults.
    """
    defaults = inspect.signature(pretraining_rows).parameters.values()
    defaults = {each.name: each.default for each in defaults if each.default is not each.empty}
    return {
        "format_version": 2,
        "sequence_length": sequence_length,
        "columns": {name: spec.shape.as_list() for name, spec in rows.element_spec.items()},
        "template": dataclasses.asdict(template),
        "settings": defaults | settings,
    }


def about_vocabulary(tokenizer):
    """Return what an index says of the vocabulary."""
    return {
        "vocabulary_size": tokenizer.vocabulary_size,
        "vocabulary_sha256": fingerprint(tokenizer),
    }


def about_shard(path, count, name=None):
    """Return what an index says of a shard, a local file, with `count` windows or rows."""
    path = Path(path)
    return {
        "name": name or path.name,
        "windows": count,
        "bytes": path.stat().st_size,
        "sha256": digest_of(path),
    }


def shard_name(number, num_shards):
    """Return the name of a shard; numbers start from 0."""
    return f"tokens-{number:05d}-of-{num_shards:05d}.tfrecord"


def _write(dataset, tokenizer, folder, num_shards, index):
    """Write windows or rows and the index of a folder, and return how many they are."""
    if num_shards < 1:
        raise ValueError(f"num_shards={num_shards}: pass 1 or more.")
    folder = Path(folder).expanduser()
    files.require_free(folder, "holds no tokens", marker=INDEX)
    with files.replacing(folder) as new:
        new.mkdir()
        paths = [new / shard_name(i, num_shards) for i in range(num_shards)]
        counts = write_records(dataset, paths)
        if not counts[-1]:
            raise ValueError(
                f"The documents fill {sum(counts)} windows of {index['sequence_length']} tokens; "
                f"each of {num_shards} shards needs one: give more text, or lower sequence_length "
                "or num_shards."
            )
        index |= about_vocabulary(tokenizer)
        index["shards"] = [about_shard(*each) for each in zip(paths, counts, strict=True)]
        (new / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return sum(counts)


def write_records(dataset, paths):
    """Write windows or rows in turn into local files; return how many went into each."""
    counts = [0] * len(paths)
    writers = [tf.io.TFRecordWriter(str(path)) for path in paths]
    number = itertools.count()
    for batch in elements(dataset.batch(256)):  # a step takes longer than writing a row
        columns = batch if isinstance(batch, dict) else {"token_ids": batch}
        columns = {name: values.numpy() for name, values in columns.items()}
        for row in zip(*columns.values(), strict=True):
            feature = {
                name: tf.train.Feature(int64_list=tf.train.Int64List(value=np.ravel(values)))
                for name, values in zip(columns, row, strict=True)
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            shard = next(number) % len(writers)
            # Maps have no order of their own in a message: the same rows, the same bytes.
            writers[shard].write(example.SerializeToString(deterministic=True))
            counts[shard] += 1
    for writer in writers:
        writer.close()
    return counts


def digest_of(path):
    """Return the SHA-256 of a file as text."""
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(str(path), "rb") as file:
        while part := file.read(HASHED_AT_ONCE):
            digest.update(part)
    return digest.hexdigest()


def fingerprint(tokenizer):
    """Return what tells a vocabulary from another."""
    entries = "\0".join(tokenizer.vocabulary)
    return hashlib.sha256(entries.encode("utf-8", "surrogatepass")).hexdigest()
