"""Which kind of tokenizer a published folder holds."""

import os

from keras_lm.registry import TOKENIZERS
from keras_lm.tokenizers import published_files
from keras_lm.tokenizers.published_files import CLASSES


def kind_of(folder, usual):
    """Return the name of the class, of `keras_lm.tokenizers`, that reads a folder's vocabulary.

    Args:
        folder: path.
        usual: str, the class that the model usually has, if nothing says otherwise.

    Raises:
        ValueError: if a configuration names a class whose rules are not known, and there is no
            tokenizer.json with them.
    """
    with published_files.reading(folder):
        name = published_files.stated_class(folder)
        if name in CLASSES:
            return CLASSES[name][0]
        kind = _kind_of_model(published_files.read_tokenizer(folder))
    if kind is not None:
        return kind
    if name is not None:
        raise ValueError(
            f"`folder` {os.fspath(folder)!r} asks for a {name}, whose rules are not known here, "
            f"unlike those of {', '.join(sorted(CLASSES))}, and of a tokenizer.json. Pass "
            "tokenizer=…, one of keras_lm.tokenizers, or tokenizer=None for packed dicts."
        )
    kinds = [kind for kind, cls in TOKENIZERS.items() if cls.PUBLISHED_FILES]
    kinds = [usual, *kinds] if usual in kinds else []
    return next((kind for kind in kinds if _holds(folder, kind)), usual)


def _holds(folder, kind):
    names = TOKENIZERS[kind].PUBLISHED_FILES
    return any(os.path.isfile(os.path.join(folder, name)) for name in names)


def _kind_of_model(tokenizer):
    """Return the class for the model that a tokenizer.json of Hugging Face's describes, or None."""
    model = tokenizer.get("model") or {}
    kinds = {"WordPiece": "WordPieceTokenizer", "Unigram": "SentencePieceTokenizer"}
    if model.get("type") != "BPE":
        return kinds.get(model.get("type"))
    if model.get("end_of_word_suffix") == "</w>":
        return "GPTTokenizer"
    splitters = published_files.steps(tokenizer, "pre_tokenizer", "pretokenizers")
    is_of_bytes = any(step.get("type") == "ByteLevel" for step in splitters)
    return "BytePairTokenizer" if is_of_bytes else "SentencePieceTokenizer"
