"""The entries of the files beside vocabularies: all that transformers writes is in a table."""

import json
import pickle
import shutil
import warnings

import pytest

from keras_lm.converters import CheckpointError
from keras_lm.tokenizers import Tokenizer, WordPieceTokenizer
from keras_lm.tokenizers.published_files import CLASSES, TokenizerFolder, stated_limits
from keras_lm.tokenizers.tokenizer_entries import (
    ADDED_TOKENS,
    COMPONENTS,
    SPECIAL_TOKENS,
    TOKENIZER_JSON,
    config_entries,
)

VERSIONS = ("4.57.6", "5.24.0")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b", "."]
OTHERS = {"LlamaTokenizer", "GemmaTokenizer"}  # of vocabularies that several networks have


@pytest.fixture
def written(goldens):
    """What benchmarks/tokenizer_files.py found: version → class → its files' entries."""
    return json.loads((goldens("tokenizers") / "written_by_transformers.json").read_text())


def kind_of(name):
    name = name.removesuffix("Fast")
    if name in OTHERS:
        return "SentencePieceTokenizer"
    return CLASSES[name][0] if name in CLASSES else "BytePairTokenizer"


@pytest.mark.parametrize("version", VERSIONS)
def test_all_that_transformers_writes_is_known(written, version):
    assert len(written[version]) >= 20
    for name, files in written[version].items():
        kind = kind_of(name)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of entries in no row
            config_entries(kind).check(files["config"], f"{name}'s configuration", kind)
        assert SPECIAL_TOKENS.unknown(dict.fromkeys(files.get("special_tokens", []), 1)) == []
        assert TOKENIZER_JSON.unknown(dict.fromkeys(files.get("file", []), 1)) == []
        for part, kind, entries in files.get("components", []):
            table = ADDED_TOKENS if part == "added_tokens" else COMPONENTS[part][kind]
            assert table.unknown(dict.fromkeys(set(entries) - {"type"}, 1)) == [], (name, kind)


def write(folder, config, **files):
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_an_entry_in_no_row_is_named(tmp_path):
    folder = write(tmp_path, {"do_lower_case": True, "splits_hyphens": True})
    with pytest.warns(UserWarning, match=r"tokenizer_config.json has entries .*: splits_hyphens"):
        Tokenizer.from_preset(folder)
    write(folder, {"do_lower_case": True, "sp_model_kwargs": {"alpha": 0.1}})
    with pytest.raises(CheckpointError, match="sp_model_kwargs="):
        Tokenizer.from_preset(folder)
    write(folder, {"never_split": ["a.b"]})
    with pytest.raises(CheckpointError, match="never_split="):
        WordPieceTokenizer.from_files(folder)
    described = {"model": {"type": "WordLevel", "vocab": {"a": 0}}}
    write(folder, {}, tokenizer=described)
    with pytest.raises(CheckpointError, match="model 'WordLevel', which"):
        Tokenizer.from_preset(folder)


def test_limits(tmp_path):
    assert stated_limits(write(tmp_path, {})) == (None, "right")
    write(tmp_path, {"model_max_length": 1e30, "truncation_side": "left"})
    assert stated_limits(tmp_path) == (2**31 - 1, "left")
    write(tmp_path, {"max_len": 9}, tokenizer={"truncation": {"direction": "Left"}})
    assert stated_limits(tmp_path) == (9, "left")
    write(tmp_path, {"model_max_length": {"__float__": "Infinity"}})
    assert stated_limits(tmp_path)[0] == 2**31 - 1
    write(tmp_path, {"model_max_length": "long"})
    with pytest.raises(ValueError, match="model_max_length='long'"):
        stated_limits(tmp_path)


def test_inputs_without_segments(tmp_path):
    stated = {"tokenizer_class": "BertTokenizer"}
    assert ":1" in Tokenizer.from_preset(write(tmp_path, stated)).template[1]
    write(tmp_path, stated | {"model_input_names": ["input_ids", "attention_mask"]})
    assert ":1" not in Tokenizer.from_preset(tmp_path).template[1]


def test_clean_up(tmp_path):
    ids = [5, 8, 6, 8]
    tokenizer = Tokenizer.from_preset(write(tmp_path, {"tokenizer_class": "BertTokenizer"}))
    assert tokenizer.detokenize(ids).numpy() == b"a. b."
    model = {"type": "WordPiece", "vocab": {word: id for id, word in enumerate(WORDS)}}
    described = {
        "model": model | {"unk_token": "[UNK]"},
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "BertNormalizer"}]},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False},
    }
    write(tmp_path, {}, tokenizer=described)
    assert Tokenizer.from_preset(tmp_path).detokenize(ids).numpy() == b"a . b ."
    write(tmp_path, {"clean_up_tokenization_spaces": True}, tokenizer=described)
    assert Tokenizer.from_preset(tmp_path).detokenize(ids).numpy() == b"a. b."


def test_clean_up_of_punctuation_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "WORDS", [*WORDS, "'", "s"])
    ids = [5, 9, 10, 8]
    stated = {"tokenizer_class": "BertTokenizer"}
    for cleans, text in ((None, b"a's."), (True, b"a's."), (False, b"a ' s.")):
        write(tmp_path, stated | {"clean_up_tokenization_spaces": cleans})
        tokenizer = Tokenizer.from_preset(tmp_path)
        assert tokenizer.detokenize(ids).numpy() == text
        assert pickle.loads(pickle.dumps(tokenizer)).detokenize(ids).numpy() == text
    tokenizer = Tokenizer.from_preset(write(tmp_path, stated | {"backend": "tokenizers"}))
    assert tokenizer.detokenize(ids).numpy() == b"a ' s."  # of transformers 5
    with pytest.raises(ValueError, match="'words'"):
        WordPieceTokenizer(WORDS, True, clean_up="words")


WORDPIECE = {
    "model": {"type": "WordPiece", "vocab": {w: i for i, w in enumerate(["[PAD]", *WORDS[1:]])}}
    | {"unk_token": "[UNK]"},
    "normalizer": {"type": "BertNormalizer", "lowercase": False},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
}


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strips", [None, True, False])
def test_a_step_for_lower_case(is_first, lowercase, strips, tmp_path):
    own = {"type": "BertNormalizer", "lowercase": lowercase, "strip_accents": strips}
    steps = [own, {"type": "Lowercase"}][:: -1 if is_first else 1]
    described = WORDPIECE | {"normalizer": {"type": "Sequence", "normalizers": steps}}
    tokenizer = Tokenizer.from_preset(write(tmp_path, {}, tokenizer=described))
    assert tokenizer.lowercase
    assert tokenizer.strip_accents == (lowercase if strips is None else strips)
    steps.append({"type": "Lowercase"})
    write(tmp_path, {}, tokenizer=described)
    with pytest.raises(ValueError, match="normalizer"):
        Tokenizer.from_preset(tmp_path)


@pytest.mark.parametrize(
    ("content", "lowercase", "is_read"),
    [("Foo", True, False), ("Foo", False, True), ("<1>", True, True)],
)
def test_a_token_found_in_text_as_it_is(content, lowercase, is_read, tmp_path):
    token = {"id": len(WORDS), "content": content, "special": False, "normalized": False}
    described = WORDPIECE | {"added_tokens": [token]}
    described["normalizer"] = {"type": "BertNormalizer", "lowercase": lowercase}
    write(tmp_path, {}, tokenizer=described)
    if is_read:
        assert Tokenizer.from_preset(tmp_path)(f"a {content}").numpy().tolist() == [5, len(WORDS)]
    else:
        with pytest.raises(ValueError, match=f"'{content}' has normalized=False"):
            Tokenizer.from_preset(tmp_path)
    token["normalized"] = True
    write(tmp_path, {}, tokenizer=described)
    found = Tokenizer.from_preset(tmp_path)(f"a {content.upper()}").numpy().tolist()
    assert (found == [5, len(WORDS)]) == (lowercase or content == "<1>")


@pytest.mark.parametrize(
    ("content", "steps", "more", "is_read"),
    [
        ("<1>", [], {}, True),
        ("Foo", [], {}, True),
        ("Foo", [{"type": "Lowercase"}], {}, False),
        ("<1>", [{"type": "Lowercase"}], {}, True),
        ("²", [], {}, False),
        ("<1>", [{"type": "Prepend", "prepend": "▁"}], {}, False),
        ("<1>", [], {"lstrip": True}, False),
    ],
)
def test_a_token_found_in_normalized_text(content, steps, more, is_read, tmp_path):
    token = {"id": 3, "content": content, "special": False, "normalized": True} | more
    marks = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    described = {
        "normalizer": {"type": "Sequence", "normalizers": [*steps, marks]},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["▁", -1], ["a", -2]]},
        "added_tokens": [token],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    if is_read:
        assert Tokenizer.from_preset(tmp_path)(f"a{content}").numpy().tolist() == [2, 3]
    else:
        with pytest.raises(ValueError, match=f"'{content}' has normalized=True"):
            Tokenizer.from_preset(tmp_path)
    token["normalized"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    assert Tokenizer.from_preset(tmp_path)(f"a{content}").numpy()[-1] == 3


BOS, EOS = {"add_bos_token": True}, {"add_eos_token": True}
OF_ROBERTA = ("<s>:0 $A:0 </s>:0", "<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0")


@pytest.mark.parametrize(
    ("cls", "stated", "template"),
    [
        ("GPT2Tokenizer", {}, ("$A:0", "$A:0 $B:0")),
        ("GPT2Tokenizer", BOS, ("E:0 $A:0", "E:0 $A:0 E:0 $B:0")),
        ("GPT2TokenizerFast", EOS, ("$A:0 E:0", "$A:0 E:0 $B:0 E:0")),
        ("GPT2Tokenizer", BOS | EOS, ("E:0 $A:0 E:0", "E:0 $A:0 E:0 E:0 $B:0 E:0")),
        ("GPT2Tokenizer", {"add_bos_token": False}, ("$A:0", "$A:0 $B:0")),
        (None, BOS, ("E:0 $A:0", "E:0 $A:0 E:0 $B:0")),
        ("RobertaTokenizer", BOS | EOS, OF_ROBERTA),
        ("BartTokenizer", EOS, OF_ROBERTA),
    ],
)
def test_tokens_that_are_added_to_texts(cls, stated, template, tmp_path, goldens):
    """As transformers 5.24 without a tokenizer.json; where there is one, it alone counts."""
    folder, end = tmp_path / "model", "<|endoftext|>"
    shutil.copytree(goldens("tokenizers") / "bytebpe-gpt2", folder)
    config = {"tokenizer_class": cls, "bos_token": end, "eos_token": end, "unk_token": end}
    (folder / "tokenizer_config.json").write_text(json.dumps(config | stated))
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    template = tuple(each.replace("E:", f"{end}:") for each in template)
    assert TokenizerFolder(folder, "test").template() == template
    if template[0] != OF_ROBERTA[0]:
        assert tuple(Tokenizer.from_preset(folder).template) == template
    model = {"type": "BPE", "vocab": {end: 0}, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model, "post_processor": None}))
    assert TokenizerFolder(folder, "test").template() == ("$A:0", "$A:0 $B:0")


def test_pairs_are_cut_as_the_folders_tokenizer_does(tmp_path):
    from keras_lm.tasks import TextClassifier

    def stated(**given):
        return TextClassifier.arguments_from_files(tmp_path, given, None)

    write(tmp_path, {"tokenizer_class": "BertTokenizer"})
    assert "truncation" not in stated()
    write(tmp_path, {"tokenizer_class": "BertTokenizer"}, tokenizer=WORDPIECE)
    assert stated()["truncation"] == "halves"
