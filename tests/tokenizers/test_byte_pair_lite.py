"""BPE by LiteRT's operations gives the ids that it gives by TensorFlow's, whatever the text."""

import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_lm.tokenizers import BytePairTokenizer
from keras_lm.tokenizers.lite_operations import PairTable, Trie, every_second
from keras_lm.tokenizers.sentence_piece_model import BYTES

KINDS = ("bytebpe-gpt2", "bytebpe-roberta", "bpe-gpt1")
HARD = [
    *(
        "",
        "Hello, world!",
        " ",
        "\n\n a",
        "it's we'll they'LL ''s 's's'dog 're'",
        "a  \u3000b\u3000 c",
    ),
    *(
        "naïve CAFÉ 漢字 \U0001f600 ﬁ ½ Ⅷ",
        "ΟΔΥΣΣΕΥΣ, ΣΑΣ. ΑΣ\u00ad Σ ΑΣ\u0301Α",
        "İẞ 한국어 각",
        "",
    ),
    *("a" * 1000, "-" * 77, "x\x00\x7f\u200d\ufdd0y", "don't\u00a0stop\x85now"),
    *(
        b"\xff",
        b"\xe2\x82 \xf0\x9f\x98 \xed\xa0\x80",
        b"\xf4\x90\x80\x80\xc0\xaf",
        b"a\xe2",
        b"\x82\xac",
    ),
]
pieces = st.one_of(
    st.sampled_from(
        ["'s", "'", " ", "  ", "\n", "\u3000", "\u00a0", "the", "The", "漢", "é", "e\u0301", "1"]
    ),
    st.text(max_size=6).map(lambda text: text.encode("utf-8", "ignore").decode()),
).map(str.encode)
hostile = st.lists(
    st.lists(st.one_of(pieces, st.binary(max_size=3)), max_size=8).map(b"".join),
    min_size=20,
    max_size=30,
)


@pytest.fixture(scope="module")
def lite(tokenizer_of, in_litert):
    """`lite("bytebpe-gpt2")` is the tokenizer of that kind as a function that LiteRT runs."""
    made = {}

    def get(kind):
        if kind not in made:
            made[kind] = in_litert(tokenizer_of(kind))
        return made[kind]

    return get


@pytest.mark.parametrize(
    "kind",
    [
        KINDS[0],
        pytest.param(KINDS[1], marks=pytest.mark.thorough),  # of the same class as the first
        pytest.param(KINDS[2], marks=pytest.mark.slow),
    ],
)
def test_ids_are_the_same(kind, lite, tokenizer_of, goldens):
    tokenizer = tokenizer_of(kind)
    lines = (goldens("tokenizers") / kind / "expected.jsonl").read_text().split("\n")
    texts = [json.loads(line)["text"] for line in lines if line]
    for batch in (HARD, texts, [""], ["a"], ["", "", ""]):
        assert lite(kind)(batch) == tokenizer(batch).to_list()

    # Few calls of many texts, as most of the time goes into the calls.
    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(hostile)
    def check(texts):
        assert lite(kind)(texts) == tokenizer(texts).to_list()

    check()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["bytebpe-gpt2", "bpe-gpt1"])
def test_every_character(kind, lite, tokenizer_of):
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    texts = ["a".join(characters[i : i + 512]) for i in range(0, len(characters), 512)]
    assert lite(kind)(texts) == tokenizer_of(kind)(texts).to_list()


@pytest.mark.parametrize("kind", KINDS)
def test_operations_give_the_same_ids(kind, tokenizer_of):
    tokenizer = tokenizer_of(kind)
    texts = [text.encode() if isinstance(text, str) else text for text in HARD]
    assert tokenizer.tokenize_lite(tf.constant(texts)).to_list() == tokenizer(texts).to_list()


@pytest.mark.parametrize("kind", ["bytebpe-gpt2", pytest.param("bpe-gpt1", marks=pytest.mark.slow)])
def test_long_words(kind, lite, tokenizer_of):
    letters = "".join(chr(97 + (i * i * 7 + i // 3) % 26) for i in range(50_000))
    texts = ["a" * 70_000, letters[:5_000], "ab " * 10_000, "é" * 5_000, "", "b"]
    for batch in (texts, [letters]):
        assert lite(kind)(batch) == tokenizer_of(kind)(batch).to_list()


@pytest.mark.slow
def test_other_vocabularies(in_litert):
    merges = ["Ġ t", "h e", "Ġt he", "a a", "aa aa"]
    made = ["".join(merge.split()) for merge in merges]
    tokenizer = BytePairTokenizer([*BYTES.values(), *made], merges, add_prefix_space=True)
    texts = ["the", " the", "", "\nthe", "'s", "aaaaaaa the aaa", b"\xff"]
    assert in_litert(tokenizer)(texts) == tokenizer(texts).to_list()
    few = BytePairTokenizer(["<unk>", "a", "b", "ab"], ["a b"], unknown_token="<unk>")
    texts = ["ab c", "", "abé", "cab"]
    assert in_litert(few)(texts) == few(texts).to_list()


def test_tables():
    rng = np.random.default_rng(0)
    pairs = {(int(r), int(c)) for r, c in rng.integers(0, 200, [3000, 2])}
    table = PairTable(list(pairs), 200, 200)
    numbers = {pair: 200 + i for i, pair in enumerate(pairs)}
    grid = np.indices([200, 200], np.int32).reshape(2, -1)
    expected = [numbers.get((r, c), 2**31 - 1) for r, c in grid.T.tolist()]
    assert table(tf.constant(grid[0]), tf.constant(grid[1])).numpy().tolist() == expected

    trie = Trie({b"ab": 7, b"abc": 8, b"b": 9})
    data, starts, ends = (tf.constant(x) for x in (list(b"abcb"), [0, 1, 0, 0], [2, 3, 3, 4]))
    for whole, actual in ((True, [7, -1, 8, -1]), (False, [7, 9, 8, 8])):
        nodes = trie(data, starts, ends, whole)
        assert tf.gather(trie.numbers, nodes).numpy().tolist() == actual
    mask = tf.cast([1, 1, 1, 0, 1, 1, 0, 1], tf.bool)
    assert every_second(mask).numpy().astype(int).tolist() == [1, 0, 1, 0, 1, 0, 0, 1]


def test_with_space_has_tables_of_its_own(tokenizer_of):
    tokenizer = tokenizer_of("bytebpe-gpt2")
    texts = tf.constant(["one", " two"])
    assert tokenizer.tokenize_lite(texts).to_list() == tokenizer(texts).to_list()
    spaced = tokenizer.with_space
    assert spaced.tokenize_lite(texts).to_list() == spaced(texts).to_list()
    assert spaced(texts).to_list() != tokenizer(texts).to_list()
