"""Presets of KerasHub are tokenized as there: ids that version 0.32 makes in `tf.data`."""

import json

import pytest

from keras_lm.tokenizers import BytePairTokenizer, WordPieceTokenizer

RULES = [{"type": "KerasHub"}]


@pytest.fixture
def expected(goldens):
    return json.loads((goldens("tokenizers") / "keras_hub.json").read_text())


def test_byte_pairs(expected):
    texts, ids = zip(*expected["byte_pairs"])
    arguments = (expected["vocabulary"], expected["merges"])
    named = {"bos_token": "<|endoftext|>"}
    tokenizer = BytePairTokenizer(*arguments, **named, pre_tokenizer=RULES)
    assert tokenizer(texts).to_list() == list(ids)
    assert BytePairTokenizer(*arguments, **named)(texts).to_list() != list(ids)


@pytest.mark.parametrize("kind", ["bert", "cased"])
def test_word_pieces(expected, kind):
    texts, tokens = zip(*expected["word_pieces"][kind])
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    entries = sorted({token for row in tokens for token in row} - {*special})
    # With the pieces that BERT's has: others would be longer, or lacking.
    rules = {"lowercase": kind == "bert", "strip_accents": False, "keras_hub": True}
    tokenizer = WordPieceTokenizer([*special, *entries], **rules)
    assert tokenizer.get_config()["keras_hub"]
    known = [i for i, row in enumerate(tokens) if "[UNK]" not in row]
    actual = tokenizer.tokens(tokenizer([texts[i] for i in known])).to_list()
    assert [[t.decode() for t in row] for row in actual] == [tokens[i] for i in known]
    assert len(known) > 30


def test_places_of_folded_words():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "stra", "##sse", "1", "##⁄2", "..."]
    tokenizer = WordPieceTokenizer(words, lowercase=True, strip_accents=False, keras_hub=True)
    text = "Straße\u200b ½…"
    ids, starts, ends = tokenizer.tokenize_with_offsets(text, unit="character")
    assert ids.numpy().tolist() == [5, 6, 7, 8, 9]
    spans = zip(starts.numpy().tolist(), ends.numpy().tolist(), strict=True)
    assert [text[a:b] for a, b in spans] == ["Stra", "ße", "½", "½", "…"]
    assert tokenizer("\ufdd2").numpy().tolist() == []  # stands for a special token inside
