"""Published folders of SentencePiece models, and what each family does around its model."""

import os
import unicodedata

from keras_lm.tokenizers import published_files, tokenizer_json
from keras_lm.tokenizers.published_files import TokenizerFolder
from keras_lm.tokenizers.sentence_piece_model import (
    CONTROL,
    ROLES,
    SPACE,
    UNKNOWN,
    USER_DEFINED,
    Model,
    parse_model,
    read_model,
)

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
            found = [name for name in NAMES[role] if name in known and key not in settings]
            settings[key] = found[0] if found else None

    beyond = vocabulary[len(pieces) :]
    usual = settings.pop("extra_ids", 0)
    if published_files.is_generic(folder):  # which adds no tokens to those of its tokenizer.json
        usual = 0
    extra_ids = files.config.get("extra_ids", usual)
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
        model, settings = tokenizer_json.read(files.tokenizer)
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
    if family == "plain":
        settings |= _normalizers(files.tokenizer)
    return path, data, settings | _hugging_face_config(files)


def _family(folder, path, model):
    """Return the family that a folder states, or None."""
    name = published_files.stated_class(folder)
    if name is not None:
        family = CLASSES.get(name)
        if family is None:
            raise ValueError(
                f"tokenizer_config.json asks for {name!r}, whose rules around SentencePiece are "
                f"not known here; pass family= one of {sorted(FAMILIES)} if one of them fits."
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
    }
    return {
        ours: bool(files.config[name]) != is_opposite
        for name, (ours, is_opposite) in names.items()
        if files.config.get(name) is not None
    }


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
        "strip_accents": tokenizer_json.dropped_marks(steps),
        "straighten_quotes": any(step.get("content") == '"' for step in steps),
    }
