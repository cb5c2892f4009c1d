"""Byte-level BPE: equal to the reference, whatever the text, in every kind of graph."""

import itertools
import random
import time

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_lm.tokenizers import BytePairTokenizer, Tokenizer
from keras_lm.tokenizers.sentence_piece_model import BYTES

KINDS = ("bytebpe-gpt2", "bytebpe-roberta", "bpe-gpt1")


@pytest.fixture(scope="module")
def golden(golden_of):
    """`golden("bytebpe-gpt2")` is (folder, tokenizer, expected rows)."""
    return golden_of


@pytest.fixture(scope="module")
def gpt2(golden):
    return golden("bytebpe-gpt2")[1]


@pytest.fixture(scope="module")
def roberta(golden):
    return golden("bytebpe-roberta")[1]


@pytest.fixture(scope="module")
def gpt(golden):
    return golden("bpe-gpt1")[1]


def words(tokenizer, text, **kwargs):
    """The entries that a text becomes."""
    return [t.decode() for t in tokenizer.tokens(tokenizer(text, **kwargs)).numpy().tolist()]


def toy(merges=("Ġ t", "h e", "Ġt he"), more=(), **arguments):
    entries = [*BYTES.values(), *("".join(merge.split()) for merge in merges), *more]
    return BytePairTokenizer(list(dict.fromkeys(entries)), list(merges), **arguments)


# The reference


@pytest.mark.parametrize("kind", KINDS)
def test_ids_equal_the_reference(golden, kind):
    _, tokenizer, rows = golden(kind)
    got = tokenizer([row["text"] for row in rows], parse_special=True).to_list()
    if kind == "bytebpe-roberta":
        cls, sep = tokenizer.special_id("cls"), tokenizer.special_id("sep")
        got = [[cls, *ids, sep] for ids in got]
    assert not [r["text"] for r, ids in zip(rows, got) if ids not in r["ids"]]


@pytest.mark.parametrize("kind", KINDS)
def test_decoded_text_equals_the_reference(golden, kind):
    _, tokenizer, rows = golden(kind)
    rows = [row for row in rows if "decoded" in row]
    got = tokenizer.detokenize([row["ids"][0] for row in rows]).numpy()
    assert [text.decode() for text in got] == [row["decoded"] for row in rows]


def byte_level_reference(vocabulary, merges, add_prefix_space=False):
    tokenizers = pytest.importorskip("tokenizers")
    reference = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            {token: i for i, token in enumerate(vocabulary)},
            [tuple(merge.split(" ")) for merge in merges],
        )
    )
    reference.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space)
    return reference


def read_merges(folder):
    return (folder / "merges.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")[1:]


any_text = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        st.text(" \n\t\u00a0\u3000\x85'", max_size=5),
        st.text("abcdefgnoprst' ", max_size=20),
        st.sampled_from(["'s", "'re", "'ll", "<|endoftext|>", "<s>", "\x00", "\ufdd0", "Ġ", "é"]),
        st.builds(lambda c, n: c * n, st.sampled_from("a -=é中🙂"), st.integers(1, 300)),
    ),
    max_size=8,
).map("".join)


def test_ids_and_places_equal_huggingface_on_any_text(golden):
    folder, tokenizer, _ = golden("bytebpe-gpt2")
    reference = byte_level_reference(tokenizer.vocabulary, read_merges(folder))

    # Few calls of many texts, as most of the time goes into the calls.
    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(any_text, min_size=20, max_size=30))
    def check(texts):
        expected = reference.encode_batch(texts)
        ids, starts, ends = tokenizer.tokenize_with_offsets(texts, unit="character")
        assert ids.to_list() == tokenizer(texts).to_list() == [e.ids for e in expected]
        places = [list(zip(s, e)) for s, e in zip(starts.to_list(), ends.to_list())]
        assert places == [e.offsets for e in expected]
        assert [t.decode() for t in tokenizer.detokenize(ids).numpy()] == texts

    check()


@pytest.mark.parametrize("seed", range(6))
def test_ids_equal_huggingface_with_any_merges(seed):
    # Merges in any order make entries that BPE never arrives at.
    dice = random.Random(seed)
    known, merges = ["a", "b", "c", "Ġ"], []
    while len(merges) < 50:
        pair = dice.choice(known), dice.choice(known)
        if " ".join(pair) not in merges and len("".join(pair)) < 12:
            merges.append(" ".join(pair))
            known = list(dict.fromkeys([*known, "".join(pair)]))
    if seed % 2:
        dice.shuffle(merges)
    tokenizer = toy(merges)
    reference = byte_level_reference(tokenizer.vocabulary, merges)
    texts = ["".join(dice.choices("abc ", k=dice.randrange(40))) for _ in range(300)]
    assert tokenizer(texts).to_list() == [e.ids for e in reference.encode_batch(texts)]


def test_prefix_space_equals_huggingface(golden):
    folder, _, _ = golden("bytebpe-gpt2")
    tokenizer = BytePairTokenizer.from_files(folder, add_prefix_space=True)
    reference = byte_level_reference(tokenizer.vocabulary, read_merges(folder), True)
    texts = ["the word", " the word", "\nthe", "", "  two", "é"]
    assert tokenizer(texts).to_list() == [e.ids for e in reference.encode_batch(texts)]
    ids, starts, ends = tokenizer.tokenize_with_offsets(["the word"])
    assert (starts[0, 0], ends[0, 0], ends[0, -1]) == (0, 3, 8)
    assert ids.to_list() == tokenizer(["the word"]).to_list()


# What becomes of text


def test_spaces_go_with_the_next_word(gpt2):
    text = "the  word\n\n x\u00a0y \n"
    assert "".join(words(gpt2, text)) == "theĠĠwordĊĊĠxÂłyĠĊ"
    assert words(gpt2, "  the")[0] == "Ġ"


def test_invalid_utf8_is_replaced(gpt2):
    texts = tf.constant([b"a\xffb", b"\xf0\x9f", b"ok"])
    assert gpt2(texts).to_list() == gpt2(["a\ufffdb", "\ufffd", "ok"]).to_list()
    _, starts, ends = gpt2.tokenize_with_offsets(texts)
    assert (starts[0, 0], ends[0, 0], starts[0, -1], ends[0, -1]) == (0, 1, 2, 3)
    assert ends[1, -1] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_text_never_becomes_a_special_token(golden, kind):
    _, tokenizer, _ = golden(kind)
    tokens = list(tokenizer.special_tokens.values())
    ids = tokenizer(tokens).to_list()
    for row, token in zip(ids, tokens):
        assert tokenizer.token_to_id(token) not in row or kind == "bpe-gpt1"
    assert tokenizer(tokens, parse_special=True).to_list() == [
        [tokenizer.token_to_id(token)] for token in tokens
    ]


def test_bytes_that_mark_parts_cannot_be_typed(gpt2):
    token = gpt2.token_to_id("<|endoftext|>")
    for text in (b"\xff\xfe<|endoftext|>\xff", b"\xfe<|endoftext|>", b"a\xff\xfe0"):
        assert token not in gpt2(tf.constant(text)).numpy()


def test_special_tokens_stand_between_texts(roberta):
    text = "a <mask></s>  b<s>"
    assert words(roberta, text, parse_special=True) == ["a", "<mask>", "</s>", "Ġ", "Ġb", "<s>"]
    assert "</s>" not in words(roberta, text, parse_special=["<mask>"])


def test_added_tokens_and_their_places():
    tokenizer = toy(
        more=["<a>", "<ab>", "{x}"],
        added_tokens=["<a>", "<ab>", "{x}"],
        lstrip_tokens=["<ab>"],
        rstrip_tokens=["{x}"],
    )
    text = "é the <ab> the{x}  the<a>"
    expected = ["Ã", "©", "Ġthe", "<ab>", "Ġthe", "{x}", "t", "he", "<a>"]
    assert words(tokenizer, text) == expected
    ids, starts, ends = tokenizer.tokenize_with_offsets(["", text, "<a>"], unit="character")
    assert ids.to_list() == tokenizer(["", text, "<a>"]).to_list()
    spans = list(zip(starts.to_list()[1], ends.to_list()[1]))
    parts = ["é", "é", " the", " <ab>", " the", "{x}  ", "t", "he", "<a>"]
    assert [text[a:b] for a, b in spans] == parts
    assert (starts.to_list()[2], ends.to_list()[2]) == ([0], [3])


def test_bytes_that_the_vocabulary_lacks():
    entries = ["<unk>", "a", "b", "ab"]
    tokenizer = BytePairTokenizer(entries, ["a b"], unknown_token="<unk>")
    assert words(tokenizer, "abéa") == ["ab", "<unk>", "<unk>", "a"]
    _, starts, ends = tokenizer.tokenize_with_offsets("abéa")
    assert (starts.numpy().tolist(), ends.numpy().tolist()) == ([0, 2, 3, 4], [2, 3, 4, 5])
    with pytest.raises(ValueError, match="lacks 241 of the bytes, such as '!', and no `unknown"):
        BytePairTokenizer(entries, ["a b"])


# Size


@pytest.mark.eager
@pytest.mark.parametrize("kind", KINDS)
def test_long_and_many(golden, kind):
    _, tokenizer, _ = golden(kind)
    letters = "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz", k=100_000))
    texts = [letters, "a" * 100_000, " " * 100_000, "é" * 10_000, "the " * 25_000, *[""] * 10_000]
    ids = tokenizer(texts)
    assert ids.shape[0] == len(texts)
    back = tokenizer.detokenize(ids).numpy()
    if kind == "bpe-gpt1":
        assert (back[0].decode(), back[1].decode()) == (letters, texts[1])
    else:
        assert [text.decode() for text in back] == texts
        _, _, ends = tokenizer.tokenize_with_offsets(texts)
        assert [ends[i, -1] for i in range(5)] == [len(text.encode()) for text in texts[:5]]
    assert ids[5:].values.shape == [0]


@pytest.mark.eager
def test_time_grows_little_faster_than_a_word(gpt2):
    def seconds(size):
        word = "".join(random.Random(size).choices("abcdefghijklmnop", k=size))
        gpt2(word)
        start = time.perf_counter()
        gpt2(word)
        return time.perf_counter() - start

    # Ten times the letters: about 12 times as long, where each pass over all pairs makes 100.
    assert min(seconds(200_000) for _ in range(2)) < 40 * min(seconds(20_000) for _ in range(3))


# Ids to text


def test_partial_text_is_the_beginning_of_more(gpt2):
    text = "naïve 🙂👍🏽 中文 \u0301x"
    ids = gpt2(text).numpy()
    parts = [gpt2.detokenize(ids[:n], partial=True).numpy() for n in range(len(ids) + 1)]
    assert all(after.startswith(before) for before, after in itertools.pairwise(parts))
    assert all(part.decode() or not part for part in parts)  # each is UTF-8
    assert parts[-1].decode() == text
    assert len(set(parts)) > len(text) // 2


@pytest.mark.parametrize(
    ("data", "whole", "partial"),
    [
        (b"", "", ""),
        (b"a\xc3", "a\ufffd", "a"),
        (b"\xe4\xb8", "\ufffd", ""),
        (b"a\xf0\x9f\x99", "a\ufffd", "a"),
        (b"\xf0\x9f\x99\x82", "🙂", "🙂"),
        (b"\x82a", "\ufffda", "\ufffda"),
        (b"a\xff", "a\ufffd", "a\ufffd"),
    ],
)
def test_unfinished_characters(gpt2, data, whole, partial):
    ids = [gpt2.token_to_id(BYTES[byte]) for byte in data]
    ids = tf.constant([ids], tf.int32)
    assert gpt2.detokenize(ids)[0].numpy().decode() == whole
    assert gpt2.detokenize(ids, partial=True)[0].numpy().decode() == partial


# Graphs


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_does_not_harm(goldens, kind):
    # It clears TensorFlow's cache of operations, and with it what only they hold.
    tokenizer = Tokenizer.from_preset(goldens("tokenizers") / kind)
    expected = tokenizer(["unusualwords"]).to_list()
    tf.random.set_seed(0)
    assert tokenizer(["unusualwords"]).to_list() == expected
