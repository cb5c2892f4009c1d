"""Which tokenizer a folder holds, whatever the network beside it."""

import json
import shutil

import pytest

from keras_lm.tokenizers import Tokenizer, WordPieceTokenizer
from keras_lm.tokenizers.published_files import TokenizerFolder, declares_tokens, kind_of


@pytest.fixture
def folder(goldens, tmp_path):
    """`folder("wordpiece-cased", …)` is a folder with their vocabularies, without settings."""

    def make(*names, **settings):
        for name in names:
            for path in (goldens("tokenizers") / name).iterdir():
                if path.suffix in (".txt", ".model") or path.name == "vocab.json":
                    shutil.copy(path, tmp_path)
        for name, content in settings.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
        return tmp_path

    return make


@pytest.mark.parametrize(
    "names, settings, usual, expected",
    [
        (["wordpiece-cased"], {}, "BytePairTokenizer", "WordPieceTokenizer"),
        (["bytebpe-gpt2"], {}, "WordPieceTokenizer", "BytePairTokenizer"),
        (["sentencepiece-t5"], {}, "WordPieceTokenizer", "SentencePieceTokenizer"),
        (["wordpiece-cased", "bytebpe-gpt2"], {}, "BytePairTokenizer", "BytePairTokenizer"),
        (["wordpiece-cased"], {}, "WordTokenizer", "WordTokenizer"),
        ([], {}, "BytePairTokenizer", "BytePairTokenizer"),
        # What the configurations say comes first, and the general classes say nothing.
        ([], {"tokenizer_config": "BertTokenizerFast"}, "BytePairTokenizer", "WordPieceTokenizer"),
        ([], {"config": "XLMRobertaTokenizer"}, "WordPieceTokenizer", "SentencePieceTokenizer"),
        (
            ["bytebpe-gpt2"],
            {"tokenizer_config": "PreTrainedTokenizerFast"},
            "WordPieceTokenizer",
            "BytePairTokenizer",
        ),
    ],
)
def test_kind(folder, names, settings, usual, expected):
    settings = {name: {"tokenizer_class": value} for name, value in settings.items()}
    assert kind_of(folder(*names, **settings), usual) == expected


@pytest.mark.parametrize(
    "model, splitter, expected",
    [
        ({"type": "WordPiece"}, None, "WordPieceTokenizer"),
        ({"type": "Unigram"}, None, "SentencePieceTokenizer"),
        ({"type": "BPE"}, {"type": "ByteLevel"}, "BytePairTokenizer"),
        (
            {"type": "BPE"},
            {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}]},
            "BytePairTokenizer",
        ),
        ({"type": "BPE"}, {"type": "Metaspace"}, "SentencePieceTokenizer"),
        ({"type": "BPE", "end_of_word_suffix": "</w>"}, None, "GPTTokenizer"),
        ({"type": "WordLevel"}, None, "WordPieceTokenizer"),
        # Older files leave the type out.
        ({"vocab": {"a": 0}, "merges": []}, {"type": "ByteLevel"}, "BytePairTokenizer"),
        ({"vocab": [["a", 0.0]]}, {"type": "Metaspace"}, "SentencePieceTokenizer"),
        ({"vocab": {"a": 0}}, {"type": "BertPreTokenizer"}, "WordPieceTokenizer"),
    ],
)
def test_kind_by_a_tokenizer_json(folder, model, splitter, expected):
    # Also if a class is stated that is not known here.
    made = folder(
        tokenizer={"model": model, "pre_tokenizer": splitter},
        tokenizer_config={"tokenizer_class": "OwnTokenizer"} if splitter else {},
    )
    assert kind_of(made, "WordPieceTokenizer") == expected


def test_unknown_classes_are_refused(folder):
    made = folder("wordpiece-cased", tokenizer_config={"tokenizer_class": "KoBertTokenizer"})
    with pytest.raises(ValueError, match="a KoBertTokenizer, whose rules are not supported"):
        Tokenizer.from_preset(made)


@pytest.mark.parametrize("mark", ["▁{}", "Ġ{}", "{}</w>", "{}@@"])
def test_vocabularies_of_another_look_are_refused(tmp_path, mark):
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
    (tmp_path / "vocab.txt").write_text("\n".join([*entries, mark.format("the")]))
    with pytest.raises(ValueError, match="is not a WordPiece vocabulary: 1 of its 9 entries"):
        WordPieceTokenizer.from_files(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join([*entries, "d", "e", mark.format("the")]))
    assert WordPieceTokenizer.from_files(tmp_path).vocabulary_size == 11


# === Templates ===


def piece(name, segment):
    kind = "Sequence" if name in ("A", "B") else "SpecialToken"
    return {kind: {"id": name, "type_id": segment}}


TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [piece("A", 0), piece("<end>", 2)],
    "pair": [piece("A", 0), piece("<end>", 0), piece("B", 1), piece("<end>", 1)],
    "special_tokens": {},
}
BERT = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
ROBERTA = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}


@pytest.mark.parametrize(
    "processor, expected",
    [
        (TEMPLATE, ("$A:0 <end>:2", "$A:0 <end>:0 $B:1 <end>:1")),
        (BERT, ("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")),
        (ROBERTA, ("<s>:0 $A:0 </s>:0", "<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0")),
        ({"type": "ByteLevel"}, ("$A:0", "$A:0 $B:0")),
        (None, ("$A:0", "$A:0 $B:0")),
        (
            {"type": "Sequence", "processors": [{"type": "ByteLevel"}, TEMPLATE]},
            ("$A:0 <end>:2", "$A:0 <end>:0 $B:1 <end>:1"),
        ),
    ],
)
def test_template_of_a_tokenizer_json(tmp_path, processor, expected):
    described = {"model": {}, "post_processor": processor}
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    assert TokenizerFolder(tmp_path, "Tokenizer").template() == expected


def test_template_without_a_tokenizer_json(tmp_path):
    assert TokenizerFolder(tmp_path, "Tokenizer").template() is None
    (tmp_path / "config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')
    assert TokenizerFolder(tmp_path, "Tokenizer").template()[0] == "<s>:0 $A:0 </s>:0"


def test_template_with_white_space_is_refused(tmp_path):
    processor = TEMPLATE | {"single": [piece("A", 0), piece("the end", 0)]}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {}, "post_processor": processor}))
    with pytest.raises(ValueError, match="'the end' around texts"):
        TokenizerFolder(tmp_path, "Tokenizer").template()


WRONG_IDS = {"<end>": {"id": "<end>", "ids": [1, 3], "tokens": ["<end>", "[SEP]"]}}


@pytest.mark.parametrize(
    "processor, says",
    [
        (BERT | {"sep": ["[SEP]", 4]}, r"puts the ids \[4\] for '\[SEP\]', whose id is 3"),
        (ROBERTA | {"cls": ["<s>", 1]}, r"puts the ids \[1\] for '<s>', whose id is 0"),
        (TEMPLATE | {"special_tokens": WRONG_IDS}, r"puts the ids \[1, 3\] for '<end>', whose"),
        (
            {"type": "Sequence", "processors": [TEMPLATE, {"type": "ByteLevel"}, BERT]},
            "in 2 steps, TemplateProcessing, BertProcessing",
        ),
    ],
)
@pytest.mark.parametrize("as_list", [False, True])
def test_templates_that_are_not_followed(tmp_path, processor, says, as_list):
    entries = ["<s>", "<end>", "</s>", "[SEP]"]
    ids = {entry: id for id, entry in enumerate(entries)}
    vocabulary = [[entry, 0.0] for entry in entries] if as_list else ids
    described = {"model": {"vocab": vocabulary}, "post_processor": processor}
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match=says):
        TokenizerFolder(tmp_path, "Tokenizer").template()


@pytest.mark.parametrize(
    "named, expected",
    [
        ({}, False),
        ({"additional_special_tokens": []}, False),
        ({"additional_special_tokens": ["[E1]", "[/E1]"]}, True),
        ({"extra_special_tokens": {"marker": "[E1]"}}, True),
        ({"additional_special_tokens": [{"content": "<turn>"}]}, True),
        ({"additional_special_tokens": ["<extra_id_0>", "<extra_id_99>"]}, False),
        ({"additional_special_tokens": ["<eop>", "<eod>"]}, False),
        ({"additional_special_tokens": ["</s>"], "eos_token": {"content": "</s>"}}, False),
    ],
)
def test_declared_tokens(tmp_path, named, expected):
    assert not declares_tokens(tmp_path)
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(named))
    assert declares_tokens(tmp_path) is expected
