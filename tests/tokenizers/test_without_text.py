"""Tokenizers made without TensorFlow Text's operations are those made with them."""

import json
import random

import pytest
import tensorflow as tf

from keras_lm.tokenizers import (
    BytePairTokenizer,
    SentencePieceTokenizer,
    WordPieceTokenizer,
    splitting,
)
from keras_lm.tokenizers.sentence_piece_model import BPE, BYTE, CHARACTER, USER_DEFINED, Model
from keras_lm.tokenizers.strings import without_text_operations

KINDS = (
    *("wordpiece-uncased", "bytebpe-gpt2"),
    *(
        pytest.param(kind, marks=pytest.mark.slow)
        for kind in (
            *("wordpiece-cased", "bytebpe-roberta", "bpe-gpt1", "subwords", "bytes"),
            *("transformer-xl", "sentencepiece-albert", "sentencepiece-t5"),
            *("sentencepiece-xlnet", "marian", "words", "characters"),
        )
    ),
)
PIECES = (
    *("the ", "film", "good", "[SEP]", "</s>", "<unk>", "[UNK]", "xxmaj", "\x85", " ", "   "),
    *("\u3000", "e\u0301\u0323", "\u0301", "``", "''", "1990, ", "19,", "\u2581", "\0", "é", "ﬁ"),
    *("½", "ß", "中文", "각", "\u1100\u1161", "𝓐", "'s", "don't", "🙂", "\ufdd0", "\u200b", "İ"),
    *("ΟΔΟΣ", "Ａ", "\n", "a" * 120, ".", "!?", "\u0e01\u0e33", "q\u0338"),
)


def hard_texts(goldens, number=300, seed=0):
    """Lines of the reference outputs, and others of words, signs and any bytes."""
    generator = random.Random(seed)
    file = goldens("tokenizers") / "wordpiece-uncased" / "expected.jsonl"
    lines = [json.loads(line)["text"].encode() for line in file.read_text().splitlines()]
    pieces = [piece.encode() for piece in PIECES]
    for _ in range(number):
        parts = generator.choices(pieces, k=generator.randrange(10))
        parts += [generator.randbytes(3)] * (generator.random() < 0.2)
        generator.shuffle(parts)
        lines.append(b"".join(parts))
    return lines


def answers(tokenizer, texts):
    """Return all that a tokenizer makes of texts, by what was asked."""
    ids = tokenizer(texts)
    text = tokenizer.detokenize(ids)
    made = {
        "ids": ids.to_list(),
        "special": tokenizer(texts, parse_special=True).to_list(),
        "text": text.to_list() if isinstance(text, tf.RaggedTensor) else text.numpy().tolist(),
    }
    for unit in ("byte", "character"):
        if tokenizer.has_offsets():
            places = tokenizer.tokenize_with_offsets(texts, unit)
            made[unit] = [rows.to_list() for rows in places]
    if tokenizer.has_offsets(True):
        places = tokenizer.tokenize_with_offsets(texts, parse_special=True)
        made["places of special"] = [rows.to_list() for rows in places]
    return made


def compare(make, *batches):
    """Compare a tokenizer that `make()` makes with TensorFlow Text's operations and without."""
    tokenizer = make()
    expected = [answers(tokenizer, texts) for texts in batches]
    assert any(expected[0]["ids"])
    with without_text_operations():
        tokenizer = make()
        for texts, answer in zip(batches, expected):
            assert answers(tokenizer, texts) == answer


@pytest.mark.eager
@pytest.mark.parametrize("kind", KINDS)
def test_all_that_a_tokenizer_makes(kind, make_tokenizer, goldens):
    compare(lambda: make_tokenizer(kind), hard_texts(goldens), [""], [b"\xff a", ""])


@pytest.mark.slow
@pytest.mark.eager
def test_words_as_keras_hub_folds_them(goldens):
    rows = json.loads((goldens("tokenizers") / "keras_hub.json").read_text())["word_pieces"]["bert"]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *sorted({token for _, row in rows for token in row} - {*special})]
    texts = [*hard_texts(goldens), *(text.encode() for text, _ in rows)]
    for strips in (False, True):
        compare(
            lambda strips=strips: WordPieceTokenizer(
                words, lowercase=True, strip_accents=strips, keras_hub=True
            ),
            texts,
        )


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_texts_are_brought_into_a_form_first(form, goldens):
    folder = goldens("tokenizers")
    texts = [text for text in hard_texts(goldens) if b"q\xcc\xb8" not in text]
    for make in (
        lambda: BytePairTokenizer.from_files(folder / "bytebpe-gpt2", normalization=form),
        lambda: SentencePieceTokenizer.from_files(folder / "sentencepiece-t5", normalization=form),
    ):
        compare(make, texts)


def model_of(folder, kind, kept=(), byte_fallback=False):
    """Return T5's small model as one of another kind, with pieces that are kept whole."""
    model = Model.FromString((folder / "sentencepiece-t5" / "spiece.model").read_bytes())
    for piece in kept:
        model.pieces.add(piece=piece, score=0.0, type=USER_DEFINED)
    if kind == BPE:
        for rank, piece in enumerate(model.pieces):
            piece.score = -float(rank)
        model.trainer_spec.model_type = BPE
    if byte_fallback:
        for byte in range(256):
            model.pieces.add(piece=f"<0x{byte:02X}>", score=0.0, type=BYTE)
        model.trainer_spec.byte_fallback = True
    return model.SerializeToString()


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize(
    "options",
    [
        {"kind": BPE},
        {"kind": BPE, "byte_fallback": True},
        {"kind": 1, "kept": ["film", "1990", "é"]},
        {"kind": BPE, "kept": ["don't"], "byte_fallback": True},
    ],
    ids=str,
)
def test_other_sentence_piece_models(options, goldens):
    model = model_of(goldens("tokenizers"), **options)
    for more in ({}, {"keep_first_space": True, "strip_end": True}, {"prefix_once": True}):
        compare(lambda more=more: SentencePieceTokenizer(model, **more), hard_texts(goldens))


def test_what_has_no_form_of_integers_is_refused(goldens):
    file = goldens("tokenizers") / "sentencepiece-t5" / "spiece.model"
    model = Model.FromString(file.read_bytes())
    model.trainer_spec.model_type = CHARACTER
    with (
        without_text_operations(),
        pytest.raises(ImportError, match=r"this model's kind needs TensorFlow Text.*pip install"),
    ):
        SentencePieceTokenizer(model.SerializeToString())


def test_a_vocabulary_has_a_limit_here_too():
    words = ["[UNK]", *map(str, range(2**19))]
    with without_text_operations(), pytest.raises(ValueError, match="words to search for"):
        WordPieceTokenizer(
            words, lowercase=False, cls_token=None, sep_token=None, pad_token=None, mask_token=None
        )


@pytest.mark.parametrize("splitter", splitting.WORD_SPLITTERS)
def test_words_and_their_places(splitter, goldens):
    texts = tf.constant(hard_texts(goldens))

    def words():
        return [x.to_list() for x in splitting.words_and_places(texts, splitter)]

    expected = words()
    with without_text_operations():
        assert words() == expected
