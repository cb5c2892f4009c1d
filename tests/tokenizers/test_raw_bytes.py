"""Bytes: the numbering of tensor2tensor and of ByT5, any text, the same in LiteRT."""

import json

import pytest

from keras_lm.tokenizers import ByteTokenizer, Tokenizer

TEXTS = ["hé 中", "", " a\n", "🙂\x00", "the film."]


@pytest.fixture
def folder(tmp_path):
    def make(**files):
        for name, content in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        return tmp_path

    return make


def test_numbering():
    tokenizer = ByteTokenizer()
    ids = tokenizer(TEXTS).to_list()
    assert ids == [[b + 2 for b in text.encode()] for text in TEXTS]
    assert tokenizer.vocabulary_size == 258
    assert [tokenizer.special_id(role) for role in ("pad", "eos")] == [0, 1]
    assert tokenizer.detokenize(ids).numpy().tolist() == [text.encode() for text in TEXTS]
    # Half a character, and special tokens, which nobody can type.
    assert tokenizer.detokenize([0, 106, 197, 1]).numpy() == "h\ufffd".encode()
    assert tokenizer(b"a\xff").numpy().tolist() == [99, 241, 193, 191]
    assert tokenizer("<EOS>").shape == (5,)
    assert tokenizer("a<EOS>b", parse_special=True).numpy().tolist() == [99, 1, 100]


def test_places():
    _, starts, ends = ByteTokenizer().tokenize_with_offsets(["", "aé", "b"])
    assert starts.to_list() == [[], [0, 1, 2], [0]] and ends.to_list() == [[], [1, 2, 3], [1]]
    _, starts, ends = ByteTokenizer().tokenize_with_offsets("aé", unit="character")
    assert starts.numpy().tolist() == [0, 1, 1] and ends.numpy().tolist() == [1, 2, 2]


def test_more_special_tokens():
    grown = ByteTokenizer().with_special_tokens(["[MASK]", "<pad>"])
    assert grown.vocabulary[:258] == ByteTokenizer().vocabulary
    assert grown("a[MASK]", parse_special=True).numpy().tolist() == [99, 258]
    assert ByteTokenizer.from_assets(None, grown.get_config()).vocabulary == grown.vocabulary


def test_in_litert(in_litert):
    texts = [*TEXTS, b"\xff\xfe a\xe4\xb8 \xf0\x9f\x99"]
    assert in_litert(ByteTokenizer())(texts) == ByteTokenizer()(texts).to_list()


@pytest.mark.parametrize("stated", [{}, {"extra_ids": 3}])
def test_byt5(folder, stated):
    """The ids are those of transformers' ByT5Tokenizer, which has no fast class."""
    path = folder(tokenizer_config={"tokenizer_class": "ByT5Tokenizer", **stated})
    tokenizer = Tokenizer.from_preset(path)
    assert type(tokenizer) is ByteTokenizer
    number = stated.get("extra_ids", 125)
    assert tokenizer.vocabulary_size == 259 + number
    assert tokenizer(["hé"]).to_list() == [[107, 198, 172]]
    spelled = tokenizer("x<extra_id_0></s><extra_id_2>", parse_special=True)
    assert spelled.numpy().tolist() == [123, 259, 1, 261]
    assert tokenizer.template == ["$A:0 </s>:0", "$A:0 </s>:0 $B:0 </s>:0"]


def test_networks_that_read_bytes(folder):
    path = folder(config={"model_type": "reformer", "vocab_size": 258})
    assert type(Tokenizer.from_preset(path)) is ByteTokenizer
    for other in ({"model_type": "reformer", "vocab_size": 320}, {"vocab_size": 258}):
        with pytest.raises(FileNotFoundError, match="holds no vocabulary that we can read"):
            Tokenizer.from_preset(folder(config=other))
    with pytest.raises(ValueError, match="`additional_special_tokens` is"):
        ByteTokenizer(additional_special_tokens="abc")
