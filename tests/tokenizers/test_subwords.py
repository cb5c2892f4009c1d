"""tensor2tensor's subwords: against its algorithm in plain Python, its files, and what is wrong."""

import re
import unicodedata

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from keras_lm.tokenizers import SubwordTokenizer, Tokenizer


class Reference:
    """What tensor2tensor's `SubwordTextEncoder` does, character by character."""

    def __init__(self, entries):
        self.entries = entries
        self.ids = {entry: i for i, entry in enumerate(entries) if entry}
        self.alphabet = set("".join(entries)) | set("\\_u;0123456789")

    def encode(self, text):
        return [id for run in self.runs(text) for id in self.match(self.escape(run))]

    def runs(self, text):
        runs = []
        for character in text:
            if runs and is_letter(runs[-1][0]) == is_letter(character):
                runs[-1] += character
            else:
                runs.append(character)
        return [run for i, run in enumerate(runs) if run != " " or i in (0, len(runs) - 1)]

    def escape(self, run):
        run = run.replace("\\", "\\\\").replace("_", "\\u")
        known = self.alphabet - {"\n"}
        return "".join(c if c in known else f"\\{ord(c)};" for c in run) + "_"

    def match(self, rest):
        while rest:
            end = next(end for end in range(len(rest), 0, -1) if rest[:end] in self.ids)
            yield self.ids[rest[:end]]
            rest = rest[end:]

    def decode(self, ids):
        runs = "".join(self.entries[id] for id in ids).split("_")
        text, was_letter = "", False
        for run in filter(None, runs):
            run = re.sub(r"\\u|\\\\|\\([0-9]+);", self.unescape, run)
            text += " " * (was_letter and is_letter(run[0])) + run
            was_letter = is_letter(run[0])
        return text

    def unescape(self, results):
        if results[1] is None:
            return "_" if results[0] == "\\u" else "\\"
        return chr(int(results[1])) if int(results[1]) <= 0x10FFFF else "〓"


def is_letter(character):
    return unicodedata.category(character)[0] in "LN"


# (No code point that Python does not know yet, and none that our tables may know better.)
CHARACTERS = st.characters(exclude_categories=("Cs", "Cn"))
PARTS = [
    "the ",
    "the_",
    "film",
    " ",
    "  ",
    "\\",
    "\\u",
    "\\8364;",
    "_",
    "<EOS>",
    "é",
    "中文",
    "2",
    "\n",
]


@pytest.fixture(scope="module")
def encode(tokenizer_of):
    """The tokenizer in a graph of unknown shape, which is faster."""
    tokenizer = tokenizer_of("subwords")
    texts = tf.TensorSpec([None], tf.string)
    return tf.function(tokenizer, input_signature=[texts], autograph=False)


@pytest.fixture(scope="module")
def decode(tokenizer_of):
    ids = tf.RaggedTensorSpec([None, None], tf.int32, row_splits_dtype=tf.int64)
    tokenizer = tokenizer_of("subwords")
    graph = tf.function(tokenizer.detokenize, input_signature=[ids], autograph=False)

    def texts(rows):
        rows = tf.ragged.constant(rows, tf.int32, ragged_rank=1, row_splits_dtype=tf.int64)
        return [text.decode() for text in graph(rows).numpy()]

    return texts


text = st.lists(st.one_of(CHARACTERS, st.sampled_from(PARTS)), max_size=12).map("".join)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(text, min_size=1, max_size=30))
@example(["Dude - that's so cool.", " a  b ", " ", "€\U0001f642\0_\\_ \\65; ٣٤ ²"])
def test_ids_and_texts_are_those_of_tensor2tensor(tokenizer_of, encode, decode, texts):
    reference = Reference(tokenizer_of("subwords").vocabulary)
    rows = encode(tf.constant(texts)).to_list()
    assert rows == [reference.encode(text) for text in texts]
    assert not {0, 1} & {id for ids in rows for id in ids}
    assert decode(rows) == [reference.decode(ids) for ids in rows] == texts


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(st.integers(2, 40), max_size=20), min_size=1, max_size=30))
def test_any_ids_become_what_they_become_there(tokenizer_of, decode, rows):
    reference = Reference(tokenizer_of("subwords").vocabulary)
    assert decode(rows) == [reference.decode(ids) for ids in rows]


def test_numbers_that_are_no_characters(tokenizer_of, decode):
    def spelled(text):
        (actual,) = decode([[tokenizer_of("subwords").token_to_id(letter) for letter in text]])
        return actual

    assert spelled("\\8364;_") == "€"
    assert spelled("\\0000000065;_") == "A"
    assert spelled("\\1114112;_") == spelled("\\99999999999999999999;_") == "〓"
    assert spelled("\\55296;_") == "〓"  # a surrogate: Python's strings may hold one
    assert spelled("\\;\\x\\u_") == "\\;\\x_"


def test_special_tokens(tokenizer_of):
    tokenizer = tokenizer_of("subwords")
    assert tokenizer("the<EOS>film", parse_special=True).numpy().tolist() == [
        *tokenizer("the").numpy(),
        1,
        *tokenizer("film").numpy(),
    ]
    assert 0 not in tokenizer("<pad> <EOS>", parse_special=["<EOS>"]).numpy()
    assert tokenizer.detokenize([0, 2, 1, 0]).numpy().decode() == tokenizer.vocabulary[2].strip("_")


def test_published_files(tokenizer_of, tmp_path):
    tokenizer = tokenizer_of("subwords")
    lines = [f"'{entry}'" for entry in tokenizer.vocabulary]
    lines[2], lines[3] = lines[2].strip("'"), f'"{tokenizer.vocabulary[3]}"'  # as older ones
    path = tmp_path / "vocab.translate_ende_wmt32k.32768.subwords"
    path.write_text("\n".join(lines) + "\n")
    again = Tokenizer.from_preset(tmp_path)
    assert type(again) is SubwordTokenizer
    assert again.vocabulary == tokenizer.vocabulary
    path.rename(tmp_path / "vocab.ende.32768")
    assert SubwordTokenizer.from_files(tmp_path).vocabulary == tokenizer.vocabulary
    path.write_text("'a'\n")
    with pytest.raises(ValueError, match="several vocabularies"):
        SubwordTokenizer.from_files(tmp_path)


def test_a_vocabulary_for_translations(tmp_path):
    source = ["<pad>", "<EOS>", "a", "b", "_"]
    both = SubwordTokenizer(source, target_vocabulary=[*source, "ab_"])
    assert both("ab").numpy().tolist() == [2, 3, 4]
    assert both.target("ab").numpy().tolist() == [5]
    both.save_assets(tmp_path)
    again = SubwordTokenizer.from_assets(tmp_path, both.get_config())
    assert again.target.vocabulary == both.target.vocabulary


def test_what_entries_cannot_spell_vanishes():
    tokenizer = SubwordTokenizer(["<pad>", "<EOS>", "abc_", "b", "_"])
    assert tokenizer(["ab", "b abc b", "x"]).to_list() == [[], [3, 4, 2, 3, 4], []]


def test_words_begin_after_the_ends_of_runs(tokenizer_of):
    tokenizer = tokenizer_of("subwords")
    ids = tokenizer("unfilmed film.")
    ends = [token.numpy().decode().endswith("_") for token in tokenizer.tokens(ids)]
    assert tokenizer.word_starts([ids])[0].numpy().tolist() == [True, *ends[:-1]]


def test_errors():
    with pytest.raises(ValueError, match="has a line end"):
        SubwordTokenizer(["<pad>", "<EOS>", "a\n"])
    with pytest.raises(ValueError, match=r"`vocabulary` cannot be searched for: .*max supported"):
        SubwordTokenizer(["<pad>", "<EOS>", "a" * 257])
    with pytest.raises(FileNotFoundError, match="`vocabulary` names the file"):
        SubwordTokenizer("no/such/file")
