"""Published folders of SentencePiece models, and what each family does around its model."""

import base64
import os
import re
import unicodedata

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.tokenizers import published_files
from keras_lm.tokenizers.published_files import TokenizerFolder
from keras_lm.tokenizers.sentence_piece_model import (
    BPE,
    BYTE,
    BYTE_PIECE,
    CONTROL,
    NORMAL,
    OWN_SPACE,
    ROLES,
    SPACE,
    UNIGRAM,
    UNKNOWN,
    USER_DEFINED,
    Model,
    check_merges,
    last_ranks,
    parse_model,
    read_model,
)
from keras_lm.tokenizers.sentence_piece_normalizer import ALL_MARKS, marks, table_of
from keras_lm.tokenizers.strings import FORMS
from keras_lm.tokenizers.vocabulary import in_order
from keras_lm.utils.user_arguments import warn

WHO = "SentencePieceTokenizer"

XLM_ROBERTA = "sentencepiece.bpe.model"
MODEL_FILES = (
    "spiece.model",
    "spm.model",
    XLM_ROBERTA,
    "tokenizer.model",
    "sentencepiece.model",
    "30k-clean.model",
    os.path.join("assets", "tokenizer", "vocabulary.spm"),
    os.path.join("assets", "spiece.model"),
)
MAX_EXTRA_IDS = 10_000  # T5 has 100

_CLEANING = {
    "strip_accents": True,
    "straighten_quotes": True,
    "collapse_whitespace": True,
    "split_digit_commas": True,
}
# What the papers' own code does around the model; "plain" is SentencePiece alone.
FAMILIES = {
    "plain": {},
    "albert": {
        **_CLEANING,
        "lowercase": True,
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "pad_token": "<pad>",
        "mask_token": "[MASK]",
        "bos_token": "[CLS]",
        "eos_token": "[SEP]",
    },
    "xlnet": {
        **_CLEANING,
        "lowercase": False,
        "cls_token": "<cls>",
        "sep_token": "<sep>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "additional_special_tokens": ["<eop>", "<eod>"],
    },
    "t5": {"pad_token": "<pad>", "eos_token": "</s>", "extra_ids": 100},
    "xlm_roberta": {
        "cls_token": "<s>",
        "sep_token": "</s>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
        "bos_token": "<s>",
        "eos_token": "</s>",
    },
    "reformer": {"bos_token": None, "eos_token": "</s>"},  # its texts begin with no token
    "deberta": {
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "mask_token": "[MASK]",
        "bos_token": "[CLS]",
        "eos_token": "[SEP]",
        "appended_tokens": ["[MASK]"],  # its model has the others
    },
}
# How files state the family: by class, by type of model, or by the name of a configuration.
CLASSES = {
    "AlbertTokenizer": "albert",
    "XLNetTokenizer": "xlnet",
    "T5Tokenizer": "t5",
    "XLMRobertaTokenizer": "xlm_roberta",
    "ReformerTokenizer": "reformer",
    "DebertaV2Tokenizer": "deberta",
}
# Entries that their classes follow where they make the steps of a tokenizer.json → our argument.
FOLLOWED = {
    "AlbertTokenizer": {"do_lower_case": "lowercase", "keep_accents": "strip_accents"},
    "XLNetTokenizer": {"do_lower_case": "lowercase"},
    "DebertaV2Tokenizer": {"do_lower_case": "lowercase"},
}
MODEL_TYPES = {
    "albert": "albert",
    "xlnet": "xlnet",
    "t5": "t5",
    "xlm-roberta": "xlm_roberta",
    "reformer": "reformer",
    "deberta-v2": "deberta",
}
KERAS_HUB = {
    "T5Backbone": "t5",
    "XLMRobertaBackbone": "xlm_roberta",
    "DebertaV3Backbone": "deberta",
}
TF1_CONFIGS = {
    "albert_config.json": "albert",
    "xlnet_config.json": "xlnet",
    "operative_config.gin": "t5",
}

# The usual names of special tokens, for files that do not name theirs.
NAMES = {
    "cls": ("[CLS]", "<cls>"),
    "sep": ("[SEP]", "<sep>"),
    "pad": ("<pad>", "[PAD]"),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("<s>",),
    "eos": ("</s>",),
}


def read_folder(folder, family, usual_family):
    """Return a folder's model as bytes, and settings; see `SentencePieceTokenizer.from_files`."""
    files = TokenizerFolder(folder, WHO)
    _check_form(files)
    path, data, settings = _read_model(folder, family, usual_family, files)
    pieces = parse_model(data, repr(path)).pieces

    vocabulary = [piece.piece for piece in pieces]
    files.add_tokens(vocabulary, path)
    _check_tokens(files, settings)
    appended = settings.pop("appended_tokens", [])
    vocabulary += [token for token in appended if token not in vocabulary]
    entries = {*vocabulary}
    known = {piece.piece for piece in pieces if piece.type in (CONTROL, USER_DEFINED)}
    known |= {token for token, (_, is_special) in files.added.items() if is_special}
    named = files.special_tokens(ROLES)
    for role in ROLES:
        key = f"{role}_token"
        if key in named:
            settings[key] = named[key]
        elif settings.get(key) not in entries:
            # A model may lack what its family usually has.
            candidates = [name for name in NAMES[role] if name in known and key not in settings]
            settings[key] = candidates[0] if candidates else None

    beyond = vocabulary[len(pieces) :]
    extra_ids = files.config.get("extra_ids", settings.pop("extra_ids", 0))
    if type(extra_ids) is not int or not 0 <= extra_ids <= MAX_EXTRA_IDS:
        raise ValueError(
            f"tokenizer_config.json has `extra_ids` {extra_ids!r}; it must be a number from 0 to "
            f"{MAX_EXTRA_IDS}. Copy the published file again."
        )
    # mT5's model has them among its pieces, as words.
    if extra_ids and not beyond and not entries & {"<extra_id_0>", f"{SPACE}<extra_id_0>"}:
        # The last extra id comes first.
        beyond = [f"<extra_id_{i}>" for i in reversed(range(extra_ids))]
        settings["additional_special_tokens"] = beyond[::-1]
    files.check_vocabulary([*vocabulary[: len(pieces)], *beyond], path)
    own = settings.get("added_tokens", [])  # of a tokenizer.json, in the model
    settings["added_tokens"] = [*own, *(token for token in beyond if token not in own)]
    settings["template"] = files.template()
    more = published_files.additional_tokens(files.named)
    if more is None:
        usual = settings.get("additional_special_tokens", ())
        more = [token for token in usual if token in entries | {*beyond}]
    more += [content for content, (_, is_special) in files.added.items() if is_special]
    more += [piece.piece for piece in pieces if piece.type == CONTROL]
    taken = {settings[f"{role}_token"] for role in ROLES}
    taken |= {piece.piece for piece in pieces if piece.type == UNKNOWN}
    settings["additional_special_tokens"] = [t for t in dict.fromkeys(more) if t not in taken]
    for side in ("lstrip", "rstrip"):
        if files.described:
            tokens = files.stripping(side)
        else:  # T5's extra ids
            tokens = [token for token in beyond if token in settings["additional_special_tokens"]]
        settings[f"{side}_tokens"] = tokens
    return data, settings


def _check_tokens(files, settings):
    """Refuse tokens that a normalizer changes, or the text around them, before they are found."""
    steps = published_files.steps(files.tokenizer, "normalizer", "normalizers")
    prepends = any(step["type"] == "Prepend" for step in steps)
    folds = settings.get("lowercase") or settings.get("strip_accents")
    strips = {*files.stripping("lstrip"), *files.stripping("rstrip")}
    has_marks = any(step.get("content") == SPACE for step in steps)  # and no white space

    form = settings.get("normalization")

    # They are found in text that is in its form, but not changed by the model's table yet.
    def differs(token, is_special, is_normalized):
        if published_files.changes_in_form(token, form, is_normalized):
            return True
        is_changed = prepends or unicodedata.normalize("NFKC", token) != token
        is_folded = folds and published_files.has_letters(token)
        return is_normalized and (is_changed or is_folded or (has_marks and token in strips))

    files.check_tokens(differs)


def _read_model(folder, family, usual_family, files):
    """Return the path and the bytes of the model, and the settings around it."""
    paths = [os.path.join(folder, name) for name in MODEL_FILES]
    path = next((path for path in paths if os.path.isfile(path)), None)
    is_described = files.tokenizer.get("model", {}).get("type") in ("Unigram", "BPE")
    is_known = published_files.stated_class(folder) in (None, *CLASSES)
    if family is None and is_described and (path is None or not is_known):
        model, settings = read_tokenizer_json(files.tokenizer)
        settings["clean_up"] = bool(files.config.get("clean_up_tokenization_spaces"))
        return os.path.join(folder, "tokenizer.json"), model.SerializeToString(), settings
    if path is None:
        raise FileNotFoundError(
            f"`folder` {os.fspath(folder)!r} holds none of {', '.join(MODEL_FILES)}, and no "
            "tokenizer.json of the type Unigram; copy the checkpoint's SentencePiece model there."
        )
    data = read_model(path)
    model = parse_model(data, repr(path))
    family = family or _family(folder, path, model) or usual_family
    if family not in FAMILIES:
        raise ValueError(f"`family` is {family!r}; it must be one of {sorted(FAMILIES)}.")
    settings = {**FAMILIES[family]}
    if family == "xlm_roberta":
        data = _in_fairseq_order(model, path).SerializeToString()
    is_generic = published_files.is_generic(folder)
    if family == "plain" or is_generic:
        settings |= _normalizers(files.tokenizer)
    if is_generic:  # its class adds no tokens to those of its tokenizer.json
        settings |= {"appended_tokens": [], "extra_ids": 0}
    return path, data, settings | _hugging_face_config(files)


def _family(folder, path, model):
    """Return the family that a folder states, or None."""
    name = published_files.stated_class(folder)
    if name is not None:
        family = CLASSES.get(name)
        if family is None:
            raise ValueError(
                f"tokenizer_config.json asks for {name!r}, whose rules around SentencePiece are "
                f"not supported; pass family= one of {sorted(FAMILIES)} if one of them fits."
            )
        return family
    for file, family in TF1_CONFIGS.items():
        if os.path.isfile(os.path.join(folder, file)):
            return family
    config = published_files.read_json(folder, "config.json")
    families = MODEL_TYPES | KERAS_HUB
    name = config.get("model_type") or config.get("class_name")
    # XLM-R's file with any network: multilingual MiniLM is a BERT.
    is_xlm_roberta = os.path.basename(path) == XLM_ROBERTA and _begins_as_xlm_roberta(model)
    return families.get(name, "xlm_roberta" if is_xlm_roberta else None)


def _begins_as_xlm_roberta(model):
    return [piece.piece for piece in model.pieces[:3]] == ["<unk>", "<s>", "</s>"]


def _in_fairseq_order(model, path):
    """Return XLM-R's model with its pieces in the order of fairseq's ids, which are its own."""
    if not _begins_as_xlm_roberta(model):
        names = [piece.piece for piece in model.pieces[:3]]
        raise ValueError(
            f"{path!r} begins with the pieces {names}, and XLM-R's model begins with <unk>, <s> "
            "and </s>; pass another family=, such as 'plain'."
        )
    unknown, start, end, *others = model.pieces
    ordered = Model()
    ordered.CopyFrom(model)
    del ordered.pieces[:]
    ordered.pieces.extend([start, _control("<pad>"), end, unknown, *others, _control("<mask>")])
    return ordered


def _control(piece):
    return Model().pieces.add(piece=piece, type=CONTROL)


def _hugging_face_config(files):
    # Our argument for each of theirs, and whether it means the opposite.
    names = {
        "do_lower_case": ("lowercase", False),
        "keep_accents": ("strip_accents", True),
        "remove_space": ("collapse_whitespace", False),
        "legacy": ("prefix_once", True),
        "clean_up_tokenization_spaces": ("clean_up", False),
        "split_digit_commas": ("split_digit_commas", False),
    }
    return {
        ours: bool(files.config[name]) != is_opposite
        for name, (ours, is_opposite) in names.items()
        if files.config.get(name) is not None
    }


def _check_form(files):
    """Refuse a tokenizer.json that changes letters otherwise than the settings beside it say."""
    stated = _hugging_face_config(files)
    entries = FOLLOWED.get(published_files.stated_class(files.folder), {})
    if not files.tokenizer.get("normalizer"):
        return
    steps = _normalizers(files.tokenizer)
    for entry, ours in entries.items():
        if ours in stated and bool(steps[ours]) != stated[ours]:
            raise CheckpointError(
                f"{files.folder}: its tokenizer_config.json has {entry}={files.config[entry]!r}, "
                "and its tokenizer.json does the opposite. Correct the one that is wrong."
            )


def _normalizers(tokenizer):
    """Return the settings that a tokenizer.json states as a list of normalizers."""
    kind = tokenizer.get("model", {}).get("type", "Unigram")
    if kind not in ("Unigram", "BPE"):
        raise ValueError(
            f"tokenizer.json describes a {kind} model, but there is a SentencePiece model, too; "
            "remove the one that is not meant."
        )
    steps = tokenizer.get("normalizer") or {}
    steps = steps.get("normalizers", [steps])
    steps = [step for step in steps if "type" in step]
    kinds = {step["type"] for step in steps}
    return {
        "lowercase": "Lowercase" in kinds,
        "strip_accents": dropped_marks(steps),
        "straighten_quotes": any(step.get("content") == '"' for step in steps),
    }


# === tokenizer.json: models as Hugging Face's `tokenizers` describe them ===

# They state step by step what a model file has as settings: "Precompiled" is its table of
# characters, "Metaspace" its space before text and between words, and the vocabulary its pieces in
# the order of their ids. Anything that SentencePiece has no setting for is refused.

NO = (None, "", False)
NUM_BYTES = 256
# Runs of white space, tabs and ends of lines: as transformers 5 has them for DeBERTa.
RUNS_AND_LINES = r"\s{2,}|[\n\r\t]"


def _replaced(kind, pattern, content):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


_QUOTES = [_replaced("String", quote, '"') for quote in ("``", "''")]
_JOINED_SPACES = [
    *(_replaced("Regex", " {2,}", space) for space in (" ", SPACE)),
    _replaced("Regex", RUNS_AND_LINES, " "),
]


def read_tokenizer_json(tokenizer):
    """Return a tokenizer.json's model and settings of `SentencePieceTokenizer`.

    Args:
        tokenizer: dict, what the file holds.

    Raises:
        ValueError: if it asks for something that SentencePiece does not do.
    """
    model = Model()
    # Both must be present, even if all their fields have the default values.
    model.trainer_spec.SetInParent()
    spec = model.normalizer_spec
    settings = _normalize(tokenizer, spec)
    settings |= _split(tokenizer, spec)
    _check_spaces(tokenizer, spec)
    splits = any(map(_is_splitter, _splitters(tokenizer)))
    settings["added_tokens"] = _add_pieces(tokenizer, model, splits)
    return model, settings


def _splitters(tokenizer):
    return published_files.steps(tokenizer, "pre_tokenizer", "pretokenizers")


def _is_splitter(step):
    """Whether a step keeps pieces from having a space inside."""
    return step["type"] == "WhitespaceSplit" or step.get("split", step["type"] == "Metaspace")


def _normalize(tokenizer, spec):
    """Set a normalizer's fields; return the settings for what SentencePiece does not do."""
    settings = dict.fromkeys(("lowercase", "strip_accents", "straighten_quotes"), False)
    spec.add_dummy_prefix = spec.remove_extra_whitespaces = False
    steps = published_files.steps(tokenizer, "normalizer", "normalizers")
    kinds = [step["type"] for step in steps]
    strips = "NFKD" in kinds and dropped_marks(steps)
    if kinds[:1] and kinds[0] in FORMS and not (strips and kinds[0] == "NFKD"):
        settings["normalization"], steps = kinds[0], steps[1:]
    for step in steps:
        kind = step["type"]
        if kind == "Precompiled":
            spec.precompiled_charsmap = base64.b64decode(step["precompiled_charsmap"])
        elif step in _JOINED_SPACES:
            spec.remove_extra_whitespaces = True
        elif kind == "NFC" and "Precompiled" not in kinds:
            settings["normalization"] = kind
        elif step in _QUOTES and all(other in steps for other in _QUOTES):
            settings["straighten_quotes"] = True
        elif kind == "Prepend" and step["prepend"] == SPACE:
            spec.add_dummy_prefix = True
        elif strips and (kind == "NFKD" or dropped_marks([step])):
            settings["strip_accents"] = strips
        elif kind == "Lowercase":
            settings["lowercase"] = True
        elif kind != "Strip" and step != _replaced("String", " ", SPACE):
            # (SentencePiece strips spaces when it removes extra ones, and writes them like pieces.)
            _refuse("normalizer", step)
    # (SentencePiece strips only what its table makes a space.)
    settings["strip_end"] = any(step.get("strip_right") for step in steps)
    if "Precompiled" not in kinds:
        patterns = [(step.get("pattern") or {}).get("Regex") for step in steps]
        own = (
            "NFC" in kinds,  # most of it, for LiteRT
            RUNS_AND_LINES in patterns,
            "WhitespaceSplit" in [step["type"] for step in _splitters(tokenizer)],
        )
        spec.precompiled_charsmap = table_of(*own) if any(own) else b""
    return settings


def dropped_marks(steps):
    """Return the setting `strip_accents` for a normalizer's steps, of which NFKD is another."""
    if any(step["type"] == "StripAccents" for step in steps):
        return ALL_MARKS
    return {"type": "Replace", "pattern": {"Regex": marks()}, "content": ""} in steps


def _split(tokenizer, spec):
    """Set whether a space begins text; return the settings for which texts."""
    settings = {"prefix_once": False, "keep_first_space": False}
    if sum(step["type"] == "Metaspace" for step in _splitters(tokenizer)) > 1:
        _refuse("pre_tokenizer", tokenizer["pre_tokenizer"])
    steps = published_files.steps(tokenizer, "normalizer", "normalizers")
    has_spaces = {"String": " "} not in [step.get("pattern") for step in steps]
    for step in _splitters(tokenizer):
        if step["type"] == "WhitespaceSplit":
            spec.remove_extra_whitespaces = True
        elif step["type"] == "Metaspace" and step["replacement"] == SPACE:
            scheme = step.get("prepend_scheme", "always")
            is_added = step.get("add_prefix_space", True) and scheme != "never"
            is_new = is_added and not spec.add_dummy_prefix
            settings["keep_first_space"] = is_new and not spec.remove_extra_whitespaces
            spec.add_dummy_prefix = spec.add_dummy_prefix or is_added
            settings["prefix_once"] = is_new and scheme == "first"
        elif step["type"] != "Split" or step["pattern"] != {"String": " "} or has_spaces:
            # (Where spaces have become marks of pieces, no space is left to split at.)
            _refuse("pre_tokenizer", step)
    if spec.remove_extra_whitespaces and not spec.add_dummy_prefix:
        spec.name = OWN_SPACE
    return settings


def _check_spaces(tokenizer, spec):
    """Refuse steps that leave other spaces than SentencePiece does with these settings.

    It joins spaces, drops those at the ends of a text and puts one before it, or leaves all and
    puts one more there. With a table of characters, the steps were made of its own settings.
    """
    steps = published_files.steps(tokenizer, "normalizer", "normalizers")
    parted = _splitters(tokenizer)
    kinds = [step["type"] for step in (*steps, *parted)]
    patterns = [step.get("pattern") for step in steps]
    strips = [step for step in steps if step["type"] == "Strip"]
    left, right = (any(step[f"strip_{side}"] for step in strips) for side in ("left", "right"))
    if "WhitespaceSplit" in kinds:
        is_each = parted[-1].get("prepend_scheme", "always") == "always" and "Prepend" not in kinds
        # (A run of spaces that becomes a piece's would stay at the end of a text.)
        is_left = not right and SPACE in [step.get("content") for step in steps]
        is_each = is_each and (not is_left or "Precompiled" in kinds)
        is_known = kinds[-1] == "Metaspace" and spec.add_dummy_prefix and is_each
    elif "Metaspace" not in kinds and {"String": " "} not in patterns:
        is_known = False
    elif {"Regex": RUNS_AND_LINES} in patterns:
        is_known = right and not left
    elif "Precompiled" in kinds:
        is_known = spec.remove_extra_whitespaces or not (left or right)
    else:
        is_known = not (left or right or spec.remove_extra_whitespaces)
    if not is_known:
        raise ValueError(
            f"tokenizer.json's steps for spaces, {', '.join(kinds) or 'none'}, are not those of "
            f"SentencePiece, so {WHO} would return other ids. WhitespaceSplit and a Metaspace that "
            "always prepends, as pre_tokenizer, are known; or tokenize outside of the graph."
        )


def _refuse(name, step):
    said = {key: value for key, value in step.items() if key != "precompiled_charsmap"}
    raise ValueError(
        f"tokenizer.json's {name} asks for {str(said)[:200]}, which {WHO} does not support. "
        "Tokenize such text outside of the graph."
    )


def _add_pieces(tokenizer, model, splits):
    """Add the pieces; return the tokens that are found in text before it is split.

    If `splits`, text is split at spaces, and no piece has one inside.
    """
    described = tokenizer["model"]
    has_bytes = bool(described.get("byte_fallback"))
    supported = {"end_of_word_suffix": NO}
    if described["type"] == "BPE" and not has_bytes:
        supported["fuse_unk"] = (True,)  # as SentencePiece joins unknown characters
    published_files.refuse("tokenizer.json's model", described, supported, WHO)
    if described["type"] == "BPE":
        scores = _scores_of_merges(tokenizer, described)
        unknown = described.get("unk_token")
        model.trainer_spec.model_type = BPE
    else:
        scores = [(entry[0], 1.0 * entry[1]) for entry in described["vocab"]]
        number = described.get("unk_id")
        unknown = None if number is None else scores[number][0]
        model.trainer_spec.model_type = UNIGRAM
    if unknown is None:
        raise ValueError(
            f"tokenizer.json names no unknown token, and {WHO} needs one: set the model's unk_id "
            "or unk_token, an entry of its vocabulary."
        )
    model.trainer_spec.byte_fallback = has_bytes
    added = {t["content"]: t.get("special", False) for t in tokenizer.get("added_tokens", [])}
    bytes_found = 0
    for piece, score in scores:
        kind = NORMAL if score is not None else CONTROL
        if piece == unknown:
            kind = UNKNOWN
        elif added.get(piece) or (splits and SPACE in piece[1:]) or "\0" in piece:
            kind = CONTROL  # (The operation cannot hold NUL.)
        elif has_bytes and re.fullmatch(BYTE_PIECE, piece):
            kind = BYTE
            bytes_found += 1
        model.pieces.add(piece=piece, score=score or 0.0, type=kind)
    if has_bytes and bytes_found < NUM_BYTES:
        raise ValueError(
            f"tokenizer.json's model has byte_fallback, and {bytes_found} of the {NUM_BYTES} "
            f"pieces for bytes: {WHO} needs all, or byte_fallback=false."
        )
    pieces = {piece for piece, _ in scores}
    with_nul = sorted(piece for piece in pieces if "\0" in piece)
    if with_nul:
        warn(
            f"tokenizer.json's vocabulary has {len(with_nul)} entries with NUL, such as "
            f"{with_nul[0]!r}, which {WHO} finds in no text: NUL is an unknown character."
        )
    return [token for token, special in added.items() if token in pieces and not special]


def _scores_of_merges(tokenizer, described):
    """Return the entries of a BPE with scores in the order of its merges; see `merging_model`."""
    entries = in_order(described["vocab"], "tokenizer.json")
    merges = published_files.merges_of(described)
    whole = {token["content"] for token in tokenizer.get("added_tokens", [])}
    whole.update(entry for entry in entries if re.fullmatch(BYTE_PIECE, entry))
    whole.add(described.get("unk_token"))
    ranks = check_merges(merges, entries, whole if not described.get("ignore_merges") else entries)
    last = last_ranks({entry: tuple(entry) for entry in entries}, ranks)
    unmade = [entry for entry in entries if entry not in last and entry not in whole]
    if described.get("ignore_merges") and unmade:
        raise ValueError(
            "tokenizer.json's model has ignore_merges=true, and its merges do not make "
            f"{len(unmade)} of its entries, such as {unmade[0]!r}: {WHO} makes words by merges "
            "alone. Tokenize such text outside of the graph."
        )
    return [(entry, -float(last[entry]) if entry in last else None) for entry in entries]
