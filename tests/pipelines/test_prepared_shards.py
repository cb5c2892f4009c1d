"""Corpora by Apache Beam: the rows of the direct path, without duplicates, whatever happens."""

import errno
import json
import os
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import data
from keras_lm.models import BertBackbone
from keras_lm.tokenizers import BytePairTokenizer, WordPieceTokenizer
from keras_lm.tokenizers.sentence_piece_model import BYTES
from keras_lm.utils.folder_lock import HOLDER, take

pytest.importorskip("apache_beam", reason="needs: pip install keras-lm[beam]")

from keras_lm import pipelines
from keras_lm.data import shards
from keras_lm.pipelines import beam_files, corpus_parts, prepared_shards

WORDS = ["the", "film", "song", "was", "is", "good", "bad", "loud"]
END = "<|endoftext|>"


def sentence():
    return " ".join(random.choices(WORDS, k=random.randint(3, 9)))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Two files of documents of a few sentences, blank lines between them."""
    folder = tmp_path_factory.mktemp("corpus")
    for name in ("one.txt", "two.txt"):
        blocks = ["\n".join(sentence() for _ in range(4)) for _ in range(30)]
        (folder / name).write_text("\n\n".join(blocks))
    return folder / "*.txt"


@pytest.fixture
def tokenizer():
    return WordPieceTokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], lowercase=True
    )


@pytest.fixture
def prepare(corpus, tokenizer, tmp_path):
    """`prepare(name, …)` returns the index and the files of a folder of shards."""

    def prepare(name="shards", files=corpus, template=BertBackbone.TEMPLATE, **options):
        options = {"document": "block", "num_shards": 2, **options}
        if template is not None:
            options = {"form": "segment_pairs", **options}
        index = pipelines.prepare_shards(files, tokenizer, 24, tmp_path / name, template, **options)
        return index, {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    return prepare


@pytest.fixture
def bytes_as_tokens(monkeypatch):
    """Rows are the documents' bytes, cut up, where it matters which documents are in which shard.

    To trace how documents are tokenized and packed takes most of the time of other runs.
    """

    def rows(self, documents, number):
        text = "\n".join(tf.compat.as_text(document) for document in documents)
        tokens = np.frombuffer(text.encode(), "uint8").astype("int32")
        length = self.sequence_length + (self.template is None)
        windows = tokens[: len(tokens) // length * length].reshape(-1, length)
        results = windows if self.template is None else {"token_ids": windows}
        return tf.data.Dataset.from_tensor_slices(results)

    monkeypatch.setattr(prepared_shards.Packing, "rows", rows)


def rows(dataset):
    results = dataset.as_numpy_iterator()
    return sorted(str([row[name].tolist() for name in sorted(row)]) for row in results)


def test_rows_are_those_of_the_direct_path(prepare, corpus, tokenizer, tmp_path):
    """Rows within documents do not depend on the order of the documents."""
    index, files = prepare(form="doc_sentences", duplicates="keep", num_shards=1)
    documents = data.read_documents(str(corpus), "block")
    data.write_row_shards(
        documents,
        tokenizer,
        BertBackbone.TEMPLATE,
        24,
        tmp_path / "direct",
        num_shards=1,
        form="doc_sentences",
    )
    actual, expected = (
        data.read_token_shards(tmp_path / name, tokenizer) for name in ("shards", "direct")
    )
    assert rows(actual) == rows(expected)
    assert index["prepared"]["documents"] == {
        "read": 60,
        "exact duplicates": 0,
        "near duplicates": 0,
    }
    assert sorted(files) == ["tokens-00000-of-00001.tfrecord", "tokens.json"]
    # One format: the direct writer's index says the same of itself, and has the same keys.
    direct = data.read_token_index(tmp_path / "direct")
    assert index.pop("prepared")["bytes"] > 0
    assert {**direct, "shards": None} == {**index, "shards": None}
    assert [shard.keys() for shard in direct["shards"]] == [s.keys() for s in index["shards"]]


@pytest.mark.slow
def test_the_same_bytes_wherever_files_are_cut(prepare, bytes_as_tokens, monkeypatch):
    whole = prepare("whole", duplicates="exact")[1]
    monkeypatch.setattr(corpus_parts.cut_into_parts, "__defaults__", (100,))
    assert prepare("parts", duplicates="exact")[1] == whole


@pytest.mark.slow
def test_the_same_bytes_by_the_same_seed(prepare):
    options = {"num_shards": 1, "duplicates": "exact", "form": "doc_sentences"}
    options["short_share"] = 0.5  # which rows are short is drawn
    runs = [prepare(str(i), seed=seed, **options)[1] for i, seed in enumerate((0, 0, 1))]
    name = "tokens-00000-of-00001.tfrecord"
    assert runs[0] == runs[1]
    assert runs[0][name] != runs[2][name]


@pytest.mark.slow
def test_windows_for_causal_models(corpus, tmp_path):
    tokenizer = BytePairTokenizer([END, *BYTES.values()], [], bos_token=END, eos_token=END)
    index = pipelines.prepare_shards(corpus, tokenizer, 16, tmp_path / "shards", num_shards=1)
    assert index["format_version"] == 1
    windows = list(data.read_token_shards(tmp_path / "shards", tokenizer).as_numpy_iterator())
    assert len(windows) == sum(shard["windows"] for shard in index["shards"])
    tokens = " ".join(str(token) for window in windows for token in window[1:])
    actual = set(tokens.split(f" {tokenizer.special_id('eos')} ")[1:-1])
    lines = {line for path in corpus.parent.iterdir() for line in path.read_text().splitlines()}
    lines = tokenizer(sorted(lines - {""})).to_list()
    expected = {" ".join(map(str, line)) for line in lines}
    # A document is cut where a shard ends.
    assert len(actual - expected) <= 1 and len(actual) >= len(expected) - 4


def test_as_many_shards_as_the_files_are_large(prepare, corpus, bytes_as_tokens, monkeypatch):
    size = sum(path.stat().st_size for path in corpus.parent.glob(corpus.name))
    monkeypatch.setattr(prepared_shards, "SHARD_BYTES", size // 9)  # with a rest
    index, files = prepare(num_shards=None, form="doc_sentences")
    assert len(index["shards"]) == len(files) - 1 == 10


def test_documents_that_fill_no_window(corpus, tokenizer, bytes_as_tokens, tmp_path):
    with pytest.raises(ValueError, match=r"no window of 9999 tokens .* lower sequence_length"):
        pipelines.prepare_shards(corpus, tokenizer, 9999, tmp_path / "new", num_shards=1)
    assert not (tmp_path / "new.unfinished").exists()


@pytest.mark.slow
def test_duplicates_are_left_out(prepare, bytes_as_tokens, tmp_path):
    words = [f"word{i}" for i in range(200)]
    long = " ".join(words)
    near = " ".join([*words[:150], "other", *words[151:]])
    (tmp_path / "texts.txt").write_text("\n".join([long, "a short one", near, long, "a short 1"]))
    options = {"files": tmp_path / "texts.txt", "document": "line", "form": "single"}
    counts = {
        duplicates: prepare(duplicates, duplicates=duplicates, **options)[0]["prepared"][
            "documents"
        ]
        for duplicates in ("keep", "exact", "near")
    }
    assert counts["keep"] == {"read": 5, "exact duplicates": 0, "near duplicates": 0}
    assert counts["exact"] == {"read": 5, "exact duplicates": 1, "near duplicates": 0}
    actual = counts["near"]
    assert actual["read"] == 5 and sum(actual.values()) == 5 + 2  # of one or the other kind


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(prepare, bytes_as_tokens, monkeypatch, tmp_path):
    whole = prepare("whole", duplicates="keep")[1]
    write, calls = shards.write_records, []

    def write_some(dataset, paths):
        calls.append(paths)
        if len(calls) == 2:
            with open(paths[0], "wb") as file:
                file.write(b"half")
            raise RuntimeError("killed")
        return write(dataset, paths)

    monkeypatch.setattr(shards, "write_records", write_some)
    with pytest.raises(RuntimeError, match="killed"):
        prepare(duplicates="keep")
    unfinished = tmp_path / "shards.unfinished"
    assert not (tmp_path / "shards").exists()
    assert len(list(unfinished.glob("*.tfrecord"))) == 1
    # What is of another run is neither kept nor in the way.
    (unfinished / "tokens-00000-of-00009.tfrecord").touch()
    assert prepare(duplicates="keep")[1] == whole
    assert len(calls) == 2 + 1
    assert not unfinished.exists()

    # A shard that was made from other settings is not taken for a finished one.
    shutil.copytree(tmp_path / "shards", unfinished)
    name = "tokens-00000-of-00002.tfrecord"
    note = {"digest": "another", "shard": {}, "documents": {}}
    (unfinished / f"{name}{beam_files.NOTE}").write_text(json.dumps(note))
    assert prepare(duplicates="keep", overwrite=True)[1] == whole


def test_a_form_that_there_is_not(prepare, tmp_path):
    with pytest.raises(ValueError, match="form='pairs'"):
        prepare("new", form="pairs")
    assert not list(tmp_path.iterdir())


def test_mistakes_are_sentences_and_leave_nothing(prepare, corpus, bytes_as_tokens, tmp_path):
    def fail(error, match, files=corpus, **options):
        with pytest.raises(error, match=match):
            prepare("new", files, **options)

    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"good\nb\xffad\n")
    fail(ValueError, r"^[^⟦]*bad\.txt, line 2: not UTF-8 .*Save the file as UTF-8", [corpus, bad])
    blank = tmp_path / "blank.txt"
    blank.write_text("\n \n")
    fail(ValueError, "have no documents", blank)
    fail(FileNotFoundError, "no such file", tmp_path / "gone*.txt")
    fail(ValueError, "duplicates='all'", duplicates="all")
    fail(ValueError, "sentences='words'", sentences="words")
    fail(ValueError, "num_shards=0", num_shards=0)
    fail(ValueError, "no option --processes", flags=["--processes=2"])
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("precious")
    with pytest.raises(FileExistsError, match=r"has no tokens\.json"):
        prepare("mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "bad.txt", "blank.txt", "mine",
    ]  # fmt: skip


@pytest.mark.thorough  # as tests/cli/test_prepare.py does
def test_one_process_and_several_write_the_same(prepare):
    one = prepare("one")[1]
    flags = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    assert prepare("two", flags=flags)[1] == one


@pytest.mark.slow
def test_one_process_at_a_time(prepare, tmp_path):
    lock = take(tmp_path / "new.unfinished")
    with pytest.raises(FileExistsError, match=rf"new\.unfinished is .* by process {os.getpid()}"):
        prepare("new")
    os.close(lock)
    _, content = prepare("new")
    assert HOLDER not in content
    assert not (tmp_path / "new.unfinished").exists()


@pytest.mark.slow
def test_a_full_disk_is_named_and_leaves_the_folder_to_others(prepare, monkeypatch, tmp_path):
    def full(*_):
        raise tf.errors.ResourceExhaustedError(None, None, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("keras_lm.data.shards.write_records", full)
        with pytest.raises(OSError, match=r"The disk is full.*new\.unfinished") as error:
            prepare("new")
        assert error.value.errno == errno.ENOSPC
    prepare("new")


def test_ctrl_c_in_a_worker(prepare, monkeypatch, tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("keras_lm.data.shards.write_records", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare("new")
    assert not list(tmp_path.iterdir())
