"""Several rows per example. Shapes: B batch, C rows per example, S sequence."""

from collections.abc import Callable
from typing import Any

from keras import ops

from keras_lm.packers import host_rows
from keras_lm.packers.packer import Packer, Texts
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.tokenizers import strings
from keras_lm.utils.argument_types import Tensor

LOWEST = -1e9  # the logit of a missing choice: finite, but below all others


class BothOrders(Texts):
    """A pair makes two rows, one in each order; their logits are added.

    Source: GPT, "Improving Language Understanding by Generative Pre-Training", section 3.3.
    """

    several_for = "symmetric=True"

    def pack(
        self, packer: Packer, columns: dict[str, Tensor], tokenize: Callable[..., Any] | None = None
    ) -> dict[str, Tensor]:
        if "text_pair" not in columns:
            raise ValueError("symmetric=True reads pairs, and x has single texts: pass a tuple.")
        first, second = (packer.ids(columns[name], tokenize) for name in self.names)
        packed = packer.pack(text=first, text_pair=second)
        swapped = packer.pack(text=second, text_pair=first)
        return {name: tf.stack([packed[name], swapped[name]], axis=1) for name in packed}

    def join(self, logits: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        return ops.sum(logits, axis=1)


class Choices(Texts):
    """A text makes a row with each of its choices; empty choices are padding."""

    names = required = ("text", "choices")
    lists = ("choices",)
    several_for = "MultipleChoice"

    def pack(
        self, packer: Packer, columns: dict[str, Tensor], tokenize: Callable[..., Any] | None = None
    ) -> dict[str, Tensor]:
        if not IS_INSTALLED:
            return host_rows.packed_choices(packer, columns, tokenize)
        choices = columns["choices"]
        if isinstance(choices, tf.RaggedTensor) and not strings.are_bytes(choices):
            choices = choices.to_tensor("")
        if strings.rank_of(choices) != 2:
            raise ValueError(
                f"choices has the shape {choices.shape}: it must be (B, C), with the choices of a "
                "text in a row."
            )
        shape = strings.shape_of(choices)  # B, C
        # Strings, not their ids, are repeated: LiteRT has no gather of ragged rows.
        rows = tf.range(strings.number_of(choices)) // tf.maximum(shape[1], 1)
        texts = strings.gathered(columns["text"], rows)
        packed = packer.pack(
            text=packer.ids(texts, tokenize),
            text_pair=packer.ids(strings.flat(choices), tokenize),
        )
        packed = {
            name: tf.reshape(value, tf.concat([shape, tf.shape(value)[1:]], axis=0))
            for name, value in packed.items()
        }
        is_choice = tf.cast(strings.are_full(choices), tf.int32)
        packed["padding_mask"] *= tf.expand_dims(is_choice, axis=2)
        return packed

    def join(self, logits: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        logits = logits[:, :, 0]  # (B, C)
        if "padding_mask" in inputs:
            logits = ops.where(ops.any(inputs["padding_mask"] > 0, axis=2), logits, LOWEST)
        return logits


class AnchoredTexts(Texts):
    """An anchor, its positive and its negatives make a row each, for an encoder to compare.

    The negative of an example may be a list of strings.
    """

    names = ("anchor", "positive", "negative")
    required = ("anchor", "positive")
    lists = ("negative",)

    def side_by_side(self, columns: dict[str, Tensor]) -> Tensor:
        """Return the texts (B, T), strings, with empty ones for negatives that examples lack."""
        parts = [columns[name] for name in self.names if name in columns]
        if not IS_INSTALLED:
            return host_rows.side_by_side(parts)
        parts = [
            part.to_tensor("") if isinstance(part, tf.RaggedTensor) else part for part in parts
        ]
        return tf.concat([x if x.shape.rank == 2 else x[:, tf.newaxis] for x in parts], axis=1)

    @staticmethod
    def keys(texts: Tensor) -> Tensor:
        """Return int32 (B, T, 2), equal for equal texts (B, T)."""
        if not IS_INSTALLED:
            return host_rows.keys(texts)
        hashes = tf.reshape(tf.fingerprint(tf.reshape(texts, [-1])), [-1, 2, 4])
        return tf.reshape(tf.bitcast(hashes, tf.int32), tf.concat([tf.shape(texts), [2]], axis=0))
