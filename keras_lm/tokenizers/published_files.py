"""The JSON files beside published vocabularies; what is not supported in them is refused."""

import contextlib
import os
import re
import unicodedata

from keras_lm.converters.checked_files import CheckpointError, Entries
from keras_lm.tokenizers.vocabulary import MOST_IDS, check_ids, check_numbers, read_json
from keras_lm.utils.registry import tokenizer_classes
from keras_lm.utils.user_arguments import warn

# === What each entry means: see `keras_lm.converters.checked_files` ===

# `SPECIAL_TOKENS` is the table of special_tokens_map.json, `config_entries` that of
# tokenizer_config.json, and `COMPONENTS` has one for each component of a tokenizer.json. The
# readers of the vocabularies refuse components, and values, that they do not follow.

UNSET = (None, "", False)

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
SPECIAL_TOKENS = Entries(
    read={
        *(f"{role}_token" for role in ROLES),
        "additional_special_tokens",
        "extra_special_tokens",
    }
)

_EVERY = SPECIAL_TOKENS | Entries(
    read={
        "tokenizer_class",
        "added_tokens_decoder",
        "model_max_length",
        "max_len",
        "model_input_names",
        "truncation_side",
        "split_special_tokens",
        # By the readers of language models.
        "add_bos_token",
        "add_eos_token",
    },
    implied={
        "vocab_file",
        "merges_file",
        "spm_file",
        "tokenizer_file",
        "special_tokens_map_file",
        "vocab_size",
        "unk_id",
        "backend",
        "slow_tokenizer_class",
        "name_or_path",
        "from_slow",
        "full_tokenizer_file",
    },
    harmless={
        # A text's outputs do not depend on the padding beside it.
        "padding_side",
        "padding",
        "pad_token_type_id",
        "pad_token_segment_id",
        "pad_to_multiple_of",
        # What calls pass, or overwrite.
        "max_length",
        "stride",
        "truncation",
        "truncation_strategy",
        "return_tensors",
        "is_split_into_words",
        # Of ids to text: special tokens are left out of it, and bytes that are not UTF-8 replaced.
        "spaces_between_special_tokens",
        "errors",
        "skip_special_tokens",
        # Offsets of tokens that the library's own pipelines use.
        "trim_offsets",
        "use_fast",
        "is_local",
        "local_files_only",
        "processor_class",
        "verbose",
        # Templates of conversations, and what begins them.
        "chat_template",
        "use_default_system_prompt",
        # Texts of translators name their language.
        "source_lang",
        "target_lang",
    },
    refused={"sp_model_kwargs": ({},), "word_tokenizer_type": ("basic",)}
    | {"subword_tokenizer_type": ("wordpiece",)},
)

_CLEANED = "clean_up_tokenization_spaces"
_NEVER_FOR_BPE = f"{_CLEANED}_for_bpe_even_though_it_will_corrupt_output"
# What only some tokenizers do; the others, like Hugging Face's, pass over what is theirs.
_OWN = {
    "WordPieceTokenizer": Entries(
        read={"do_lower_case", "strip_accents", _CLEANED},
        refused={
            "tokenize_chinese_chars": (True,),
            "do_basic_tokenize": (True,),
            "never_split": ([],),
        },
    ),
    "BytePairTokenizer": Entries(
        read={"add_prefix_space"},
        harmless={_CLEANED, "do_lower_case", "legacy"},  # transformers does not clean BPE's text
        refused={_NEVER_FOR_BPE: (False,)},
    ),
    "GPTTokenizer": Entries(harmless={_CLEANED}, refused={_NEVER_FOR_BPE: (False,)}),
    "SentencePieceTokenizer": Entries(
        read={"do_lower_case", "keep_accents", "remove_space", "legacy", "extra_ids", _CLEANED}
        | {"split_digit_commas"},
        refused={"split_by_punct": (False,), "add_prefix_space": (True,)},
    ),
    "MarianTokenizer": Entries(read={"separate_vocabs", _CLEANED}),
    "ByteTokenizer": Entries(read={"extra_ids", _CLEANED}),
    "TransformerXLTokenizer": Entries(
        read={"lower_case", "special", "pretrained_vocab_file", "never_split"},
        implied={"min_freq", "max_size", "delimiter"},
        harmless={_CLEANED, "language"},
    ),
}


_OF_SOME = frozenset().union(
    *([*own.read, *own.implied, *own.harmless, *own.refused] for own in _OWN.values())
)


def config_entries(kind):
    """Return the table of tokenizer_config.json for one of our classes, by its name."""
    return Entries(harmless=_OF_SOME) | _EVERY | _OWN.get(kind, Entries())


# === tokenizer.json ===

TOKENIZER_JSON = Entries(
    read={"normalizer", "pre_tokenizer", "model", "post_processor", "added_tokens", "truncation"}
    | {"decoder"},
    harmless={"version", "padding"},
)
ADDED_TOKENS = Entries(
    read={"id", "content", "special", "lstrip", "rstrip", "normalized"},
    harmless={"__type"},
    refused={"single_word": (False,)},
)
_BYTE_LEVEL = Entries(read={"add_prefix_space", "use_regex"}, harmless={"trim_offsets"})
# A part → the type of a component → its entries, besides the type.
COMPONENTS = {
    "normalizer": {
        "Sequence": Entries(read={"normalizers"}),
        "BertNormalizer": Entries(
            read={"lowercase", "strip_accents"},
            refused={"clean_text": (True,), "handle_chinese_chars": (True,)},
        ),
        "NFC": Entries(),
        "NFD": Entries(),
        "NFKC": Entries(),
        "NFKD": Entries(),
        "Lowercase": Entries(),
        "StripAccents": Entries(),
        "Strip": Entries(read={"strip_left", "strip_right"}),
        "Replace": Entries(read={"pattern", "content"}),
        "Prepend": Entries(read={"prepend"}),
        "Precompiled": Entries(read={"precompiled_charsmap"}),
    },
    "pre_tokenizer": {
        "Sequence": Entries(read={"pretokenizers"}),
        "BertPreTokenizer": Entries(),
        "ByteLevel": _BYTE_LEVEL,
        "Metaspace": Entries(
            read={"replacement", "prepend_scheme", "split", "add_prefix_space"},
            implied={"str_rep"},
        ),
        "Split": Entries(read={"pattern", "behavior", "invert"}),
        "Digits": Entries(read={"individual_digits"}),
        "Punctuation": Entries(read={"behavior"}),
        "WhitespaceSplit": Entries(),
    },
    "model": {
        "WordPiece": Entries(
            read={"vocab", "unk_token", "max_input_chars_per_word"},
            refused={"continuing_subword_prefix": ("##",)},
        ),
        "BPE": Entries(
            read={"vocab", "merges", "unk_token", "byte_fallback", "ignore_merges", "fuse_unk"}
            | {"end_of_word_suffix"},
            refused={"dropout": (0.0,), "continuing_subword_prefix": UNSET},
        ),
        "Unigram": Entries(read={"vocab", "unk_id", "byte_fallback"}),
    },
    "post_processor": {
        "Sequence": Entries(read={"processors"}),
        "TemplateProcessing": Entries(read={"single", "pair"}, implied={"special_tokens"}),
        "BertProcessing": Entries(read={"sep", "cls"}),
        "RobertaProcessing": Entries(
            read={"sep", "cls"}, harmless={"trim_offsets", "add_prefix_space"}
        ),
        "ByteLevel": Entries(harmless={"add_prefix_space", "trim_offsets", "use_regex"}),
    },
    # The vocabulary's own spelling decides how ids become text.
    "decoder": {
        "Sequence": Entries(read={"decoders"}),
        "WordPiece": Entries(read={"cleanup"}, implied={"prefix"}),
        "ByteLevel": Entries(implied={"add_prefix_space", "use_regex"}, harmless={"trim_offsets"}),
        "Metaspace": Entries(
            implied={"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}
        ),
        "BPEDecoder": Entries(implied={"suffix"}),
        "ByteFallback": Entries(),
        "Fuse": Entries(),
        "Replace": Entries(implied={"pattern", "content"}),
        "Strip": Entries(implied={"content", "start", "stop"}),
    },
}
_INNER = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}


def check_tokenizer_json(tokenizer, where, reader):
    """Raise an error for a component that no reader knows; warn of entries in no row.

    Args:
        tokenizer: dict, what the file holds.
        where, reader: str, the file and our class, for messages.
    """
    TOKENIZER_JSON.check(tokenizer, where, reader)
    for token in tokenizer.get("added_tokens") or ():
        ADDED_TOKENS.check(token, f"{where}'s added token {token.get('content')!r}", reader)
    for part in COMPONENTS:
        for step in _steps(part, tokenizer.get(part)):
            kind = step.get("type")
            known = COMPONENTS[part].get(kind)
            if known is None:
                raise CheckpointError(
                    f"{where} has the {part} {kind!r}, which {reader} does not know; it knows "
                    f"{', '.join(sorted(COMPONENTS[part]))}. Tokenize such text outside of the "
                    "graph."
                )
            stated = {name: value for name, value in step.items() if name != "type"}
            known.check(stated, f"{where}'s {part} {kind}", reader)


def _steps(part, component):
    if not component:
        return
    yield component
    for step in component.get(_INNER.get(part), ()):
        yield from _steps(part, step)


# === What a folder states of its tokenizer ===

_BERT = ("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
_ROBERTA = ("<s>:0 $A:0 </s>:0", "<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0")
_T5 = ("$A:0 </s>:0", "$A:0 </s>:0 $B:0 </s>:0")
NOTHING = ("$A:0", "$A:0 $B:0")
# The roles of the tokens around one text.
_ENDS = {_BERT: ("cls", "sep"), _ROBERTA: ("cls", "sep"), _T5: ("eos",)}
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
# Networks whose tokenizer is GPT-2's if nothing names another one, and what is its bos and eos.
OF_GPT2, END_OF_TEXT = ("gpt2", "gpt_neo"), "<|endoftext|>"
CONFIG = "tokenizer_config.json"
MAP = "special_tokens_map.json"
FILES = (CONFIG, MAP, "tokenizer.json")
UNUSED = re.compile(r"<unused id \d+>")
# In transformers 5, whose files name a backend, others than these have one segment only unless
# `model_input_names` says so.
_WITH_SEGMENTS = ("BertTokenizer", "ElectraTokenizer", "DebertaTokenizer", "DebertaV2Tokenizer")
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


def read_tokenizer(folder):
    """Return what a folder's tokenizer.json holds; an empty dict if there is no such file.

    Older files leave out the type of the model; it follows from the model's parts.
    """
    tokenizer = read_json(folder, "tokenizer.json")
    model = tokenizer.get("model")
    if isinstance(model, dict) and "type" not in model and "vocab" in model:
        is_unigram = isinstance(model["vocab"], list)
        kind = "BPE" if "merges" in model else "Unigram" if is_unigram else "WordPiece"
        tokenizer = {**tokenizer, "model": {"type": kind, **model}}
    return tokenizer


def content(token):
    """Return the spelling of a token, which is a string or an object in files."""
    spelled = token["content"] if isinstance(token, dict) else token
    if not isinstance(spelled, (str, type(None))):
        raise TypeError(f"a token is {spelled!r}")
    return spelled


def stated_limits(folder):
    """Return how a folder's files limit texts: the most tokens, or None, and the truncated side."""
    with reading(folder):
        config = read_json(folder, CONFIG)
        length = config.get("model_max_length", config.get("max_len"))
        if length is not None and (type(length) not in (int, float) or length < 1):
            raise ValueError(
                f"{os.path.join(folder, CONFIG)} has model_max_length={length!r}; it must be a "
                "number of tokens. Correct it, or pass sequence_length."
            )
        truncation = read_json(folder, "tokenizer.json").get("truncation") or {}
        side = config.get("truncation_side", str(truncation.get("direction", "right")).lower())
    return None if length is None else int(min(length, 2**31 - 1)), side


def has_fast_tokenizer(folder):
    """Whether a folder's texts are tokenized by the package `tokenizers` in transformers."""
    with reading(folder):
        return "model" in read_json(folder, "tokenizer.json")


# Additional special tokens that are usual in a family: T5's and XLNet's.
_OF_FAMILIES = re.compile(r"<extra_id_\d+>|<eop>|<eod>|[<\[]unused_?\d+[>\]]")


def declares_tokens(folder):
    """Whether a folder's files declare a user's own special tokens, such as entity markers."""
    with reading(folder):
        config = read_json(folder, "tokenizer_config.json")
        named = named_tokens(config, read_json(folder, MAP))
        if named.get("split_special_tokens"):
            return False
        tokens = additional_tokens(named) or []
        # (add_bos_token and the like are bools.)
        roles = {name: t for name, t in named.items() if name.endswith("_token") and t is not True}
        roles = {content(token) for token in roles.values() if token}
        return any(t not in roles and not _OF_FAMILIES.fullmatch(t) for t in tokens)


def named_tokens(config, special):
    """Return what tokenizer_config.json and special_tokens_map.json name, a dict.

    Of what both name, transformers takes the second file's, unless the first describes added
    tokens, too.
    """
    return special | config if "added_tokens_decoder" in config else config | special


def additional_tokens(named):
    """Return the additional special tokens that a configuration names, a list of str, or None."""
    more = named.get("additional_special_tokens") or named.get("extra_special_tokens")
    if more is None:
        return None
    return [content(token) for token in (more.values() if isinstance(more, dict) else more)]


def stated_class(folder):
    """Return Hugging Face's class that a folder's configurations name, without "Fast", or None."""
    for name in ("tokenizer_config.json", "config.json"):
        stated = read_json(folder, name).get("tokenizer_class")
        if stated is not None and not isinstance(stated, str):
            raise TypeError(f"tokenizer_class in {name} is {stated!r}")
        if stated and stated.removesuffix("Fast") not in _GENERIC:
            return stated.removesuffix("Fast")
    return None


def is_generic(folder):
    """Whether a folder names a class that takes everything from the tokenizer.json there."""
    named = str(read_json(folder, CONFIG).get("tokenizer_class")).removesuffix("Fast")
    return named in _GENERIC and "model" in read_json(folder, "tokenizer.json")


def steps(tokenizer, name, of_sequence):
    """Return a part of a tokenizer.json, such as "normalizer", as a list of steps."""

    def flat(step):
        if step.get("type") == "Sequence":
            return [inner for part in step[of_sequence] for inner in flat(part)]
        return [step] * bool(step)

    return flat(tokenizer.get(name) or {})


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
            f"`folder` {os.fspath(folder)!r} asks for a {name}, whose rules are not supported; "
            f"those of {', '.join(sorted(CLASSES))}, and of a tokenizer.json, are. Pass "
            "tokenizer=…, one of keras_lm.tokenizers, or tokenizer=None for packed dicts."
        )
    names = {kind: cls.PUBLISHED_FILES for kind, cls in tokenizer_classes().items()}
    kinds = [usual, *names] if names.get(usual) else []
    matching = next((kind for kind in kinds if _holds(folder, names[kind])), None)
    return matching or ("ByteTokenizer" if reads_bytes(folder) else usual)


def reads_bytes(folder):
    """Whether a folder's config.json is that of a network that is published for bytes."""
    config = read_json(folder, "config.json")
    number = READ_BYTES.get(str(config.get("model_type")))
    return number is not None and config.get("vocab_size") == number


def _holds(folder, names):
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


def merges_of(model):
    """Return the merges of a tokenizer.json, which are strings or pairs, as strings."""
    return [pair if isinstance(pair, str) else " ".join(pair) for pair in model.get("merges", [])]


def has_letters(token):
    """Whether a token has letters, which may become others in lower case or without accents."""
    return token.lower() != token.upper()


def changes_in_form(token, form, is_normalized):
    """Whether a token differs between a text and its normal form, None for no form.

    One that is found in the text as it is may also come about by joining a letter and a mark.
    """
    if form is None:
        return False
    return unicodedata.normalize(form, token) != token or not (is_normalized or token.isascii())


def refuse(where, settings, supported, who):
    """Raise ValueError if a setting has a value that is not supported."""
    for name, values in supported.items():
        if name in settings and settings[name] not in values:
            raise ValueError(
                f"{where} sets `{name}` to {settings[name]!r}, which {who} does not "
                f"support; it can do {values[0]!r}. Tokenize such text outside of the graph."
            )


def _difference(vocabulary, stated, added):
    """Return what tells a list of entries from a dict of entries → ids, or None if nothing does."""
    own = {entry: id for id, entry in enumerate(vocabulary)}
    other = next((entry for entry, id in stated.items() if own.get(entry) != id), None)
    if other is None:
        left = (entry for entry in own if entry not in stated and entry not in added)
        other = next((entry for entry in left if not UNUSED.fullmatch(entry)), None)
    if other is None:
        return None
    id, stated_id = own.get(other, "none"), stated.get(other, "none")
    return f"the first has {other!r} as id {id}, the second as id {stated_id}"


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
        special = read_json(folder, MAP)
        self.named = named_tokens(self.config, special)
        where = {name: os.path.join(folder, name) for name in FILES}
        config_entries(who).check(self.config, where[CONFIG], who)
        SPECIAL_TOKENS.check(special, where[MAP], who)
        if "model" in self.tokenizer:
            check_tokenizer_json(self.tokenizer, where["tokenizer.json"], who)

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
            ADDED_TOKENS.check(token, f"the added token {token.get('content')!r}", self.who)
        added = read_json(self.folder, "added_tokens.json")
        added = {token: (id, False) for token, id in added.items()}
        added |= {t["content"]: (t["id"], t.get("special", False)) for t in described}
        check_numbers({token: id for token, (id, _) in added.items()}, path)
        known = set(vocabulary)
        vocabulary += sorted((t for t in added if t not in known), key=lambda t: added[t][0])
        check_ids(vocabulary, {token: id for token, (id, _) in added.items()}, path)
        self.described, self.added = described, added

    def check_vocabulary(self, vocabulary, path, merges=None):
        """Raise an error if the tokenizer.json, which transformers reads, has another vocabulary.

        Args:
            vocabulary: list of str, the entries of the file `path` and the added tokens.
            path: str.
            merges: list of str, those of byte pairs, or None.
        """
        model = self.tokenizer.get("model") or {}
        stated = model.get("vocab")
        if not stated or os.path.basename(path) == "tokenizer.json":
            return
        pairs = (
            stated.items()
            if isinstance(stated, dict)
            else zip((piece for piece, _ in stated), range(MOST_IDS))
        )
        difference = _difference(vocabulary, dict(pairs), self.added)
        if difference is None and merges is not None and merges_of(model) != merges:
            difference = "they differ in their merges"
        if difference is not None:
            raise CheckpointError(
                f"{self.folder} holds two vocabularies, {os.path.basename(path)} and "
                f"tokenizer.json: {difference}. Remove the file that is not meant; transformers "
                "reads tokenizer.json."
            )

    def more_tokens(self, taken):
        """Return the settings for additional special tokens and added ones, without those taken."""
        more = additional_tokens(self.named) or []
        more += [token for token, (_, is_special) in self.added.items() if is_special]
        more = [token for token in dict.fromkeys(more) if token not in taken]
        added = [token for token in self.added if token not in taken and token not in more]
        return {"additional_special_tokens": more, "added_tokens": added}

    def check_tokens(self, differs):
        """Raise an error for an added token that is found in other texts here than it states.

        Special tokens, which texts seldom spell, are warned of.

        Args:
            differs: function of a token, whether it is special, and whether it states that it is
                found in text that is normalized.
        """
        stated = [
            (t["content"], bool(t.get("special")), t.get("normalized")) for t in self.described
        ]
        for name, is_special, is_normalized in dict.fromkeys(stated):
            if is_normalized is None or not differs(name, is_special, is_normalized):
                continue
            message = (
                f"{self.folder}'s {'special' if is_special else 'added'} token {name!r} has "
                f"normalized={is_normalized}, by which it is found in other texts than {self.who} "
                "finds it in."
            )
            if not is_special:
                raise CheckpointError(f"{message} Add it with the opposite, if it may be.")
            warn(f"{message} This concerns texts that spell it, where special tokens are parsed.")

    def normalized_tokens(self):
        """Return the special tokens that state that they are found in text that is normalized."""
        tokens = [t for t in self.described if t.get("special") and t.get("normalized")]
        return list(dict.fromkeys(token["content"] for token in tokens))

    def stripping(self, side):
        """Return the described tokens with white space on a `side`, `"lstrip"` or `"rstrip"`."""
        tokens = [token["content"] for token in self.described if token.get(side)]
        return list(dict.fromkeys(tokens))

    def template(self):
        """Return the special tokens around texts, as `Tokenizer` takes them.

        Raises:
            ValueError: if the tokenizer.json adds them in a way that is not supported.
        """
        template, names = self._template(), self.config.get("model_input_names")
        if "model" in self.tokenizer:
            self._check_ends(template[0])
        has_segments = "backend" not in self.config or stated_class(self.folder) in _WITH_SEGMENTS
        if template is None or (has_segments if names is None else "token_type_ids" in names):
            return template
        return tuple(re.sub(r":\d+( |$)", r":0\1", piece) for piece in template)

    def _template(self):
        if "model" not in self.tokenizer:
            template = CLASSES.get(stated_class(self.folder), (None, None))[1]
            return self._with_ends(template)
        stated = steps(self.tokenizer, "post_processor", "processors")
        kinds = [step["type"] for step in stated if step["type"] != "ByteLevel"]
        if len(kinds) > 1:
            raise CheckpointError(
                f"tokenizer.json's post_processor puts tokens around texts in {len(kinds)} steps, "
                f"{', '.join(kinds)}; {self.who} does so once. Write them as one template."
            )
        for step in stated:
            known = ("TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel")
            self.refuse("tokenizer.json's post_processor", step, {"type": known})
            if step["type"] == "TemplateProcessing":
                for name, token in step.get("special_tokens", {}).items():
                    self._check_ids_around(name, token["ids"])
                return tuple(_spelled(step[name]) for name in ("single", "pair"))
            if step["type"] != "ByteLevel":
                for name, id in (step["cls"], step["sep"]):
                    self._check_ids_around(name, [id])
                first, last = step["cls"][0], step["sep"][0]
                is_bert = step["type"] == "BertProcessing"
                second = f"$B:1 {last}:1" if is_bert else f"{last}:0 $B:0 {last}:0"
                single = f"{first}:0 $A:0 {last}:0"
                return single, f"{single} {second}"
        return NOTHING

    def _check_ends(self, single):
        """Warn if a tokenizer.json puts other tokens around a text than are named for its class.

        Version 5 of transformers takes those that are named, and version 4 the file's.
        """
        usual = CLASSES.get(stated_class(self.folder), (None, None))[1]
        keys = [f"{role}_token" for role in _ENDS.get(usual, ())]
        tokens = [piece.rpartition(":")[0] for piece in single.split() if piece != "$A:0"]
        named = [content(self.named[key]) for key in keys if self.named.get(key)]
        if keys and len(named) == len(keys) and named != tokens:
            stated = ", ".join(f"{key}={token!r}" for key, token in zip(keys, named))
            warn(
                f"{self.folder}'s tokenizer.json puts {' and '.join(tokens) or 'no tokens'} around "
                f"texts, which is followed; {stated} are named beside it. Correct the one that is "
                "wrong."
            )

    def _check_ids_around(self, token, ids):
        """Refuse a token around texts for which a tokenizer.json puts other ids than its own."""
        vocabulary = self.tokenizer["model"].get("vocab", {})
        if isinstance(vocabulary, list):
            vocabulary = {piece: id for id, (piece, _) in enumerate(vocabulary)}
        added = {t["content"]: t["id"] for t in self.tokenizer.get("added_tokens", [])}
        own = added.get(token, vocabulary.get(token))
        if own is not None and ids != [own]:
            raise CheckpointError(
                f"tokenizer.json's post_processor puts the ids {ids} for {token!r}, whose id is "
                f"{own}: {self.who} puts a token's own id. Correct the one that is wrong."
            )

    def _with_ends(self, template):
        """Return the template with the tokens that add_bos_token and add_eos_token ask for.

        A tokenizer.json has them already, and classes with a template of their own ignore both.
        """
        if template is None and self._is_of_gpt2():
            template = NOTHING
        roles = [role for role in ("bos", "eos") if self.config.get(f"add_{role}_token")]
        tokens = {role: content(self.named.get(f"{role}_token", END_OF_TEXT)) for role in roles}
        if template != NOTHING or not any(tokens.values()):
            return template
        bos, eos = ([f"{tokens[role]}:0"] if tokens.get(role) else [] for role in ("bos", "eos"))
        first, second = ([*bos, text, *eos] for text in ("$A:0", "$B:0"))
        return " ".join(first), " ".join(first + second)

    def _is_of_gpt2(self):
        """Whether no class is named, and the network is one that takes GPT-2's."""
        named = stated_class(self.folder)
        return named is None and read_json(self.folder, "config.json").get("model_type") in OF_GPT2
