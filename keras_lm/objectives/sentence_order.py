"""Sentence-order prediction: are two texts in their original order? Shapes: B batch, S sequence."""

from typing import Any

import keras
from keras import ops

from keras_lm.layers.masks import IGNORED
from keras_lm.objectives.objective import (
    MaskedAccuracy,
    MaskedCrossentropy,
    Objective,
    register_objective,
)
from keras_lm.utils.argument_types import Tensor


@register_objective
class NextSentence(Objective):
    """BERT's second objective; its labels (B,) come with the pairs, 0 if the second text follows.

    Source: https://arxiv.org/abs/1810.04805, section 3.1, task 2.
    """

    heads = {"next_sentence_logits": "next_sentence"}
    row_names = ()
    labels_of_data = "which second texts follow (0) and which do not (1)"
    uses_pooler = True

    def loss(self) -> MaskedCrossentropy:
        return MaskedCrossentropy()

    def metrics(self) -> list[keras.metrics.Metric]:
        return [MaskedAccuracy()]


@register_objective
class SentenceOrder(Objective):
    """ALBERT's second objective: half of the pairs of consecutive texts are swapped.

    Rows are packed like BERT's: `[CLS]`, the first text with its `[SEP]` in segment 0, the second
    in segment 1. The label (B,) is 0 for a pair in order, 1 for a swapped pair, and `IGNORED` if a
    text is empty. Tokens masked by an earlier objective move with their text.

    Args:
        seed: int, for training; evaluation swaps the same rows for the same batch shape.

    Source: https://arxiv.org/abs/1909.11942, section 3.1.
    """

    heads = {"sentence_order_logits": "sentence_order"}
    row_names = ()
    uses_pooler = True

    def __init__(self, seed: int | None = None):
        self.seed_generator = keras.random.SeedGenerator(seed)

    def corrupt(
        self, inputs: dict[str, Tensor], training: bool | None = True
    ) -> tuple[dict[str, Tensor], Any]:
        """Swap texts; the labels (B,) say which rows are swapped."""
        mask, segments = inputs["padding_mask"], inputs["segment_ids"]
        start = ops.cast(ops.argmax(mask, axis=1), "int32")[:, None] + 1  # (B, 1), after [CLS]
        second = ops.sum(mask * segments, axis=1, keepdims=True)  # (B, 1), lengths with [SEP]
        first = ops.sum(mask, axis=1, keepdims=True) - second - 1
        is_pair = ops.logical_and(first > 1, second > 1)
        seed = self.seed_generator if training else 0
        chance = keras.random.uniform(ops.shape(second), seed=seed)
        swapped = ops.logical_and(is_pair, chance < 0.5)  # (B, 1)

        def moved(columns, before, after):
            """Return the new places of columns if `before` columns swap with the `after` next."""
            place = columns - start
            new = ops.where(place < before, columns + after, columns - before)
            inside = ops.logical_and(place >= 0, place < before + after)
            return ops.where(ops.logical_and(swapped, inside), new, columns)

        columns = ops.broadcast_to(ops.arange(ops.shape(mask)[1], dtype="int32"), ops.shape(mask))
        sources = moved(columns, second, first)  # (B, S): the column that comes to each place
        taken = {
            "token_ids": ops.take_along_axis(inputs["token_ids"], sources, axis=1),
            # [CLS] and the new first text get segment 0; padding keeps its segment.
            "segment_ids": ops.where(
                ops.logical_and(swapped, mask > 0),
                ops.cast(columns - start >= second, "int32"),
                segments,
            ),
        }
        if "mask_positions" in inputs:
            taken["mask_positions"] = moved(inputs["mask_positions"], first, second)
        labels = ops.where(is_pair, ops.cast(swapped, "int32"), IGNORED)
        return inputs | taken, labels[:, 0]

    def loss(self) -> MaskedCrossentropy:
        return MaskedCrossentropy()

    def metrics(self) -> list[keras.metrics.Metric]:
        return [MaskedAccuracy()]
