"""Windows and rows of tokens on disk: tokenized once, read in every epoch and every run.

A folder holds `tokens-00000-of-00004.tfrecord`, …, each record a `tf.train.Example`, and
`tokens.json`, on how they were made. A window (format 1) has the feature `token_ids`, (S + 1,) for
S tokens to predict; a row (format 2) has those that `columns` lists with their shapes.
"""

import dataclasses
import hashlib
import inspect
import itertools
import json
from pathlib import Path

import numpy as np
import tensorflow as tf

from keras_lm import files
from keras_lm.data.packed_windows import token_windows
from keras_lm.data.pretraining_rows import pretraining_rows
from keras_lm.elements import elements

FORMAT_VERSIONS = (1, 2)
INDEX = "tokens.json"


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
    index = {"format_version": 1, "sequence_length": sequence_length}
    return _write(windows, tokenizer, folder, num_shards, index)


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
    defaults = inspect.signature(pretraining_rows).parameters.values()
    defaults = {each.name: each.default for each in defaults if each.default is not each.empty}
    index = {
        "format_version": 2,
        "sequence_length": sequence_length,
        "columns": {name: spec.shape.as_list() for name, spec in rows.element_spec.items()},
        "template": dataclasses.asdict(template),
        "settings": defaults | settings,
    }
    return _write(rows, tokenizer, folder, num_shards, index)


def read_token_shards(folder, tokenizer=None, worker=0, num_workers=1):
    """Return written windows or rows: a dataset of known length, in a fixed order.

    Args:
        folder: path.
        tokenizer: `Tokenizer` that must have made the tokens; None for any.
        worker, num_workers: int. Which worker reads, from 0; each has as many windows of its own.

    Raises:
        FileNotFoundError: if there are no shards, or one is missing.
        ValueError: if a shard is damaged, the tokens are of another vocabulary, or there are fewer
            windows than workers.

    Example:

        windows = keras_lm.data.read_token_shards("tokens", tokenizer)
        task.fit(keras_lm.data.epoch_batches(windows, batch_size=32))
    """
    folder = Path(folder).expanduser()
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(
            f"{folder} has no {INDEX}: it is not a folder that write_token_shards or "
            "write_row_shards wrote."
        )
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    if index.get("format_version") not in FORMAT_VERSIONS:
        raise ValueError(
            f"{folder / INDEX} has format_version={index.get('format_version')}, and this keras_lm "
            f"reads {FORMAT_VERSIONS}: write the tokens anew."
        )
    if tokenizer is not None and _fingerprint(tokenizer) != index["vocabulary_sha256"]:
        raise ValueError(
            f"{folder} was written with another vocabulary, of {index['vocabulary_size']} entries "
            f"(the tokenizer has {tokenizer.vocabulary_size}): write the tokens anew."
        )
    for shard in index["shards"]:
        path = folder / shard["name"]
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing: copy the folder again, whole.")
        if path.stat().st_size != shard["bytes"]:
            raise ValueError(
                f"{path} has {path.stat().st_size} bytes and was written with {shard['bytes']}: "
                "copy it again."
            )
    if not 0 <= worker < num_workers:
        raise ValueError(f"worker={worker} is not between 0 and {num_workers - 1}.")
    each = sum(shard["windows"] for shard in index["shards"]) // num_workers
    if not each:
        raise ValueError(f"{folder} has fewer windows than num_workers={num_workers}.")
    columns = index.get("columns", {"token_ids": [index["sequence_length"] + 1]})
    features = {n: tf.io.FixedLenFeature(shape, tf.int64) for n, shape in columns.items()}

    def parse(record):
        row = tf.io.parse_single_example(record, features)
        row = {name: tf.cast(value, tf.int32) for name, value in row.items()}
        return row if "columns" in index else row["token_ids"]

    records = tf.data.TFRecordDataset([str(folder / shard["name"]) for shard in index["shards"]])
    records = records.take(each * num_workers).shard(num_workers, worker)
    records = records.apply(tf.data.experimental.assert_cardinality(each))
    return records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def _write(dataset, tokenizer, folder, num_shards, index):
    """Write windows or rows and the index of a folder, and return how many they are."""
    if num_shards < 1:
        raise ValueError(f"num_shards={num_shards}: pass 1 or more.")
    folder = Path(folder).expanduser()
    files.require_free(folder, "holds no tokens", marker=INDEX)
    with files.replacing(folder) as new:
        new.mkdir()
        names = [f"tokens-{i:05d}-of-{num_shards:05d}.tfrecord" for i in range(num_shards)]
        counts = _write_records(dataset, [str(new / name) for name in names])
        if not counts[-1]:
            raise ValueError(
                f"The documents fill {sum(counts)} windows of {index['sequence_length']} tokens; "
                f"each of {num_shards} shards needs one: give more text, or lower sequence_length "
                "or num_shards."
            )
        index |= {
            "vocabulary_size": tokenizer.vocabulary_size,
            "vocabulary_sha256": _fingerprint(tokenizer),
            "shards": [
                {"name": name, "windows": count, "bytes": (new / name).stat().st_size}
                for name, count in zip(names, counts, strict=True)
            ],
        }
        (new / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return sum(counts)


def _write_records(dataset, paths):
    """Return how many windows or rows went into each of the files."""
    counts = [0] * len(paths)
    writers = [tf.io.TFRecordWriter(path) for path in paths]
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
            writers[shard].write(example.SerializeToString())
            counts[shard] += 1
    for writer in writers:
        writer.close()
    return counts


def _fingerprint(tokenizer):
    entries = "\0".join(tokenizer.vocabulary)
    return hashlib.sha256(entries.encode("utf-8", "surrogatepass")).hexdigest()
