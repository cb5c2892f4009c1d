"""Where tokens are in a text, in LiteRT's operations: as in TensorFlow's."""

import unicodedata

import pytest
import tensorflow as tf

from keras_lm.tokenizers import BytePairTokenizer

TEXTS = [
    "Hello, world! It's a ﬁne day… don't",
    "",
    " leading and two  spaces ",
    "naïve Ως café",
    "日本語のテキスト 漢字かな ประเทศไทย \U00020000\U0001f600 x",
    "a\tb\nc\u00a0d\u3000e",
    "☃☃ 1990, 3,000.5 (U.S.) 'tis .\"), ",
    "ＦＵＬＬ \u200bzero\u200b width\u00adshy",
]
KINDS = ["wordpiece-uncased", "wordpiece-cased", "bytebpe-roberta", "bpe-gpt1", "bytes"]
PIECES = ["sentencepiece-albert", "sentencepiece-t5", "sentencepiece-xlnet"]


def places(tokenizer, texts):
    actual = tokenizer.tokenize_with_offsets(texts, "character")
    lite = tokenizer.tokenize_lite_with_offsets(tf.constant(texts))
    assert lite[0].to_list() == tokenizer.tokenize_lite(tf.constant(texts)).to_list()
    for ids, starts, ends in (actual, lite):
        yield [
            [*zip(*row, strict=True)]
            for row in zip(ids.to_list(), starts.to_list(), ends.to_list(), strict=True)
        ]


@pytest.mark.eager
@pytest.mark.parametrize("kind", KINDS)
def test_places_are_those_of_the_graph(tokenizer_of, kind):
    graph, lite = places(tokenizer_of(kind), TEXTS)
    assert lite == graph


@pytest.mark.eager
def test_places_with_a_space_before_each_text(goldens):
    folder = goldens("tokenizers") / "bytebpe-gpt2"
    graph, lite = places(BytePairTokenizer.from_files(folder, add_prefix_space=True), TEXTS)
    assert lite == graph


@pytest.mark.parametrize(
    "kind", [PIECES[0], *(pytest.param(k, marks=pytest.mark.slow) for k in PIECES[1:])]
)
@pytest.mark.eager
def test_places_of_sentencepiece(tokenizer_of, kind):
    """Also where a character becomes several, of which some are unknown, and where some are one."""
    texts = [*TEXTS, "½ cup x½y ½½ … ™ ㎏ Ⅷ", "ab cafe\u0301s and cd ▁ a▁b", "<unk> 1,990, 20,x"]
    graph, lite = places(tokenizer_of(kind), texts)
    assert lite == graph


@pytest.mark.parametrize(
    "form", ["NFC", *(pytest.param(f, marks=pytest.mark.slow) for f in ("NFKC", "NFD", "NFKD"))]
)
@pytest.mark.eager
def test_places_in_texts_that_change_their_form(goldens, form):
    folder = goldens("tokenizers") / "bytebpe-gpt2"
    tokenizer = BytePairTokenizer.from_files(folder, normalization=form)
    many = "e\u0323\u0301 e\u0301\u0323 \u1100\u1161\u11a8 각 가\u11a8 q\u0307\u0323 \u0344 a"
    texts = [*TEXTS, "cafe\u0301s naïve x\u0301", "\u0301 a", many, "ﬁ ½ Å \u212b \u2126 \u0958 a"]
    for text, graph, lite in zip(texts, *places(tokenizer, texts), strict=True):
        for (id, start, end), other in zip(graph, lite, strict=True):
            assert id == other[0]
            part = text[start:end]
            # (Within a letter that changes, tokens lie elsewhere.)
            if part and unicodedata.normalize(form, part) == part:
                assert (start, end) == other[1:]
