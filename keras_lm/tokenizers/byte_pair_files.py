"""Published files of BPE vocabularies, merges and settings."""

import json
import os

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.tokenizers import published_files
from keras_lm.tokenizers.published_files import TokenizerFolder
from keras_lm.tokenizers.sentence_piece_model import BYTES, spelling
from keras_lm.tokenizers.strings import FORMS
from keras_lm.tokenizers.vocabulary import in_order, read_entries, read_lines

ROLES = ("cls", "sep", "pad", "mask", "unknown", "bos", "eos")

VOCABULARY_FILES = ("vocab.json", "encoder.json", "encoder_bpe_40000.json", "vocabulary.json")
MERGES_FILES = ("merges.txt", "vocab.bpe", "vocab_40000.bpe")
FOLDERS = ("", os.path.join("assets", "tokenizer"))  # the second is KerasHub's

END = "</w>"  # of GPT-1's words
KERAS_HUB = {"type": "KerasHub"}  # a step that splits text as KerasHub does

# Special tokens of published vocabularies: the first row whose tokens are all in the vocabulary.
DEFAULTS = (
    {
        "cls": "<s>",
        "sep": "</s>",
        "pad": "<pad>",
        "mask": "<mask>",
        "unknown": "<unk>",
        "bos": "<s>",
        "eos": "</s>",
    },
    {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]", "unknown": "[UNK]"},
    {"bos": "<|endoftext|>", "eos": "<|endoftext|>"},
    {"unknown": "<unk>"},
)

# RoBERTa's files may not state that its mask includes the space before it.
LSTRIP_DEFAULTS = ("<mask>",)


def read_vocabulary(path):
    """Return the entries of a JSON file with their ids, in the order of these."""
    remedy = "give the path of a vocab.json, or a list of entries."
    return read_entries(path, remedy, with_gaps=True)


def read_merges(path):
    """Return the merges of a file with one per line."""
    lines = read_lines(path, "merges", "give the path of a merges.txt, or a list of pairs.")
    return lines[1:] if lines and lines[0].startswith("#version") else lines


def write(folder, ids, merges):
    """Write `vocab.json` and `merges.txt` into an existing folder."""
    # As bytes: text mode would write the platform's line ends.
    with open(os.path.join(folder, "vocab.json"), "wb") as file:
        file.write(json.dumps(ids, ensure_ascii=False).encode())
    with open(os.path.join(folder, "merges.txt"), "wb") as file:
        file.write("".join(f"{line}\n" for line in ("#version: 0.2", *merges)).encode())


# === Folders of published checkpoints ===


def read_folder(folder, end, who):
    """Return entries, merges and settings of a folder with a BPE whose words end in `end`."""
    files = TokenizerFolder(folder, who)
    vocabulary, merges, path = _vocabulary_and_merges(folder, files.tokenizer)
    if any(token.endswith(END) for token in vocabulary) != bool(end):
        raise FileNotFoundError(f"{path!r} holds the vocabulary of another kind of BPE.")
    dictionary = os.path.join(folder, "dict.txt")
    # Hugging Face's folders of RoBERTa contain fairseq's dictionary, but already have its ids.
    if not end and DEFAULTS[0]["bos"] not in vocabulary and os.path.isfile(dictionary):
        vocabulary, settings = _by_dictionary(vocabulary, dictionary)
        return vocabulary, merges, settings
    settings = _check_letters(files) if end else _byte_level_settings(files)
    settings |= _special_tokens(files, vocabulary, path)
    files.check_vocabulary(vocabulary, path, merges)
    _check_tokens(files, settings, merges if not end else None)
    settings["template"] = files.template()
    if settings["template"] is None and "cls_token" not in settings:  # GPT-2's
        settings["template"] = published_files.NOTHING
    return vocabulary, merges, settings


def _check_tokens(files, settings, merges):
    """Refuse tokens that are found in other texts, or are spelled like bytes; `merges` of bytes."""
    form = settings.get("normalization")

    # They are found in text in its form, and in GPT-1's before it is clean.
    def differs(token, is_special, is_normalized):
        if merges is None:
            return is_normalized and published_files.has_letters(token)
        return published_files.changes_in_form(token, form, is_normalized)

    files.check_tokens(differs)
    made = {*BYTES.values(), *(merge.replace(" ", "") for merge in merges or ())}
    for token in files.added:
        if merges is not None and token in made and not token.isascii():
            raise CheckpointError(
                f"{files.folder}'s added token {token!r} is also what the vocabulary writes for "
                f"the bytes {spelling(token)!r}, and {files.who} has one meaning for an entry. "
                "Add the token under another name."
            )


def _by_dictionary(vocabulary, dictionary):
    """Return GPT-2's entries in the order of fairseq's dictionary, and settings."""
    lines = read_lines(dictionary, "dict.txt", "copy the checkpoint's.")
    words = [line.split(" ")[0] for line in lines]
    entries = [vocabulary[int(word)] if word.isdigit() else word for word in words]
    made_up = [word for word in words if not word.isdigit()]  # padding up to a round number
    settings = {f"{role}_token": token for role, token in DEFAULTS[0].items()}
    settings["additional_special_tokens"] = [
        *made_up,
        *["<|endoftext|>"] * ("<|endoftext|>" in entries),
    ]
    settings["lstrip_tokens"] = list(LSTRIP_DEFAULTS)
    return ["<s>", "<pad>", "</s>", "<unk>", *entries, "<mask>"], settings


def _vocabulary_and_merges(folder, tokenizer):
    for place in FOLDERS:
        paths = [
            [os.path.join(folder, place, name) for name in names]
            for names in (VOCABULARY_FILES, MERGES_FILES)
        ]
        vocabulary, merges = (
            next(filter(os.path.isfile, candidates), None) for candidates in paths
        )
        if vocabulary and merges:
            return read_vocabulary(vocabulary), read_merges(merges), vocabulary
        if merges:
            raise FileNotFoundError(
                f"{merges!r} has no vocabulary beside it: copy the checkpoint's vocab.json there."
            )
    model = tokenizer.get("model", {})
    if model.get("type") != "BPE":
        raise FileNotFoundError(
            f"`folder` {os.fspath(folder)!r} holds no vocab.json with a merges.txt, and no "
            "tokenizer.json of the type BPE; copy the checkpoint's files there."
        )
    path = os.path.join(folder, "tokenizer.json")
    return in_order(model["vocab"], path, with_gaps=True), published_files.merges_of(model), path


def _check_letters(files):
    """Refuse what a tokenizer.json of GPT-1's kind asks for and GPT-1 does not do."""
    for part, inner, only in (
        ("normalizer", "normalizers", {"type": ("BertNormalizer",), "lowercase": (True,)}),
        ("pre_tokenizer", "pretokenizers", {"type": ("BertPreTokenizer",)}),
    ):
        for step in published_files.steps(files.tokenizer, part, inner):
            files.refuse(f"tokenizer.json's {part}", step, only)
    return {}


def _byte_level_settings(files):
    settings = _hugging_face_json(files)
    if files.config.get("add_prefix_space") is not None:
        settings["add_prefix_space"] = files.config["add_prefix_space"]
    return settings


def _hugging_face_json(files):
    tokenizer = files.tokenizer
    if isinstance(tokenizer.get("config"), dict):  # KerasHub's
        is_spaced = bool(tokenizer["config"].get("add_prefix_space"))
        return {"add_prefix_space": is_spaced, "pre_tokenizer": [KERAS_HUB]}
    if tokenizer.get("model", {}).get("type") != "BPE":
        return {}
    model = tokenizer["model"]
    supported = {"end_of_word_suffix": (None, "", False)}
    if not set(BYTES.values()) <= set(model["vocab"]):  # without which nothing is unknown
        supported |= dict.fromkeys(("byte_fallback", "fuse_unk"), (False, None))
    files.refuse("tokenizer.json's model", model, supported)
    forms = [step["type"] for step in published_files.steps(tokenizer, "normalizer", "normalizers")]
    files.refuse(
        "tokenizer.json", {"normalizer": forms}, {"normalizer": ([], *([f] for f in FORMS))}
    )
    steps = published_files.steps(tokenizer, "pre_tokenizer", "pretokenizers")
    if not steps or steps[-1]["type"] != "ByteLevel":
        steps = [step["type"] for step in steps]
        files.refuse("tokenizer.json", {"pre_tokenizer": steps}, {"pre_tokenizer": ["ByteLevel"]})
    settings = {"add_prefix_space": bool(steps[-1].get("add_prefix_space"))}
    if len(steps) > 1 or not steps[-1].get("use_regex", True):
        settings["pre_tokenizer"] = steps
    if model.get("ignore_merges"):
        settings["ignore_merges"] = True
    return settings | ({"normalization": forms[0]} if forms else {})


def _special_tokens(files, vocabulary, path):
    files.add_tokens(vocabulary, path)
    known = set(vocabulary)
    usual = next((row for row in DEFAULTS if known.issuperset(row.values())), {})
    roles = {f"{role}_token": token for role, token in usual.items()} | files.special_tokens(ROLES)
    # Objects with a role describe tokens, too.
    files.described += [t for t in files.named.values() if isinstance(t, dict) and "content" in t]
    settings = roles | files.more_tokens(set(roles.values()))
    if files.described:
        settings |= {f"{side}_tokens": files.stripping(side) for side in ("lstrip", "rstrip")}
    if "<mask>" not in {token["content"] for token in files.described}:
        mask = [token for token in LSTRIP_DEFAULTS if roles.get("mask_token") == token]
        settings["lstrip_tokens"] = settings.get("lstrip_tokens", []) + mask
    return settings
