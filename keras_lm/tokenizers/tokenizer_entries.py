"""What each entry of the files beside a vocabulary means: see `keras_lm.converters.entries`.

`SPECIAL_TOKENS` is the table of special_tokens_map.json, `config_entries` that of
tokenizer_config.json, and `COMPONENTS` has one for each component of a tokenizer.json. The readers
of the vocabularies refuse components, and values, that they do not follow.
"""

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.entries import Entries

NOTHING = (None, "", False)

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
        # Of ids to text: special tokens are left out of it, and bytes that are no text replaced.
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
        read={"do_lower_case", "keep_accents", "remove_space", "legacy", "extra_ids", _CLEANED},
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
            refused={"dropout": (0.0,), "continuing_subword_prefix": NOTHING},
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
    # The vocabulary's own spelling tells how ids become text.
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
