"""Where tokens are in a text, in LiteRT's operations: as in TensorFlow's."""

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
