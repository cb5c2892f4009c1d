"""What holds for tokenizers of every kind."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_lm import presets
from keras_lm.tokenizers import Tokenizer

WITH_OFFSETS = (
    *("wordpiece-uncased", "wordpiece-cased", "bytebpe-gpt2", "bytebpe-roberta", "bpe-gpt1"),
    *("sentencepiece-albert", "sentencepiece-t5", "sentencepiece-xlnet", "marian"),
    "bytes",
)
KINDS = (*WITH_OFFSETS, "words", "subwords", "transformer-xl", "characters")
SMALL = ("wordpiece-uncased", "bytebpe-gpt2", "bpe-gpt1", "sentencepiece-albert", "marian")
# One of each kind.
DIFFERENT = (*SMALL, "words", "subwords", "transformer-xl", "bytes", "characters")

TEXTS = [
    *(
        "The film was GOOD!",
        "",
        "naïve café, e\u0301\u0323 İß",
        "中文。\u3000\xa0 x\u2028",
        "[SEP]<s>",
    ),
    *(
        b"\xff\xfe a\xe4\xb8 \xf0\x9f\x99",
        b"\x00\x01\x7f",
        "\ufdd0\ufdd1 \ufffd",
        " ",
        "sooo no no no",
    ),
    *("a" * 300, "👍🏽🙂 \u200b\u0891\u166d\u2e44 \U000111c9\u1abf \U00010570", "'s don't 1994 x²"),
]
text = st.lists(
    st.one_of(
        st.binary(max_size=6),
        st.characters(codec="utf-8").map(str.encode),
        st.sampled_from(["the ", "good", "[SEP]", "</s>", "<unk>", "xxmaj", "\x85", " "]).map(
            str.encode
        ),
        st.builds(
            lambda c, n: c * n, st.sampled_from([b"a", b" ", b"\xc3\xa9"]), st.integers(1, 9)
        ),
    ),
    max_size=10,
).map(b"".join)


# Many texts at once, for all tokenizers: most of the time goes into the calls, and into making up
# texts.
texts_of_any_bytes = st.lists(text, min_size=20, max_size=30)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=texts_of_any_bytes)
def test_any_bytes(tokenizer_of, texts):
    for kind in DIFFERENT:
        tokenizer = tokenizer_of(kind)
        ids = tokenizer(texts)
        flat = ids.flat_values.numpy()
        assert ((flat >= 0) & (flat < tokenizer.vocabulary_size)).all(), kind
        assert tokenizer(texts[::-1]).to_list() == ids.to_list()[::-1], kind  # each by itself
        assert tokenizer.detokenize(ids).shape[0] == len(texts), kind
        tokenizer(texts, parse_special=True)


def test_ids_beyond_the_vocabulary_have_no_text(tokenizer_of):
    for kind in {*DIFFERENT} - {"characters"}:
        tokenizer = tokenizer_of(kind).target
        size = tokenizer.vocabulary_size
        ids = [int(id) for id in tokenizer(["the film"]).flat_values[:3]]
        beyond = [[size, *ids[:2], size + 70, *ids[2:]]]
        assert tokenizer.tokens(beyond)[0, 0] == tokenizer.tokens(beyond)[0, 3] == b"", kind
        text = [tokenizer.detokenize([each]) for each in (ids, beyond[0])]
        assert text[0].numpy().tolist() == text[1].numpy().tolist() != [b""], kind


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts=texts_of_any_bytes, unit=st.sampled_from(["byte", "character"]))
def test_places_of_any_bytes(tokenizer_of, texts, unit):
    sizes = [len(t) if unit == "byte" else len(t.decode("utf-8", "replace")) for t in texts]
    for kind in WITH_OFFSETS:
        tokenizer = tokenizer_of(kind)
        ids, starts, ends = tokenizer.tokenize_with_offsets(texts, unit)
        assert ids.to_list() == tokenizer(texts).to_list(), kind
        for size, row_starts, row_ends in zip(sizes, starts.to_list(), ends.to_list()):
            assert row_starts == sorted(row_starts) and row_ends == sorted(row_ends), kind
            assert all(0 <= a <= b <= size for a, b in zip(row_starts, row_ends)), kind


def test_places_are_of_strings_in_at_most_one_dimension(tokenizer_of):
    for kind in WITH_OFFSETS:
        tokenizer = tokenizer_of(kind)
        one = tokenizer.tokenize_with_offsets("the film")
        assert [x.shape.rank for x in one] == [1, 1, 1]
        assert [x.dtype for x in one] == [tf.int32, tf.int64, tf.int64]
        with pytest.raises(ValueError, match="in at most one dimension"):
            tokenizer.tokenize_with_offsets([["a"]])
        with pytest.raises(ValueError, match="`unit` is 'word'; it must be one of"):
            tokenizer.tokenize_with_offsets("a", unit="word")


def peak_megabytes(function):
    """Return by how much a function raises the memory of the process while it runs."""
    clear = Path("/proc/self/clear_refs")
    if not clear.exists():
        pytest.skip("only Linux tells how much memory a process took")
    clear.write_text("5")  # the peak starts anew

    def megabytes(name):
        lines = Path("/proc/self/status").read_text().split("\n")
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024

    before = megabytes("VmRSS")
    function()
    return megabytes("VmHWM") - before


@pytest.mark.thorough
@pytest.mark.parametrize("kind", DIFFERENT)
def test_long_and_many(tokenizer_of, kind):
    tokenizer = tokenizer_of(kind)
    long = ["the film. " * 10_000, "a" * 10_000, "é" * 5_000, " " * 100_000, "中" * 33_000]
    # A table of texts x longest text would take gigabytes.
    texts = long + ["a text"] * 10_000
    ids = []

    def run():
        ids.append(tokenizer(texts))
        tokenizer.detokenize(ids[0])
        if kind in WITH_OFFSETS:
            tokenizer.tokenize_with_offsets(texts, "character")

    assert peak_megabytes(run) < 400
    rows = ids[0][: len(long)].to_list()
    assert rows == [tokenizer(text).numpy().tolist() for text in long]
    assert rows[3] == [] or kind in ("bytebpe-gpt2", "subwords", "bytes")
    assert tokenizer([""] * 10_000).to_list() == [[]] * 10_000


@pytest.mark.parametrize("kind", DIFFERENT)
def test_shapes(tokenizer_of, kind):
    tokenizer = tokenizer_of(kind)
    more = kind == "characters"  # a dimension more
    texts = ["the film", "good"]
    one, two = (tokenizer(text) for text in texts)
    assert one.dtype == tf.int32 and one.shape.rank == 1 + more
    both = [one.numpy().tolist(), two.numpy().tolist()]
    for form in (texts, np.array(texts), np.array(texts, object), tf.constant(texts)):
        ids = tokenizer(form)
        assert isinstance(ids, tf.RaggedTensor) and ids.dtype == tf.int32
        assert ids.shape.rank == 2 + more and ids.to_list() == both
    assert tokenizer([texts, texts]).to_list() == [both, both]
    assert tokenizer([texts, ["good"]]).to_list() == [both, [both[1]]]
    assert tokenizer(tf.ragged.constant([[texts], []])).to_list() == [[both], []]
    assert tokenizer([]).to_list() == []
    assert tokenizer(tf.zeros([0, 3], tf.string)).shape[0] == 0
    with pytest.raises(ValueError, match="`text` must hold strings"):
        tokenizer(tf.constant([1, 2]))
    if not more:
        expected = tokenizer.detokenize(tokenizer(texts)).numpy().tolist()
        assert tokenizer.detokenize(both).numpy().tolist() == expected
        assert tokenizer.detokenize(one).numpy() == expected[0]
        assert tokenizer.detokenize([both, both]).to_list() == [expected, expected]
        assert tokenizer.detokenize(np.zeros((2, 0), np.int32)).numpy().tolist() == [b"", b""]


@pytest.mark.parametrize("kind", KINDS)
def test_preset_round_trip(tokenizer_of, kind, tmp_path):
    tokenizer = tokenizer_of(kind)
    presets.save(tmp_path / "preset", None, tokenizer=tokenizer)
    again = Tokenizer.from_preset(tmp_path / "preset")
    assert type(again) is type(tokenizer)
    assert again.vocabulary == tokenizer.vocabulary
    assert again.get_config() == tokenizer.get_config()
    for parse_special in (False, True):
        expected = tokenizer(TEXTS, parse_special=parse_special).to_list()
        assert again(TEXTS, parse_special=parse_special).to_list() == expected


class Endpoint(tf.Module):
    """What a served tokenizer answers, each ragged tensor as its values and the splits of rows."""

    def __init__(self, tokenizer, has_places):
        super().__init__()
        self.tokenizer, self.has_places = tokenizer, has_places

    def answer(self, text):
        ids = self.tokenizer(text, parse_special=True)
        back = self.tokenizer.detokenize(ids)
        back = back.flat_values if isinstance(back, tf.RaggedTensor) else back
        answer = {"values": ids.values, "row_splits": ids.row_splits, "text": back}
        if self.has_places:
            plain, starts, ends = self.tokenizer.tokenize_with_offsets(text)
            answer |= {"plain": plain.values, "starts": starts.values, "ends": ends.values}
        return answer


# The others are these with another vocabulary, parts of `marian`, or in the exports of tasks.
TRACED = ("bpe-gpt1", "words", "subwords", "characters")
ALSO = [pytest.param(k, marks=pytest.mark.thorough) for k in KINDS if k not in (*TRACED, "marian")]
ALSO += [pytest.param("marian", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kind", [*TRACED, *ALSO])
def test_saved_model(tokenizer_of, kind, tmp_path):
    tokenizer = tokenizer_of(kind)
    module = Endpoint(tokenizer, kind in WITH_OFFSETS)
    # As exports are traced: the code is made of operations, and needs no AutoGraph.
    traced = tf.function(module.answer, [tf.TensorSpec([None], tf.string)], autograph=False)
    tf.saved_model.save(module, tmp_path, {"serving_default": traced.get_concrete_function()})
    loaded = tf.saved_model.load(tmp_path).signatures["serving_default"]
    texts = tf.constant(TEXTS)
    got = loaded(texts)
    ids = tf.RaggedTensor.from_row_splits(got["values"], got["row_splits"])
    assert ids.to_list() == tokenizer(texts, parse_special=True).to_list()
    expected = module.answer(texts)
    assert {k: v.numpy().tolist() for k, v in got.items()} == {
        k: v.numpy().tolist() for k, v in expected.items()
    }
    got = loaded(tf.constant([], tf.string))
    assert [got[name].shape[0] for name in got if name != "row_splits"] == [0] * (len(got) - 1)


# (That all of them can be traced is shown by `test_saved_model`.)
@pytest.mark.parametrize(
    "kind", ["characters", *(pytest.param(k, marks=pytest.mark.thorough) for k in DIFFERENT[:-1])]
)
def test_tf_data(tokenizer_of, kind):
    tokenizer = tokenizer_of(kind)
    expected = tokenizer(TEXTS).to_list()
    batches = tf.data.Dataset.from_tensor_slices(TEXTS).batch(5).map(tokenizer)
    assert [ids for batch in batches for ids in batch.to_list()] == expected
    single = tf.data.Dataset.from_tensor_slices(TEXTS).map(tokenizer)
    assert [ids.numpy().tolist() for ids in single] == expected


@pytest.mark.parametrize("kind", DIFFERENT)
def test_pickles(tokenizer_of, kind):
    tokenizer = tokenizer_of(kind)
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.get_config() == tokenizer.get_config()
    assert copy.vocabulary == tokenizer.vocabulary
    np.testing.assert_array_equal(copy(TEXTS).flat_values, tokenizer(TEXTS).flat_values)


NO_LISTS = [None, 5, "abc", {"a": 0}, [5], [None], [["a"]], [b"a"], ["\ud800"]]


@pytest.mark.parametrize("kind", DIFFERENT[:-1])
def test_entries_that_are_no_strings(tokenizer_of, kind, tmp_path):
    tokenizer = tokenizer_of(kind)
    tokenizer.save_assets(tmp_path)
    config = tokenizer.get_config()
    tokens = [name for name in config if name.endswith("_token")]
    lists = [name for name in config if name.endswith("_tokens")]
    assert {"pad_token", "unknown_token"} & {*tokens} and "additional_special_tokens" in lists
    bad = [(name, value) for name in tokens for value in (5, ["a"], {"a": 1}, b"a", "\ud800")]
    for name, value in [*bad, *((name, value) for name in lists for value in NO_LISTS)]:
        with pytest.raises(ValueError, match=f"^`{name}` (is|names) "):
            tokenizer.from_assets(tmp_path, {**config, name: value})


GROWING = ("wordpiece-uncased", "bytebpe-gpt2", "bytebpe-roberta", "sentencepiece-albert")


@pytest.mark.parametrize("kind", GROWING)
def test_with_words(tokenizer_of, kind, tmp_path):
    tokenizer = tokenizer_of(kind)
    grown = tokenizer.with_words(["remdesivir", "zyxomab"])
    assert grown.vocabulary[: tokenizer.vocabulary_size] == tokenizer.vocabulary
    is_spaced = kind.startswith("bytebpe")  # an entry with a space, and one without
    assert grown.vocabulary_size - tokenizer.vocabulary_size == (4 if is_spaced else 2)

    def new(ids):
        return [[i >= tokenizer.vocabulary_size for i in row] for row in ids.to_list()]

    text = ["the zyxomab ( remdesivir)"]
    ids = grown(text)
    assert sum(new(ids)[0]) == 2
    assert grown.detokenize(ids) == tokenizer.detokenize(tokenizer(text))
    assert all(sum(row) == 1 == len(row) for row in new(grown(["remdesivir", "zyxomab"])))
    for row in grown.tokenize_with_offsets(text)[1:]:
        assert row.row_lengths() == ids.row_lengths()
    # Other words stay as they were.
    others = [t for t in TEXTS if not isinstance(t, bytes)]
    assert grown(others).to_list() == tokenizer(others).to_list()

    grown.save_assets(tmp_path)
    again = type(grown).from_assets(str(tmp_path), grown.get_config())
    assert again.vocabulary == grown.vocabulary
    assert again(text).to_list() == ids.to_list()
    assert again.tokenize_lite(tf.constant(text)).to_list() == ids.to_list()
    assert again.with_words(["remdesivir"]) is again
    with pytest.raises(ValueError, match="'COVID - 19', which cannot be one token"):
        tokenizer.with_words(["remdesivir", "COVID - 19"])


NOT_GROWING = ("bpe-gpt1", "words", "subwords", "characters", "sentencepiece-t5", "marian")


@pytest.mark.parametrize("kind", NOT_GROWING)
def test_some_cannot_take_words(tokenizer_of, kind):
    with pytest.raises(ValueError, match="further"):
        tokenizer_of(kind).with_words(["remdesivir"])


@pytest.mark.parametrize("kind", SMALL[:-1])
def test_special_tokens_can_be_added(tokenizer_of, kind):
    tokenizer = tokenizer_of(kind)
    size, text = tokenizer.vocabulary_size, ["the <new> film"]
    grown = tokenizer.with_special_tokens(["<new>", tokenizer.all_special_tokens[0]])
    assert grown.vocabulary_size == size + 1
    assert grown.all_special_tokens == [*tokenizer.all_special_tokens, "<new>"]
    assert grown(text).to_list() == tokenizer(text).to_list()
    assert grown(text, parse_special=True).to_list()[0].count(size) == 1
    ids = grown(["the"]).to_list()[0]
    assert grown.detokenize([[size, *ids]]) == tokenizer.detokenize([ids])


@pytest.mark.parametrize("kind", ["words", "subwords", "characters", "marian"])
def test_some_cannot_take_special_tokens(tokenizer_of, kind):
    with pytest.raises(NotImplementedError, match="cannot take further tokens"):
        tokenizer_of(kind).with_special_tokens(["<new>"])


@pytest.mark.eager
@pytest.mark.parametrize(
    "folder",
    [
        *("bpe-gpt1", "bytebpe-gpt2", "sentencepiece-albert", "sentencepiece-t5"),
        *("wordpiece-cased", "wordpiece-uncased"),
    ],
)
def test_texts_in_bytes_are_those_of_detokenize(folder, goldens):
    tokenizer = Tokenizer.from_preset(goldens("tokenizers") / folder)
    random = np.random.default_rng(0)
    rows = [random.integers(0, tokenizer.vocabulary_size, n).tolist() for n in (0, 1, 40, 7)]
    rows += tokenizer(["Hello world, it's fine .", "  a  b ", "", "ünaïve ß 日本 "]).to_list()
    ids = tf.ragged.constant(rows, tf.int32, ragged_rank=1)
    texts = [bytes(row) for row in tokenizer.detokenize_lite(ids).to_list()]
    for text, expected in zip(texts, tokenizer.detokenize(ids).numpy(), strict=True):
        # Bytes that are not UTF-8 stay here.
        assert text == expected or "\ufffd".encode() in expected
    assert sum(map(len, texts)) > 60
