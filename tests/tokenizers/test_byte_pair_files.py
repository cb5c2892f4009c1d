"""Files of BPE vocabularies: all published forms are read, and wrong ones named."""

import json
import shutil

import pytest

from keras_lm.tokenizers import BytePairTokenizer, GPTTokenizer, Tokenizer
from keras_lm.tokenizers.byte_pair_files import DEFAULTS
from keras_lm.tokenizers.sentence_piece_model import BYTES

MERGES = ["Ġ t", "h e", "Ġt he"]
ROBERTA = list(dict.fromkeys(DEFAULTS[0].values()))


@pytest.fixture
def gpt2_folder(goldens, tmp_path):
    """A copy of GPT-2's kind of files, to be spoilt."""
    folder = tmp_path / "gpt2"
    shutil.copytree(goldens("tokenizers") / "bytebpe-gpt2", folder)
    return folder


def entries(*more):
    return [*more, *BYTES.values(), *("".join(merge.split()) for merge in MERGES)]


def write(folder, **files):
    for name, value in files.items():
        stem, _, ending = name.rpartition("_")
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / f"{stem}.{ending}").write_text(text, encoding="utf-8")
    return folder


def write_vocabulary(folder, tokens, merges=MERGES):
    ids = {token: i for i, token in enumerate(tokens)}
    return write(folder, vocab_json=ids, merges_txt="\n".join(["#version: 0.2", *merges, ""]))


# Recognition


@pytest.mark.parametrize("kind", ["bytebpe-gpt2", "bytebpe-roberta", "bpe-gpt1"])
def test_each_kind_is_recognised(goldens, kind):
    folder = goldens("tokenizers") / kind
    expected, other = BytePairTokenizer, GPTTokenizer
    if kind == "bpe-gpt1":
        expected, other = other, expected
    assert type(Tokenizer.from_preset(folder)) is expected
    with pytest.raises(FileNotFoundError, match=r"vocab\.json.* another kind of BPE"):
        other.from_files(folder)


def test_wordpiece_is_none_of_ours(goldens, tmp_path):
    for folder in (goldens("tokenizers") / "wordpiece-cased", tmp_path):
        for cls in (BytePairTokenizer, GPTTokenizer):
            with pytest.raises(FileNotFoundError, match=r"no vocab\.json with a merges\.txt"):
                cls.from_files(folder)


def test_files_of_openai_and_keras_hub(gpt2_folder, tmp_path):
    expected = BytePairTokenizer.from_files(gpt2_folder)(["the word"]).to_list()
    openai, hub = tmp_path / "openai", tmp_path / "hub" / "assets" / "tokenizer"
    openai.mkdir()
    hub.mkdir(parents=True)
    shutil.copy(gpt2_folder / "vocab.json", openai / "encoder.json")
    shutil.copy(gpt2_folder / "merges.txt", openai / "vocab.bpe")
    shutil.copy(gpt2_folder / "vocab.json", hub / "vocabulary.json")
    shutil.copy(gpt2_folder / "merges.txt", hub / "merges.txt")
    write(tmp_path / "hub", tokenizer_json={"config": {"add_prefix_space": False}})
    for folder in (openai, tmp_path / "hub"):
        assert BytePairTokenizer.from_files(folder)(["the word"]).to_list() == expected


@pytest.mark.parametrize("as_pairs", [True, False])
def test_hugging_face_tokenizer_json(tmp_path, as_pairs):
    tokens = entries()
    merges = [merge.split() for merge in MERGES] if as_pairs else MERGES
    added = [
        {"id": len(tokens), "content": "<end>", "special": True, "lstrip": True},
        {"id": len(tokens) + 1, "content": "{x}", "special": False},
    ]
    tokenizer = {
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True},
        "added_tokens": added,
    }
    write(tmp_path, tokenizer_json=tokenizer, tokenizer_config_json={"eos_token": "<end>"})
    read = Tokenizer.from_preset(tmp_path)
    assert (read.special_tokens, read.add_prefix_space) == ({"eos": "<end>"}, True)
    pieces = read.tokens(read("the{x} <end>", parse_special=True)).numpy().tolist()
    assert [p.decode() for p in pieces] == ["Ġthe", "{x}", "<end>"]
    for spoilt, message in [
        ({"model": {**tokenizer["model"], "dropout": 0.1}}, "BPE has dropout=0.1"),
        ({"normalizer": {"type": "Lowercase"}}, "sets `normalizer` to"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "pre_tokenizer 'Whitespace'"),
    ]:
        write(tmp_path, tokenizer_json={**tokenizer, **spoilt})
        with pytest.raises(ValueError, match=message):
            BytePairTokenizer.from_files(tmp_path)


def test_a_tokenizer_json_of_modernbert(tmp_path):
    """It stands alone: a normal form, roles by their names, and tokens for several spaces."""
    tokens, names = entries(), ["   ", "  ", "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    added = [
        {"id": len(tokens) + i, "content": name, "special": "[" in name, "lstrip": "M" in name}
        for i, name in enumerate(names)
    ]
    tokenizer = {
        "normalizer": {"type": "NFC"},
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": MERGES},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "added_tokens": added,
    }
    read = Tokenizer.from_preset(write(tmp_path, tokenizer_json=tokenizer))
    assert read.normalization == "NFC"
    assert read.special_tokens["mask"] == "[MASK]"
    text = "e\u0301   the  [MASK]"  # composed, it is two bytes
    for parse, rest in ((True, ["[MASK]"]), (False, ["  ", "[", "M", "A", "S", "K", "]"])):
        pieces = read.tokens(read(text, parse_special=parse)).numpy().tolist()
        expected = [BYTES[0xC3], BYTES[0xA9], "   ", "t", "he", *rest]
        assert [piece.decode() for piece in pieces] == expected
    _, starts, ends = read.tokenize_with_offsets(["", "ae\u0301 the"], unit="character")
    spans = zip(starts[1].numpy().tolist(), ends[1].numpy().tolist(), strict=True)
    assert list(spans)[-1] == (3, 7)
    write(tmp_path, tokenizer_json=tokenizer | {"normalizer": {"type": "StripAccents"}})
    with pytest.raises(ValueError, match="sets `normalizer` to"):
        Tokenizer.from_preset(tmp_path)


def test_ids_without_an_entry(tmp_path):
    """As of small models, whose only special token kept its id."""
    tokens = entries()
    ids = {token: i for i, token in enumerate(tokens)} | {"<|endoftext|>": len(tokens) + 50}
    write(tmp_path, vocab_json=ids)
    (tmp_path / "merges.txt").write_text("\n".join(MERGES))
    read = BytePairTokenizer.from_files(tmp_path)
    assert read.vocabulary_size == len(tokens) + 51
    assert read.special_id("eos") == len(tokens) + 50
    whole = BytePairTokenizer(tokens, MERGES)
    texts = ["the word", "<unused id 300>", f"<unused id {len(tokens) + 1}>"]
    assert read(texts).to_list() == whole(texts).to_list()
    read.save_assets(tmp_path)
    again = BytePairTokenizer.from_assets(tmp_path, read.get_config())
    assert again.vocabulary == read.vocabulary and again(texts).to_list() == read(texts).to_list()


def test_special_tokens_by_vocabulary_else_by_configuration(tmp_path):
    folder = write_vocabulary(tmp_path, entries(*ROBERTA))
    read = BytePairTokenizer.from_files(folder)
    assert read.special_tokens == DEFAULTS[0]
    assert read.get_config()["lstrip_tokens"] == ["<mask>"]
    token = {"content": "<mask>", "lstrip": False}
    write(folder, special_tokens_map_json={"mask_token": token, "pad_token": None})
    read = BytePairTokenizer.from_files(folder)
    assert read.get_config()["lstrip_tokens"] == []
    assert "pad" not in read.special_tokens


# Round trips


@pytest.mark.parametrize("kind", ["bytebpe-gpt2", "bytebpe-roberta", "bpe-gpt1"])
def test_assets_round_trip(goldens, kind, tmp_path):
    first = Tokenizer.from_preset(goldens("tokenizers") / kind)
    first.save_assets(tmp_path)
    config = json.loads(json.dumps(first.get_config()))
    second = type(first).from_assets(tmp_path, config)
    texts = ["The word's <mask> é\u2028 </w> <unk>", "\n\n a"]
    for parse in (True, False):
        assert second(texts, parse).to_list() == first(texts, parse).to_list()
    assert (second.get_config(), second.vocabulary) == (first.get_config(), first.vocabulary)


# What is wrong


def test_merges_of_another_vocabulary(goldens, gpt2_folder):
    shutil.copy(goldens("tokenizers") / "bpe-gpt1" / "merges.txt", gpt2_folder)
    with pytest.raises(ValueError, match="the merges are another vocabulary's"):
        BytePairTokenizer.from_files(gpt2_folder)


def test_too_few_merges(gpt2_folder):
    lines = (gpt2_folder / "merges.txt").read_text(encoding="utf-8").split("\n")
    (gpt2_folder / "merges.txt").write_text("\n".join(lines[:400]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"`merges` make none of .* cut off"):
        BytePairTokenizer.from_files(gpt2_folder)


def test_files_that_are_cut_off(gpt2_folder):
    data = (gpt2_folder / "merges.txt").read_bytes()
    (gpt2_folder / "merges.txt").write_bytes(data[: data.rindex(b" ")])
    with pytest.raises(ValueError, match=r"not a pair separated by a space\. The file may be cut"):
        BytePairTokenizer.from_files(gpt2_folder)
    (gpt2_folder / "merges.txt").write_bytes("Ġ t".encode()[:1])
    with pytest.raises(ValueError, match=r"merges\.txt' is not UTF-8: byte 0 is 0xc4"):
        BytePairTokenizer.from_files(gpt2_folder)
    (gpt2_folder / "vocab.json").write_bytes((gpt2_folder / "vocab.json").read_bytes()[:500])
    with pytest.raises(ValueError, match=r"vocab\.json' is not a JSON file.*cut off"):
        BytePairTokenizer.from_files(gpt2_folder)


@pytest.mark.parametrize(
    ("vocabulary", "merges", "message"),
    [
        ('{"a": 0, "a": 1}', "", "'a' occurs twice"),
        ('{"a": 0, "b": 0}', "", "gives the token 'b' the id 0, but its place"),
        ('{"a": 0, "b": 0}', "", "without a gap.*pass tokenizer=None"),
        ('{"a": 0, "b": 2000000}', "", "without a gap.*pass tokenizer=None"),
        ('{"a": -1, "b": 0}', "", "without a gap.*pass tokenizer=None"),
        (None, "Ġ t\nĠ t\n", "`merges` holds 'Ġ t' twice, as numbers 1 and 2"),
        (None, "Ġ t\n\nh e\n", "`merges` holds '' as number 2"),
        (None, "Ġ t\nq q\n", "joins 'q' and 'q' as number 2, but 'qq' is not in the vocabulary"),
    ],
)
def test_entries_and_merges_that_do_not_fit(tmp_path, vocabulary, merges, message):
    write_vocabulary(tmp_path, entries())
    write(tmp_path, merges_txt=merges)
    if vocabulary:
        write(tmp_path, vocab_json=vocabulary)
    with pytest.raises(ValueError, match=message):
        BytePairTokenizer.from_files(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocabulary": []}, "`vocabulary` is empty"),
        ({"vocabulary": [*entries(), "a"]}, "`vocabulary` holds 'a' twice"),
        ({"vocabulary": [*entries(), "a b"]}, "'a b', and ' ' stands for no byte"),
        ({"eos_token": "<end>"}, "`eos_token` '<end>' is not in the vocabulary"),
        ({"added_tokens": ["{x}"]}, "`added_tokens` names '{x}', which is not in the vocabulary"),
        ({"merges": 5}, "`merges` is 5, of type int; pass a list of strings"),
        ({"merges": [("Ġ", "t")]}, r"`merges` names \('Ġ', 't'\)"),
        ({"merges": ["Ġt"]}, "'Ġt' as number 1, which is not a pair"),
    ],
)
def test_arguments_that_do_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        BytePairTokenizer(**{"vocabulary": entries(), "merges": MERGES, **arguments})


def test_no_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"`vocabulary` names .*vocab\.json"):
        BytePairTokenizer(tmp_path / "vocab.json", [])
    with pytest.raises(FileNotFoundError, match=r"`merges` names .*merges\.txt"):
        BytePairTokenizer(entries(), tmp_path / "merges.txt")
    write(tmp_path, merges_txt="a b\n")
    with pytest.raises(FileNotFoundError, match="has no vocabulary beside it"):
        BytePairTokenizer.from_files(tmp_path)


def test_gpt_needs_an_unknown_token():
    vocabulary, merges = ["a", "b</w>", "ab</w>", "<unk>"], ["a b</w>"]
    tokenizer = GPTTokenizer(vocabulary, merges)
    assert tokenizer(["AB a b", "abz"]).to_list() == [[2, 3, 1], [0, 3, 3]]
    with pytest.raises(ValueError, match="`unknown_token` is None, but"):
        GPTTokenizer(vocabulary, merges, unknown_token=None)
    with pytest.raises(ValueError, match="`unknown_token` '<unk>' is not in the vocabulary"):
        GPTTokenizer(vocabulary[:-1], merges)
    with pytest.raises(ValueError, match="`add_prefix_space` is True, but"):
        GPTTokenizer(vocabulary, merges, add_prefix_space=True)
