"""Windows of tokens on disk: tokenized once, read in every epoch and every run.

A folder holds `tokens-00000-of-00004.tfrecord`, …, each record a `tf.train.Example` with the
feature `token_ids`, (S + 1,) for S tokens to predict, and `tokens.json`, on how they were made.
"""

import hashlib
import json
from pathlib import Path

import tensorflow as tf

from keras_lm import files
from keras_lm.data.packed_windows import token_windows
from keras_lm.elements import elements

FORMAT_VERSION = 1
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
    if num_shards < 1:
        raise ValueError(f"num_shards={num_shards}: pass 1 or more.")
    folder = Path(folder).expanduser()
    files.require_free(folder, "holds no tokens", marker=INDEX)
    windows = token_windows(documents, tokenizer, sequence_length)
    with files.replacing(folder) as new:
        new.mkdir()
        names = [f"tokens-{i:05d}-of-{num_shards:05d}.tfrecord" for i in range(num_shards)]
        counts = _write(windows, [str(new / name) for name in names])
        if not counts[-1]:
            raise ValueError(
                f"The documents fill {sum(counts)} windows of {sequence_length} tokens; each of "
                f"{num_shards} shards needs one: give more text, or lower sequence_length or "
                "num_shards."
            )
        index = {
            "format_version": FORMAT_VERSION,
            "sequence_length": sequence_length,
            "vocabulary_size": tokenizer.vocabulary_size,
            "vocabulary_sha256": _fingerprint(tokenizer),
            "shards": [
                {"name": name, "windows": count, "bytes": (new / name).stat().st_size}
                for name, count in zip(names, counts, strict=True)
            ],
        }
        (new / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return sum(counts)


def read_token_shards(folder, tokenizer=None, worker=0, num_workers=1):
    """Return the windows of `write_token_shards`: a dataset of known length, in a fixed order.

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
            f"{folder} has no {INDEX}: it is not a folder that write_token_shards wrote."
        )
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    if index.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"{folder / INDEX} has format_version={index.get('format_version')}, and this keras_lm "
            f"reads {FORMAT_VERSION}: write the tokens anew."
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
    feature = {"token_ids": tf.io.FixedLenFeature([index["sequence_length"] + 1], tf.int64)}

    def parse(record):
        return tf.cast(tf.io.parse_single_example(record, feature)["token_ids"], tf.int32)

    records = tf.data.TFRecordDataset([str(folder / shard["name"]) for shard in index["shards"]])
    records = records.take(each * num_workers).shard(num_workers, worker)
    records = records.apply(tf.data.experimental.assert_cardinality(each))
    return records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)


def _write(windows, paths):
    """Return how many windows went into each of the files."""
    counts = [0] * len(paths)
    writers = [tf.io.TFRecordWriter(path) for path in paths]
    for number, window in enumerate(elements(windows)):
        values = tf.train.Feature(int64_list=tf.train.Int64List(value=window.numpy()))
        example = tf.train.Example(features=tf.train.Features(feature={"token_ids": values}))
        writers[number % len(writers)].write(example.SerializeToString())
        counts[number % len(writers)] += 1
    for writer in writers:
        writer.close()
    return counts


def _fingerprint(tokenizer):
    entries = "\0".join(tokenizer.vocabulary)
    return hashlib.sha256(entries.encode("utf-8", "surrogatepass")).hexdigest()
