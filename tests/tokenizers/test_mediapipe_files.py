"""The files for MediaPipe's tokenizers: read as it reads them, they find our ids."""

import json
import re

import pytest

from keras_lm.tokenizers import SentencePieceTokenizer, WordPieceTokenizer
from keras_lm.tokenizers.mediapipe_files import for_mediapipe


def lines_of(folder):
    lines = (folder / "expected.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


def bert_ids(data, text):
    """MediaPipe's ids of a text in ASCII: `bert_tokenizer.cc`, written anew."""
    vocabulary = {token: i for i, token in enumerate(data.decode().split("\n")[:-1])}
    results = []
    for word in re.findall(r"[!-/:-@\[-`{-~]|[^\s!-/:-@\[-`{-~]+", text.lower()):
        pieces, start = [], 0
        while start < len(word):
            mark = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((e for e in ends if mark + word[start:e] in vocabulary), None)
            if end is None or len(word) > 100:
                pieces = ["[UNK]"]
                break
            pieces.append(mark + word[start:end])
            start = end
        results += [vocabulary[piece] for piece in pieces]
    return results


def around(tokenizer):
    return [tokenizer.special_id("cls")], [tokenizer.special_id("sep")]


@pytest.mark.eager
def test_wordpiece(goldens):
    folder = goldens("tokenizers") / "wordpiece-uncased"
    tokenizer = WordPieceTokenizer.from_files(folder)
    file = for_mediapipe(tokenizer, around(tokenizer))
    assert (file.kind, file.name) == ("bert", "vocab.txt")
    plain = [t for t in lines_of(folder) if re.fullmatch(r"[\t\n\r -~]*", t)]
    assert len(plain) > 40
    for text, ids in zip(plain, tokenizer(plain).to_list()):
        assert bert_ids(file.data, text) == ids, text


@pytest.mark.eager
def test_special_tokens_get_the_names_that_mediapipe_looks_up():
    vocabulary = ["<s>", "pad", "</s>", "[UNK]", "a", "[CLS]", "<unk>", "", "##b"]
    tokenizer = WordPieceTokenizer(
        vocabulary,
        lowercase=True,
        cls_token="<s>",
        sep_token="</s>",
        pad_token="pad",
        mask_token=None,
        unknown_token="<unk>",
    )
    file = for_mediapipe(tokenizer, ([0], [2]))
    lines = file.data.decode().split("\n")[:-1]
    # No text finds what has brackets; an empty line would be skipped.
    assert lines == ["[CLS]", "[1]", "[SEP]", "[3]", "a", "[5]", "[UNK]", "[7]", "##b"]
    for text in ("ab c", "pad a"):
        assert bert_ids(file.data, text) == tokenizer([text]).to_list()[0]


@pytest.mark.eager
def test_sentencepiece_by_its_own_package(goldens):
    sentencepiece = pytest.importorskip("sentencepiece", reason="needs the extra vocab")
    folder = goldens("tokenizers") / "sentencepiece-albert"
    tokenizer = SentencePieceTokenizer.from_files(folder)
    file = for_mediapipe(tokenizer, around(tokenizer))
    assert (file.kind, file.name) == ("sentencepiece", "spiece.model")
    model = sentencepiece.SentencePieceProcessor(model_proto=file.data)
    assert [[model.piece_to_id("[CLS]")], [model.piece_to_id("[SEP]")]] == [*around(tokenizer)]
    texts = lines_of(folder)
    for text, ids in zip(texts, tokenizer(texts).to_list()):
        results = [model.piece_to_id(piece) for piece in model.encode(text.lower(), out_type=str)]
        assert results == ids, text
