"""The files in which WordPiece vocabularies and their settings are published."""

import os
import re

from keras_lm.tokenizers import published_files
from keras_lm.tokenizers.published_files import content, read_json

# The roles of special tokens, and the entries that play them in BERT's vocabularies.
DEFAULTS = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]", "unknown": "[UNK]"}
ROLES = tuple(DEFAULTS)
WHO = "WordPieceTokenizer"

# What marks the pieces of other kinds of tokenizers, of which a tenth or more has it.
OTHER_SIGNS = {
    "\u2581": "SentencePiece",
    "\u0120": "byte-level BPE",
    "</w>": "GPT's BPE",
    "@@": "fastBPE",
}
LEAST_SHARE = 0.1

VOCABULARY_FILES = (
    "vocab.txt",
    "vocabulary.txt",
    os.path.join("assets", "tokenizer", "vocabulary.txt"),
    os.path.join("assets", "vocab.txt"),
)


def read_folder(folder):
    """Return the entries and the settings of a folder, as arguments for `WordPieceTokenizer`."""
    config = read_json(folder, "tokenizer_config.json")
    tokenizer = published_files.read_tokenizer(folder)
    paths = [os.path.join(folder, name) for name in VOCABULARY_FILES]
    path = next((path for path in paths if os.path.isfile(path)), None)
    if path:
        vocabulary = read_vocabulary(path)
        _check_look(vocabulary, path)
    elif "vocab" in tokenizer.get("model", {}):
        path = os.path.join(folder, "tokenizer.json")
        vocabulary = published_files.in_order(tokenizer["model"]["vocab"], path)
    else:
        raise FileNotFoundError(
            f"`folder` {os.fspath(folder)!r} holds none of {', '.join(VOCABULARY_FILES)} and "
            "no tokenizer.json with a vocabulary; copy the checkpoint's vocab.txt there."
        )
    settings = {**_hugging_face_json(tokenizer), **_keras_hub_json(tokenizer)}
    settings.update(_hugging_face_config(config))

    # Special tokens may be strings or objects, and may lie beyond the vocabulary.
    named = {**read_json(folder, "special_tokens_map.json"), **config}
    special = []
    for role in ROLES:
        key = "unk_token" if role == "unknown" else f"{role}_token"
        if key in named:
            settings[f"{role}_token"] = content(named[key])
        special.append(settings.get(f"{role}_token", DEFAULTS[role]))
    more = published_files.additional_tokens(named) or []
    described = published_files.described_tokens(config, tokenizer, WHO)
    added = published_files.added_tokens(folder, described)
    published_files.append(vocabulary, added, path)
    more += [token for token, (_, is_special) in added.items() if is_special]
    settings["additional_special_tokens"] = [
        token for token in dict.fromkeys(more) if token not in special
    ]
    special += settings["additional_special_tokens"]
    settings["added_tokens"] = [token for token in added if token not in special]
    settings.setdefault("lowercase", not _looks_cased(vocabulary, special))
    settings["template"] = published_files.template(folder, tokenizer, WHO)
    return vocabulary, settings


def read_vocabulary(path):
    """Return the entries of a file with one a line."""
    return published_files.read_lines(
        path, "vocabulary", "give the path of a vocab.txt, or a list of entries."
    )


def _check_look(vocabulary, path):
    """Raise a ValueError if the entries are spelled as those of another kind of vocabulary."""
    for sign, kind in OTHER_SIGNS.items():
        number = sum(sign in entry for entry in vocabulary)
        if number > len(vocabulary) * LEAST_SHARE:
            raise ValueError(
                f"{path!r} is no WordPiece vocabulary: {number} of its {len(vocabulary)} entries "
                f"have {sign!r}, as those of {kind}, by whose rules text would have to be split. "
                "Put that tokenizer's own files there, or pass tokenizer=None for packed dicts."
            )


def _looks_cased(vocabulary, special):
    bracketed = re.compile(r"\[.*\]|<.*>", re.DOTALL)
    return any(
        token != token.lower() and token not in special and not bracketed.fullmatch(token)
        for token in vocabulary
    )


def _refuse(where, settings, supported):
    published_files.refuse(where, settings, supported, WHO)


def _hugging_face_config(config):
    _refuse(
        "tokenizer_config.json",
        config,
        {
            "tokenize_chinese_chars": (True, None),
            "do_basic_tokenize": (True, None),
            "never_split": (None, []),
            "word_tokenizer_type": ("basic", None),
            "subword_tokenizer_type": ("wordpiece", None),
        },
    )
    names = {"do_lower_case": "lowercase", "strip_accents": "strip_accents"}
    return {ours: config[name] for name, ours in names.items() if config.get(name) is not None}


def _hugging_face_json(tokenizer):
    if "model" not in tokenizer:
        return {}
    model, normalizer = tokenizer["model"], tokenizer.get("normalizer") or {"type": None}
    _refuse("tokenizer.json's model", model, {"type": ("WordPiece",)})
    _refuse("tokenizer.json's model", model, {"continuing_subword_prefix": ("##",)})
    _refuse(
        "tokenizer.json's pre_tokenizer",
        tokenizer.get("pre_tokenizer") or {"type": None},
        {"type": ("BertPreTokenizer",)},
    )
    _refuse(
        "tokenizer.json's normalizer",
        normalizer,
        {
            "type": ("BertNormalizer",),
            "clean_text": (True,),
            "handle_chinese_chars": (True,),
        },
    )
    return {
        "lowercase": normalizer.get("lowercase", True),
        "strip_accents": normalizer.get("strip_accents"),
        "unknown_token": model.get("unk_token", "[UNK]"),
        "max_word_length": model.get("max_input_chars_per_word", 100),
    }


def _keras_hub_json(tokenizer):
    config = tokenizer.get("config")
    if not isinstance(config, dict):
        return {}
    _refuse("tokenizer.json", config, {"split": (True,), "suffix_indicator": ("##",)})
    names = {"lowercase": "lowercase", "strip_accents": "strip_accents"}
    names["oov_token"] = "unknown_token"
    return {ours: config[name] for name, ours in names.items() if config.get(name) is not None}
