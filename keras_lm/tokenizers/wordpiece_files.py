"""The files in which WordPiece vocabularies and their settings are published."""

import os
import re

from keras_lm.tokenizers import strings
from keras_lm.tokenizers.published_files import (
    CLASSES,
    TokenizerFolder,
    has_letters,
    is_generic,
    reading,
    stated_class,
    steps,
)
from keras_lm.tokenizers.vocabulary import in_order, read_json, read_lines_of_entries
from keras_lm.utils.user_arguments import warn

# The roles of special tokens, and the entries that play them in published vocabularies: the first
# row whose entries are all there. (MPNet's vocabulary is BERT's with entries of its own.)
DEFAULTS = (
    {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>", "unknown": "[UNK]"},
    {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]", "unknown": "[UNK]"},
)
WHO = "WordPieceTokenizer"
# Networks with such a tokenizer where nothing names its class.
MODEL_TYPES = ("bert", "distilbert", "electra", "mpnet")

# What the pieces of other kinds of tokenizers have, at least a tenth of them.
OTHER_SIGNS = {
    "\u2581": "SentencePiece",
    "\u0120": "byte-level BPE",
    "</w>": "GPT's BPE",
    "@@": "fastBPE",
}
LEAST_SHARE = 0.1


def read_folder(folder, roles, names):
    """Return the entries and the settings of a folder, as arguments for `WordPieceTokenizer`.

    Args:
        folder: path.
        roles: tuple of str, those of special tokens.
        names: tuple of str, what a file of the vocabulary may be called.

    Raises:
        FileNotFoundError: if there is no vocabulary.
        ValueError: if a file is damaged, or asks for something that the class does not do.
    """
    with reading(folder):
        return _read(folder, roles, names)


def _read(folder, roles, names):
    files = TokenizerFolder(folder, WHO)
    model = files.tokenizer.get("model", {})
    paths = [os.path.join(folder, name) for name in names]
    path = next((path for path in paths if os.path.isfile(path)), None)
    if path:
        vocabulary = read_lines_of_entries(path)
        _check_look(vocabulary, path)
    elif "vocab" in model:
        path = os.path.join(folder, "tokenizer.json")
        vocabulary = in_order(model["vocab"], path)
    else:
        raise FileNotFoundError(
            f"`folder` {os.fspath(folder)!r} holds none of {', '.join(names)} and "
            "no tokenizer.json with a vocabulary; copy the checkpoint's vocab.txt there."
        )
    settings = {
        **_usual_tokens(vocabulary),
        **_hugging_face_json(files),
        **_keras_hub_json(files),
        **_hugging_face_config(files),
        "clean_up": _cleans_up(files),
    }
    settings |= files.special_tokens(roles)
    special = {settings[f"{role}_token"] for role in roles}
    files.add_tokens(vocabulary, path)
    files.check_vocabulary(vocabulary, path)
    settings |= files.more_tokens(special)
    special.update(settings["additional_special_tokens"])
    settings.setdefault("lowercase", not _looks_cased(vocabulary, special))
    folds = settings["lowercase"] or settings.get("strip_accents")

    # Tokens that are not special are found in clean text.
    def differs(token, is_special, is_normalized):
        return not is_special and not is_normalized and folds and has_letters(token)

    files.check_tokens(differs)
    settings["normalized_tokens"] = files.normalized_tokens()
    settings["template"] = files.template()
    return vocabulary, settings


def _check_look(vocabulary, path):
    """Raise ValueError if entries are spelled like those of another kind of vocabulary."""
    text, most = "\n".join(vocabulary), len(vocabulary) * LEAST_SHARE
    for sign, kind in OTHER_SIGNS.items():
        if text.count(sign) <= most:  # nearly always, and soon counted
            continue
        number = sum(sign in entry for entry in vocabulary)
        if number > most:
            raise ValueError(
                f"{path!r} is not a WordPiece vocabulary: {number} of its {len(vocabulary)} "
                f"entries have {sign!r}, like those of {kind}, which splits text by other rules. "
                "Put that tokenizer's own files there, or pass tokenizer=None for packed dicts."
            )


def _usual_tokens(vocabulary):
    known = set(vocabulary)
    usual = next((row for row in DEFAULTS if known.issuperset(row.values())), DEFAULTS[-1])
    return {f"{role}_token": token for role, token in usual.items()}


def _looks_cased(vocabulary, special):
    text = "\n".join(vocabulary)
    if text == text.lower():
        return False
    bracketed = re.compile(r"\[.*\]|<.*>", re.DOTALL)
    return any(
        token != token.lower() and token not in special and not bracketed.fullmatch(token)
        for token in vocabulary
    )


def _hugging_face_config(files):
    return _renamed(files.config, do_lower_case="lowercase", strip_accents="strip_accents")


def _hugging_face_json(files):
    if "model" not in files.tokenizer:
        return {}
    model = files.tokenizer["model"]
    splitters = steps(files.tokenizer, "pre_tokenizer", "pretokenizers")
    normalizers = steps(files.tokenizer, "normalizer", "normalizers")
    stated = {"model": model["type"]}
    stated |= {"pre_tokenizer": [step["type"] for step in splitters]}
    # (sentence-transformers adds a step for lower case, after which accents are left.)
    lowers = len(normalizers) == 2 and {"type": "Lowercase"} in normalizers
    normalizers = [step for step in normalizers if not lowers or step["type"] != "Lowercase"]
    stated |= {"normalizer": [step["type"] for step in normalizers]}
    supported = {"model": ("WordPiece",), "pre_tokenizer": (["BertPreTokenizer"],)}
    files.refuse("tokenizer.json", stated, supported | {"normalizer": (["BertNormalizer"],)})
    (normalizer,) = normalizers
    lowercase = normalizer.get("lowercase", True)
    strips = normalizer.get("strip_accents")
    if not lowercase and not lowers and files.config.get("do_lower_case") is None:
        _warn_of_case(files)
    return {
        "lowercase": lowercase or lowers,
        "strip_accents": lowercase if strips is None and lowers else strips,
        "unknown_token": model.get("unk_token", "[UNK]"),
        "max_word_length": model.get("max_input_chars_per_word", 100),
    }


def _warn_of_case(files):
    """Warn of a tokenizer.json that keeps upper case, if its class does only where asked to."""
    name = stated_class(files.folder)
    if name is None and not is_generic(files.folder):
        is_known = read_json(files.folder, "config.json").get("model_type") in MODEL_TYPES
    else:
        is_known = CLASSES.get(name, (None,))[0] == WHO
    if is_known:
        warn(
            f"{files.folder}'s tokenizer.json keeps upper case, which is followed; transformers "
            "makes it lower case, as tokenizer_config.json has no do_lower_case. State there "
            "which is meant."
        )


def _cleans_up(files):
    """Return the setting `clean_up`: a decoder drops the spaces before punctuation alone."""
    decoder = files.tokenizer.get("decoder") or {}
    cleans_text = files.config.get("clean_up_tokenization_spaces")
    if cleans_text or not decoder.get("cleanup", True):
        return bool(cleans_text)
    # (transformers 5, whose files name a backend, joins clitics only on request.)
    is_usual = cleans_text is None and "backend" not in files.config
    return True if is_usual else strings.PUNCTUATION_ALONE


def _keras_hub_json(files):
    config = files.tokenizer.get("config")
    if not isinstance(config, dict):
        return {}
    files.refuse("tokenizer.json", config, {"split": (True,), "suffix_indicator": ("##",)})
    renamed = _renamed(
        config, lowercase="lowercase", strip_accents="strip_accents", oov_token="unknown_token"
    )
    return renamed | {"keras_hub": True}


def _renamed(config, **names):
    return {ours: config[name] for name, ours in names.items() if config.get(name) is not None}
