"""What a pipeline keeps on the disk in place of the runner's memory."""

import collections
import random

import pytest

pytest.importorskip("apache_beam", reason="needs: pip install keras-lm[beam]")

from keras_lm import pipelines
from keras_lm.models import BertBackbone
from keras_lm.pipelines import kept_files, prepared_shards
from keras_lm.pipelines.kept_files import RANGES, BucketWriter, FindRepeats, read_documents
from keras_lm.tokenizers import WordPieceTokenizer


def test_repeats_are_those_of_groups_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_files, "RECORDS_AT_ONCE", 100)
    digests = [random.randbytes(16) for _ in range(40)]
    digests += [bytes(16), b"\xff" * 16, b"\0" * 15 + b"a"]
    groups = collections.defaultdict(list)
    writer = BucketWriter(tmp_path)
    for _ in range(3):  # equal documents share all of their buckets
        for digest in digests:
            own = random.Random(digest)
            own_buckets = [bytes([band]) + bytes([own.randrange(9)]) * 8 for band in range(20)]
            writer.add(own_buckets, digest)
            for bucket in own_buckets:
                groups[bucket].append(digest)
    writer.flush()
    assert len(writer.names) > 5
    expected = {digest for group in groups.items() for digest in prepared_shards._repeats(group)}
    process = FindRepeats(tmp_path).process
    by_range = [[*process(number, writer.names)] for number in range(RANGES)]
    assert {digest for each in by_range for digest in each} == expected
    assert all(len(set(each)) == len(each) for each in by_range)
    assert [*process(0, [])] == []


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
