"""The files in which WordPiece vocabularies and their settings are published."""

import json
import os
import re

# The roles of special tokens, and the entries that play them in BERT's vocabularies.
DEFAULTS = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]", "unknown": "[UNK]"}
ROLES = tuple(DEFAULTS)

VOCABULARY_FILES = (
    "vocab.txt",
    "vocabulary.txt",
    os.path.join("assets", "tokenizer", "vocabulary.txt"),
    os.path.join("assets", "vocab.txt"),
)


def read_folder(folder):
    """Return the entries and the settings of a folder, as arguments for `WordPieceTokenizer`."""
    config = _read_json(folder, "tokenizer_config.json")
    tokenizer = _read_json(folder, "tokenizer.json")
    paths = [os.path.join(folder, name) for name in VOCABULARY_FILES]
    path = next((path for path in paths if os.path.isfile(path)), None)
    if path:
        vocabulary = read_vocabulary(path)
    elif "vocab" in tokenizer.get("model", {}):
        path = os.path.join(folder, "tokenizer.json")
        vocabulary = _in_order(tokenizer["model"]["vocab"], path)
    else:
        raise FileNotFoundError(
            f"`folder` {os.fspath(folder)!r} holds none of {', '.join(VOCABULARY_FILES)} and "
            "no tokenizer.json with a vocabulary; copy the checkpoint's vocab.txt there."
        )
    settings = {**_hugging_face_json(tokenizer), **_keras_hub_json(tokenizer)}
    settings.update(_hugging_face_config(config))

    # Special tokens may be strings or objects, and may lie beyond the vocabulary.
    named = {**_read_json(folder, "special_tokens_map.json"), **config}
    special = []
    for role in ROLES:
        key = "unk_token" if role == "unknown" else f"{role}_token"
        if key in named:
            settings[f"{role}_token"] = _content(named[key])
        special.append(settings.get(f"{role}_token", DEFAULTS[role]))
    more = named.get("additional_special_tokens") or named.get("extra_special_tokens") or []
    more = [_content(token) for token in (more.values() if isinstance(more, dict) else more)]
    added = _added_tokens(folder, config, tokenizer)
    _append(vocabulary, added, path)
    more += [content for content, (_, is_special) in added.items() if is_special]
    settings["additional_special_tokens"] = [
        token for token in dict.fromkeys(more) if token not in special
    ]
    special += settings["additional_special_tokens"]
    settings["added_tokens"] = [token for token in added if token not in special]
    settings.setdefault("lowercase", not _looks_cased(vocabulary, special))
    return vocabulary, settings


def read_vocabulary(path):
    """Return the entries of a file with one a line."""
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"`vocabulary` names the file {os.fspath(path)!r}, which does not exist; give the path "
            "of a vocab.txt, or a list of entries."
        )
    with open(path, "rb") as file:
        data = file.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"`vocabulary` file {os.fspath(path)!r} is not UTF-8: byte {error.start} is "
            f"{data[error.start]:#x}; convert the file to UTF-8."
        ) from None
    # Not splitlines(): an entry may be a line separator of Unicode.
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _read_json(folder, name):
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return {}
    with open(path, encoding="utf-8") as file:
        try:
            return json.load(file)
        except ValueError as error:
            raise ValueError(f"{path!r} is not a JSON file: {error}") from None


def _content(token):
    return token["content"] if isinstance(token, dict) else token


def _in_order(ids, path):
    entries = sorted(ids, key=ids.get)
    _check_ids(entries, ids, path)
    return entries


def _check_ids(entries, ids, path):
    for i, token in enumerate(entries):
        if ids.get(token, i) != i:
            raise ValueError(
                f"{path!r} gives the token {token!r} the id {ids[token]}, but its place in the "
                f"vocabulary is {i}; ids have to be the numbers from 0 without a gap."
            )


def _added_tokens(folder, config, tokenizer):
    """Return a dict from added token to its id and whether it is special."""
    added = {t: (i, False) for t, i in _read_json(folder, "added_tokens.json").items()}
    described = list(tokenizer.get("added_tokens", []))
    described += [{**t, "id": int(i)} for i, t in config.get("added_tokens_decoder", {}).items()]
    for token in described:
        _refuse("added_tokens", token, {"single_word": (False, None)})
        added[token["content"]] = (token["id"], token.get("special", False))
    return added


def _append(vocabulary, added, path):
    known = set(vocabulary)
    vocabulary += sorted((t for t in added if t not in known), key=lambda t: added[t][0])
    _check_ids(vocabulary, {token: i for token, (i, _) in added.items()}, path)


def _looks_cased(vocabulary, special):
    bracketed = re.compile(r"\[.*\]|<.*>", re.DOTALL)
    return any(
        token != token.lower() and token not in special and not bracketed.fullmatch(token)
        for token in vocabulary
    )


def _refuse(where, settings, supported):
    """Raise ValueError for a setting that is there and has another than the supported values."""
    for name, values in supported.items():
        if name in settings and settings[name] not in values:
            raise ValueError(
                f"{where} sets `{name}` to {settings[name]!r}, which WordPieceTokenizer does not "
                f"support; it can do {values[0]!r}. Tokenize such text outside of the graph."
            )


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
