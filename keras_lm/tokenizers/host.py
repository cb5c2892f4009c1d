"""Tokenizing without TensorFlow: the same ids from Hugging Face's package `tokenizers`."""

import json
import weakref

from keras_lm.tensorflow import INSTALL, require_installed
from keras_lm.tokenizers import huggingface_files

NO_TEXT = "\ufdd0"  # a noncharacter, of which `valid` leaves none in text
_MADE = weakref.WeakKeyDictionary()


def ids_of(tokenizer, text, parse_special):
    """Return the ids of a string, a list of int, or of nested lists of strings, nested alike."""
    if isinstance(text, (str, bytes)):
        special = tuple(tokenizer._special_in_text(parse_special))
        return _backend(tokenizer, special).encode(valid(text), add_special_tokens=False).ids
    rows = list(text)
    if all(isinstance(row, (str, bytes)) for row in rows):
        backend = _backend(tokenizer, tuple(tokenizer._special_in_text(parse_special)))
        encodings = backend.encode_batch([valid(row) for row in rows], add_special_tokens=False)
        return [encoding.ids for encoding in encodings]
    return [ids_of(tokenizer, row, parse_special) for row in rows]


def places_of(tokenizer, texts):
    """Return the ids of strings, and where their tokens start and end in characters, lists of each.

    Raises:
        ImportError: of SentencePiece's models, whose tokens have other places in that package.
    """
    if type(tokenizer).__name__ == "SentencePieceTokenizer":
        require_installed("Where tokens of SentencePiece's models are in a text")
    texts = [valid(text) for text in texts]
    encodings = _backend(tokenizer, ()).encode_batch(texts, add_special_tokens=False)
    places = [list(zip(*encoding.offsets)) or [(), ()] for encoding in encodings]
    return [encoding.ids for encoding in encodings], *map(list, zip(*places))


def text_of(tokenizer, ids):
    """Return the text of a list of ids, a str, or of nested lists, without special tokens."""
    ids = list(ids)
    if any(hasattr(row, "__len__") for row in ids):
        return [text_of(tokenizer, row) for row in ids]
    special = {tokenizer.token_to_id(token) for token in tokenizer.all_special_tokens}
    plain = [int(id) for id in ids if int(id) not in special]
    return _backend(tokenizer, ()).decode(plain, skip_special_tokens=False)


def as_lists(ids):
    """Return what a tokenizer made of strings, with TensorFlow or without it, as nested lists."""
    return ids if isinstance(ids, list) else ids.to_list()


def as_texts(tokenizer, rows):
    """Return the texts of lists of ids, with TensorFlow or without it, as a list of str."""
    texts = tokenizer.detokenize(rows) if rows else []
    if isinstance(texts, list):
        return texts
    return [text.decode("utf-8", "replace") for text in texts.numpy()]


def valid(text):
    """Return a string or bytes as a str, in which invalid UTF-8 is replaced."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return data.decode("utf-8", "replace").replace(NO_TEXT, "\ufffd")


def _backend(tokenizer, special):
    """Return the `tokenizers.Tokenizer` that finds some special tokens in text, made once."""
    made = _MADE.setdefault(tokenizer, {})
    if special not in made:
        try:
            backend = huggingface_files.backend(tokenizer)
        except ValueError as error:
            raise ValueError(f"{error} Its text {INSTALL}.") from error
        hidden = {*tokenizer.all_special_tokens} - {
            *special,
            tokenizer.special_tokens.get("unknown"),
        }
        backend = _without(backend, hidden)
        added = tokenizer.get_config().get("added_tokens", [])
        tokens = [*special, *(token for token in added if token not in hidden)]
        huggingface_files.add_tokens(backend, tokenizer, dict.fromkeys(tokens))
        made[special] = backend
    return made[special]


def _without(backend, tokens):
    """Return the backend with other names for some entries, which cannot be typed."""
    state = json.loads(backend.to_str())
    vocabulary = state["model"]["vocab"]
    names = {token: f"{NO_TEXT}{place}" for place, token in enumerate(sorted(tokens))}
    if isinstance(vocabulary, dict):
        state["model"]["vocab"] = {names.get(t, t): id for t, id in vocabulary.items()}
    else:
        state["model"]["vocab"] = [[names.get(t, t), score] for t, score in vocabulary]
    return type(backend).from_str(json.dumps(state))
