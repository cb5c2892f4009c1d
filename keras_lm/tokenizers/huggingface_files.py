"""Writing a tokenizer as Hugging Face's libraries read it: `tokenizer.json` and the older files.

The tokenizer.json has every step, made by the package `tokenizers`. Beside it lie the vocabulary in
its published form and the settings of Hugging Face's class, as older versions read them.
"""

import json
import os

from keras_lm.tokenizers.published_files import CLASSES, END_OF_TEXT
from keras_lm.tokenizers.sentence_piece_model import SPACE, UNIGRAM, UNKNOWN, parse_model
from keras_lm.tokenizers.sentence_piece_normalizer import ALL_MARKS, marks
from keras_lm.utils.optional_dependencies import require

# Hugging Face's class that takes all steps from the tokenizer.json. In transformers 5, the others
# make them anew: those for SentencePiece leave out some of the model's, and the rest support only
# these values of these settings.
GENERIC = "PreTrainedTokenizerFast"
DEFAULTS = {
    "max_word_length": 100,
    "normalization": None,
    "pre_tokenizer": None,
    "ignore_merges": False,
}


def write(
    folder,
    tokenizer,
    template,
    name,
    max_sequence_length,
    reads_segments,
    truncation_side="right",
):
    """Write a tokenizer into an existing folder.

    Args:
        folder: path.
        tokenizer: `Tokenizer`.
        template: `keras_lm.packers.Template`, the special tokens around texts.
        name: str, Hugging Face's class for the model's usual tokenizer, or None.
        max_sequence_length: int or None, the most tokens that the model reads.
        reads_segments: bool. Whether the model distinguishes segments.
        truncation_side: str, on which texts that are too long are cut off.

    Raises:
        ImportError: if the package `tokenizers` is not installed.
        ValueError: if Hugging Face's libraries have no such tokenizer, or lack one of its settings.
    """
    kind = type(tokenizer).__name__
    if kind not in _WRITERS:
        raise ValueError(
            f"{kind} has no counterpart in Hugging Face's libraries: those of "
            f"{', '.join(sorted(_WRITERS))} are written. With tokenizer=None, the model is written "
            "without one."
        )
    backend, settings = _WRITERS[kind](tokenizer)
    cls = _class(name, kind, tokenizer)
    # Readers would take the usual tokens for roles that are not named.
    lacking = {f"{_role(role)}_token": None for role in tokenizer.ROLES} if cls == GENERIC else {}
    config = {"tokenizer_class": cls, **lacking, **settings, **_named(tokenizer)}
    config["clean_up_tokenization_spaces"] = tokenizer.get_config().get("clean_up") is True
    config["padding_side"] = template.padding_side
    config["truncation_side"] = truncation_side
    if max_sequence_length is not None:
        config["model_max_length"] = max_sequence_length
    # (Classes differ in it, and transformers 4 and 5: some return no segments, or those of a pair
    # for a model that does not take any.)
    names = ["input_ids", "attention_mask"]
    segments = [s for which in ("single", "pair") for _, s in template.ids(which, tokenizer)]
    if reads_segments and any(segments):
        names.insert(1, "token_type_ids")
    config.setdefault("model_input_names", names)
    if backend is not None:
        _finish(backend, tokenizer, template)
        backend.save(os.path.join(folder, "tokenizer.json"))
    tokenizer.save_published_files(folder)
    config["added_tokens_decoder"] = {
        str(tokenizer.token_to_id(token)): _described(token, tokenizer)
        for token in _added(tokenizer)
    }
    _write_json(folder, "tokenizer_config.json", config)
    _write_json(folder, "special_tokens_map.json", _named(tokenizer))


def _class(name, kind, tokenizer):
    """Return `name` if that class does all that a tokenizer does, else the generic one."""
    is_own = CLASSES.get(name, (None,))[0] == kind and kind != "SentencePieceTokenizer"
    config = tokenizer.get_config()
    is_own = is_own and all(config.get(key, value) == value for key, value in DEFAULTS.items())
    # Others append the usual token of a role that is not named, for which the model has no row.
    roles = tokenizer.special_tokens
    if kind == "WordPieceTokenizer" or (kind == "BytePairTokenizer" and name != "GPT2Tokenizer"):
        is_own = is_own and roles.keys() >= {*tokenizer.ROLES}
    elif kind == "BytePairTokenizer":
        is_own = is_own and END_OF_TEXT in tokenizer.vocabulary
    return name if is_own else GENERIC


# === Special tokens ===


def _named(tokenizer):
    """Return the special tokens by Hugging Face's names for their roles."""
    known = {*tokenizer.ROLES, "unknown"}
    roles = tokenizer.special_tokens.items()
    tokens = {f"{_role(role)}_token": token for role, token in roles if role in known}
    more = tokenizer.get_config()["additional_special_tokens"]
    return tokens | ({"additional_special_tokens": list(more)} if more else {})


def _role(role):
    return "unk" if role == "unknown" else role


def _added(tokenizer):
    """Return the tokens that are found in text before it is split, in the order of their ids."""
    tokens = [*tokenizer.all_special_tokens, *tokenizer.get_config().get("added_tokens", [])]
    return sorted(dict.fromkeys(tokens), key=tokenizer.token_to_id)


def _described(token, tokenizer):
    config = tokenizer.get_config()
    is_plain = token not in tokenizer.all_special_tokens and "prefix_once" not in config
    return {
        "content": token,
        "single_word": False,
        "lstrip": token in config.get("lstrip_tokens", ()),
        "rstrip": token in config.get("rstrip_tokens", ()),
        # Tokens that are not special are found in text that is cleaned, but for SentencePiece's.
        "normalized": is_plain or token in config.get("normalized_tokens", ()),
        "special": token in tokenizer.all_special_tokens,
    }


def _finish(backend, tokenizer, template):
    """Add to a `tokenizers.Tokenizer` its special tokens, and those around texts."""
    tokenizers = _package()
    add_tokens(backend, tokenizer, _added(tokenizer))
    ids, texts = {}, {}
    for which in ("single", "pair"):
        pieces = template.ids(which, tokenizer)
        ids |= {tokenizer.id_to_token(id): id for id, _ in pieces if isinstance(id, int)}
        texts[which] = [
            f"{piece if isinstance(piece, str) else tokenizer.id_to_token(piece)}:{segment}"
            for piece, segment in pieces
        ]
    if ids:
        backend.post_processor = tokenizers.processors.TemplateProcessing(
            special_tokens=list(ids.items()), **texts
        )


def add_tokens(backend, tokenizer, tokens):
    """Let a `tokenizers.Tokenizer` find some tokens in text before it is split."""
    for token in tokens:
        described = _package().AddedToken(**_described(token, tokenizer))
        (backend.add_special_tokens if described.special else backend.add_tokens)([described])


# === The kinds of tokenizers ===


def backend(tokenizer):
    """Return the `tokenizers.Tokenizer` with the same ids, without special tokens.

    Raises:
        ImportError: if the package `tokenizers` is not installed.
        ValueError: if it has no such tokenizer, or lacks one of its settings.
    """
    kind = type(tokenizer).__name__
    written = _WRITERS[kind](tokenizer)[0] if kind in _WRITERS else None
    if written is None:
        raise ValueError(f"{kind} has no counterpart in the package tokenizers.")
    return written


def _package():
    return require("tokenizers", "Writing a tokenizer.json")


def _wordpiece(tokenizer):
    tokenizers = _package()
    model = tokenizers.models.WordPiece(
        vocab=_ids(tokenizer),
        unk_token=tokenizer.special_tokens["unknown"],
        max_input_chars_per_word=tokenizer.max_word_length,
    )
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=tokenizer.lowercase, strip_accents=tokenizer.strip_accents
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.decoder = tokenizers.decoders.WordPiece(prefix="##", cleanup=bool(tokenizer.clean_up))
    return backend, {
        "do_lower_case": tokenizer.lowercase,
        "strip_accents": tokenizer.strip_accents,
        "tokenize_chinese_chars": True,
    }


def _bytes(tokenizer):
    tokenizers, config = _package(), tokenizer.get_config()
    if config["whole_words"]:
        raise ValueError(
            f"whole_words={config['whole_words'][:3]} and the like, which with_words adds, have no "
            "counterpart in Hugging Face's byte-level BPE."
        )
    model = tokenizers.models.BPE(
        vocab=_ids(tokenizer),
        merges=_merges(tokenizer),
        unk_token=tokenizer.special_tokens.get("unknown"),
        ignore_merges=tokenizer.ignore_merges,
    )
    backend = tokenizers.Tokenizer(model)
    if tokenizer.normalization is not None:
        backend.normalizer = getattr(tokenizers.normalizers, tokenizer.normalization)()
    splitter = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=tokenizer.add_prefix_space)
    backend.pre_tokenizer = splitter
    backend.decoder = tokenizers.decoders.ByteLevel()
    if config["pre_tokenizer"]:
        state = json.loads(backend.to_str())
        steps = {"type": "Sequence", "pretokenizers": config["pre_tokenizer"]}
        backend = tokenizers.Tokenizer.from_str(json.dumps(state | {"pre_tokenizer": steps}))
    return backend, {"add_prefix_space": tokenizer.add_prefix_space}


def _letters(tokenizer):
    tokenizers = _package()
    model = tokenizers.models.BPE(
        vocab=_ids(tokenizer),
        merges=_merges(tokenizer),
        unk_token=tokenizer.special_tokens["unknown"],
        end_of_word_suffix=tokenizer.KIND,
    )
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.decoder = tokenizers.decoders.BPEDecoder(suffix=tokenizer.KIND)
    return backend, {}


def _pieces(tokenizer):
    tokenizers, config = _package(), tokenizer.get_config()
    proto = parse_model(tokenizer._data)
    spec = proto.normalizer_spec
    if proto.trainer_spec.model_type != UNIGRAM:
        raise ValueError(
            "SentencePieceTokenizer has a model of byte pairs, which is not written as a "
            "tokenizer.json; one of the kind 'unigram' is. Save a preset, or the backbone without "
            "a tokenizer."
        )
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    own = {piece for piece, _ in pieces}
    model = tokenizers.models.Unigram(
        [*pieces, *((token, 0.0) for token in config["added_tokens"] if token not in own)],
        unk_id=next(i for i, piece in enumerate(proto.pieces) if piece.type == UNKNOWN),
        byte_fallback=proto.trainer_spec.byte_fallback,
    )
    backend = tokenizers.Tokenizer(model)
    kinds = tokenizers.normalizers
    steps = []
    if config["normalization"] is not None:
        steps.append(getattr(kinds, config["normalization"])())
    if config["straighten_quotes"]:
        steps += [kinds.Replace("``", '"'), kinds.Replace("''", '"')]
    if config["strip_accents"]:
        # (StripAccents would drop what Unicode calls a mark, such as vowels of Thai and Hindi.)
        drop = kinds.Replace(tokenizers.Regex(marks()), "")
        steps += [
            kinds.NFKD(),
            kinds.StripAccents() if config["strip_accents"] == ALL_MARKS else drop,
        ]
    if config["lowercase"]:
        steps.append(kinds.Lowercase())
    if spec.precompiled_charsmap:
        steps.append(kinds.Precompiled(spec.precompiled_charsmap))
    if spec.remove_extra_whitespaces:
        steps += [kinds.Strip(left=False), kinds.Replace(tokenizers.Regex(" {2,}"), " ")]
    backend.normalizer = kinds.Sequence(steps)
    splitters = tokenizers.pre_tokenizers
    scheme = "first" if config["prefix_once"] else "always"
    space = {"replacement": SPACE, "prepend_scheme": scheme if spec.add_dummy_prefix else "never"}
    steps = [splitters.Metaspace(**space)]
    if config["collapse_whitespace"]:
        steps.insert(0, splitters.WhitespaceSplit())
    backend.pre_tokenizer = splitters.Sequence(steps)
    backend.decoder = tokenizers.decoders.Metaspace(**space)
    settings = {
        "do_lower_case": config["lowercase"],
        "keep_accents": not config["strip_accents"],
        "remove_space": config["collapse_whitespace"],
        "legacy": not config["prefix_once"],
        # An entry of ours: no file of theirs can say it, and ALBERT's own code does it.
        "split_digit_commas": config["split_digit_commas"],
    }
    return backend, settings


def _translation(tokenizer):
    """Hugging Face's class has no tokenizer.json: it reads the SentencePiece models themselves."""
    return None, {"separate_vocabs": tokenizer.target.vocabulary != tokenizer.vocabulary}


def _moses_words(tokenizer):
    """Hugging Face's class has no tokenizer.json: it reads a list of words, as lines of a file."""
    words = tokenizer.vocabulary
    unknown = next((token for token in ("<UNK>", "<unk>") if token in words), None)
    broken = [word for word in words if word.split() != [word]]
    problem = None
    if tokenizer.rules != "moses":
        problem = f"rules={tokenizer.rules!r}, and Hugging Face's TransfoXLTokenizer has 'moses'"
    elif unknown is None or tokenizer.special_tokens.get("unknown") != unknown:
        own = tokenizer.special_tokens.get("unknown")
        problem = f"unknown_token={own!r}, and Hugging Face's class takes {unknown or '<unk>'!r}"
    elif broken:
        problem = f"words with white space, such as {broken[0]!r}, which no line can hold"
    if problem is not None:
        raise ValueError(f"TransformerXLTokenizer has {problem}: write it with tokenizer=None.")
    # Tokens that it has by default would get ids beyond those of the network.
    none = {"eos_token": None, "additional_special_tokens": []}
    return None, none | {"lower_case": tokenizer.lowercase, "model_input_names": ["input_ids"]}


_WRITERS = {
    "WordPieceTokenizer": _wordpiece,
    "BytePairTokenizer": _bytes,
    "GPTTokenizer": _letters,
    "SentencePieceTokenizer": _pieces,
    "MarianTokenizer": _translation,
    "TransformerXLTokenizer": _moses_words,
}


def _ids(tokenizer):
    return {token: id for id, token in enumerate(tokenizer.vocabulary)}


def _merges(tokenizer):
    return [tuple(merge.split(" ")) for merge in tokenizer._rules.merges]


def _write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
