"""The packer for words as characters. Shapes: B batch, S sequence, C characters, W words."""

from typing import Any

from keras_lm.packers.packer import PackedInput, Packer
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.argument_types import Tensor


class CharacterPacker(Packer):
    """A `Packer` for words as characters: ragged character ids → rows of the same length.

    Args:
        tokenizer: `keras_lm.tokenizers.CharacterTokenizer`.
        template, sequence_length, padding, truncation, truncation_side, rows: see `Packer`; lengths
            count words.

    Call: like `Packer`. Returns `character_ids` (B, S, C), 0 in padding, and `padding_mask` (B, S).

    Example:

        packer = CharacterPacker(ElmoBackbone.TEMPLATE, CharacterTokenizer(), sequence_length=128)
        packer({"text": tf.constant(["a text"])})["character_ids"]
    """

    @property
    def inputs(self) -> dict[str, PackedInput]:
        return {"character_ids": PackedInput(rank=3), "padding_mask": PackedInput()}

    def read_vocabulary(self, tokenizer: Tokenizer) -> None:
        super().read_vocabulary(tokenizer)
        # A word for each id of the vocabulary: the special tokens; all others are padding.
        with tf.init_scope():
            words = tokenizer.tokenize_words(tokenizer.vocabulary, parse_special=True).numpy()
        special = {piece for name in self._pieces for piece, _ in self._pieces[name]}
        words[[i for i in range(len(words)) if i not in special]] = 0
        self._words = words

    def pack(self, **texts: Any) -> dict[str, Tensor]:
        """Return the packed dict for ragged (B, None, C) int32; see `Packer.pack`."""
        table, numbers = [tf.constant(self._words)], {}
        first = len(self._words)
        for name, text in texts.items():  # words are numbered, packed, and looked up
            values = tf.cast(text.values, tf.int32)  # (W, C)
            table.append(values)
            numbers[name] = text.with_values(tf.range(tf.shape(values)[0]) + first)
            first += tf.shape(values)[0]
        packed = super().pack(**numbers)
        words = tf.gather(tf.concat(table, axis=0), packed.pop("token_ids"))
        packed = {"character_ids": words} | packed
        return {name: value for name, value in packed.items() if name in self.inputs}

    def pieces(self, packed: dict[str, Tensor]) -> dict[str, Tensor]:
        words = self.tokenizer.words(packed["character_ids"])
        return {"tokens": words, "character_ids": packed["character_ids"]}
