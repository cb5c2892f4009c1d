"""The entries of the files beside vocabularies: all that transformers writes is in a table."""

import json
import pickle
import shutil
import warnings

import pytest

from keras_lm.converters import CheckpointError
from keras_lm.tokenizers import Tokenizer, WordPieceTokenizer
from keras_lm.tokenizers.published_files import (
    ADDED_TOKENS,
    CLASSES,
    COMPONENTS,
    SPECIAL_TOKENS,
    TOKENIZER_JSON,
    TokenizerFolder,
    config_entries,
    stated_limits,
)
from keras_lm.tokenizers.sentence_piece_model import BYTES, parse_model

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


@pytest.mark.parametrize(
    ("cls", "names", "has_segments"),
    [
        ("BertTokenizer", None, True),
        ("ElectraTokenizer", None, True),
        ("DebertaV2Tokenizer", None, True),
        ("AlbertTokenizer", None, False),
        ("XLNetTokenizer", None, False),
        ("TokenizersBackend", None, False),
        ("TokenizersBackend", ["input_ids", "token_type_ids"], True),
        ("XLNetTokenizer", ["input_ids", "token_type_ids"], True),
        ("BertTokenizer", ["input_ids"], False),
    ],
)
def test_segments_in_transformers_5(cls, names, has_segments, tmp_path):
    """Its classes differ from those before, whose files name no backend."""
    pieces = [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]
    described = WORDPIECE | {
        "post_processor": {"type": "TemplateProcessing", "single": pieces[:1], "pair": pieces}
    }
    stated = {"tokenizer_class": cls, "backend": "tokenizers", "model_input_names": names}
    folder = write(tmp_path, stated, tokenizer=described)
    for backend, expected in (("tokenizers", has_segments), (None, names is None or has_segments)):
        entries = {name: value for name, value in stated.items() if value is not None}
        entries = entries if backend else {k: v for k, v in entries.items() if k != "backend"}
        write(folder, entries, tokenizer=described)
        template = TokenizerFolder(folder, kind_of(cls)).template()
        assert template == ("$A:0", f"$A:0 $B:{int(expected)}")


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
    [("Foo", True, False), ("Foo", False, True), ("<1>", True, True), ("Foo", "accents", False)],
)
def test_a_token_found_in_text_as_it_is(content, lowercase, is_read, tmp_path):
    token = {"id": len(WORDS), "content": content, "special": False, "normalized": False}
    described = WORDPIECE | {"added_tokens": [token]}
    strips, lowercase = lowercase == "accents" or None, lowercase is True
    described["normalizer"] = {
        "type": "BertNormalizer",
        "lowercase": lowercase,
        "strip_accents": strips,
    }
    write(tmp_path, {}, tokenizer=described)
    if is_read:
        assert Tokenizer.from_preset(tmp_path)(f"a {content}").numpy().tolist() == [5, len(WORDS)]
    else:
        with pytest.raises(ValueError, match=f"'{content}' has normalized=False"):
            Tokenizer.from_preset(tmp_path)
    token["normalized"] = True
    write(tmp_path, {}, tokenizer=described)
    actual = Tokenizer.from_preset(tmp_path)(f"a {content.upper()}").numpy().tolist()
    assert (actual == [5, len(WORDS)]) == (lowercase or content == "<1>")


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


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("lowercase", [True, False])
def test_special_tokens_of_wordpiece_in_another_case(lowercase, normalized, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    token = {"content": "[É1]", "special": True, "normalized": normalized, "single_word": False}
    token |= {"id": len(WORDS), "lstrip": False, "rstrip": False}
    described = json.loads(json.dumps(WORDPIECE)) | {"added_tokens": [token], "version": "1.0"}
    described["model"] |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    described["model"] |= {"vocab": {word: i for i, word in enumerate(WORDS)}}
    described["normalizer"] = {"type": "BertNormalizer", "lowercase": lowercase}
    described["normalizer"] |= {"clean_text": True, "handle_chinese_chars": True}
    described["normalizer"]["strip_accents"] = None
    reference = tokenizers.Tokenizer.from_str(json.dumps(described))
    tokenizer = Tokenizer.from_preset(write(tmp_path, {}, tokenizer=described))
    texts = ["a [É1] b", "a[e1]b", "[E\u0301\x011].", "[é1]", "[É1][É1] a", "a", ""]
    expected = [reference.encode(text, add_special_tokens=False).ids for text in texts]
    assert tokenizer(texts, parse_special=True).to_list() == expected
    assert len(WORDS) not in tokenizer(texts).values.numpy()
    again = WordPieceTokenizer(tokenizer.vocabulary, **tokenizer.get_config())
    assert again(texts, parse_special=True).to_list() == expected
    ids, starts, ends = tokenizer.tokenize_with_offsets(["b[É1]b"], "character", True)
    assert ids.to_list() == [[6, len(WORDS), 6]]
    assert (starts.to_list(), ends.to_list()) == ([[0, 1, 5]], [[1, 5, 6]])


def of_bytes(*tokens, form=None, merges=()):
    """What the tokenizer.json of a byte-level BPE holds, with tokens after its bytes."""
    entries = [*sorted(BYTES.values()), *(merge.replace(" ", "") for merge in merges)]
    vocab = {entry: i for i, entry in enumerate(entries)}
    added = [{"single_word": False, "lstrip": False, "rstrip": False} | token for token in tokens]
    for token in added:
        token["id"] = vocab.get(token["content"], len(vocab) + added.index(token))
    return {
        "version": "1.0",
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "normalizer": form and {"type": form},
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {"type": "BPE", "vocab": vocab, "merges": [*merges]},
    }


@pytest.mark.parametrize(
    ("content", "form", "normalized", "is_read"),
    [
        ("<1>", "NFKC", False, True),
        ("<1>", "NFC", True, True),
        ("é1", None, False, True),
        ("é1", "NFC", True, True),
        ("é1", "NFC", False, False),  # a letter and a mark become it later
        ("é1", "NFD", True, False),
        ("½1", "NFKC", False, False),
        ("½1", "NFC", True, True),
    ],
)
@pytest.mark.parametrize("special", [True, False])
def test_a_token_of_bytes_that_a_form_changes(
    content, form, normalized, is_read, special, tmp_path
):
    tokenizers = pytest.importorskip("tokenizers")
    token = {"content": content, "normalized": normalized, "special": special}
    described = of_bytes(token, form=form)
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    says = f"'{content}' has normalized={normalized}"
    if not is_read and special:
        with pytest.warns(UserWarning, match=says):
            Tokenizer.from_preset(tmp_path)
    elif not is_read:
        with pytest.raises(CheckpointError, match=says):
            Tokenizer.from_preset(tmp_path)
    else:
        reference = tokenizers.Tokenizer.from_str(json.dumps(described))
        texts = [f"a {content} b", "é1e\u0301½", f"<1>{content}"]
        expected = [reference.encode(text, add_special_tokens=False).ids for text in texts]
        assert Tokenizer.from_preset(tmp_path)(texts, parse_special=True).to_list() == expected


@pytest.mark.parametrize(
    ("content", "merges", "is_read"),
    [("é", (), False), ("ab", ("a b",), True), ("Ã©", ("Ã ©",), False)],
)
def test_a_token_that_is_spelled_like_bytes(content, merges, is_read, tmp_path):
    token = {"content": content, "normalized": False, "special": False}
    described = of_bytes(token, merges=merges)
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    if is_read:
        actual = Tokenizer.from_preset(tmp_path)(f"排{content}").numpy().tolist()
        assert actual[-1] == described["model"]["vocab"][content] and len(actual) == 4
    else:
        with pytest.raises(CheckpointError, match=f"'{content}' is also what the vocabulary"):
            Tokenizer.from_preset(tmp_path)


@pytest.mark.parametrize("content, is_read", [("<A>", False), ("<1>", True)])
@pytest.mark.parametrize("special", [True, False])
def test_a_token_of_gpt_in_another_case(content, is_read, special, tmp_path):
    entries = ["<unk>", "a", "b", "a</w>", "b</w>", content]
    token = {"id": 5, "content": content, "special": special, "normalized": True}
    described = {
        "normalizer": {"type": "BertNormalizer", "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {
            "type": "BPE",
            "vocab": {entry: i for i, entry in enumerate(entries)},
            "merges": [],
            "unk_token": "<unk>",
            "end_of_word_suffix": "</w>",
        },
        "added_tokens": [token],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    if is_read:
        actual = Tokenizer.from_preset(tmp_path)(f"a{content}", parse_special=True)
        assert actual.numpy().tolist() == [3, 5]
    elif special:
        with pytest.warns(UserWarning, match="special token '<A>' has normalized=True"):
            Tokenizer.from_preset(tmp_path)
    else:
        with pytest.raises(CheckpointError, match="added token '<A>' has normalized=True"):
            Tokenizer.from_preset(tmp_path)


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("described", ["²", "Foo"])
def test_a_special_token_of_pieces_that_a_table_changes(described, special, tmp_path):
    token = {"id": 3, "content": described, "special": special, "normalized": True}
    steps = [{"type": "Lowercase"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    described = {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["▁", -1], ["a", -2]]},
        "added_tokens": [token, token],  # which is said once
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    if special:
        with pytest.warns(UserWarning, match="special token '.*' has normalized=True") as warned:
            Tokenizer.from_preset(tmp_path)
        assert len(warned) == 1
    else:
        with pytest.raises(CheckpointError, match=r"added token '.*' has normalized=True"):
            Tokenizer.from_preset(tmp_path)


def test_a_piece_with_nul_is_named(tmp_path):
    described = {
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["▁", -1], ["a\0", -2]]},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    with pytest.warns(UserWarning, match=r"1 entries with NUL, such as 'a\\x00'"):
        assert Tokenizer.from_preset(tmp_path)("b\0").numpy().tolist() == [1, 0]


@pytest.mark.parametrize("has_bytes", [True, False])
def test_a_special_token_of_one_letter_in_a_model_of_merges(has_bytes, tmp_path):
    """As a piece that stands for no text, it made TF Text's operation fail on that letter."""
    entries = ["<unk>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "a", "ß", "▁a"]
    described = {
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "model": {
            "type": "BPE",
            "vocab": {entry: i for i, entry in enumerate(entries)},
            "merges": ["▁ a"],
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": has_bytes,
        },
        "added_tokens": [{"id": 259, "content": "ß", "special": True, "normalized": False}],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    tokenizer = Tokenizer.from_preset(tmp_path)
    unknown = [1 + 0xC3, 1 + 0x9F] if has_bytes else [0]
    assert tokenizer("aßa").numpy().tolist() == [260, *unknown, 258]
    assert tokenizer("aßa", parse_special=True).numpy().tolist() == [260, 259, 260]
    ids, starts, ends = tokenizer.tokenize_with_offsets("aßa", "character")
    assert (ids.numpy().tolist(), starts.numpy()[-1], ends.numpy()[-1]) == (
        [260, *unknown, 258],
        2,
        3,
    )


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


# === Two vocabularies in a folder ===

STEPS = {"WordPiece": ("BertNormalizer", "BertPreTokenizer"), "BPE": (None, "ByteLevel")}
SWAPPED = r"the first has '\S+' as id (\d+), the second as id (?!\1)\d+"


def two_vocabularies(folder, goldens, kind):
    """Write a vocabulary's own files and the same as a tokenizer.json; return that, to change."""
    if kind == "WordPiece":
        entries = WORDS
        (folder / "vocab.txt").write_text("\n".join(entries) + "\n")
        model = {"vocab": {entry: id for id, entry in enumerate(entries)}, "unk_token": "[UNK]"}
    elif kind == "BPE":
        entries = [*BYTES.values(), "th", "he"]
        model = {"vocab": {entry: id for id, entry in enumerate(entries)}}
        model["merges"] = ["t h", "h e"]
        (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
        (folder / "merges.txt").write_text("#version: 0.2\nt h\nh e\n")
    else:
        data = (goldens("tokenizers") / "sentencepiece-t5" / "spiece.model").read_bytes()
        (folder / "spiece.model").write_bytes(data)
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}')
        pieces = [[piece.piece, piece.score] for piece in parse_model(data).pieces]
        extra = [[f"<extra_id_{i}>", 0.0] for i in reversed(range(100))]
        model = {"vocab": [*pieces, *extra], "unk_id": 2}
    described = {"model": {"type": kind, **model}, "added_tokens": []}
    for part, step in zip(
        ("normalizer", "pre_tokenizer"), STEPS.get(kind, (None, None)), strict=True
    ):
        described[part] = step and {"type": step}
    return described


def changed(model, change):
    """Return a model with two entries in each other's place, one more, or other merges."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):
        last, other = len(vocabulary) - 102, len(vocabulary) - 101
        more = [*vocabulary, ["more", 0.0]]
        swapped = [*vocabulary]
        swapped[last], swapped[other] = swapped[other], swapped[last]
    else:
        last, other = list(vocabulary)[-2:]
        more = vocabulary | {"more": len(vocabulary)}
        swapped = vocabulary | {last: vocabulary[other], other: vocabulary[last]}
    fewer = vocabulary[:-1] if isinstance(vocabulary, list) else {**vocabulary}
    if isinstance(fewer, dict):
        fewer.popitem()
    changes = {"more": {"vocab": more}, "swapped": {"vocab": swapped}, "fewer": {"vocab": fewer}}
    changes["merges"] = {"merges": model.get("merges", [])[::-1]}
    return model | changes[change]


@pytest.mark.parametrize(
    "kind, change, says",
    [
        *((kind, "swapped", SWAPPED) for kind in ("WordPiece", "BPE", "Unigram")),
        *((kind, "more", "'more' as id none, the") for kind in ("WordPiece", "BPE", "Unigram")),
        *((kind, "fewer", "the second as id none") for kind in ("WordPiece", "BPE", "Unigram")),
        ("BPE", "merges", "they differ in their merges"),
    ],
)
def test_a_tokenizer_json_with_another_vocabulary(kind, change, says, tmp_path, goldens):
    described = two_vocabularies(tmp_path, goldens, kind)
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    assert Tokenizer.from_preset(tmp_path).vocabulary_size == len(described["model"]["vocab"])
    described["model"] = changed(described["model"], change)
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    with pytest.raises(CheckpointError, match=f"holds two vocabularies, .*{says}"):
        Tokenizer.from_preset(tmp_path)


@pytest.mark.parametrize("described", [True, False])
def test_names_in_two_files(described, tmp_path):
    """As transformers: special_tokens_map.json counts unless the other describes its tokens."""
    config = {"sep_token": "[SEP]"} | ({"added_tokens_decoder": {}} if described else {})
    write(tmp_path, config, special_tokens_map={"sep_token": "[CLS]"})
    assert Tokenizer.from_preset(tmp_path).special_tokens["sep"] == (
        "[SEP]" if described else "[CLS]"
    )


def test_a_template_without_the_tokens_that_are_named(tmp_path):
    """Version 4 of transformers takes the template of the tokenizer.json, version 5 the names."""
    named = {"tokenizer_class": "BertTokenizer", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    write(tmp_path, named, tokenizer=WORDPIECE | {"post_processor": None})
    with pytest.warns(UserWarning, match=r"puts no tokens around .*sep_token='\[SEP\]' are named"):
        assert Tokenizer.from_preset(tmp_path).template[0] == "$A:0"


@pytest.mark.parametrize("name", ["BertTokenizerFast", None, "PreTrainedTokenizerFast"])
def test_upper_case_that_one_file_keeps(name, tmp_path, recwarn):
    """BertTokenizer of transformers goes by `do_lower_case`, True if that is not there."""
    described = WORDPIECE | {"normalizer": {"type": "BertNormalizer", "lowercase": False}}
    write(tmp_path, {"tokenizer_class": name}, tokenizer=described)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert Tokenizer.from_preset(tmp_path).lowercase is False
    messages = [str(warning.message) for warning in recwarn]
    is_generic = name == "PreTrainedTokenizerFast"
    assert sum("keeps upper case" in message for message in messages) == (not is_generic)
    recwarn.clear()
    write(tmp_path, {"tokenizer_class": name, "do_lower_case": False})
    Tokenizer.from_preset(tmp_path)
    assert not recwarn


@pytest.mark.parametrize(
    ("stated", "steps"),
    [
        ({"tokenizer_class": "AlbertTokenizer", "do_lower_case": False}, ["Lowercase"]),
        ({"tokenizer_class": "DebertaV2Tokenizer", "do_lower_case": True}, []),
        ({"tokenizer_class": "AlbertTokenizer", "keep_accents": True}, ["NFKD", "StripAccents"]),
        ({"tokenizer_class": "XLMRobertaTokenizer", "do_lower_case": True}, []),  # does not
    ],
)
def test_letters_that_two_files_change_otherwise(stated, steps, tmp_path):
    pieces = [("[PAD]", 0.0), ("[CLS]", 0.0), ("[SEP]", 0.0), ("[UNK]", 0.0), ("▁a", -1.0)]
    described = {
        "model": {"type": "Unigram", "vocab": pieces, "unk_id": 3},
        "normalizer": {"type": "Sequence", "normalizers": [{"type": s} for s in (*steps, "NFC")]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(stated))
    if stated["tokenizer_class"] == "XLMRobertaTokenizer":
        assert Tokenizer.from_preset(tmp_path).get_config()["lowercase"] is False
    else:
        with pytest.raises(CheckpointError, match=f"has {[*stated][1]}=.* does the opposite"):
            Tokenizer.from_preset(tmp_path)
