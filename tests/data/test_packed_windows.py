"""Documents, windows and their order."""

import gzip
import itertools
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import data
from keras_lm.objectives import IGNORED
from keras_lm.tokenizers import BytePairTokenizer
from keras_lm.tokenizers.sentence_piece_model import BYTES

TEXTS = ["ab ba", "", "aab", "b\xe9!", "a" * 50, "b"] * 3
S = 7


@pytest.fixture(scope="module")
def tokenizer():
    end = "<|endoftext|>"
    return BytePairTokenizer([end, *BYTES.values(), "ab"], ["a b"], bos_token=end, eos_token=end)


@pytest.fixture(scope="module")
def tokens(tokenizer):
    """The whole corpus: an end-of-document token before the first, and after each."""
    results = [0]
    for text in TEXTS:
        results += [*tokenizer(text).numpy().tolist(), 0]
    return results


def lists(dataset):
    return [np.asarray(element).tolist() for element in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(
    "form",
    ["dataset", *(pytest.param(form, marks=pytest.mark.eager) for form in ("list", "batches"))],
)
def test_windows_hold_the_corpus_and_no_padding(tokenizer, tokens, form):
    documents = TEXTS
    if form != "list":
        documents = tf.data.Dataset.from_tensor_slices(TEXTS)
        documents = documents.batch(4) if form == "batches" else documents
    windows = lists(data.token_windows(documents, tokenizer, S))
    number = (len(tokens) - 1) // S
    assert windows == [tokens[i * S : i * S + S + 1] for i in range(number)]


@pytest.mark.eager
def test_rest_is_kept_on_request(tokenizer, tokens):
    windows = lists(data.token_windows(TEXTS, tokenizer, 1000, drop_remainder=False))
    assert windows == [tokens]
    assert not lists(data.token_windows(TEXTS, tokenizer, 1000))


@pytest.mark.eager
def test_windows_of_one_token(tokenizer, tokens):
    assert lists(data.token_windows(TEXTS, tokenizer, 1)) == [
        [*pair] for pair in itertools.pairwise(tokens)
    ]


def test_batches_pad_only_what_is_too_short(tokenizer, tokens):
    rest = (len(tokens) - 1) % S
    assert rest  # or the test shows nothing
    windows = data.token_windows(TEXTS, tokenizer, S, drop_remainder=False)
    read, predicted = [], []
    for inputs, labels in data.window_batches(windows, 4).as_numpy_iterator():
        mask = inputs["padding_mask"]
        assert (mask == (labels != IGNORED)).all()
        assert ((mask == 0).sum(axis=1)[:-1] == 0).all()  # only the last row is short
        assert (inputs["token_ids"][mask == 0] == 0).all()
        read += inputs["token_ids"][mask == 1].tolist()
        predicted += labels[mask == 1].tolist()
    assert read == tokens[:-1]
    assert predicted == tokens[1:]


@pytest.mark.eager
def test_order_of_an_epoch_follows_from_seed_and_number(tokenizer):
    everything = lists(data.token_windows(TEXTS, tokenizer, S))
    windows = tf.data.Dataset.from_tensor_slices(np.array(everything, "int32"))
    number = len(everything)

    def order(seed, epoch, skip=0):
        batches = data.epoch_batches(windows, 3, seed, epoch).skip(skip)
        return [labels.tolist() for _, labels in batches.as_numpy_iterator()]

    tf.random.set_seed(1)
    first = order(0, 0)
    tf.random.set_seed(2)  # what others do with the global seed changes nothing
    assert order(0, 0) == first
    assert order(0, 0, skip=2) == first[2:]
    assert len({str(order(*which)) for which in [(0, 0), (0, 1), (1, 0), (1, 1)]}) == 4
    assert len(first) == number // 3
    everything = [window[1:] for window in everything]
    assert all(row in everything for batch in first for row in batch)
    rows = [tuple(row) for batch in order(2**40, 3) for row in batch]
    expected = [tuple(row) for row in everything]
    assert all(rows.count(row) <= expected.count(row) for row in rows)  # none twice


@pytest.mark.eager
def test_blocks_are_shuffled_apart(tokenizer, monkeypatch):
    monkeypatch.setattr("keras_lm.data.packed_windows.SHUFFLED_TOGETHER", 4)
    windows = tf.data.Dataset.range(12, output_type=tf.int32).map(lambda i: tf.fill([3], i))
    batches = data.epoch_batches(windows, 4, seed=5)
    results = [labels[:, 0].tolist() for _, labels in batches.as_numpy_iterator()]
    assert [sorted(block) for block in results] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert len({tuple(np.array(block) % 4) for block in results}) > 1  # each in an order of its own


def test_documents_of_files(tmp_path):
    (tmp_path / "b.txt").write_bytes("ä\r\n\n  \nlast".encode())
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    patterns = [tmp_path / "b.txt", f"{tmp_path}/**/*.txt*"]
    read = data.read_documents(patterns)
    assert lists(read) == ["ä".encode(), b"last", b"one", b"two"]
    whole = data.read_documents(patterns, document="file")
    assert lists(whole) == ["ä\r\n\n  \nlast".encode(), b"one\ntwo\n"]
    with pytest.raises(FileNotFoundError, match=r"nothing\*"):
        data.read_documents([patterns[0], f"{tmp_path}/nothing*"])
    with pytest.raises(ValueError, match="document='page'"):
        data.read_documents(patterns, document="page")


@pytest.mark.parametrize("document", ["line", "block", "file"])
def test_documents_without_end(tmp_path, monkeypatch, document):
    monkeypatch.setattr("keras_lm.utils.input_files.LONGEST_LINE", 1000)
    monkeypatch.setattr("keras_lm.data.documents.LARGEST_DOCUMENT", 1500)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress((b"x" * 900 + b"\n") * 2))
    where = {
        "line": "line 4: longer",
        "block": "line 2: the block is longer",
        "file": "has more than",
    }
    if document == "line":
        assert lists(data.read_documents(path)) == [b"x" * 900] * 2
        path.write_bytes(gzip.compress((b"x" * 900 + b"\r\n") * 3 + b"x" * 1001))
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"a\.txt\.gz.*{where[document]}"):
        lists(data.read_documents(path, document))


@pytest.mark.parametrize("document", ["line", "block", "file"])
@pytest.mark.parametrize("suffix", ["txt", "txt.gz"])
def test_the_encoding_of_documents(tmp_path, document, suffix):
    """A byte order mark was part of the first text, other bytes became U+FFFD at the tokenizer."""
    path, other = (tmp_path / f"{name}.{suffix}" for name in "ab")

    def texts(content):
        for each in (path, other):
            each.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
        return lists(data.read_documents([path, other], document))

    mark = b"\xef\xbb\xbf"
    assert texts(mark + "ä中".encode()) == ["ä中".encode()] * 2
    assert texts(b"a" + mark) == [b"a" + mark] * 2  # elsewhere it is a letter
    assert texts(mark) == ([b""] * 2 if document == "file" else [])
    for bad in (b"caf\xe9", b"\xed\xa0\x80", "中".encode()[:2]):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=rf"a\.{suffix}, line 4: not UTF-8"
        ):
            texts(mark + b"a\n\n\r\n" + bad + b"\nb\n")
    if suffix == "txt.gz":
        path.write_bytes(gzip.compress(b"one\n" * 99)[:-9])
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"a\.txt\.gz cannot be unpacked"):
            lists(data.read_documents(path, document))


def test_carriage_returns_within_lines(tmp_path):
    """They separate words; without them two words were one."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\rb\r\nc\r\r\n\r\n")
    assert lists(data.read_documents(path)) == [b"a\rb", b"c"]


@pytest.mark.eager
def test_bad_arguments(tokenizer):
    with pytest.raises(ValueError, match="sequence_length=0"):
        data.token_windows(TEXTS, tokenizer, 0)
    with pytest.raises(ValueError, match="list of strings"):
        data.token_windows("one text", tokenizer, S)
    with pytest.raises(ValueError, match="must yield strings"):
        data.token_windows(tf.data.Dataset.range(3), tokenizer, S)
    with pytest.raises(ValueError, match="batch_size=0"):
        data.epoch_batches(data.token_windows(TEXTS, tokenizer, S), 0)
    without = BytePairTokenizer([*BYTES.values()], [])
    with pytest.raises(ValueError, match="eos"):
        data.token_windows(TEXTS, without, S)


# === Shards ===


@pytest.fixture(scope="module")
def written(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written") / "tokens"
    return folder, data.write_token_shards(TEXTS, tokenizer, S, folder, num_shards=3)


@pytest.fixture
def shards(written, tmp_path):
    """A folder of them to change, and the number of windows in it."""
    folder, number = written
    return pathlib.Path(shutil.copytree(folder, tmp_path / "tokens")), number


def test_shards_hold_each_window_once(tokenizer, shards):
    folder, number = shards
    windows = lists(data.token_windows(TEXTS, tokenizer, S))
    read = data.read_token_shards(folder, tokenizer)
    assert int(read.cardinality()) == number == len(windows)
    assert read.element_spec == tf.TensorSpec([S + 1], tf.int32)
    assert lists(read) == windows[0::3] + windows[1::3] + windows[2::3]
    assert int(data.epoch_batches(read, 4).cardinality()) == number // 4
    names = sorted(path.name for path in folder.iterdir())
    assert names[:2] == ["tokens-00000-of-00003.tfrecord", "tokens-00001-of-00003.tfrecord"]
    # As folders have been written before there were rows.
    index = json.loads((folder / "tokens.json").read_text())
    assert index.pop("format_version") == 1
    about = {"sequence_length", "vocabulary_size", "vocabulary_sha256", "shards"}
    assert index.keys() == about | {"checksum of this file"}


@pytest.mark.eager
def test_workers_share_the_windows(tokenizer, shards):
    folder, number = shards
    everything = lists(data.read_token_shards(folder))

    def part(worker, workers):
        return lists(data.read_token_shards(folder, worker=worker, num_workers=workers))

    for workers in (2, 4, 5):
        parts = [part(i, workers) for i in range(workers)]
        assert {len(part) for part in parts} <= {number // workers, number // workers + 1}
        assert [w for part in parts for w in part] == everything
    for i in (0, number // 2, number - 1):  # a window each
        assert part(i, number) == [everything[i]]
    with pytest.raises(ValueError, match="worker=4"):
        data.read_token_shards(folder, worker=4, num_workers=4)
    with pytest.raises(ValueError, match="num_workers=999"):
        data.read_token_shards(folder, worker=0, num_workers=999)


@pytest.mark.eager
def test_a_worker_reads_no_more_shards_than_it_needs(tokenizer, shards):
    folder, _ = shards
    shard = folder / "tokens-00002-of-00003.tfrecord"
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    assert data.read_token_shards(folder, worker=0, num_workers=4)
    with pytest.raises(ValueError, match=r"00002-of-00003\.tfrecord has changed since"):
        data.read_token_shards(folder, worker=3, num_workers=4)
    assert data.read_token_shards(folder, verify=False)


@pytest.mark.eager
def test_writing_replaces_shards_and_nothing_else(tokenizer, shards, tmp_path):
    folder, number = shards
    assert data.write_token_shards(TEXTS * 2, tokenizer, S, str(folder)) > number
    assert len(list(folder.iterdir())) == 2
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("precious")
    with pytest.raises(FileExistsError, match="holds no tokens"):
        data.write_token_shards(TEXTS, tokenizer, S, mine)
    with pytest.raises(ValueError, match="num_shards=0"):
        data.write_token_shards(TEXTS, tokenizer, S, tmp_path / "new", num_shards=0)
    with pytest.raises(ValueError, match=r"fill 0 windows of 9999 tokens.*2 shards"):
        data.write_token_shards(TEXTS, tokenizer, 9999, tmp_path / "new", num_shards=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "tokens"]


@pytest.mark.eager
def test_damage_is_found_before_training(tokenizer, shards):
    folder, _ = shards
    other = BytePairTokenizer(["<|endoftext|>", *BYTES.values()], [], eos_token="<|endoftext|>")
    with pytest.raises(ValueError, match=r"another vocabulary, of 258 entries .*has 257"):
        data.read_token_shards(folder, other)
    shard = folder / "tokens-00001-of-00003.tfrecord"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"00001-of-00003\.tfrecord has .* copy it again"):
        data.read_token_shards(folder)
    shard.unlink()
    with pytest.raises(FileNotFoundError, match=r"00001-of-00003\.tfrecord is missing"):
        data.read_token_shards(folder)
    with pytest.raises(FileNotFoundError, match=r"has no tokens\.json"):
        data.read_token_shards(folder.parent)


def edit_index(folder, **changes):
    index = json.loads((folder / "tokens.json").read_text())
    del index["checksum of this file"]  # as whoever means harm would, and as older ones are
    shard = {name: changes.pop(name) for name in ("name", "windows", "bytes") if name in changes}
    index["shards"][0] |= shard
    (folder / "tokens.json").write_text(json.dumps(index | changes))


@pytest.mark.eager
@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../tokens/tokens-00000-of-00003.tfrecord"},
        {"name": "/etc/passwd"},
        {"name": "..\\x"},
        {"name": None},
        {"windows": 10**15},
        {"windows": "5"},
        {"bytes": None},
        {"columns": {"token_ids": [10**12]}},
        {"columns": {"token_ids": [-1]}},
        {"columns": {}},
        {"columns": ["token_ids"]},
        {"shards": None},
        {"shards": ["x"]},
        {"sequence_length": "x"},
        {"vocabulary_sha256": None},
    ],
)
def test_an_index_that_cannot_be(shards, changes):
    folder, _ = shards
    edit_index(folder, **changes)
    with pytest.raises(ValueError, match=r"tokens\.json is damaged: .*opy the whole folder again"):
        data.read_token_shards(folder)


@pytest.mark.eager
@pytest.mark.parametrize("content", ["[]", "null", "[" * 100_000, '{"format_version": 1,'])
def test_an_index_that_is_none(shards, content):
    folder, _ = shards
    (folder / "tokens.json").write_text(content)
    with pytest.raises(ValueError, match=r"tokens\.json is damaged"):
        data.read_token_shards(folder)


@pytest.mark.parametrize("token", [-3, 257, 2**40])
def test_tokens_of_no_vocabulary(tokenizer, shards, token):
    folder, _ = shards
    size = tokenizer.vocabulary_size
    path = folder / "tokens-00000-of-00003.tfrecord"
    ids = tf.train.Feature(int64_list=tf.train.Int64List(value=[token] * (S + 1)))
    example = tf.train.Example(features=tf.train.Features(feature={"token_ids": ids}))
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(example.SerializeToString())
    edit_index(folder, windows=1, bytes=path.stat().st_size, vocabulary_size=min(size, 257))
    windows = data.read_token_shards(folder, verify=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="has a token id outside of 0 to 256"):
        lists(windows)
