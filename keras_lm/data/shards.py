"""Windows and rows of tokens on disk: tokenized once, read in every epoch and every run.

A folder has `tokens-00000-of-00004.tfrecord`, …, whose records are `tf.train.Example`s, and an
index, `tokens.json`, which says how they were made. A window (format 1) has the feature
`token_ids`, (S + 1,) for S tokens to predict; a row (format 2) has the features that `columns`
lists with their shapes. For each shard, the index has the number of windows or rows, the size and
the SHA-256.

`keras_lm.pipelines` also writes such folders, for corpora of any size.
"""

import dataclasses
import hashlib
import inspect
import itertools
import json
import math
from collections.abc import Iterable
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np

from keras_lm.data.packed_windows import token_windows
from keras_lm.data.pretraining_rows import pretraining_rows
from keras_lm.packers.packer import Template
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils import files
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.batch_iteration import iterate_batches
from keras_lm.utils.files import ITSELF, has_changed, is_remote, local_copy, with_sum
from keras_lm.utils.user_arguments import checks_flags

FORMAT_VERSIONS = (1, 2)
INDEX = "tokens.json"
HASHED_AT_ONCE = 2**22  # bytes
# Of an index; one whose own checksum has another name has changed, too.
ENTRIES = {"format_version", "sequence_length", "columns", "template", "settings", "prepared"}
ENTRIES |= {"vocabulary_size", "vocabulary_sha256", "shards", ITSELF}


def write_token_shards(
    documents: Iterable[Any],
    tokenizer: Tokenizer,
    sequence_length: int,
    folder: PathLike,
    num_shards: int = 1,
) -> int:
    """Tokenize documents and write their windows as TFRecord files; return their number.

    Windows are written to the shards in turn, so that each shard is a fair sample of the corpus.

    Args:
        documents, tokenizer, sequence_length: as in `token_windows`.
        folder: path, created once everything is written. Existing shards are replaced.
        num_shards: int.

    Raises:
        FileExistsError: if `folder` has other content.
        ValueError: if the documents fill fewer than `num_shards` windows, or an argument is out of
            range.

    Example:

        documents = keras_lm.data.read_documents("corpus/*.txt")
        keras_lm.data.write_token_shards(documents, tokenizer, 128, "tokens", num_shards=8)
        windows = keras_lm.data.read_token_shards("tokens", tokenizer)
    """
    windows = token_windows(documents, tokenizer, sequence_length)
    return _write(windows, tokenizer, folder, num_shards, window_index(sequence_length))


def write_row_shards(
    documents: Iterable[Any],
    tokenizer: Tokenizer,
    template: Template,
    sequence_length: int,
    folder: PathLike,
    num_shards: int = 1,
    **settings: Any,
) -> int:
    """Write the rows of `pretraining_rows` as TFRecord files, like `write_token_shards`.

    Args:
        documents, tokenizer, template, sequence_length, **settings: as in `pretraining_rows`.
            `tokens.json` has the template and the settings.
        folder, num_shards: as in `write_token_shards`.

    Raises:
        FileExistsError, ValueError: as in `write_token_shards` and `pretraining_rows`.

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


def read_token_index(folder: PathLike) -> dict[str, Any]:
    """Return the index of a folder of shards, the dict in its `tokens.json`.

    Args:
        folder: path, or an address: TensorFlow reads it there if it knows the scheme, such as
            `gs://bucket/tokens`; otherwise it is copied to a temporary folder of this machine.

    Raises:
        FileNotFoundError: if the folder has no index.
        ValueError: if the index was written by a later version of keras_lm, or is damaged.
    """
    path = _join(folder, INDEX)
    if not tf.io.gfile.exists(path):
        raise FileNotFoundError(
            f"{folder} has no {INDEX}: pass a folder that write_token_shards, write_row_shards or "
            "keras-lm prepare has finished writing."
        )
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    try:
        index = json.loads(content)
        version = index.get("format_version")
    except (AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}. Copy the whole folder again.") from error
    if version not in FORMAT_VERSIONS:
        raise ValueError(
            f"{path} has format_version={str(version)[:20]}, but this version of keras_lm reads "
            f"{FORMAT_VERSIONS}: write the tokens again."
        )
    _check_index(path, index)
    if has_changed(index) or index.keys() - ENTRIES:
        raise ValueError(f"{path} has changed since it was written: copy the whole folder again.")
    index.pop(ITSELF, None)
    return index


def _check_index(path, index):
    """Raise a ValueError if an index lacks a value, or has an impossible one."""

    def check(holds, name, value):
        if not holds:
            raise ValueError(
                f"{path} is damaged: {name!r} is {str(value)[:200]}. Copy the whole folder again."
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
        # A name with a path in it could make us read other files of the machine.
        check(isinstance(name, str) and PureWindowsPath(name).name == name != "..", "name", name)
        check(_is_whole(size, 0), "bytes", size)
        # A number takes at least one byte.
        check(_is_whole(windows, 0), "windows", windows)
        row = sum(map(math.prod, shapes))
        check(windows * row <= size, "windows", f"{windows}, of {row} numbers in {size} bytes")


def _is_whole(value, least):
    return type(value) is int and value >= least


def columns_of(index):
    """Return the columns and shapes in a folder's index."""
    return index.get("columns", {"token_ids": [index["sequence_length"] + 1]})


@checks_flags
def read_token_shards(
    folder: PathLike,
    tokenizer: Tokenizer | None = None,
    worker: int = 0,
    num_workers: int = 1,
    verify: bool = True,
) -> tf.data.Dataset[Any]:
    """Return windows or rows from shards: a dataset of known length, in a fixed order.

    Args:
        folder: path, see `read_token_index`.
        tokenizer: the `Tokenizer` that made the tokens, which is checked; None skips the check.
        worker, num_workers: int. Which worker reads, from 0. Each worker reads a contiguous part,
            and only the shards that contain it; together, they read every window once. The dataset
            is marked with tf.data's `AutoShardPolicy.OFF`, which `fit_windows` respects.
        verify: bool. Whether to compare the SHA-256 of the shards with the index; their sizes are
            always compared.

    Raises:
        FileNotFoundError: if there are no shards, or one is missing.
        ValueError: if a shard is damaged, the tokens are from another vocabulary, or there are
            fewer windows than workers. A token outside of the vocabulary raises an error of
            TensorFlow during iteration.

    Example:

        windows = keras_lm.data.read_token_shards("tokens", tokenizer)
        task.fit(keras_lm.data.epoch_batches(windows, batch_size=32))
    """
    index = read_token_index(folder)
    if tokenizer is not None and fingerprint(tokenizer) != index["vocabulary_sha256"]:
        raise ValueError(
            f"{folder} was written with another vocabulary, of {index['vocabulary_size']} entries "
            f"(the tokenizer has {tokenizer.vocabulary_size}): write the tokens again."
        )
    if not 0 <= worker < num_workers:
        raise ValueError(f"worker={worker}: pass 0 to {num_workers - 1}.")
    number = sum(shard["windows"] for shard in index["shards"])
    if number < num_workers:
        raise ValueError(
            f"{folder} has fewer windows than num_workers={num_workers}: use fewer workers."
        )
    first = worker * number // num_workers
    share = (worker + 1) * number // num_workers - first
    shards, skipped = _shards_of(index["shards"], first, share)
    for shard in index["shards"]:
        _check_shard(_join(folder, shard["name"]), shard, verify and shard in shards)
    columns, size = columns_of(index), index["vocabulary_size"]
    features = {n: tf.io.FixedLenFeature(shape, tf.int64) for n, shape in columns.items()}

    def parse(record):
        row = tf.io.parse_single_example(record, features)
        ids = row["token_ids"]  # a negative id would index from the end
        message = f"{folder} has a token id outside of 0 to {size - 1}: write the tokens again."
        tf.debugging.Assert(tf.reduce_all((ids >= 0) & (ids < size)), [message])
        row = {name: tf.cast(value, tf.int32) for name, value in row.items()}
        return row if "columns" in index else row["token_ids"]

    records = tf.data.TFRecordDataset([_join(folder, shard["name"]) for shard in shards])
    records = records.skip(skipped).take(share)
    records = records.apply(tf.data.experimental.assert_cardinality(share))
    rows = records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return rows if num_workers == 1 else own(rows)


def _shards_of(shards, first, number):
    """Return the shards with `number` windows from `first` on, and how many to skip in them."""
    chosen, skipped, start = [], 0, 0
    for shard in shards:
        end = start + shard["windows"]
        if start < first + number and end > first:
            skipped = skipped if chosen else first - start
            chosen.append(shard)
        start = end
    return chosen, skipped


def _check_shard(path, shard, with_content):
    """Raise an error if a shard is missing or has changed since it was written."""
    if not tf.io.gfile.exists(path):
        raise FileNotFoundError(f"{path} is missing: copy the whole folder again.")
    size = tf.io.gfile.stat(path).length
    if size != shard["bytes"]:
        raise ValueError(
            f"{path} has {size} bytes, but was written with {shard['bytes']}: copy it again."
        )
    # Folders written by early versions have no digests.
    if with_content and "sha256" in shard and digest_of(path) != shard["sha256"]:
        raise ValueError(
            f"{path} has changed since it was written (its SHA-256 differs): copy it again."
        )


def _join(folder, name):
    if not is_remote(folder):
        folder = Path(folder).expanduser()
    elif str(folder).partition("://")[0] not in tf.io.gfile.get_registered_schemes():
        folder = local_copy(folder)
    return f"{folder}/{name}"


# === Writing ===


def window_index(sequence_length):
    """Return the first entries of the index of a folder of windows."""
    return {"format_version": 1, "sequence_length": sequence_length}


def row_index(rows, template, sequence_length, settings):
    """Return the first entries of the index of a folder of rows.

    `settings` are the arguments of `pretraining_rows` that differ from its defaults.
    """
    defaults = inspect.signature(pretraining_rows).parameters.values()
    defaults = {
        parameter.name: parameter.default
        for parameter in defaults
        if parameter.default is not parameter.empty
    }
    return {
        "format_version": 2,
        "sequence_length": sequence_length,
        "columns": {name: spec.shape.as_list() for name, spec in rows.element_spec.items()},
        "template": dataclasses.asdict(template),
        "settings": defaults | settings,
    }


def about_vocabulary(tokenizer):
    """Return the entries of an index about the vocabulary."""
    return {
        "vocabulary_size": tokenizer.vocabulary_size,
        "vocabulary_sha256": fingerprint(tokenizer),
    }


def about_shard(path, count, name=None):
    """Return the entries of an index about a shard, a local file of `count` windows or rows."""
    path = Path(path)
    return {
        "name": name or path.name,
        "windows": count,
        "bytes": path.stat().st_size,
        "sha256": digest_of(path),
    }


def shard_name(number, num_shards):
    """Return the file name of a shard; numbers start from 0."""
    return f"tokens-{number:05d}-of-{num_shards:05d}.tfrecord"


def _write(dataset, tokenizer, folder, num_shards, index):
    """Write a folder of windows or rows with its index; return their number."""
    if num_shards < 1:
        raise ValueError(f"num_shards={num_shards}: pass 1 or more.")
    folder = files.as_path(folder)
    files.require_free(folder, "holds no tokens", marker=INDEX)
    with files.replacing(folder) as new:
        new.mkdir()
        paths = [new / shard_name(i, num_shards) for i in range(num_shards)]
        counts = write_records(dataset, paths)
        if not counts[-1]:
            each = f", but each of {num_shards} shards needs one" if num_shards > 1 else ""
            or_shards = " or num_shards" if num_shards > 1 else ""
            raise ValueError(
                f"The documents fill {sum(counts)} windows of {index['sequence_length']} "
                f"tokens{each}: pass more text, or lower sequence_length{or_shards}."
            )
        index |= about_vocabulary(tokenizer)
        index["shards"] = list(map(about_shard, paths, counts))
        (new / INDEX).write_text(json.dumps(with_sum(index), indent=2) + "\n", encoding="utf-8")
    return sum(counts)


def write_records(dataset, paths):
    """Write windows or rows to local files in turn; return the number in each."""
    counts = [0] * len(paths)
    writers = [tf.io.TFRecordWriter(str(path)) for path in paths]
    number = itertools.count()
    for batch in iterate_batches(dataset.batch(256)):  # in batches: a step takes longer than a row
        columns = batch if isinstance(batch, dict) else {"token_ids": batch}
        columns = {name: values.numpy() for name, values in columns.items()}
        for row in zip(*columns.values(), strict=True):
            feature = {
                name: tf.train.Feature(int64_list=tf.train.Int64List(value=np.ravel(values)))
                for name, values in zip(columns, row, strict=True)
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            shard = next(number) % len(writers)
            # A message's maps have no fixed order, but the same rows have to be the same bytes.
            writers[shard].write(example.SerializeToString(deterministic=True))
            counts[shard] += 1
    for writer in writers:
        writer.close()
    return counts


def digest_of(path):
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(str(path), "rb") as file:
        while part := file.read(HASHED_AT_ONCE):
            digest.update(part)
    return digest.hexdigest()


def fingerprint(tokenizer):
    """Return a fingerprint of a tokenizer's vocabulary."""
    entries = "\0".join(tokenizer.vocabulary)
    return hashlib.sha256(entries.encode("utf-8", "surrogatepass")).hexdigest()


OFF = tf.data.experimental.AutoShardPolicy.OFF


def own(dataset):
    """Mark a dataset as this worker's own part, which `tf.distribute` must not shard; return it."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = OFF
    return dataset.with_options(options)


def is_own(dataset):
    """Whether a dataset, or one that it was made from, is marked as this worker's own part."""
    return dataset.options().experimental_distribute.auto_shard_policy == OFF
