"""tokenizer.json: SentencePiece models as Hugging Face's `tokenizers` describe them.

They state step by step what a model file has as settings: "Precompiled" is its table of characters,
"Metaspace" its space before text and between words, and the vocabulary its pieces in the order of
their ids. Anything that SentencePiece has no setting for is refused.
"""

import base64
import re

from keras_lm.tokenizers import published_files
from keras_lm.tokenizers.byte_pair_files import check_merges, last_ranks
from keras_lm.tokenizers.sentence_piece_composition import table_of
from keras_lm.tokenizers.sentence_piece_model import (
    BPE,
    BYTE,
    BYTE_PIECE,
    CONTROL,
    NORMAL,
    SPACE,
    UNIGRAM,
    UNKNOWN,
    Model,
)
from keras_lm.tokenizers.sentence_piece_normalizer import ALL_MARKS, marks
from keras_lm.tokenizers.strings import FORMS
from keras_lm.tokenizers.vocabulary import in_order
from keras_lm.utils.user_warning import warn

WHO = "SentencePieceTokenizer"
NO = (None, "", False)
NUM_BYTES = 256
# Runs of white space, tabs and ends of lines: as transformers 5 has them for DeBERTa.
RUNS_AND_LINES = r"\s{2,}|[\n\r\t]"


def read(tokenizer):
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
        kind, pattern = step["type"], step.get("pattern") or {}
        if kind == "Precompiled":
            spec.precompiled_charsmap = base64.b64decode(step["precompiled_charsmap"])
        elif kind == "Replace" and pattern.get("Regex") in (" {2,}", RUNS_AND_LINES):
            spec.remove_extra_whitespaces = True
        elif kind == "NFC" and "Precompiled" not in kinds:
            settings["normalization"] = kind
        elif kind == "Replace" and pattern.get("String") in ("``", "''"):
            settings["straighten_quotes"] = True
        elif kind == "Prepend" and step["prepend"] == SPACE:
            spec.add_dummy_prefix = True
        elif strips and (kind == "NFKD" or dropped_marks([step])):
            settings["strip_accents"] = strips
        elif kind == "Lowercase":
            settings["lowercase"] = True
        elif kind != "Strip" and not (kind == "Replace" and pattern.get("String") == " "):
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
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in described["merges"]]
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
