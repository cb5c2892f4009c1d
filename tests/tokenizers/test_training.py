"""Vocabularies learnt from a corpus: the same each time, and ready for everything else."""

import gzip
import subprocess
import sys

import pytest
import tensorflow as tf
from click.testing import CliRunner

from keras_lm import presets
from keras_lm.cli import main
from keras_lm.models import BertBackbone
from keras_lm.tasks import TextClassifier
from keras_lm.tokenizers import Tokenizer, train_vocabulary
from keras_lm.tokenizers.training import KINDS

pytest.importorskip("tokenizers")
pytest.importorskip("sentencepiece")

WORDS = [
    *("the", "film", "was", "good", "bad", "better", "unbelievable", "loud", "louder", "loudest"),
    *("song", "songs", "singer"),
]
ENDS = ("café!", "naïve?", "1994.", "(again)", "twice,")
TEXTS = [
    " ".join([*(WORDS[(i * j + j) % len(WORDS)] for j in range(1, 9)), str(i), ENDS[i % 5]])
    for i in range(80)
]
SIZES = {"wordpiece": 120, "byte_pair": 300, "unigram": 50, "sentencepiece_bpe": 70}


@pytest.fixture(scope="module")
def trained():
    return {kind: train_vocabulary(kind, SIZES[kind], texts=TEXTS) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_learns_the_words_of_the_corpus(trained, kind):
    tokenizer = trained[kind]
    assert tokenizer.vocabulary_size <= SIZES[kind]
    ids = tokenizer(["the film was good"])
    assert ids.row_lengths().numpy()[0] <= len("the film was good")
    assert tokenizer.detokenize(ids).numpy().tolist() == [b"the film was good"]


def test_special_tokens(trained):
    assert trained["wordpiece"].vocabulary[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert trained["byte_pair"].special_tokens["eos"] == "<|endoftext|>"
    assert trained["unigram"].vocabulary[:3] == ["<pad>", "</s>", "<unk>"]
    roles = {"pad": "<p>", "unknown": "<u>", "cls": "<c>", "sep": "<s>", "mask": "<m>"}
    for kind in KINDS:
        tokenizer = train_vocabulary(kind, SIZES[kind], texts=TEXTS, special_tokens=roles)
        assert {r: tokenizer.special_tokens[r] for r in roles} == roles


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_corpus_in_any_form_gives_the_same(trained, kind, tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(TEXTS[:40]) + "\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("\n".join(TEXTS[40:]), encoding="utf-8")
    size, expected = SIZES[kind], trained[kind].vocabulary
    for files in (tmp_path / "*.txt", [tmp_path / "a.txt", str(tmp_path / "b.txt")]):
        assert train_vocabulary(kind, size, files=files).vocabulary == expected
    dataset = tf.data.Dataset.from_tensor_slices(TEXTS)
    for texts in (dataset, dataset.batch(7), (text for text in TEXTS)):
        assert train_vocabulary(kind, size, texts=texts).vocabulary == expected


@pytest.mark.slow
def test_another_process_learns_the_same(trained):
    script = (
        "import sys; from keras_lm.tokenizers import train_vocabulary\n"
        f"for kind, size in {SIZES!r}.items():\n"
        f"    print(ascii(train_vocabulary(kind, size, texts={TEXTS!r}).vocabulary))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:4] == [ascii(trained[kind].vocabulary) for kind in SIZES]


def task_of_new_vocabulary(kind, folder):
    """A tokenizer learnt from the texts, and a task that was saved with it."""
    roles = {"pad": "[PAD]", "unknown": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    tokenizer = train_vocabulary(kind, SIZES[kind], texts=TEXTS, special_tokens=roles)
    presets.save(folder / "vocabulary", None, tokenizer=tokenizer)
    again = Tokenizer.from_preset(folder / "vocabulary")
    backbone = BertBackbone(again.vocabulary_size, 1, 1, 4, 4, max_sequence_length=64)
    task = TextClassifier(backbone, tokenizer=again, num_classes=2)
    task.save_to_preset(folder / "task")
    return tokenizer, TextClassifier.from_preset(folder / "task")


TEXT = "The film: unbelievable songs [SEP] 中"


def row_of_text(tokenizer):
    return [
        tokenizer.special_id("cls"),
        *tokenizer([TEXT]).to_list()[0],
        tokenizer.special_id("sep"),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_from_corpus_to_task(kind, tmp_path):
    tokenizer, task = task_of_new_vocabulary(kind, tmp_path)
    packed = task.preprocess({"text": [TEXT]})
    assert packed["token_ids"].numpy().tolist() == [row_of_text(tokenizer)]


# (The graphs of all kinds of tokenizers are in `test_every_tokenizer.py`.)
@pytest.mark.parametrize(
    "kind", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.thorough) for kind in KINDS[1:])]
)
def test_from_corpus_to_export(kind, tmp_path):
    tokenizer, task = task_of_new_vocabulary(kind, tmp_path)
    loaded = tf.saved_model.load(task.export(tmp_path / "export")).signatures["tokenize"]
    assert loaded(tf.constant([TEXT]))["token_ids"].numpy().tolist() == [row_of_text(tokenizer)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "words"}, "`kind` is 'words'"),
        ({"vocabulary_size": 0}, "`vocabulary_size` is 0"),
        ({"texts": None}, "either `files` or `texts`"),
        ({"files": "x.txt"}, "not both"),
        ({"kind": "byte_pair", "lowercase": True}, "keep the case"),
        ({"texts": ["", " "]}, "corpus is empty"),
        ({"texts": "a text"}, "`texts` is one string"),
        ({"texts": ["a", 1]}, "number 1 is a int"),
        ({"texts": tf.data.Dataset.range(2)}, "number 0 is a int"),
        ({"texts": tf.data.Dataset.from_tensors(("a", "b"))}, "the dataset yields"),
        ({"vocabulary_size": 10}, "give more"),
        ({"kind": "byte_pair", "vocabulary_size": 200}, "256 bytes.*give more"),
        ({"kind": "unigram", "vocabulary_size": 9000}, "does not fit this corpus"),
        ({"kind": "unigram", "vocabulary_size": 5}, "does not fit this corpus"),
        ({"special_tokens": {"pad": "[PAD]"}}, "lacks the role 'unknown'"),
        ({"special_tokens": {"unknown": "[UNK]", "bos": "x"}}, "roles \\['bos'\\]"),
    ],
)
def test_errors(arguments, message):
    arguments = {"kind": "wordpiece", "vocabulary_size": 100, "texts": TEXTS, **arguments}
    with pytest.raises(ValueError, match=message):
        train_vocabulary(**arguments)


def test_compressed_files(trained, tmp_path):
    (tmp_path / "corpus.txt.gz").write_bytes(gzip.compress("\n".join(TEXTS).encode()))
    actual = train_vocabulary("byte_pair", SIZES["byte_pair"], files=tmp_path / "*.gz")
    assert actual.vocabulary == trained["byte_pair"].vocabulary


@pytest.mark.parametrize("kind", KINDS)
def test_the_encoding_of_files(trained, kind, tmp_path):
    """Bytes that are not UTF-8 became U+FFFD, and a byte order mark a piece of the vocabulary."""
    corpus = b"\xef\xbb\xbf" + "\n".join(TEXTS).encode()
    (tmp_path / "corpus.txt").write_bytes(corpus)
    actual = train_vocabulary(kind, SIZES[kind], files=tmp_path / "corpus.txt")
    assert actual.vocabulary == trained[kind].vocabulary
    (tmp_path / "corpus.txt.gz").write_bytes(gzip.compress(corpus + b"\ncaf\xe9\n"))
    with pytest.raises(ValueError, match=rf"gz, line {len(TEXTS) + 1}: not UTF-8"):
        train_vocabulary(kind, SIZES[kind], files=tmp_path / "corpus.txt.gz")
    with pytest.raises(ValueError, match="must hold strings; number 1 is a float"):
        train_vocabulary(kind, SIZES[kind], texts=["a", float("nan")])


def test_no_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt"):
        train_vocabulary("wordpiece", 100, files=tmp_path / "nowhere.txt")


def test_command(tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    output = tmp_path / "vocabulary"
    arguments = [str(tmp_path / "*.txt"), "--size", "120", "--lowercase", "--output", str(output)]
    result = CliRunner().invoke(main, ["vocab", *arguments])
    assert result.exit_code == 0, result.output
    assert "WordPieceTokenizer" in result.output
    tokenizer = Tokenizer.from_preset(output)
    assert tokenizer.lowercase
    assert (output / "assets" / "vocab.txt").read_text().split("\n")[0] == "[PAD]"
    result = CliRunner().invoke(
        main, ["vocab", str(tmp_path / "no.txt"), "--output", str(output / "new")]
    )
    assert result.exit_code != 0
    assert "no.txt" in result.output


def test_lower_case_of_greek():
    texts = ["ΟΔΟΣ ΛΟΓΟΣ", "ΛΟΓΟΣ ΝΟΜΟΣ", "ΝΟΜΟΣ ΟΔΟΣ"] * 4
    tokenizer = train_vocabulary("unigram", 14, texts=texts, lowercase=True)
    unknown = tokenizer.special_id("unknown")
    assert unknown not in tokenizer(texts).values.numpy()


def test_one_entry_of_sentencepiece_for_two_roles():
    """Its trainer failed with a line of its own code."""
    roles = {"unknown": "<unk>", "bos": "<s>", "eos": "<s>"}
    for kind in ("unigram", "sentencepiece_bpe"):
        with pytest.raises(ValueError, match="`special_tokens` has '<s>' for 'bos' and 'eos'"):
            train_vocabulary(kind, 40, texts=TEXTS, special_tokens=roles)
