"""GPT-1's BPE: equal to the reference, and the places of its tokens in the text as it was given."""

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_lm.tokenizers import GPTTokenizer

# Extension E of the CJK ideographs, where the reference leaves out 256 of them, a capital sigma,
# which the graph writes as a final sigma at the end of a word, and Unicode's noncharacters, which
# the graph takes for its own marks.
letters = st.characters(codec="utf-8", exclude_characters="Σ").filter(
    lambda c: not (0x2B820 <= ord(c) < 0x2B920 or 0xFDD0 <= ord(c) < 0xFDF0)
)
texts = st.lists(
    st.lists(
        st.one_of(
            st.text(letters, max_size=8),
            st.text("abcABC129'!-.,: \t\n\x00\x85\xa0\xad\u200b\u3000éÉüßİñ\u0301中。🙂नमस्ते안녕"),
            st.sampled_from(["the ", "Hello", "<unk>", "</w>", "\ufb01", "\u1fb3", "\u0958"]),
        ),
        max_size=5,
    ).map("".join),
    min_size=20,
    max_size=30,
)


@pytest.fixture(scope="module")
def gpt(tokenizer_of):
    return tokenizer_of("bpe-gpt1")


def parts(tokenizer, text):
    """A list of (token, what it stands for), counted in bytes and in characters alike."""
    ids, starts, ends = tokenizer.tokenize_with_offsets(text)
    assert ids.numpy().tolist() == tokenizer(text).numpy().tolist()
    data = text.encode()
    results = [data[a:b].decode() for a, b in zip(starts.numpy(), ends.numpy())]
    _, starts, ends = tokenizer.tokenize_with_offsets(text, unit="character")
    assert results == [text[a:b] for a, b in zip(starts.numpy(), ends.numpy())]
    return list(zip([t.decode() for t in tokenizer.tokens(ids).numpy()], results))


def test_ids_and_places_equal_huggingface(gpt, goldens):
    tokenizers = pytest.importorskip("tokenizers")
    lines = (goldens("tokenizers") / "bpe-gpt1" / "merges.txt").read_text(encoding="utf-8")
    reference = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            {token: i for i, token in enumerate(gpt.vocabulary)},
            [tuple(line.split(" ")) for line in lines.rstrip("\n").split("\n")[1:]],
            unk_token="<unk>",
            end_of_word_suffix="</w>",
        )
    )
    reference.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    reference.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()

    # Few calls of many texts, as most of the time goes into the calls.
    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(texts)
    def check(texts):
        ids, starts, ends = gpt.tokenize_with_offsets(texts, unit="character")
        expected = reference.encode_batch(texts, add_special_tokens=False)
        assert ids.to_list() == gpt(texts).to_list() == [e.ids for e in expected]
        places = [list(zip(*row)) for row in zip(starts.to_list(), ends.to_list())]
        assert places == [e.offsets for e in expected]

    check()


def test_lowers_and_cleans(gpt):
    assert gpt("THE\u200b the\x00").numpy().tolist() == gpt("the the").numpy().tolist()
    unknown = gpt.special_id("unknown")
    assert gpt("π\ufdd0\ufdd1").numpy().tolist() == [unknown]
    assert gpt("ππ").numpy().tolist() == [unknown] * 2
    assert gpt.detokenize(gpt(["The  END."])).numpy().tolist() == [b"the end ."]


def test_places(gpt):
    assert parts(gpt, " \x00THE the\u200b!ππ\u0301") == [
        *(("the</w>", "THE"), ("the</w>", "the"), ("!</w>", "!"), ("<unk>", "π"), ("<unk>", "π"))
    ]
    # A letter that becomes several, and one that changes its size in bytes.
    assert [part for _, part in parts(gpt, "가 İ")][:2] == ["가", "가"]
    assert parts(gpt, "") == parts(gpt, " \u3000") == []
    ids, starts, ends = gpt.tokenize_with_offsets(tf.constant([b"\xffthe\xe4\xb8 the", b""]))
    assert ids.to_list() == gpt(["the the", ""]).to_list()
    assert (starts.to_list(), ends.to_list()) == ([[1, 7], []], [[4, 10], []])


def test_places_of_added_tokens(gpt):
    added = ["New York", "[x]"]
    tokenizer = GPTTokenizer(
        [*gpt.vocabulary, *added],
        gpt._rules.merges,
        added_tokens=added,
        lstrip_tokens=["[x]"],
    )
    text = "É the New York the [x]THE"
    expected = [("the</w>", "the"), ("New York", "New York"), ("the</w>", "the"), ("[x]", " [x]")]
    assert parts(tokenizer, text)[-5:] == [*expected, ("the</w>", "THE")]
