"""The JSON files beside published vocabularies; what is not supported in them is refused."""

import contextlib
import json
import os
import re

from keras_lm import files
from keras_lm.registry import TOKENIZERS

_BERT = ("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
_ROBERTA = ("<s>:0 $A:0 </s>:0", "<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0")
_T5 = ("$A:0 </s>:0", "$A:0 </s>:0 $B:0 </s>:0")
NOTHING = ("$A:0", "$A:0 $B:0")
# Hugging Face's classes, without "Fast" → our class, and the template around texts. None is the
# model's own: XLNet's has segments that others lack.
CLASSES = {
    "BertTokenizer": ("WordPieceTokenizer", _BERT),
    "DistilBertTokenizer": ("WordPieceTokenizer", _BERT),
    "ElectraTokenizer": ("WordPieceTokenizer", _BERT),
    "MPNetTokenizer": ("WordPieceTokenizer", _ROBERTA),
    "GPT2Tokenizer": ("BytePairTokenizer", NOTHING),
    "RobertaTokenizer": ("BytePairTokenizer", _ROBERTA),
    "BartTokenizer": ("BytePairTokenizer", _ROBERTA),
    "LongformerTokenizer": ("BytePairTokenizer", _ROBERTA),
    "AlbertTokenizer": ("SentencePieceTokenizer", _BERT),
    "T5Tokenizer": ("SentencePieceTokenizer", _T5),
    "XLMRobertaTokenizer": ("SentencePieceTokenizer", _ROBERTA),
    "XLNetTokenizer": ("SentencePieceTokenizer", None),
    "OpenAIGPTTokenizer": ("GPTTokenizer", None),
    "MarianTokenizer": ("MarianTokenizer", None),
    "TransfoXLTokenizer": ("TransformerXLTokenizer", None),
    "ReformerTokenizer": ("SentencePieceTokenizer", NOTHING),
    "DebertaV2Tokenizer": ("SentencePieceTokenizer", _BERT),
    "ByT5Tokenizer": ("ByteTokenizer", _T5),
}
# Networks that are published for bytes, with no vocabulary: by their `model_type`, how many ids.
READ_BYTES = {"reformer": 258}
UNUSED = re.compile(r"<unused id \d+>")
MOST_IDS = 2**20
# Classes that leave it to a tokenizer.json.
_GENERIC = ("PreTrainedTokenizer", "TokenizersBackend")


@contextlib.contextmanager
def reading(folder):
    """Turn errors due to files of an unexpected form into a ValueError that names `folder`."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(
            f"`folder` {os.fspath(folder)!r} holds files of a tokenizer that do not have the form "
            f"of published ones ({type(error).__name__}: {error}). Copy or download them again."
        ) from error


def read_json(folder, name):
    """Return what a JSON file of a folder holds; an empty dict if there is no such file."""
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return {}
    with open(path, "rb") as file:
        data = files.whole(file, repr(path))
    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path!r} is not a JSON file: {error}. It may be cut off: copy or download it again."
        ) from None
    if not isinstance(value, dict):
        raise ValueError(
            f"{path!r} should hold a JSON object and holds a {type(value).__name__}. Copy or "
            "download it again."
        )
    return value


def read_tokenizer(folder):
    """Return what a folder's tokenizer.json holds; an empty dict if there is no such file.

    Older files leave out the type of the model; it follows from the model's parts.
    """
    tokenizer = read_json(folder, "tokenizer.json")
    model = tokenizer.get("model")
    if isinstance(model, dict) and "type" not in model and "vocab" in model:
        is_unigram = isinstance(model["vocab"], list)
        kind = "BPE" if "merges" in model else "Unigram" if is_unigram else "WordPiece"
        tokenizer["model"] = {"type": kind, **model}
    return tokenizer


def check_file(argument, path, remedy):
    """Raise FileNotFoundError if there is no file where a user's argument says."""
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"`{argument}` names the file {os.fspath(path)!r}, which does not exist; {remedy}"
        )


def read_lines(path, argument, remedy):
    """Return the lines of a UTF-8 file that the user passed as `argument`."""
    check_file(argument, path, remedy)
    with open(path, "rb") as file:
        data = files.whole(file, f"`{argument}` file {os.fspath(path)!r}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"`{argument}` file {os.fspath(path)!r} is not UTF-8: byte {error.start} is "
            f"{data[error.start]:#x}. Copy it again, or convert it to UTF-8."
        ) from None
    # Not splitlines(): an entry may be a line separator of Unicode.
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def read_lines_of_entries(path):
    """Return the entries of a vocabulary's file with one per line."""
    return read_lines(path, "vocabulary", "give the path of a vocab.txt, or a list of entries.")


def _without_repeats(pairs):
    found = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} occurs twice in one object")
        found[key] = value
    return found


def content(token):
    """Return the spelling of a token, which is a string or an object in files."""
    spelled = token["content"] if isinstance(token, dict) else token
    if not isinstance(spelled, (str, type(None))):
        raise TypeError(f"a token is {spelled!r}")
    return spelled


def read_entries(path, remedy, with_gaps=False):
    """Return the entries of a JSON file with their ids, in the order of these."""
    check_file("vocabulary", path, remedy)
    return in_order(read_json(*os.path.split(path)), os.fspath(path), with_gaps)


def in_order(ids, path, with_gaps=False):
    """Return a dict's entries in the order of their ids; ValueError if these are not 0, 1, 2, …

    `with_gaps` allows ids without an entry; they get one that `UNUSED` matches.
    """
    _check_numbers(ids, path)
    entries = sorted(ids, key=ids.get)
    by_id = {id: token for token, id in ids.items()}
    is_unique = len(by_id) == len(ids) > 0
    if with_gaps and is_unique and ids[entries[0]] >= 0 and ids[entries[-1]] < MOST_IDS:
        entries = [by_id.get(i, f"<unused id {i}>") for i in range(ids[entries[-1]] + 1)]
    check_ids(entries, ids, path)
    return entries


def _check_numbers(ids, path):
    for token, id in ids.items():
        if type(id) is not int:
            raise ValueError(
                f"{path!r} gives the token {token!r} the id {id!r}, and ids are whole numbers."
            )


def check_ids(entries, ids, path):
    """Raise ValueError if the ids of entries are not their places in a list."""
    for i, token in enumerate(entries):
        if ids.get(token, i) != i:
            raise ValueError(
                f"{path!r} gives the token {token!r} the id {ids[token]}, but its place in the "
                f"vocabulary is {i}; ids have to be the numbers from 0 without a gap. To load a "
                "task without it, for packed dicts, pass tokenizer=None."
            )


# Additional special tokens that are usual in a family: T5's and XLNet's.
_OF_FAMILIES = re.compile(r"<extra_id_\d+>|<eop>|<eod>|[<\[]unused_?\d+[>\]]")


def declares_tokens(folder):
    """Whether a folder's files declare a user's own special tokens, such as entity markers."""
    with reading(folder):
        config = read_json(folder, "tokenizer_config.json")
        named = {**read_json(folder, "special_tokens_map.json"), **config}
        tokens = additional_tokens(named) or []
        roles = {content(t) for name, t in named.items() if name.endswith("_token") and t}
        return any(t not in roles and not _OF_FAMILIES.fullmatch(t) for t in tokens)


def additional_tokens(named):
    """Return the additional special tokens that a configuration names, a list of str, or None."""
    more = named.get("additional_special_tokens") or named.get("extra_special_tokens")
    if more is None:
        return None
    return [content(token) for token in (more.values() if isinstance(more, dict) else more)]


def stated_class(folder):
    """Return Hugging Face's class that a folder's configurations name, without "Fast", or None."""
    for name in ("tokenizer_config.json", "config.json"):
        found = read_json(folder, name).get("tokenizer_class")
        if found is not None and not isinstance(found, str):
            raise TypeError(f"tokenizer_class in {name} is {found!r}")
        if found and found.removesuffix("Fast") not in _GENERIC:
            return found.removesuffix("Fast")
    return None


def steps(tokenizer, name, of_sequence):
    """Return a part of a tokenizer.json, such as "normalizer", as a list of steps."""
    step = tokenizer.get(name) or {}
    return step[of_sequence] if step.get("type") == "Sequence" else [step] * bool(step)


def kind_of(folder, usual):
    """Return the name of the class in `keras_lm.tokenizers` that reads a folder's vocabulary.

    Args:
        folder: path.
        usual: str, the usual class of the model, if nothing else is stated.

    Raises:
        ValueError: if a configuration names a class whose rules are not known, and there is no
            tokenizer.json that states them.
    """
    with reading(folder):
        name = stated_class(folder)
        if name in CLASSES:
            return CLASSES[name][0]
        kind = _kind_of_model(read_tokenizer(folder))
    if kind is not None:
        return kind
    if name is not None:
        raise ValueError(
            f"`folder` {os.fspath(folder)!r} asks for a {name}, whose rules are not known here; "
            f"those of {', '.join(sorted(CLASSES))}, and of a tokenizer.json, are. Pass "
            "tokenizer=…, one of keras_lm.tokenizers, or tokenizer=None for packed dicts."
        )
    kinds = [kind for kind, cls in TOKENIZERS.items() if cls.PUBLISHED_FILES]
    kinds = [usual, *kinds] if usual in kinds else []
    found = next((kind for kind in kinds if _holds(folder, kind)), None)
    return found or ("ByteTokenizer" if reads_bytes(folder) else usual)


def reads_bytes(folder):
    """Whether a folder's config.json is that of a network that is published for bytes."""
    config = read_json(folder, "config.json")
    number = READ_BYTES.get(str(config.get("model_type")))
    return number is not None and config.get("vocab_size") == number


def _holds(folder, kind):
    names = TOKENIZERS[kind].PUBLISHED_FILES
    return any(os.path.isfile(os.path.join(folder, name)) for name in names)


def _kind_of_model(tokenizer):
    """Return the class for the model that a tokenizer.json describes, or None."""
    model = tokenizer.get("model") or {}
    kinds = {"WordPiece": "WordPieceTokenizer", "Unigram": "SentencePieceTokenizer"}
    if model.get("type") != "BPE":
        return kinds.get(model.get("type"))
    if model.get("end_of_word_suffix") == "</w>":
        return "GPTTokenizer"
    splitters = steps(tokenizer, "pre_tokenizer", "pretokenizers")
    is_of_bytes = any(step.get("type") == "ByteLevel" for step in splitters)
    return "BytePairTokenizer" if is_of_bytes else "SentencePieceTokenizer"


def _spelled(pieces):
    """Return a template of a tokenizer.json in the form of `keras_lm.packers.Template`."""
    names = []
    for piece in pieces:
        ((kind, piece),) = piece.items()
        name = piece["id"] if kind == "SpecialToken" else f"${piece['id']}"
        if name.split() != [name]:
            raise ValueError(
                f"tokenizer.json's post_processor puts the token {name!r} around texts; tokens "
                "with white space are not supported there."
            )
        names.append(f"{name}:{piece['type_id']}")
    return " ".join(names)


def refuse(where, settings, supported, who):
    """Raise ValueError if a setting has a value that is not supported."""
    for name, values in supported.items():
        if name in settings and settings[name] not in values:
            raise ValueError(
                f"{where} sets `{name}` to {settings[name]!r}, which {who} does not "
                f"support; it can do {values[0]!r}. Tokenize such text outside of the graph."
            )


class TokenizerFolder:
    """What the JSON files of Hugging Face in a folder say about its tokenizer.

    Args:
        folder: path.
        who: str, our class, for errors.

    Attributes:
        config, tokenizer: dict, `tokenizer_config.json` and `tokenizer.json`.
        named: dict from name, such as `"cls_token"`, to a special token or several.
        described: list of the added tokens that are described in full. Like `added`, it is there
            after `add_tokens`.
        added: dict from added token to its id and whether it is special.
    """

    def __init__(self, folder, who):
        self.folder, self.who = folder, who
        self.config = read_json(folder, "tokenizer_config.json")
        self.tokenizer = read_tokenizer(folder)
        self.named = {**read_json(folder, "special_tokens_map.json"), **self.config}

    def refuse(self, where, settings, supported):
        """Raise ValueError if a setting has a value that is not supported."""
        refuse(where, settings, supported, self.who)

    def special_tokens(self, roles):
        """Return the special tokens in some roles that are named, as `cls_token` and the like."""
        keys = {role: "unk_token" if role == "unknown" else f"{role}_token" for role in roles}
        return {
            f"{role}_token": content(self.named[key])
            for role, key in keys.items()
            if key in self.named
        }

    def add_tokens(self, vocabulary, path):
        """Append the added tokens that a list of entries lacks, and check the ids of all."""
        described = list(self.tokenizer.get("added_tokens", []))
        for id, token in self.config.get("added_tokens_decoder", {}).items():
            id = int(id) if id.isdecimal() and len(id) < 20 else id
            described.append({**token, "id": id})
        for token in described:
            self.refuse("added_tokens", token, {"single_word": (False, None)})
        added = read_json(self.folder, "added_tokens.json")
        added = {token: (id, False) for token, id in added.items()}
        added |= {t["content"]: (t["id"], t.get("special", False)) for t in described}
        _check_numbers({token: id for token, (id, _) in added.items()}, path)
        known = set(vocabulary)
        vocabulary += sorted((t for t in added if t not in known), key=lambda t: added[t][0])
        check_ids(vocabulary, {token: id for token, (id, _) in added.items()}, path)
        self.described, self.added = described, added

    def more_tokens(self, taken):
        """Return the settings for additional special tokens and added ones, without those taken."""
        more = additional_tokens(self.named) or []
        more += [token for token, (_, is_special) in self.added.items() if is_special]
        more = [token for token in dict.fromkeys(more) if token not in taken]
        added = [token for token in self.added if token not in taken and token not in more]
        return {"additional_special_tokens": more, "added_tokens": added}

    def stripping(self, side):
        """Return the described tokens with white space on a `side`, `"lstrip"` or `"rstrip"`."""
        tokens = [token["content"] for token in self.described if token.get(side)]
        return list(dict.fromkeys(tokens))

    def template(self):
        """Return the special tokens around texts, as `Tokenizer` takes them.

        Raises:
            ValueError: if the tokenizer.json adds them in a way that is not supported.
        """
        if "model" not in self.tokenizer:
            return CLASSES.get(stated_class(self.folder), (None, None))[1]
        for step in steps(self.tokenizer, "post_processor", "processors"):
            known = ("TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel")
            self.refuse("tokenizer.json's post_processor", step, {"type": known})
            if step["type"] == "TemplateProcessing":
                return tuple(_spelled(step[name]) for name in ("single", "pair"))
            if step["type"] != "ByteLevel":
                first, last = step["cls"][0], step["sep"][0]
                is_bert = step["type"] == "BertProcessing"
                second = f"$B:1 {last}:1" if is_bert else f"{last}:0 $B:0 {last}:0"
                single = f"{first}:0 $A:0 {last}:0"
                return single, f"{single} {second}"
        return NOTHING
