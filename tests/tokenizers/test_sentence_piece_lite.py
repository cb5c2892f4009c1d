"""SentencePiece in integer operations: the package's ids, for models of every kind."""

import io
import random

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.litert import in_bytes
from keras_lm.tokenizers import SentencePieceTokenizer, strings
from keras_lm.tokenizers.sentence_piece_model import OWN_SPACE, UNUSED, WORD, Model
from keras_lm.tokenizers.strings import without_text_operations

sentencepiece = pytest.importorskip("sentencepiece")

WORDS = (
    "the end of a song was loud and bad, naïve café (again) 1,990 things; then: 20, 30, ÉLAN "
    "東京タワーに行きました 東京 ありがとう 한국어 ......."
)
PLAIN = {"normalization_rule_name": "identity"}
KINDS = {
    "unigram": PLAIN,
    "unigram that keeps some": PLAIN | {"user_defined_symbols": ["£", "<sep>", "<", "an", "the e"]},
    "unigram of bytes": PLAIN | {"byte_fallback": True, "vocab_size": 330},
    "unigram across spaces": PLAIN
    | {"split_by_whitespace": False, "remove_extra_whitespaces": False, "add_dummy_prefix": False},
    "BPE": PLAIN | {"model_type": "bpe"},
    "BPE that keeps some": PLAIN
    | {"model_type": "bpe", "user_defined_symbols": ["£", "<sep>", "<", "an", "the e"]},
    "BPE of bytes across spaces": PLAIN
    | {
        **{"model_type": "bpe", "byte_fallback": True, "vocab_size": 420},
        **{"split_by_whitespace": False, "remove_extra_whitespaces": False},
        **{"allow_whitespace_only_pieces": True},
    },
}
QUICK = ("unigram that keeps some", "BPE of bytes across spaces")
# The published table of characters, which takes seconds to read.
SLOW = {
    "unigram, nmt_nfkc": {"user_defined_symbols": ["½x", "ﬁ", "<sep>"]},
    "BPE, nfkc_cf": {"model_type": "bpe", "normalization_rule_name": "nfkc_cf"},
}
HARD = [
    "",
    " ",
    "  the   end  ",
    "▁the▁ end ▁",
    "▁",
    "\x00 a\x00b",
    "tabs\tand\nlines",
    "é e\u0301 e\u0323\u0301 ﬁ ½x ½ Ⅷ ﷺ ™ İẞ",
    "각 ㄱㅏㄱ 각 ﾡﾢ",
    "....... aaaaaaaa hahahaha",
    "<sep><<£the end \U0001f600 <unk> </s> <0x41>",
    "東京タワーに行きました" * 9,
    "the end of a song was loud and bad, " * 140,
]


def random_texts(count):
    chosen = random.Random(3)
    letters = [*" ▁\t.", *WORDS, "£", "<sep>", "\u0301", "\u0323", "ﬁ", "Å", "ᄀ", "ㅏ", "漢"]
    return ["".join(chosen.choices(letters, k=chosen.randrange(30))) for _ in range(count)]


def train(**settings):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([WORDS, WORDS.replace(" ", " then ")] * 3),
        model_writer=model,
        minloglevel=2,
        **{"vocab_size": 130, "hard_vocab_limit": False} | settings,
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def model_of():
    made = {}

    def get(kind):
        if kind not in made:
            data = train(**(KINDS | SLOW)[kind])
            reference = sentencepiece.SentencePieceProcessor(model_proto=data)
            made[kind] = SentencePieceTokenizer(data), reference
        return made[kind]

    return get


@pytest.mark.eager
@pytest.mark.parametrize(
    "kind",
    [
        *QUICK,
        *(pytest.param(k, marks=pytest.mark.slow) for k in {**KINDS, **SLOW} if k not in QUICK),
    ],
)
def test_ids_are_those_of_the_package(kind, model_of):
    tokenizer, reference = model_of(kind)
    with without_text_operations():
        for texts in (HARD + random_texts(500), [""], ["", "", "a"]):
            ids = tokenizer.tokenize_lite(tf.constant(texts)).to_list()
            expected = reference.encode(texts)
            assert not [x for x in zip(texts, ids, expected) if x[1] != x[2]]


@pytest.mark.eager
def test_how_sums_are_rounded_decides_between_equal_pieces(model_of):
    """Of "aaaa" there are equally good pieces: what is before them decides."""
    tokenizer, reference = model_of("unigram")
    chosen = random.Random(4)
    runs = [
        "".join(chosen.choice(".aeth") * chosen.randrange(1, 9) for _ in range(4))
        for _ in range(60)
    ]
    texts = [" ".join(runs[:count]) for count in range(1, 60)]
    with without_text_operations():
        assert tokenizer.tokenize_lite(tf.constant(texts)).to_list() == reference.encode(texts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unigram that keeps some", "BPE of bytes across spaces", *SLOW])
def test_ids_in_litert(kind, model_of):
    interpreters = pytest.importorskip("ai_edge_litert.interpreter")
    tokenizer, reference = model_of(kind)

    def tokenize(text, text_ends):
        with without_text_operations():
            ids = tokenizer.tokenize_lite(strings.from_bytes(text, text_ends))
        return {"values": tf.concat([ids.values, [0]], 0), "row_splits": ids.row_splits}

    specs = {"text": tf.TensorSpec([None], tf.uint8), "text_ends": tf.TensorSpec([None], tf.int32)}
    traced = tf.function(tokenize, autograph=False).get_concrete_function(**specs)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([traced], tf.Module())
    run = interpreters.Interpreter(model_content=converter.convert()).get_signature_runner()
    for texts in (HARD + random_texts(300), [""], ["a"], *([text] for text in HARD)):
        answer = run(**in_bytes({"text": texts}))
        ids = np.split(answer["values"], answer["row_splits"])[1:-1]
        assert [row.tolist() for row in ids] == reference.encode(texts)


@pytest.mark.eager
@pytest.mark.parametrize("kind", ["BPE that keeps some", "BPE of bytes across spaces"])
def test_places_of_pieces_that_cross_spaces(kind, model_of):
    """Of a BPE, as the graph reads a "▁" of a text otherwise with a unigram of this kind."""
    tokenizer, _ = model_of(kind)
    texts = HARD[:-1] + random_texts(100)
    expected = [x.to_list() for x in tokenizer.tokenize_with_offsets(texts, "character")]
    with without_text_operations():
        actual = tokenizer.tokenize_lite_with_offsets(tf.constant(texts))
    assert [x.to_list() for x in actual] == expected


@pytest.mark.eager
@pytest.mark.parametrize("joins", [True, False])
def test_a_space_of_the_models_own(joins):
    """Which stands for those that a text begins with, and is not added to others."""
    model = Model.FromString(train(**PLAIN | {"model_type": "bpe"}))
    model.normalizer_spec.add_dummy_prefix = False
    model.normalizer_spec.name = OWN_SPACE
    model.normalizer_spec.remove_extra_whitespaces = joins
    tokenizer = SentencePieceTokenizer(model.SerializeToString())
    texts = ["the end", " the end", "  the  end ", "▁the", "", " "]
    with without_text_operations():
        assert tokenizer.tokenize_lite(tf.constant(texts)).to_list() == tokenizer(texts).to_list()


def test_what_has_no_such_form_is_refused_by_name():
    model = Model.FromString(train(**PLAIN))
    model.trainer_spec.model_type = WORD
    words = SentencePieceTokenizer(model.SerializeToString())
    model = Model.FromString(train(**PLAIN | {"model_type": "bpe"}))
    model.pieces[-1].type = UNUSED
    unused = SentencePieceTokenizer(model.SerializeToString())
    with without_text_operations():
        with pytest.raises(ValueError, match=r"SentencePieceTokenizer .* words or characters"):
            words.tokenize_lite(tf.constant(["a"]))
        with pytest.raises(ValueError, match=r"SentencePieceTokenizer .* 'UNUSED'"):
            unused.tokenize_lite(tf.constant(["a"]))
        with pytest.raises(ImportError, match=r"SentencePieceTokenizer.* needs TensorFlow Text"):
            SentencePieceTokenizer(words._data)
