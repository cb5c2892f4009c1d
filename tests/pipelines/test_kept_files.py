"""What a pipeline keeps on the disk in place of the runner's memory."""

import collections
import gc
import random

import pytest
import tensorflow as tf

pytest.importorskip("apache_beam", reason="needs: pip install keras-lm[beam]")

from keras_lm import pipelines
from keras_lm.models import BertBackbone
from keras_lm.pipelines import kept_files, prepared_shards
from keras_lm.pipelines.corpus_parts import Part
from keras_lm.pipelines.kept_files import (
    BUCKET,
    RANGES,
    REPEAT,
    FindRepeats,
    GatherShard,
    RecordWriter,
    by_range,
    read_documents,
    read_records,
    shard_of,
)
from keras_lm.tokenizers import WordPieceTokenizer


def test_repeats_are_those_of_groups_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_files, "RECORDS_AT_ONCE", 100)
    digests = [random.randbytes(16) for _ in range(40)]
    digests += [bytes(16), b"\xff" * 16, b"\0" * 15 + b"a"]
    groups = collections.defaultdict(list)
    writer = RecordWriter(tmp_path, BUCKET, by_range())
    for _ in range(3):  # equal documents share all of their buckets
        for digest in digests:
            own = random.Random(digest)
            own_buckets = [bytes([band]) + bytes([own.randrange(9)]) * 8 for band in range(20)]
            writer.add(b"".join(bucket + digest for bucket in own_buckets))
            for bucket in own_buckets:
                groups[bucket].append(digest)
    writer.flush()
    assert len(writer.names) > 5
    expected = {digest for group in groups.items() for digest in prepared_shards._repeats(group)}
    process = FindRepeats(tmp_path, 3).process
    by_names = [[*process(number, writer.names)] for number in range(RANGES)]
    assert [*process(0, [])] == []
    seen = []
    for names in by_names:
        for shard in range(3):
            records = [read_records(tmp_path / name, REPEAT, 3, shard) for name in names]
            digests = [row.tobytes() for of_file in records for row in of_file]
            assert all(shard_of(digest, 3) == shard for digest in digests)
            assert len(set(digests)) == len(digests)
            seen += digests
    assert set(seen) == expected


def test_only_names_pass_between_steps(tmp_path, monkeypatch):
    """However many documents there are: else the runner would have each in memory."""
    monkeypatch.setattr(kept_files, "RECORDS_AT_ONCE", 1000)
    texts = [f"the film number {number} was good" for number in range(300)]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    read = prepared_shards.ReadHashed("line", 7, True, 4, str(tmp_path))
    passed = [*read.process(Part(str(tmp_path / "texts.txt")))]
    buckets = [each.value for each in passed if hasattr(each, "tag")]
    places = [each for each in passed if not hasattr(each, "tag")]
    assert len(places) == 1 and len(buckets) == 300 * 20 // 1000
    names = [
        name
        for number in range(RANGES)
        for name in FindRepeats(tmp_path, 4).process(number, buckets)
    ]
    assert len(names) <= RANGES
    seen = []
    for shard in range(4):
        ((number, groups),) = GatherShard(tmp_path, 4).process(shard, places, names)
        assert number == shard
        assert all(shard_of(digest, 4) == shard for digest, _ in groups["texts"])
        assert all(shard_of(digest, 4) == shard for digest in groups["repeats"])
        seen += read_documents(tmp_path, [place for _, place in groups["texts"]])
    assert sorted(seen) == sorted(text.encode() for text in texts)


def test_documents_are_read_in_the_order_asked_for(tmp_path):
    (tmp_path / "a").write_bytes(b"onetwothree")
    (tmp_path / "b").write_bytes(b"four")
    places = [("b", 0, 4), ("a", 6, 5), ("a", 0, 3), ("b", 4, 0)]
    assert read_documents(tmp_path, places) == [b"four", b"three", b"one", b""]


@pytest.mark.slow
def test_shards_are_the_same_without_them(tmp_path, monkeypatch):
    words = ["the", "film", "song", "was", "is", "good", "bad", "loud"]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokenizer = WordPieceTokenizer(vocabulary, lowercase=True)
    texts = [" ".join(random.choices(words, k=12)) for _ in range(60)]
    texts += texts[:9] + [f"{text} {text} {text} loud" for text in texts[:9] for _ in range(2)]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    files, counts = [], []
    for kept in (True, False):
        monkeypatch.setattr(prepared_shards, "is_direct", lambda flags, kept=kept: kept)
        folder = tmp_path / str(kept)
        options = {"num_shards": 2, "form": "single"}
        index = pipelines.prepare_shards(
            tmp_path / "texts.txt", tokenizer, 16, folder, BertBackbone.TEMPLATE, **options
        )
        files.append({path.name: path.read_bytes() for path in folder.iterdir()})
        counts.append(index["prepared"]["documents"])
    assert files[0] == files[1] and len(files[0]) == 3
    assert counts[0] == counts[1]
    assert counts[0]["near duplicates"]


@pytest.mark.slow
def test_no_dataset_outlives_its_shard(tmp_path):
    """TensorFlow would keep the texts of each until the end of the process."""
    words = [f"w{number}" for number in range(50)]
    tokenizer = WordPieceTokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words], lowercase=True
    )
    texts = [" ".join(random.choices(words, k=12)) for _ in range(400)]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    alive = []
    for number in (2, 12):
        folder = tmp_path / str(number)
        pipelines.prepare_shards(
            tmp_path / "texts.txt", tokenizer, 16, folder, BertBackbone.TEMPLATE, num_shards=number
        )
        gc.collect()
        alive.append(sum(isinstance(each, tf.data.Dataset) for each in gc.get_objects()))
    assert alive[1] == alive[0]
