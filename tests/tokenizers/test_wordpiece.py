"""WordPiece: equal to the reference, safe on hostile text, the same in every kind of graph."""

import json
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_lm.tokenizers import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def split(text):
    return text.split()


PIECES = split(
    "un ##aff ##able hello world ! , . ' [ ] # - : don t s a b ab ##b ##a cafe naive ß "
    "中 文 日 привет ##ет при ##в é café ÉCOLE Hello SEP sep cls unk pad mask $ 1 ##2"
)
SMALL = SPECIAL + PIECES
CASINGS = ("cased", "uncased")


def make(lowercase=True, vocabulary=SMALL, **kwargs):
    return WordPieceTokenizer(vocabulary, lowercase=lowercase, **kwargs)


@pytest.fixture(scope="module")
def small():
    return make()


@pytest.fixture(scope="module")
def golden(golden_of):
    """`golden("cased")` is (folder, tokenizer, expected rows)."""
    return lambda casing: golden_of(f"wordpiece-{casing}")


def words(tokenizer, text, **kwargs):
    """The entries that a text becomes."""
    return [t.decode() for t in tokenizer.tokens(tokenizer(text, **kwargs)).numpy().tolist()]


# The reference


@pytest.mark.parametrize("casing", CASINGS)
def test_ids_equal_the_reference(golden, casing):
    _, tokenizer, rows = golden(casing)
    got = tokenizer([row["text"] for row in rows], parse_special=True).to_list()
    cls, sep = tokenizer.special_id("cls"), tokenizer.special_id("sep")
    wrong = [r["text"] for r, ids in zip(rows, got) if [cls, *ids, sep] not in r["ids"]]
    assert not wrong


@pytest.mark.parametrize("casing", CASINGS)
def test_decoded_text_equals_the_reference(golden, casing):
    _, tokenizer, rows = golden(casing)
    rows = [row for row in rows if "decoded" in row]
    got = tokenizer.detokenize([row["ids"][0] for row in rows]).numpy()
    assert [text.decode() for text in got] == [row["decoded"] for row in rows]


def huggingface(vocabulary, lowercase):
    tokenizers = pytest.importorskip("tokenizers")
    reference = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            {token: i for i, token in enumerate(vocabulary)},
            unk_token="[UNK]",
            max_input_chars_per_word=100,
        )
    )
    reference.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    reference.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return reference


# Letters of several scripts, marks, punctuation, spaces, controls; all of them older than the
# oldest Unicode table at play. A capital sigma is left out: at the end of a word, Python and the
# graph make it a final sigma, and the Rust library does not.
ALPHABET = (
    "abAB129'!#[]-_$.,: \t\n\r\x00\x07\x7f\x85\xa0\xad\u200b\u200d\u2028\u3000\ufeff\ufffd\ue000"
    "éÉüßİıñ\u0301\u0323ﬁПриветЁйשלוםمرحباनमस्तेสวัสดี안녕中文日本テスト。，！ａＡ１½²™€№–—…“”🙂👍🏽𝐀𠀀"
)
hostile = st.lists(
    st.one_of(
        st.text(ALPHABET, max_size=40),
        st.sampled_from([*SMALL, "##", "[SEP", "SEP]"]),
        st.builds(
            lambda c, n: c * n, st.sampled_from(ALPHABET), st.sampled_from([99, 100, 101, 401])
        ),
    ),
    max_size=6,
).map("".join)


@pytest.mark.parametrize("lowercase", [True, False])
def test_ids_equal_huggingface_on_hostile_text(lowercase):
    letters = {c for a in ALPHABET for c in unicodedata.normalize("NFD", a.lower()) + a}
    letters = sorted(c for c in letters if not c.isspace() and c != "\x00")
    vocabulary = list(dict.fromkeys(SMALL + letters + ["##" + c for c in letters if c != "n"]))
    reference, tokenizer = huggingface(vocabulary, lowercase), make(lowercase, vocabulary)

    # Few calls of many texts, as most of the time goes into the calls.
    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(hostile, min_size=25, max_size=35))
    def check(texts):
        expected = [e.ids for e in reference.encode_batch(texts, add_special_tokens=False)]
        assert tokenizer(texts).to_list() == expected

    check()


@pytest.mark.parametrize("lowercase", [True, False])
def test_all_of_unicode_equals_huggingface(lowercase):
    # The matcher, RE2 and the reference each know another version of Unicode. What differs: U+2B820
    # to U+2B91F, which BERT's own code and we call ideographs, what cleaning drops because nobody
    # can type it, and capitals so new that only the reference finds their small letters.
    known = [chr(c) for c in (*range(0xD800), *range(0xE000, 0xFDD0), *range(0xFDF0, 0x2B820))]
    known = [*known[:0x3000], *known[0x3000::5], *map(chr, (0x166D, 0x111C9, 0x2E44, 0x1E95F))]
    vocabulary = [*SPECIAL, "a", "b", "##a", "##b", "\u166d"]
    reference, tokenizer = huggingface(vocabulary, lowercase), make(lowercase, vocabulary)
    texts = [f"a{c}b" for c in known]
    expected = [e.ids for e in reference.encode_batch_fast(texts, add_special_tokens=False)]
    got = tokenizer(texts).to_list()
    assert not [f"{ord(c):X}" for c, a, b in zip(known, got, expected) if a != b]


# Text


def test_uncased(small):
    assert words(small, "UnAffable HELLO, Wörld!") == split("un ##aff ##able hello , world !")
    assert words(small, "Café NAÏVE ß") == ["cafe", "naive", "ß"]


def test_cased():
    tokenizer = make(lowercase=False)
    assert words(tokenizer, "Hello hello café ÉCOLE cafe") == split("Hello hello café ÉCOLE cafe")
    assert words(make(lowercase=False, strip_accents=True), "café") == ["cafe"]


def test_accents_may_stay_on_lower_case():
    tokenizer = make(strip_accents=False)
    assert words(tokenizer, "CAFÉ É") == ["café", "é"]


def test_ideographs_are_words(small):
    assert words(small, "hello中文a日") == ["hello", "中", "文", "a", "日"]


def test_control_and_format_characters_vanish(small):
    text = "hel\x00l\x07o w\u200bor\u200dl\xadd\x85 \ufeffa\x7fb\ue000 \ufffd"
    assert words(small, text) == ["hello", "world", "ab"]


def test_white_space(small):
    text = "a\tb\na\r\nb\xa0a\u3000b\u2028a\u2029b \u2003a"
    assert words(small, text) == ["a", "b"] * 4 + ["a"]


@pytest.mark.parametrize("letter", ["a", "б", "ส", "𝐀", "é"])
def test_a_word_is_too_long_in_characters_not_in_bytes(letter):
    stripped = unicodedata.normalize("NFD", letter)[0]
    tokenizer = make(vocabulary=[*SPECIAL, stripped, "##" + stripped, "-", "!", "中"])
    assert words(tokenizer, letter * 100) == [stripped] + ["##" + stripped] * 99
    assert words(tokenizer, letter * 101) == ["[UNK]"]
    assert words(tokenizer, letter * 1000 + "!") == ["[UNK]", "!"]
    assert words(tokenizer, f"{letter * 60}-{letter * 60}中{letter * 60}").count("[UNK]") == 0
    # A dropped character does not count.
    assert words(tokenizer, letter * 50 + "\u200b" + letter * 50).count("[UNK]") == 0


def test_max_word_length():
    tokenizer = make(max_word_length=2)
    assert words(tokenizer, "ab aba éa éab") == ["ab", "[UNK]", "[UNK]", "[UNK]"]


def test_tokens_beside_and_within_long_words():
    many = [f"[E{i}]" for i in range(200)]  # ids of three digits
    vocabulary = [*SMALL, *many, "New York"]
    tokenizer = make(
        vocabulary=vocabulary,
        additional_special_tokens=many,
        added_tokens=["New York"],
        max_word_length=2,
    )
    text = "aba[E199]aba new york"
    assert words(tokenizer, text, parse_special=True) == split("[UNK] [E199] [UNK]") + ["New York"]
    tokenizer = make(vocabulary=vocabulary, added_tokens=["New York"])
    text = "a" * 101 + "New York" + "b" * 101 + " é"
    assert words(tokenizer, text) == ["[UNK]", "New York", "[UNK]", "[UNK]"]


def test_invalid_utf8_is_replaced(small):
    texts = [b"hello \xff\xfe world", b"a\xe4\xb8b", b"\xed\xa0\x80a", b"hel\xf8lo", b"\xc0\x80"]
    assert [small.detokenize(small(t)).numpy().decode() for t in texts] == [
        "hello world",
        "ab",
        "a",
        "hello",
        "",
    ]


def test_entries_that_no_text_can_spell():
    vocabulary = [*SPECIAL, "a", "b", "##b", "a b", "", "\x00", "a-b", "...", "中a", "-", ".", "中"]
    tokenizer = make(vocabulary=vocabulary)
    text = "a b ab a-b ... 中a"
    assert words(tokenizer, text) == split("a b a ##b a - b . . . 中 a")


# Special tokens


def test_text_never_becomes_a_special_token(small):
    assert words(small, "[SEP] [CLS]a[MASK]") == [
        *("[", "sep", "]", "[", "cls", "]", "a", "[", "mask", "]")
    ]
    assert words(small, "[SEP]a[CLS]", parse_special=True) == ["[SEP]", "a", "[CLS]"]
    assert words(small, "[MASK][SEP]", parse_special=["[MASK]"]) == ["[MASK]", "[", "sep", "]"]
    assert words(small, "[SEP][SEP]\x00[sep]", parse_special=True) == [
        *("[SEP]", "[SEP]", "[", "sep", "]")
    ]


def test_nothing_can_be_injected(small):
    allowed = {small.special_id("unknown"), *range(len(SPECIAL), small.vocabulary_size)}
    noncharacters = "".join(map(chr, range(0xFDD0, 0xFDF0)))
    attack = st.one_of(
        st.text(noncharacters + "a 中"),
        st.text(),
        st.lists(st.sampled_from([*SPECIAL, "\x00", "\ufdd2", "\ufdd3", " "])).map("".join),
        st.binary(max_size=30),
    )

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(attack, min_size=25, max_size=35))
    def check(texts):
        texts = [t if isinstance(t, bytes) else t.encode("utf-8", "replace") for t in texts]
        assert set(small(texts).values.numpy().tolist()) <= allowed
        parsed = small(texts, parse_special=True)
        for text, ids in zip(texts, parsed.to_list()):
            assert b"[" in text or set(ids) <= allowed

    check()


def test_additional_special_and_added_tokens():
    vocabulary = [*SMALL, "[E1]", "[E1][E2]", "New York", "x-1"]
    tokenizer = make(
        vocabulary=vocabulary,
        additional_special_tokens=["[E1]", "[E1][E2]"],
        added_tokens=["New York", "x-1"],
    )
    # Leftmost, then longest.
    assert words(tokenizer, "a[E1][E2][E1]b", parse_special=True) == [
        *("a", "[E1][E2]", "[E1]", "b")
    ]
    assert "[E1]" not in words(tokenizer, "a[E1]")
    assert words(tokenizer, "hello new YORK, x-1b") == ["hello", "New York", ",", "x-1", "b"]
    assert tokenizer.detokenize(tokenizer("a [E1] x-1", parse_special=True)).numpy() == b"a x-1"


def test_special_tokens_by_role(small):
    assert small.special_tokens == dict(zip(["pad", "unknown", "cls", "sep", "mask"], SPECIAL))
    assert [small.special_id(r) for r in ("pad", "unknown", "cls", "sep", "mask")] == list(range(5))
    with pytest.raises(ValueError, match="'bos'"):
        small.special_id("bos")
    without = make(vocabulary=[t for t in SMALL if t != "[MASK]"], mask_token=None)
    assert "mask" not in without.special_tokens


# The vocabulary


def test_lookups(small):
    assert small.vocabulary == SMALL
    assert small.vocabulary_size == len(SMALL)
    assert small.id_to_token(small.token_to_id("##aff")) == "##aff"
    with pytest.raises(ValueError, match="'nowhere'"):
        small.token_to_id("nowhere")
    for id in (-1, len(SMALL)):
        with pytest.raises(ValueError, match=str(id)):
            small.id_to_token(id)
    assert small.tokens([[5, 6], [7, 8]]).numpy().tolist() == [
        [b"un", b"##aff"],
        [b"##able", b"hello"],
    ]
    assert small.tokens(tf.ragged.constant([[5], []])).to_list() == [[b"un"], []]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocabulary": []}, "empty"),
        ({"vocabulary": [*SMALL, "hello"]}, "'hello' twice"),
        ({"vocabulary": [t for t in SMALL if t != "[UNK]"]}, r"unknown_token.*\[UNK\]"),
        ({"vocabulary": [t for t in SMALL if t != "[MASK]"]}, "mask_token=None"),
        ({"unknown_token": None}, "unknown_token"),
        ({"additional_special_tokens": ["[E]"]}, r"additional_special_tokens.*\[E\]"),
        ({"added_tokens": ["nowhere"]}, "added_tokens.*nowhere"),
        ({"vocabulary": [*SMALL, "a\nb"]}, "line end"),
        (
            {"vocabulary": {t: i for i, t in enumerate(SMALL)}},
            "type dict; pass a list",
        ),
        ({"vocabulary": [*SMALL, 5]}, "`vocabulary` names 5"),
        ({"max_word_length": 0}, "max_word_length"),
        ({"max_word_length": "5"}, "`max_word_length` is '5'"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


# Shapes


def test_detokenize(small):
    ids = small(["Hello, world!", "un a", ""])
    texts = [b"hello, world!", b"un a", b""]
    assert small.detokenize(ids).numpy().tolist() == texts
    assert small.detokenize(ids.to_list()).numpy().tolist() == texts
    assert small.detokenize(ids.to_tensor(default_value=0)).numpy().tolist() == texts
    assert small.detokenize(np.asarray(ids[0], np.int64)).numpy() == texts[0]
    assert small.detokenize([2, *ids[0].numpy(), 3, 0, 0]).numpy() == texts[0]
    assert small.detokenize(tf.stack([[[5, 6], [5, 0]]])).to_list() == [[b"unaff", b"un"]]
    assert small.detokenize([[6, 6]]).numpy().tolist() == [b"##affaff"]
    assert small.detokenize([]).numpy() == b""


def test_detokenize_cleans_up_english():
    vocabulary = [*SPECIAL, *split("i ' m don n't 's x 've 're . ? ! ,")]
    tokenizer = make(vocabulary=vocabulary)
    ids = [tokenizer.token_to_id(t) for t in split("i ' m don n't x 's x 've x 're . ? ! ,")]
    assert tokenizer.detokenize(ids).numpy() == b"i'm donn't x's x've x're.?!,"


# Graphs


class Endpoints(tf.Module):
    def __init__(self, tokenizer):
        super().__init__()
        self.tokenizer = tokenizer
        text = tf.TensorSpec([None], tf.string)
        # As exports are traced: the code is made of operations, and needs no AutoGraph.
        self.ids, self.parsed = (
            tf.function(function, [text], autograph=False).get_concrete_function()
            for function in (self.find_ids, self.parse)
        )

    def find_ids(self, text):
        ids = self.tokenizer(text)
        return {"values": ids.values, "row_splits": ids.row_splits}

    def parse(self, text):
        ids = self.tokenizer(text, parse_special=True)
        return {"text": self.tokenizer.detokenize(ids), "row_splits": ids.row_splits}


def ragged(output):
    return tf.RaggedTensor.from_row_splits(output["values"], output["row_splits"]).to_list()


def megabytes(folder):
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 1e6


# (That of an uncased one is in `test_every_tokenizer.py`.)
@pytest.mark.parametrize("casing", ["cased", pytest.param("uncased", marks=pytest.mark.thorough)])
def test_saved_model(golden, casing, tmp_path):
    _, tokenizer, rows = golden(casing)
    texts = tf.constant([row["text"] for row in rows])
    module = Endpoints(tokenizer)
    tf.saved_model.save(module, tmp_path / "one", {"serving_default": module.ids})
    signatures = {"serving_default": module.ids, "parsed": module.parsed}
    tf.saved_model.save(module, tmp_path / "two", signatures)
    loaded = tf.saved_model.load(tmp_path / "two").signatures
    assert ragged(loaded["serving_default"](texts)) == tokenizer(texts).to_list()
    expected = tokenizer.detokenize(tokenizer(texts, parse_special=True))
    assert loaded["parsed"](texts)["text"].numpy().tolist() == expected.numpy().tolist()
    assert loaded["serving_default"](tf.constant([], tf.string))["values"].shape == [0]
    assert megabytes(tmp_path / "two") < 1.1 * megabytes(tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize("casing", ["uncased", pytest.param("cased", marks=pytest.mark.thorough)])
def test_tflite(golden, casing, in_litert):
    _, tokenizer, rows = golden(casing)
    lite = in_litert(tokenizer)
    typed = [
        *("", "« a… ™ ½ ß Ａ！ ﬁ »", "ΟΔΥΣΣΕΥΣ, ΣΑΣ. ΑΣ\u00ad Σ", "x\x00\x7f\u200d\ufdd0y \ufdda"),
        *("a" * 100 + " " + "a" * 101 + " b", "don't\u00a0stop\x85now", "[SEP] [UNK] ##a # # a"),
        *("中文abc中", "각 \u1100\u1161", "unaffable qzxunaffable", "\U0001fffe\U00012345 \u166d"),
        *("the", b"\xff\xe2\x82 a\xed\xa0\x80b", "é" * 50, "İẞ"),
    ]
    for batch in ([""], ["hello world"], ["", "a", ""], typed, [row["text"] for row in rows]):
        assert lite(batch) == tokenizer(batch).to_list()
    special = {tokenizer.special_id(role) for role in ("pad", "cls", "sep", "mask")}
    injected = lite(["\ufdd2 \ufdd3", "[SEP] \ufdd0\ufdd1", "\x00[MASK] a"])
    assert special.isdisjoint(id for row in injected for id in row)


@pytest.mark.thorough
@pytest.mark.parametrize("casing", CASINGS)
def test_tflite_of_every_character(golden, casing, in_litert):
    _, tokenizer, _ = golden(casing)
    lite, codes = in_litert(tokenizer), [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for i in range(0, len(codes), 2048):
        texts = [f"a{chr(code)}a {chr(code)}" for code in codes[i : i + 2048]]
        assert lite(texts) == tokenizer(texts).to_list()


# Files


def write(folder, **files):
    for name, content in files.items():
        name = name.replace("__", ".")
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / name).write_bytes(data)
    return folder


def lines(tokens, end="\n"):
    return "".join(token + end for token in tokens).encode()


def test_assets_round_trip(tmp_path):
    vocabulary = [*SMALL, "\u2028", "\x85x", "[E]", "New York"]
    tokenizer = make(
        vocabulary=vocabulary,
        strip_accents=False,
        additional_special_tokens=["[E]"],
        added_tokens=["New York"],
        max_word_length=50,
    )
    tokenizer.save_assets(tmp_path)
    config = json.loads(json.dumps(tokenizer.get_config()))
    again = WordPieceTokenizer.from_assets(tmp_path, config)
    assert again.vocabulary == vocabulary
    assert again.get_config() == tokenizer.get_config()
    texts = ["Hello new york [E] café", "a" * 51]
    assert again(texts).to_list() == tokenizer(texts).to_list()
    assert (tmp_path / "vocab.txt").read_bytes() == lines(vocabulary)


@pytest.mark.parametrize("casing", CASINGS)
def test_casing_comes_from_the_configuration_else_from_the_vocabulary(golden, casing, tmp_path):
    folder, tokenizer, _ = golden(casing)
    assert tokenizer.lowercase == (casing == "uncased")
    write(tmp_path, vocab__txt=(folder / "vocab.txt").read_bytes())
    assert WordPieceTokenizer.from_files(tmp_path).lowercase == (casing == "uncased")
    for lowercase in (True, False):
        write(tmp_path, tokenizer_config__json={"do_lower_case": lowercase})
        read = WordPieceTokenizer.from_files(tmp_path)
        assert read.lowercase == read.strip_accents == lowercase
        assert WordPieceTokenizer.from_files(tmp_path, lowercase=not lowercase).lowercase != (
            lowercase
        )


def test_vocabulary_file(tmp_path):
    write(tmp_path, vocab__txt=b"\xef\xbb\xbf" + lines([*SMALL, "\u2028", "\x0b"], "\r\n"))
    tokenizer = make(vocabulary=tmp_path / "vocab.txt")
    assert tokenizer.vocabulary == [*SMALL, "\u2028", "\x0b"]
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt"):
        make(vocabulary=str(tmp_path / "nowhere.txt"))
    write(tmp_path, bad__txt=b"[PAD]\ncaf\xe9\n")
    with pytest.raises(ValueError, match="not UTF-8: byte 9 is 0xe9"):
        make(vocabulary=tmp_path / "bad.txt")
    write(tmp_path, empty__txt=b"")
    with pytest.raises(ValueError, match="empty"):
        make(vocabulary=tmp_path / "empty.txt")


def test_no_vocabulary(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"vocab\.txt"):
        WordPieceTokenizer.from_files(tmp_path)


def hugging_face_json(**normalizer):
    return {
        "added_tokens": [
            {"id": i, "content": t, "special": True, "single_word": False}
            for i, t in enumerate(SPECIAL)
        ]
        + [{"id": len(SMALL), "content": "New York", "special": False}]
        + [{"id": len(SMALL) + 1, "content": "[E]", "special": True}],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
            **normalizer,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {t: i for i, t in enumerate(SMALL)},
        },
    }


def test_hugging_face_tokenizer_json(tmp_path):
    write(tmp_path, tokenizer__json=hugging_face_json())
    tokenizer = WordPieceTokenizer.from_files(tmp_path)
    assert tokenizer.vocabulary == [*SMALL, "New York", "[E]"]
    assert tokenizer.lowercase and tokenizer.strip_accents
    assert words(tokenizer, "Hello New York [E]", parse_special=True) == [
        *("hello", "New York", "[E]")
    ]
    write(tmp_path, tokenizer__json=hugging_face_json(lowercase=False, strip_accents=True))
    tokenizer = WordPieceTokenizer.from_files(tmp_path)
    assert not tokenizer.lowercase and tokenizer.strip_accents
    # The configuration wins, and its added tokens count.
    write(
        tmp_path,
        tokenizer_config__json={
            "do_lower_case": True,
            "strip_accents": False,
            "cls_token": {"content": "cls"},
            "mask_token": None,
            "additional_special_tokens": ["sep"],
            "added_tokens_decoder": {str(len(SMALL) + 2): {"content": "[F]", "special": True}},
        },
    )
    tokenizer = WordPieceTokenizer.from_files(tmp_path)
    assert tokenizer.lowercase and not tokenizer.strip_accents
    assert tokenizer.special_tokens["cls"] == "cls" and "mask" not in tokenizer.special_tokens
    assert words(tokenizer, "[F] sep", parse_special=True) == ["[F]", "sep"]
    assert words(tokenizer, "sep") == ["[UNK]"]


def test_hugging_face_special_tokens_map(tmp_path):
    vocabulary = ["<s>", "</s>", "<pad>", "<unk>", "<mask>", "a"]
    roles = dict(zip(["cls", "sep", "pad", "unk", "mask"], vocabulary))
    write(
        tmp_path,
        vocab__txt=lines(vocabulary),
        special_tokens_map__json={f"{role}_token": token for role, token in roles.items()},
        added_tokens__json={"b": 6},
    )
    tokenizer = WordPieceTokenizer.from_files(tmp_path)
    assert tokenizer.special_tokens["unknown"] == "<unk>"
    assert words(tokenizer, "<s>ab", parse_special=True) == ["<s>", "a", "b"]


def test_keras_hub_files(tmp_path):
    (tmp_path / "assets" / "tokenizer").mkdir(parents=True)
    write(tmp_path / "assets" / "tokenizer", vocabulary__txt=lines(SMALL))
    write(
        tmp_path,
        tokenizer__json={
            "class_name": "keras_hub>BertTokenizer",
            "config": {"lowercase": True, "strip_accents": False, "split": True, "sequence": None},
        },
    )
    tokenizer = WordPieceTokenizer.from_files(tmp_path)
    assert tokenizer.vocabulary == SMALL
    assert tokenizer.lowercase and not tokenizer.strip_accents


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer_config__json": {"tokenize_chinese_chars": False}}, "tokenize_chinese_chars"),
        ({"tokenizer_config__json": {"word_tokenizer_type": "mecab"}}, "mecab"),
        ({"tokenizer_config__json": {"mask_token": "[GONE]"}}, "mask_token=None"),
        ({"tokenizer_config__json": b"{"}, "not a JSON file"),
        ({"tokenizer__json": {"model": {"type": "BPE"}}}, "BPE"),
        ({"tokenizer__json": hugging_face_json(clean_text=False)}, "clean_text"),
        ({"added_tokens__json": {"x": len(SMALL) + 5}}, "without a gap"),
        ({"added_tokens__json": {"hello": 0}}, "'hello'"),
        ({"added_tokens__json": {"x": "5"}}, "the token 'x' the id '5', and ids are whole numbers"),
        ({"tokenizer__json": []}, "tokenizer.json' should hold a JSON object and holds a list"),
        (
            {"tokenizer__json": b"[" * 10**5},
            "tokenizer.json' is not a JSON file: maximum recursion",
        ),
        ({"tokenizer__json": b'{"a":' * 10**5}, "tokenizer.json' is not a JSON file"),
        ({"tokenizer__json": b'{"a":' + b"9" * 5000 + b"}"}, "tokenizer.json' is not a JSON file"),
        ({"tokenizer__json": {"model": 5}}, "not have the form of published"),
        ({"tokenizer__json": {"added_tokens": [5]}}, "not have the form of published"),
        ({"tokenizer__json": {"added_tokens": [{"content": [], "id": 1}]}}, "not have the form of"),
        (
            {"special_tokens_map__json": {"cls_token": ["[CLS]"]}},
            "not have the form of published",
        ),
        (
            {"tokenizer_config__json": {"added_tokens_decoder": {"9" * 5000: {"content": "x"}}}},
            "and ids are whole numbers",
        ),
        (
            {
                "tokenizer__json": b"{"
                + b"".join(b'"%d":0,' % i for i in range(10**5))
                + b'"99999":0}'
            },
            "the key '99999' occurs twice",
        ),
    ],
)
def test_files_that_ask_for_something_else(tmp_path, files, message):
    write(tmp_path, vocab__txt=lines(SMALL), **files)
    with pytest.raises(ValueError, match=message):
        WordPieceTokenizer.from_files(tmp_path)
