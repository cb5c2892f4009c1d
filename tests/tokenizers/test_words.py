"""Words: look-up, fastai's rules, and the files in which word lists are published."""

import json
import os
import pickle

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_lm.models import BertBackbone
from keras_lm.tasks import TextClassifier
from keras_lm.tokenizers import Tokenizer, WordTokenizer, strings

WORDS = ["<unk>", "<pad>", "<s>", "</s>", "hello", "world", "Hello", "café", "n't", "do", "!", ","]
FASTAI = ["xxunk", "xxpad", "xxbos", "xxeos", "xxfld", "xxrep", "xxwrep", "xxup", "xxmaj"]
MARKERS = FASTAI[4:]


@pytest.fixture(scope="module")
def tokenizer():
    return WordTokenizer(
        WORDS, unknown_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


def entries(tokenizer, text, **kwargs):
    return [t.decode() for t in tokenizer.tokens(tokenizer(text, **kwargs)).numpy()]


def test_words_and_unknown_words(tokenizer):
    assert entries(tokenizer, "Hello, brave world!") == ["Hello", ",", "<unk>", "world", "!"]
    assert entries(tokenizer, "café\u3000hello\n") == ["café", "hello"]
    assert tokenizer(["hello", "", "x"]).to_list() == [[4], [], [0]]
    assert tokenizer.detokenize([2, 4, 5, 3, 1]).numpy() == b"hello world"


def test_lowercase_and_splitter():
    lower = WordTokenizer(WORDS, unknown_token="<unk>", lowercase=True)
    assert entries(lower, "HELLO CAFÉ") == ["hello", "café"]
    assert lower.tokenize_words(["WORLD", "WORLD\0"]).numpy().tolist() == [5, 0]
    assert entries(lower, "DO \0 HELLO") == ["do", "<unk>", "hello"]
    assert strings.lower(["A\0É", "\0", ""]).numpy().tolist() == ["a\0é".encode(), b"\0", b""]
    spaces = WordTokenizer(WORDS, unknown_token="<unk>", splitter="whitespace")
    assert entries(spaces, "do n't world!") == ["do", "n't", "<unk>"]


def test_words_given_by_the_user(tokenizer):
    words = tf.ragged.constant([["do", "n't"], [], ["New York"]])
    assert tokenizer.tokenize_words(words).to_list() == [[9, 8], [], [0]]
    assert tokenizer.tokenize_words([["do", "<s>"]]).numpy().tolist() == [[9, 0]]
    assert tokenizer.tokenize_words("do").numpy() == 9
    with pytest.raises(ValueError, match="`words` must hold strings"):
        tokenizer.tokenize_words(tf.constant([1]))


def test_text_never_becomes_a_special_token(tokenizer):
    assert set(tokenizer("<s> \ufdd02 2 <pad>").numpy()) == {0}
    assert entries(tokenizer, "a<s>hello", parse_special=True) == ["<unk>", "<s>", "hello"]
    assert "<s>" not in entries(tokenizer, "<s>hello</s>", parse_special=["</s>"])
    rules = fastai()
    attack = st.one_of(st.text(), st.sampled_from([*FASTAI, "\ufdd0", "\ufdd08", "3", " "]))

    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.lists(attack, max_size=6).map("".join), min_size=1, max_size=12))
    def check(texts):
        words = set(rules.tokens(rules(texts)).flat_values.numpy())
        assert words.isdisjoint([b"xxbos", b"xxpad", b"xxeos", b"xxfld"])

    check()
    assert entries(rules, "xxmaj xxup") == ["xxunk", "xxunk"]


# fastai's rules


def fastai(*words, **kwargs):
    return WordTokenizer(
        [*FASTAI, *words],
        unknown_token="xxunk",
        pad_token="xxpad",
        bos_token="xxbos",
        eos_token="xxeos",
        additional_special_tokens=MARKERS,
        rules="fastai",
        **kwargs,
    )


# Expected by fastai 2.7's rules, and the splitter.
RULES = {
    "Hello world": "xxmaj hello world",
    "HELLO World": "xxup hello xxmaj world",
    "I saw A B": "i saw a b",
    "McDonald iPhone": "mcdonald iphone",
    "Hello, World!": "xxmaj hello , xxmaj world !",
    "U.S. A1 1A": "xxup u . s . xxup a1 1a",
    "Élan": "élan",
    "aa aaa aaaa": "aa xxrep 3 a xxrep 4 a",
    "sooo goood!!!": "s xxrep 3 o g xxrep 3 o d xxrep 3 !",
    "ééé 。。。。": "xxrep 3 é xxrep 4 。",
    "AAA": "xxrep 3 a",
    "a   b\n\n\nc": "a b c",
    "ah ah": "ah ah",
    "ah ah ah": "xxwrep 3 ah",
    "ah ah   ah  ah x": "xxwrep 4 ah x",
    "ah ah ah ah.": "xxwrep 4 ah .",
    "ah ah ahi": "ah ah ahi",
    "No No No way": "xxwrep 3 xxmaj no way",
    "No no no": "xxmaj no no no",
    "and/or #1 a\\b": "and / or # 1 a \\ b",
    "a<br />b &lt;i&gt;": "a b < i >",
    "it#39;s 5 @.@ 2 well @-@ known": "it ' s 5 . 2 well - known",
    "so...": "so …",
    "a <unk> b": "a xxunk b",
    "Hello\u3000World\xa0no no no\u2028x": "xxmaj hello xxmaj world xxwrep 3 no x",
    "": "",
    b"\xff Hello": "\ufffd xxmaj hello",
}


def test_rules():
    words = dict.fromkeys(word for expected in RULES.values() for word in expected.split())
    tokenizer = fastai(*(word for word in words if word not in FASTAI))

    def rows(texts):
        return [[t.decode() for t in row] for row in tokenizer.tokens(tokenizer(texts)).to_list()]

    expected = [expected.split() for expected in RULES.values()]
    assert rows([*RULES]) == expected
    # The same amid other rows, and alone.
    assert rows([*RULES][::-1]) == expected[::-1]
    assert [rows([text])[0] for text in [*RULES][::5]] == expected[::5]
    assert entries(tokenizer, "ah ah ah") == ["xxwrep", "3", "ah"]


def test_rules_on_long_text():
    tokenizer = fastai("a", "b", "10000", "x")
    assert entries(tokenizer, "x" * 10_000) == ["xxrep", "10000", "x"]
    assert entries(tokenizer, "a " * 10_000) == ["xxwrep", "10000", "a"]
    assert tokenizer(["a b " * 25_000, ""]).row_lengths().numpy().tolist() == [50_000, 0]
    assert tokenizer([""] * 10_000).to_list() == [[]] * 10_000


# Graphs


TEXTS = ["The FILM!!!", "", "the [SEP] xxmaj"]
ROW = [b"[CLS]", b"xxmaj", b"the", b"xxup", b"film", b"xxrep", b"3", b"!", b"[SEP]"]


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    """A task with fastai's rules and the special tokens of BERT; its tokenizer and its preset."""
    folder = tmp_path_factory.mktemp("words") / "preset"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *MARKERS, "the", "film", "3", "!"]
    tokenizer = WordTokenizer(
        words,
        unknown_token="[UNK]",
        pad_token="[PAD]",
        additional_special_tokens=["[CLS]", "[SEP]", "[MASK]", *MARKERS],
        rules="fastai",
    )
    backbone = BertBackbone(len(words), 1, 1, 4, 4, max_sequence_length=12)
    task = TextClassifier(backbone, tokenizer=tokenizer, num_classes=2)
    task.save_to_preset(folder)
    return tokenizer, folder


def test_preset(preset):
    tokenizer, folder = preset
    again = TextClassifier.from_preset(folder)
    assert again.tokenizer(TEXTS).to_list() == tokenizer(TEXTS).to_list()
    packed = again.preprocess({"text": TEXTS})
    ids = packed["token_ids"][0][packed["padding_mask"][0] == 1]
    assert tokenizer.tokens(ids).numpy().tolist() == ROW


@pytest.mark.thorough  # the rules in an exported graph are in `test_every_tokenizer.py`, too
def test_export(preset, tmp_path):
    exported = TextClassifier.from_preset(preset[1]).export(tmp_path / "export")
    loaded = tf.saved_model.load(exported).signatures
    tokens = loaded["tokenize"](tf.constant(TEXTS))["tokens"].numpy()[0].tolist()
    assert [t for t in tokens if t] == ROW


# Files


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocabulary": []}, "empty"),
        ({"vocabulary": [*WORDS, "do"]}, "'do' twice"),
        ({"unknown_token": None}, "`unknown_token` is None"),
        ({"unknown_token": "xxunk"}, "`unknown_token` 'xxunk' is not in the vocabulary"),
        ({"rules": "spacy"}, "`rules` is 'spacy'"),
        ({"rules": "fastai"}, "needs.*xxmaj.*additional_special_tokens"),
        ({"splitter": "moses"}, "`splitter` is 'moses'"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        WordTokenizer(**{"vocabulary": WORDS, "unknown_token": "<unk>", **arguments})


def test_assets_round_trip(tmp_path):
    tokenizer = fastai("hello", "\n", "a\rb", "é", "3", "x")
    tokenizer.save_assets(tmp_path)
    config = json.loads(json.dumps(tokenizer.get_config()))
    again = WordTokenizer.from_assets(tmp_path, config)
    assert again.vocabulary == tokenizer.vocabulary
    assert again.get_config() == tokenizer.get_config()
    texts = ["Hello É xxx", "\n"]
    assert again(texts).to_list() == tokenizer(texts).to_list()
    # The file alone tells the same.
    assert WordTokenizer.from_files(tmp_path).get_config() == tokenizer.get_config()


def test_fastai_files(tmp_path):
    words = [*FASTAI, "the", ",", "\n", "xxfake", "xxfake", "xxfake"]
    (tmp_path / "itos_wt103.pkl").write_bytes(pickle.dumps(words))
    tokenizer = Tokenizer.from_preset(str(tmp_path))
    assert isinstance(tokenizer, WordTokenizer)
    assert tokenizer.vocabulary == [*words[:-2], "xxfake2", "xxfake3"]
    assert tokenizer.rules == "fastai"
    assert tokenizer.special_tokens == dict(zip(("unknown", "pad", "bos", "eos"), FASTAI))
    assert entries(tokenizer, "The,") == ["xxmaj", "the", ","]
    (tmp_path / "words.json").write_text("[]")
    with pytest.raises(ValueError, match="several word lists"):
        WordTokenizer.from_files(tmp_path)


def test_glove_files(tmp_path):
    lines = ["the 0.1 0.2 0.3", ". . . 1 2 3", "caf\u0085é -1 2e-3 0"]
    (tmp_path / "glove.3d.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    tokenizer = WordTokenizer.from_files(tmp_path)
    assert tokenizer.vocabulary == ["<unk>", "<pad>", "the", ". . .", "caf\u0085é"]
    assert tokenizer.special_tokens == {"unknown": "<unk>", "pad": "<pad>"}
    assert tokenizer(["the The"]).to_list() == [[2, 0]]


def test_a_word_a_line(tmp_path):
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\n")
    tokenizer = WordTokenizer(
        tmp_path / "vocab.txt", unknown_token="<UNK>", bos_token="<S>", eos_token="</S>"
    )
    assert tokenizer(["the dog"]).to_list() == [[3, 2]]


def test_pickles_run_no_code(tmp_path):
    class Attack:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    (tmp_path / "itos.pkl").write_bytes(pickle.dumps(["xxunk", Attack()]))
    with pytest.raises(ValueError, match="it asks for"):
        WordTokenizer.from_files(tmp_path)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("itos.pkl", pickle.dumps(WORDS)[:-5], "damaged"),
        ("itos.pkl", b"", "damaged"),
        ("itos.pkl", b"just text", "damaged"),
        ("itos.pkl", pickle.dumps({"a": 1}), "a list of strings"),
        ("itos.pkl", b"\x80\x04})" + b"q\x01h\x01\x86" * 64 + b"K\x01s.", "it has a key"),
        ("words.json", b'["a", ', "damaged"),
        ("words.json", b'["<unk>", 1]', "a list of strings"),
        ("words.json", b'["a", "b"]', "no unknown token"),
        ("words.json", b'["<unk>", "b", "b"]', "'b' twice"),
        ("glove.txt", b"the 1 2 3\nof 1 2\n", "line 2"),
        ("glove.txt", b"the\n", "line 1"),
        ("glove.txt", b"caf\xe9 1\n", "damaged"),
    ],
)
def test_wrong_files(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        WordTokenizer.from_files(tmp_path)


def test_no_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds none of"):
        WordTokenizer.from_files(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        WordTokenizer(tmp_path / "words.json", unknown_token="<unk>")
