"""Forms of tokenizer.json that models have today: ids equal those of the package `tokenizers`."""

import json
import random

import pytest

from keras_lm.converters import CheckpointError
from keras_lm.tokenizers import BytePairTokenizer, Tokenizer

tokenizers = pytest.importorskip("tokenizers", reason="needs: pip install 'keras-lm[vocab]'")

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA_3 = CONTRACTIONS + r"\p{N}{1,3}" + REST
QWEN_2 = CONTRACTIONS + r"\p{N}" + REST
POSSESSIVE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
MIXED_CASE = r"[\p{Lu}\p{M}]*[\p{Ll}\p{M}]+|\s+(?!\S)|\s+"

LETTERS = [
    *"ab1 2\t\n.,'!sStMéßΣ½ \u00a0\u2003\u3000中ſ²",
    "  ",
    " 's",
    "'LL",
    " \n",
    "\r\n",
    "1234",
]


def lines(number=300, more=()):
    generator = random.Random(0)
    letters = [*LETTERS, *more]
    return ["".join(generator.choices(letters, k=generator.randrange(24))) for _ in range(number)]


def split(expression, behavior="Isolated", invert=False):
    pattern = {"String": expression} if expression == " " else {"Regex": expression}
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def of_bytes(use_regex=False, add_prefix_space=False):
    stated = {"add_prefix_space": add_prefix_space, "use_regex": use_regex}
    return {"type": "ByteLevel", "trim_offsets": True} | stated


def trained(kind, texts, steps, normalizer=None, **model):
    """Return what the tokenizer.json of a small vocabulary holds."""
    special = ["<unk>"] + [f"<0x{i:02X}>" for i in range(256)] * bool(model.get("byte_fallback"))
    tokenizer = tokenizers.Tokenizer(getattr(tokenizers.models, kind)())
    options = {"special_tokens": special, "show_progress": False, "vocab_size": 600}
    if kind == "Unigram":
        trainer = tokenizers.trainers.UnigramTrainer(unk_token="<unk>", **options)
    else:
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet() if steps[-1:] else []
        is_of_bytes = bool(steps) and steps[-1]["type"] == "ByteLevel"
        options |= {"initial_alphabet": alphabet if is_of_bytes else []}
        trainer = tokenizers.trainers.BpeTrainer(**options)
    state = json.loads(tokenizer.to_str())
    state["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps} if steps else None
    state["normalizer"] = normalizer
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state))
    tokenizer.train_from_iterator(texts, trainer)
    state = json.loads(tokenizer.to_str())
    state["model"] |= model
    if kind == "BPE" and not (steps and steps[-1]["type"] == "ByteLevel"):
        state["model"]["unk_token"] = "<unk>"
    state["added_tokens"] = [t for t in state["added_tokens"] if t["content"] == "<unk>"]
    return state


def compare(folder, state, texts, ties=False):
    """Compare ids; with `ties`, pieces of a text may have another order."""
    (folder / "tokenizer.json").write_text(json.dumps(state))
    reference = tokenizers.Tokenizer.from_str(json.dumps(state))
    expected = [row.ids for row in reference.encode_batch(texts, add_special_tokens=False)]
    tokenizer = Tokenizer.from_preset(folder)
    actual = tokenizer(texts).to_list()
    if ties:  # what is equally likely to it
        actual, expected = (list(map(sorted, rows)) for rows in (actual, expected))
    assert actual == expected
    return tokenizer


@pytest.mark.parametrize(
    "steps",
    [
        [of_bytes(use_regex=True)],
        [of_bytes(use_regex=True, add_prefix_space=True)],
        [split(LLAMA_3), of_bytes()],
        [split(LLAMA_3, "Removed", True), of_bytes()],
        [split(QWEN_2), of_bytes()],
        [split(POSSESSIVE, "Removed", True), of_bytes()],
        [{"type": "Digits", "individual_digits": True}, of_bytes(use_regex=True)],
        [{"type": "Punctuation", "behavior": "MergedWithPrevious"}, of_bytes(use_regex=True)],
        [split(" ", "MergedWithNext"), of_bytes()],
        [split(r"\p{N}{1,3}"), of_bytes(use_regex=True)],
        [of_bytes()],
    ],
)
def test_words_of_byte_pairs(tmp_path, steps):
    texts = lines()
    tokenizer = compare(tmp_path, trained("BPE", texts, steps), texts)
    again = BytePairTokenizer(
        tokenizer.vocabulary, tokenizer._rules.merges, **tokenizer.get_config()
    )
    assert again(texts[:50]).to_list() == tokenizer(texts[:50]).to_list()
    *_, ends = tokenizer.tokenize_with_offsets("a 12", unit="character")
    assert ends.numpy()[-1] == 4


def test_merges_are_ignored(tmp_path):
    texts, steps = lines(), [split(LLAMA_3), of_bytes()]
    state = trained("BPE", texts, steps, ignore_merges=True)
    state["model"]["merges"] = state["model"]["merges"][:100]
    tokenizer = compare(tmp_path, state, texts)
    assert tokenizer.ignore_merges
    with pytest.raises(ValueError, match=r"pre_tokenizer of its own.*SavedModel"):
        tokenizer.tokenize_lite(["a"])
    state["model"]["ignore_merges"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match="make none of"):
        Tokenizer.from_preset(tmp_path)


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([split(MIXED_CASE), of_bytes()], "Lu"),
        ([split(" ", "Contiguous"), of_bytes()], "Contiguous"),
        ([{"type": "WhitespaceSplit"}, of_bytes()], "WhitespaceSplit"),
        ([{"type": "Digits"}, of_bytes(add_prefix_space=True)], "adds a space"),
        ([split(r"\d+", invert=True), of_bytes()], "'invert': True"),
        ([split(r"a(?!b)"), of_bytes()], r"\(\?!"),
    ],
)
def test_other_steps_are_named(tmp_path, steps, says):
    state = trained("BPE", lines(20), [of_bytes()])
    state["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match=says):
        Tokenizer.from_preset(tmp_path)


MARKS = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, MARKS]}
BYTES = {"byte_fallback": True, "fuse_unk": True}
# The operation for models with tabs as pieces is another one, which is not tried here.
PIECES = [text.translate({9: " ", 10: " ", 13: " "}) for text in lines(more=["of ", "the "])]
PIECES += ["", " ", "a ", " a", "\u3000a"]


def metaspace(scheme, splits=True):
    stated = {"replacement": "▁", "prepend_scheme": scheme, "split": splits}
    return {"type": "Metaspace"} | stated


@pytest.mark.parametrize(
    ("kind", "normalizer", "steps", "model"),
    [
        ("BPE", MARKS, [split(" ", "MergedWithPrevious")], BYTES),  # Gemma's
        ("BPE", PREPEND, [], BYTES),  # Llama 2's
        ("BPE", None, [metaspace("first", False)], BYTES | {"ignore_merges": True}),
        ("BPE", None, [metaspace("always")], BYTES),
        ("BPE", MARKS, [], {"fuse_unk": True}),
        ("Unigram", None, [metaspace("always")], {}),
        ("Unigram", None, [metaspace("first", False)], {}),
        ("Unigram", None, [metaspace("never")], {"byte_fallback": True}),
        ("Unigram", {"type": "NFKC"}, [metaspace("always")], {}),
        ("BPE", {"type": "Sequence", "normalizers": [{"type": "NFD"}, MARKS]}, [], BYTES),
    ],
)
def test_pieces(tmp_path, kind, normalizer, steps, model):
    state = trained(kind, PIECES, steps, normalizer, **model)
    tokenizer = compare(tmp_path, state, PIECES, ties=kind == "Unigram")
    config = tokenizer.get_config()
    again = type(tokenizer)(tokenizer._data, **config)
    assert again(PIECES).to_list() == tokenizer(PIECES).to_list()


def test_tokens_in_text(tmp_path):
    """They are found before text is split, also if they are pieces of the model."""
    state = trained("BPE", PIECES, [split(" ", "MergedWithPrevious")], MARKS, **BYTES)
    size = len(state["model"]["vocab"])
    plain = {"special": False, "single_word": False, "normalized": False}
    for number, (token, strips) in enumerate([("<b>", False), ("of the", False), ("|", True)]):
        own = {"id": size + number, "content": token, "lstrip": strips, "rstrip": strips}
        state["added_tokens"].append(own | plain)
    inner = next(t for t in state["model"]["vocab"] if len(t) > 1 and t.isalpha())
    own = {"id": state["model"]["vocab"][inner], "content": inner, "lstrip": False}
    state["added_tokens"].append(own | plain | {"rstrip": False})
    texts = ["a<b>a", "of the of", " | a |  b", f"{inner}a {inner}", "of  the<b><b>"]
    tokenizer = compare(tmp_path, state, texts)
    assert tokenizer.vocabulary_size == size + 3
    state["added_tokens"][-1]["single_word"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match="single_word=True"):
        Tokenizer.from_preset(tmp_path)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"fuse_unk": False, "byte_fallback": False}, "`fuse_unk` to False"),
        ({"byte_fallback": True}, "0 of the 256"),
        ({"ignore_merges": True, "merges": []}, "ignore_merges=true"),
    ],
)
def test_other_models_are_named(tmp_path, changed, says):
    state = trained("BPE", PIECES, [], MARKS, fuse_unk=True)
    state["model"] |= changed
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match=says):
        Tokenizer.from_preset(tmp_path)
