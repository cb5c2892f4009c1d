"""Bytes: a token for each byte of UTF-8, as ByT5 and character models of tensor2tensor read."""

import os
from collections.abc import Sequence
from typing import Any, Self

from keras_lm.tensorflow import tf
from keras_lm.tokenizers import lite_operations, published_files, strings
from keras_lm.tokenizers.characters import BYTES
from keras_lm.tokenizers.strings import bytes_of, valid_utf8
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.tokenizers.vocabulary import strings_of
from keras_lm.utils.argument_types import PathLike, Tensor

BYT5 = {
    "first_tokens": ["<pad>", "</s>", "<unk>"],
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unknown_token": "<unk>",
}
EXTRA_IDS = 125  # of ByT5, if its files do not say


class ByteTokenizer(Tokenizer):
    """Bytes, in the graph: a text is its UTF-8, a token for each byte.

    There is no vocabulary file: byte b has the id b plus the number of `first_tokens`. Invalid
    UTF-8 becomes U+FFFD first, and again in what `detokenize` returns.

    Args:
        first_tokens: list of str, the special tokens before the bytes. The default is
            tensor2tensor's, so byte b has the id b + 2.
        pad_token, eos_token, unknown_token: str, or None if there is none.
        additional_special_tokens: list of str, special tokens after the bytes, such as ByT5's
            `<extra_id_0>`.
        clean_up: bool; see `SentencePieceTokenizer`.
        template: see `Tokenizer`.

    Raises:
        ValueError: as `Tokenizer`.

    Example:

        tokenizer = ByteTokenizer()
        ids = tokenizer(["hé"])      # [[106, 197, 171]]
        tokenizer.detokenize(ids)    # [b"h\\xc3\\xa9"]

    Source: tensorflow/tensor2tensor, `text_encoder.py`, `ByteTextEncoder`; Xue et al. 2021, "ByT5",
    https://arxiv.org/abs/2105.13626, section 3.1.
    """

    ROLES = ("pad", "eos", "unknown")

    def __init__(
        self,
        first_tokens: Sequence[str] = ("<pad>", "<EOS>"),
        pad_token: str | None = "<pad>",
        eos_token: str | None = "<EOS>",
        unknown_token: str | None = None,
        additional_special_tokens: Sequence[str] = (),
        clean_up: bool = False,
        template: Sequence[str] | None = None,
        name: str | None = None,
    ):
        first = strings_of("first_tokens", first_tokens)
        more = strings_of("additional_special_tokens", additional_special_tokens)
        last = [token for token in dict.fromkeys(more) if token not in {*first, *BYTES}]
        roles = dict(zip(self.ROLES, (pad_token, eos_token, unknown_token)))
        special = list(dict.fromkeys([*first, *more]))
        super().__init__([*first, *BYTES, *last], roles, special, template, name=name)
        self.offset: int = len(first)
        self.clean_up: bool = bool(clean_up)
        with tf.init_scope():
            spelled = [bytes([b]) for b in range(256)]
            self._spelled = tf.constant([b""] * len(first) + spelled + [b""] * len(last))

    def _tokenize(self, text, special):
        text = valid_utf8(text)
        if not special:
            return self._ids(text)
        return strings.tokenize_parts(self, text, special, lambda parts, begins: self._ids(parts))

    def _ids(self, text):
        data = bytes_of(text)
        return data.with_values(tf.cast(data.values, tf.int32) + self.offset)

    def _tokenize_with_offsets(self, text, special=()):
        text = valid_utf8(text)
        ids = self._ids(text)
        row = strings.row_ids(ids)
        starts = tf.range(tf.size(ids.values, tf.int64)) - tf.gather(ids.row_starts(), row)
        return ids, *strings.in_original(
            text, ids.with_values(starts), ids.with_values(starts + 1), "byte"
        )

    def tokenize_lite(self, text: Tensor) -> Any:
        """Return ragged (B, S) ids of (B,) texts like a call, with operations of LiteRT."""
        return self.tokenize_lite_with_offsets(text)[0]

    def tokenize_lite_with_offsets(self, text: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what `tokenize_lite` does, and where tokens start and end in characters."""
        data, row_splits = lite_operations.valid_bytes(text)
        of_character = tf.cumsum(tf.cast((data < 0x80) | (data >= 0xC0), tf.int32)) - 1
        text_begins = tf.gather(of_character, row_splits)
        ids, of_character = (x[: -lite_operations.TAIL] for x in (data + self.offset, of_character))
        ids = tf.RaggedTensor.from_row_splits(ids, tf.cast(row_splits, tf.int64), validate=False)
        starts = of_character - tf.gather(text_begins, strings.row_ids(ids))
        return ids, ids.with_values(starts), ids.with_values(starts + 1)

    def _detokenize(self, ids):
        text = valid_utf8(strings.join(ids.with_values(tf.gather(self._spelled, ids.values))))
        return strings.cleaned_up(text) if self.clean_up else text

    def _spellings_alone(self):
        return self._spelled.numpy().tolist(), *lite_operations.cleaning(self.clean_up)

    def _begins_word(self, token):
        return False

    def _grown(self, entries, config):
        return type(self)(**config)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config() | {"clean_up": self.clean_up, "template": self.template}
        first = self.vocabulary[: self.offset]
        more = [t for t in config["additional_special_tokens"] if t not in first]
        return config | {"first_tokens": first, "additional_special_tokens": more}

    def save_assets(self, folder: PathLike) -> None:
        """Write nothing: bytes need no vocabulary file."""

    @classmethod
    def from_assets(cls, folder: PathLike, config: dict[str, Any]) -> Self:
        return cls(**config)

    @classmethod
    def from_files(cls, folder: PathLike, **overrides: Any) -> Self:
        """Return the tokenizer of a published folder whose network reads bytes.

        That is one whose `tokenizer_config.json` or `config.json` names ByT5's class, or one
        without a vocabulary whose `config.json` is that of a network published for bytes.

        Raises:
            FileNotFoundError: if the folder is neither.
            ValueError: if a file is damaged.
        """
        with published_files.reading(folder):
            if published_files.stated_class(folder) == "ByT5Tokenizer":
                config = published_files.TokenizerFolder(folder, cls.__name__)
                number = config.config.get("extra_ids", EXTRA_IDS)
                usual = [f"<extra_id_{i}>" for i in range(number)]
                more = published_files.additional_tokens(config.named) or usual
                arguments = BYT5 | config.special_tokens(cls.ROLES)
                arguments |= {"additional_special_tokens": more, "template": config.template()}
                arguments["clean_up"] = bool(config.config.get("clean_up_tokenization_spaces"))
                return cls(**{**arguments, **overrides})
            if not published_files.reads_bytes(folder):
                raise FileNotFoundError(
                    f"`folder` {os.fspath(folder)!r} holds no configuration of a network that "
                    "reads bytes without a vocabulary."
                )
        return cls(**overrides)
