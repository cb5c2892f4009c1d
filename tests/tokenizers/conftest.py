"""A small tokenizer of each kind."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.tokenizers import (
    BytePairTokenizer,
    ByteTokenizer,
    CharacterTokenizer,
    GPTTokenizer,
    MarianTokenizer,
    SentencePieceTokenizer,
    SubwordTokenizer,
    TransformerXLTokenizer,
    WordPieceTokenizer,
    WordTokenizer,
)
from keras_lm.tokenizers.sentence_piece_model import Model

PUBLISHED = {
    "wordpiece-uncased": WordPieceTokenizer,
    "wordpiece-cased": WordPieceTokenizer,
    "bytebpe-gpt2": BytePairTokenizer,
    "bytebpe-roberta": BytePairTokenizer,
    "bpe-gpt1": GPTTokenizer,
    "sentencepiece-albert": SentencePieceTokenizer,
    "sentencepiece-t5": SentencePieceTokenizer,
    "sentencepiece-xlnet": SentencePieceTokenizer,
}
MARKERS = ["xxrep", "xxwrep", "xxup", "xxmaj"]


def make_words(folder):
    """Words with fastai's rules."""
    roles = {"unknown_token": "xxunk", "pad_token": "xxpad", "bos_token": "xxbos"}
    words = [*roles.values(), *MARKERS, "the", "film", "was", "good", "3", "é", ".", ",", "中"]
    return WordTokenizer(words, **roles, additional_special_tokens=MARKERS, rules="fastai")


def make_marian(folder):
    """Two models, and a vocabulary that lacks some of their pieces and has more."""
    paths = [folder / f"sentencepiece-{kind}" / "spiece.model" for kind in ("t5", "xlnet")]
    pieces = {p.piece for path in paths for p in Model.FromString(path.read_bytes()).pieces}
    pieces = sorted(pieces - {"</s>", "<unk>", "<pad>"})[::-1]
    lacking = pieces[::17]
    pieces = [piece for piece in pieces if piece not in lacking]
    more = [">>fra<<", ">>zho_Hans<<", "☃", "☃☃", "中文"]  # the last three: no model's
    vocabulary = ["</s>", "<unk>", *pieces, *more, "<pad>"]
    return MarianTokenizer(*paths, list(dict.fromkeys(vocabulary)))


def make_subwords(folder):
    """As tensor2tensor's: every character that an entry has is an entry, too."""
    entries = [
        "the_",
        "film_",
        "film",
        "was_",
        "un",
        "ed_",
        " - _",
        "._",
        ", _",
        "中",
        "\\6",
        "4;_",
    ]
    letters = sorted({*"".join(entries), *"\\_u;0123456789", *" !'<>abcdeégopxEODS"})
    entries += [letter for letter in letters if letter not in entries]
    return SubwordTokenizer(["<pad>", "<EOS>", *entries])


MADE = {
    "words": make_words,
    "subwords": make_subwords,
    "characters": lambda folder: CharacterTokenizer(20),
    "bytes": lambda folder: ByteTokenizer(),
    "marian": make_marian,
    "transformer-xl": lambda folder: TransformerXLTokenizer.from_files(folder / "transformer-xl"),
}


@pytest.fixture(scope="session")
def make_tokenizer(goldens):
    """`make_tokenizer("bpe-gpt1")` is a new tokenizer of that kind."""

    def make(kind):
        folder = goldens("tokenizers")
        if kind in PUBLISHED:
            return PUBLISHED[kind].from_files(folder / kind)
        return MADE[kind](folder)

    return make


@pytest.fixture(scope="session")
def tokenizer_of(make_tokenizer):
    """`tokenizer_of("bpe-gpt1")` is the tokenizer of that kind, made once."""
    return functools.cache(make_tokenizer)


@pytest.fixture(scope="session")
def in_litert():
    """`in_litert(tokenizer)` is it as a function of texts that runs in LiteRT's interpreter."""
    interpreters = pytest.importorskip("ai_edge_litert.interpreter")
    from tensorflow_text.core.pybinds import tflite_registrar

    def convert(tokenizer):
        def tokenize_lite(text):
            ids = tokenizer.tokenize_lite(text)
            return {"values": ids.values, "row_splits": ids.row_splits}

        text = tf.TensorSpec([None], tf.string, name="text")
        # As exports are traced: the code is made of operations, and needs no AutoGraph.
        function = tf.function(tokenize_lite, [text], autograph=False).get_concrete_function()
        # Without the tokenizer itself, whose tables LiteRT has no kernel for.
        converter = tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module())
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        converter.allow_custom_ops = True
        interpreter = interpreters.InterpreterWithCustomOps(
            model_content=converter.convert(),
            custom_op_registerers=tflite_registrar.SELECT_TFTEXT_OPS,
        )
        run = interpreter.get_signature_runner()

        def tokenize(texts):
            texts = [text.encode() if isinstance(text, str) else text for text in texts]
            answer = run(text=np.array(texts, dtype=object))
            return tf.RaggedTensor.from_row_splits(answer["values"], answer["row_splits"]).to_list()

        return tokenize

    return convert


@pytest.fixture(scope="module")
def golden_of(goldens):
    """`golden_of("wordpiece-cased")` is (folder, tokenizer, expected rows)."""

    @functools.cache
    def load(name):
        folder = goldens("tokenizers") / name
        lines = (folder / "expected.jsonl").read_text().split("\n")
        rows = [json.loads(line) for line in lines if line]
        return folder, PUBLISHED[name].from_files(folder), rows

    return load
