"""Transformer-XL's words against sacremoses, and the files that they come in."""

import json
import os
import pickle

import pytest
import tensorflow as tf

from keras_lm.tokenizers import Tokenizer, TransformerXLTokenizer

FOLDER = "tokenizers/transformer-xl"
SPECIAL = ["<unk>", "<eos>", "<formula>"]


@pytest.fixture(scope="module")
def expected(goldens):
    lines = json.loads((goldens(FOLDER) / "expected.json").read_text(encoding="utf-8"))
    return list(zip(*lines, strict=True))


@pytest.fixture(scope="module")
def tokenizer(expected):
    words = sorted({word for line in expected[1] for word in line} - {*SPECIAL})
    return TransformerXLTokenizer(SPECIAL + words, "<unk>", None, "<eos>", ["<formula>"])


def test_words_are_those_of_moses(tokenizer, expected):
    lines, words, _ = expected
    actual = tokenizer(tf.constant(lines), parse_special=True)
    ids = [[tokenizer.token_to_id(word) for word in line] for line in words]
    assert actual.to_list() == ids


def test_text_is_that_of_moses(tokenizer, expected):
    _, words, texts = expected
    plain = [i for i, line in enumerate(words) if not {*SPECIAL} & {*line}]
    ids = tf.ragged.constant([[tokenizer.token_to_id(w) for w in words[i]] for i in plain])
    results = [text.decode() for text in tokenizer.detokenize(tf.cast(ids, tf.int32)).numpy()]
    assert results == [texts[i] for i in plain]


def test_text_spells_no_special_tokens(tokenizer):
    text = "one <eos> \ufdd01 two\0"
    assert not {1, 2} & {*tokenizer(text).numpy()}
    assert 1 in tokenizer(text, parse_special=True).numpy()
    assert tokenizer(text, parse_special=["<formula>"]).numpy().tolist().count(1) == 0


@pytest.mark.parametrize("shape", [[], [0], [2, 0], [1, 3]])
def test_shapes(tokenizer, shape):
    ids = tokenizer(tf.fill(shape, "the film <eos>"), parse_special=True)
    assert ids.shape.rank == len(shape) + 1


# === Files ===


@pytest.mark.parametrize("name", ["vocab.pkl", "vocab.bin", "vocab.txt"])
def test_files_of_hugging_face(goldens, tmp_path, name):
    if name == "vocab.txt":
        lines = TransformerXLTokenizer.from_files(goldens(FOLDER)).vocabulary
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    else:
        (tmp_path / name).write_bytes((goldens(FOLDER) / name).read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "TransfoXLTokenizer", "lower_case": True})
    )
    tokenizer = Tokenizer.from_preset(tmp_path)
    assert type(tokenizer) is TransformerXLTokenizer
    assert tokenizer.rules == "moses" and tokenizer.lowercase
    assert tokenizer.special_tokens == {"unknown": "<unk>", "eos": "<eos>"}
    assert tokenizer.tokens(tokenizer("WELL-Known")).numpy().tolist() == [b"well", b"@-@", b"known"]


@pytest.mark.parametrize(
    "file, name, text, words, rules",
    [
        ("cache.pkl", "cache.pkl", "a well-known film", ["a", "well-known", "film"], "whitespace"),
        ("cache.pt", "cache.pt", "It 's\n Mr.", ["It", "'s", "Mr."], "whitespace"),
        ("bytes.pkl", "cache.pkl", "Hé!\n", ["72", "195", "169", "33"], "bytes"),
        ("text8.pkl", "cache.pkl", " a bé", ["_", "a", "_", "b"], "characters"),
    ],
)
def test_corpora_of_the_authors(goldens, tmp_path, file, name, text, words, rules):
    (tmp_path / name).write_bytes((goldens(FOLDER) / file).read_bytes())
    tokenizer = TransformerXLTokenizer.from_files(tmp_path)
    assert tokenizer.rules == rules
    ids = tokenizer(text)
    assert [word.decode() for word in tokenizer.tokens(ids).numpy()] == words
    if rules in ("bytes", "characters"):  # what is not in the list is left out
        written = text.replace("\n", "") if rules == "bytes" else text.replace("é", "")
        assert tokenizer.detokenize(ids).numpy().decode() == written


class Code:
    def __reduce__(self):
        return os.mkdir, ("made_by_a_pickle",)


@pytest.mark.parametrize(
    "value, message",
    [
        ({"idx2sym": ["<unk>"], "counter": Code()}, "neither a tensor nor a plain container"),
        ({"idx2sym": ["<unk>", 3]}, "not a list of strings"),
        (["<unk>"], "TypeError"),
    ],
)
def test_files_that_are_refused(tmp_path, monkeypatch, value, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vocab.pkl").write_bytes(pickle.dumps(value))
    with pytest.raises(ValueError, match=message):
        TransformerXLTokenizer.from_files(tmp_path)
    assert not (tmp_path / "made_by_a_pickle").exists()


def test_other_arguments_are_refused(goldens, tmp_path):
    with pytest.raises(ValueError, match="`rules` is 'penn'"):
        TransformerXLTokenizer(["<unk>"], "<unk>", rules="penn")
    with pytest.raises(FileNotFoundError, match="holds none of"):
        TransformerXLTokenizer.from_files(tmp_path)
    (tmp_path / "vocab.pkl").write_bytes((goldens(FOLDER) / "vocab.pkl").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"delimiter": "|"}))
    with pytest.raises(ValueError, match="words separated by '\\|'"):
        TransformerXLTokenizer.from_files(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<formula>": 25}))
    assert TransformerXLTokenizer.from_files(tmp_path).vocabulary_size == 25
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<mine>": 25}))
    with pytest.raises(ValueError, match=r"added_tokens.json with \['<mine>'\]"):
        TransformerXLTokenizer.from_files(tmp_path)


def test_assets(tokenizer, tmp_path):
    tokenizer.save_assets(tmp_path)
    again = TransformerXLTokenizer.from_assets(tmp_path, tokenizer.get_config())
    assert again.vocabulary == tokenizer.vocabulary
    assert again.get_config() == tokenizer.get_config()
