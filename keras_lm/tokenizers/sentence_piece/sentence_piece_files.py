"""The files in which SentencePiece models and the rules around them are published."""

import os

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from keras_lm.tokenizers import published_files
from keras_lm.tokenizers.sentence_piece.sentence_piece_model import check_pieces
from keras_lm.tokenizers.sentence_piece.sentence_piece_normalizer import check_charsmap

WHO = "SentencePieceTokenizer"

MODEL_FILES = (
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
    "sentencepiece.model",
    "30k-clean.model",
    os.path.join("assets", "tokenizer", "vocabulary.spm"),
    os.path.join("assets", "spiece.model"),
)
MAX_EXTRA_IDS = 10_000  # T5 has 100
ROLES = ("cls", "sep", "pad", "mask", "bos", "eos")

SPACE = "▁"  # stands for a space in pieces
BYTE_PIECE = "<0x[0-9A-F]{2}>"  # stands for a byte of a character that has no piece

# Types of pieces, and of models
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE, WORD, CHARACTER = range(1, 5)

_CLEANING = {
    "strip_accents": True,
    "straighten_quotes": True,
    "collapse_whitespace": True,
    "split_digit_commas": True,
}
# What the papers' own code does around the model. "plain" is SentencePiece and nothing else.
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
}
# How files name the families: by class, by type of model, or by having a configuration at all.
CLASSES = {
    "AlbertTokenizer": "albert",
    "XLNetTokenizer": "xlnet",
    "T5Tokenizer": "t5",
    "XLMRobertaTokenizer": "xlm_roberta",
}
MODEL_TYPES = {"albert": "albert", "xlnet": "xlnet", "t5": "t5", "xlm-roberta": "xlm_roberta"}
KERAS_HUB = {"T5Backbone": "t5"}
TF1_CONFIGS = {
    "albert_config.json": "albert",
    "xlnet_config.json": "xlnet",
    "operative_config.gin": "t5",
}

# Names that play a role in models whose files do not say so.
NAMES = {
    "cls": ("[CLS]", "<cls>"),
    "sep": ("[SEP]", "<sep>"),
    "pad": ("<pad>", "[PAD]"),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("<s>",),
    "eos": ("</s>",),
}


def _message_class():
    """Return the class of a model file: the fields that matter; others are kept unseen."""
    # Described here because the generated code in `sentencepiece` runs with newest protobuf only.
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="sentence_piece.proto", syntax="proto2")

    def add(name, **fields):
        described = file.message_type.add(name=name)
        for name, (number, kind, *default) in fields.items():
            one = described.field.add(name=name, number=number, label=field.LABEL_OPTIONAL)
            if isinstance(kind, str):
                one.type, one.type_name = field.TYPE_MESSAGE, f".{kind}"
                if name == "pieces":
                    one.label = field.LABEL_REPEATED
            else:
                one.type = kind
            if default:
                one.default_value = default[0]

    whole, yes_no = field.TYPE_INT32, field.TYPE_BOOL
    add("Piece", piece=(1, field.TYPE_STRING), score=(2, field.TYPE_FLOAT), type=(3, whole, "1"))
    add(
        "TrainerSpec",
        model_type=(3, whole, "1"),
        treat_whitespace_as_suffix=(24, yes_no, "false"),
        byte_fallback=(35, yes_no, "false"),
        unk_id=(40, whole, "0"),
    )
    add(
        "NormalizerSpec",
        precompiled_charsmap=(2, field.TYPE_BYTES),
        add_dummy_prefix=(3, yes_no, "true"),
        remove_extra_whitespaces=(4, yes_no, "true"),
        escape_whitespaces=(5, yes_no, "true"),
    )
    add(
        "Model",
        pieces=(1, "Piece"),
        trainer_spec=(2, "TrainerSpec"),
        normalizer_spec=(3, "NormalizerSpec"),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Model"))


Model = _message_class()


def read_model(model):
    """Return the bytes of a model, given these or its path."""
    if isinstance(model, (str, os.PathLike)):
        if not os.path.isfile(model):
            raise FileNotFoundError(
                f"`model` names the file {os.fspath(model)!r}, which does not exist; give the path "
                "of a SentencePiece model such as spiece.model, or its bytes."
            )
        with open(model, "rb") as file:
            return file.read()
    # (Of a number, Python would make that many zeros.)
    if not isinstance(model, (bytes, bytearray, memoryview)):
        raise ValueError(
            f"`model` is a {type(model).__name__}; pass the path of a SentencePiece model such as "
            "spiece.model, or its bytes."
        )
    return bytes(model)


def parse_model(data, name="`model`"):
    """Return the parsed model; ValueError if it is none, is cut off or cannot be run here."""
    try:
        model = Model.FromString(data)
    except message.DecodeError:
        model = Model()
    if not model.pieces or not any(piece.piece for piece in model.pieces):
        raise ValueError(
            f"{name} ({len(data)} bytes) is not a SentencePiece model, or is cut off. Copy the "
            "published file again, in binary form."
        )
    check_pieces(model.pieces, name)
    if not model.HasField("trainer_spec") or not model.HasField("normalizer_spec"):
        raise ValueError(
            f"{name} ends after {len(model.pieces)} pieces and lacks its settings: it is cut off. "
            "Copy the published file again."
        )
    unknown = [piece.piece for piece in model.pieces if piece.type == UNKNOWN]
    if len(unknown) != 1:
        raise ValueError(
            f"{name} has {len(unknown)} unknown tokens, where SentencePiece needs one; train it "
            "without unk_id=-1."
        )
    if (
        model.trainer_spec.treat_whitespace_as_suffix
        or not model.normalizer_spec.escape_whitespaces
    ):
        raise ValueError(
            f"{name} puts white space at the end of pieces, or leaves it unescaped, which "
            "SentencePieceTokenizer does not support. Tokenize such text outside of the graph."
        )
    check_charsmap(model.normalizer_spec.precompiled_charsmap)
    return model


def read_folder(folder, family=None):
    """Return a folder's model as bytes, and settings; the files say the family if it is None."""
    paths = [os.path.join(folder, name) for name in MODEL_FILES]
    path = next((path for path in paths if os.path.isfile(path)), None)
    if path is None:
        raise FileNotFoundError(
            f"`folder` {os.fspath(folder)!r} holds none of {', '.join(MODEL_FILES)}; copy the "
            "checkpoint's SentencePiece model there."
        )
    data = read_model(path)
    model = parse_model(data, repr(path))
    config = published_files.read_json(folder, "tokenizer_config.json")
    tokenizer = published_files.read_json(folder, "tokenizer.json")
    family = _family(folder, config) if family is None else family
    if family not in FAMILIES:
        raise ValueError(f"`family` is {family!r}; it must be one of {sorted(FAMILIES)}.")
    settings = {**FAMILIES[family]}
    if family == "xlm_roberta":
        model = _in_fairseq_order(model, path)
        data = model.SerializeToString()
    pieces = model.pieces
    if family == "plain":
        settings.update(_normalizers(tokenizer))
    settings.update(_hugging_face_config(config))

    named = {**published_files.read_json(folder, "special_tokens_map.json"), **config}
    entries = {piece.piece for piece in pieces}
    known = {piece.piece for piece in pieces if piece.type in (CONTROL, USER_DEFINED)}
    for role in ROLES:
        key = f"{role}_token"
        if key in named:
            settings[key] = published_files.content(named[key])
        elif settings.get(key) not in entries:
            # What a family is used to have, a model may lack.
            found = [name for name in NAMES[role] if name in known and family == "plain"]
            settings[key] = found[0] if found else None

    described = published_files.described_tokens(config, tokenizer, WHO)
    added = published_files.added_tokens(folder, described)
    vocabulary = [piece.piece for piece in pieces]
    published_files.append(vocabulary, added, path)
    beyond = vocabulary[len(pieces) :]
    extra_ids = config.get("extra_ids", settings.pop("extra_ids", 0))
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
    settings["added_tokens"] = beyond
    more = named.get("additional_special_tokens") or named.get("extra_special_tokens")
    if more is None:
        more = [
            t for t in settings.get("additional_special_tokens", ()) if t in entries | {*beyond}
        ]
    more = [
        published_files.content(token)
        for token in (more.values() if isinstance(more, dict) else more)
    ]
    more += [content for content, (_, is_special) in added.items() if is_special]
    more += [piece.piece for piece in pieces if piece.type == CONTROL]
    taken = {settings[f"{role}_token"] for role in ROLES}
    taken |= {piece.piece for piece in pieces if piece.type == UNKNOWN}
    settings["additional_special_tokens"] = [t for t in dict.fromkeys(more) if t not in taken]
    return data, settings


def _family(folder, config):
    name = config.get("tokenizer_class")
    if name is not None and name != "PreTrainedTokenizerFast":
        family = CLASSES.get(name.removesuffix("Fast"))
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
    return families.get(config.get("model_type") or config.get("class_name"), "plain")


def _in_fairseq_order(model, path):
    """Return XLM-R's model with its pieces in the order of fairseq's ids, its right ones."""
    names = [piece.piece for piece in model.pieces[:3]]
    if names != ["<unk>", "<s>", "</s>"]:
        raise ValueError(
            f"{path!r} begins with the pieces {names}, where XLM-R's model begins with <unk>, <s> "
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


def _hugging_face_config(config):
    settings = {}
    if config.get("do_lower_case") is not None:
        settings["lowercase"] = bool(config["do_lower_case"])
    if config.get("keep_accents") is not None:
        settings["strip_accents"] = not config["keep_accents"]
    if config.get("remove_space") is not None:
        settings["collapse_whitespace"] = bool(config["remove_space"])
    supported = {"sp_model_kwargs": (None, {}), "legacy": (True, None)}
    published_files.refuse("tokenizer_config.json", config, supported, WHO)
    return settings


def _normalizers(tokenizer):
    """Return the settings that a tokenizer.json spells out as a list of normalizers."""
    kind = tokenizer.get("model", {}).get("type", "Unigram")
    if kind not in ("Unigram", "BPE"):
        raise ValueError(
            f"tokenizer.json describes a {kind} model, but a SentencePiece model lies beside it; "
            "remove the one that is not meant."
        )
    steps = tokenizer.get("normalizer") or {}
    steps = steps.get("normalizers", [steps])
    kinds = {step.get("type") for step in steps}
    return {
        "lowercase": "Lowercase" in kinds,
        "strip_accents": "StripAccents" in kinds,
        "straighten_quotes": any(step.get("content") == '"' for step in steps),
    }
