"""The span-boundary objective. Shapes: B batch, S sequence, M targets per row."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_lm.layers.backend import num_replicas
from keras_lm.layers.masks import IGNORED
from keras_lm.objectives.masked_lm import special_ids, text_tokens
from keras_lm.objectives.objective import (
    MaskedAccuracy,
    MaskedCrossentropy,
    Objective,
    register_objective,
)
from keras_lm.utils.argument_types import Tensor


@keras.saving.register_keras_serializable("keras_lm")
class SpanCrossentropy(MaskedCrossentropy):
    """`MaskedCrossentropy` over the tokens of spans, divided by their number plus one.

    The authors' code adds one, because a batch may have no span with a token on both sides.

    Args:
        label_smoothing: float, see `MaskedCrossentropy`.
    """

    def __init__(self, label_smoothing: float = 0.0, name: str = "span_crossentropy"):
        super().__init__(label_smoothing, name)

    def sum_and_count(
        self, labels: Tensor, logits: Tensor, sample_weight: Tensor | None = None
    ) -> tuple[Any, Any]:
        total, count = super().sum_and_count(labels, logits, sample_weight)
        return total, count + 1 / num_replicas()

    def count(self, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        # The counts of all replicas are added, so that one is added once.
        return super().count(labels, sample_weight) + 1 / num_replicas()


@register_objective
class SpanBoundary(Objective):
    """SpanBERT's second objective: predicts a span's tokens from the tokens next to the span.

    An earlier objective has masked the spans; adjacent masked tokens are one span. Only spans
    between two tokens of the text have targets, not those next to a special token.

    Args:
        special_ids: list of int. Tokens that are not text; by default the special tokens of the
            tokenizer except the unknown token.
        max_span_length: int. How many tokens at the beginning of a span are predicted. By default
            the backbone's own `max_span_length`, for which its head has positions; all without a
            task.

    Raises:
        ValueError: if `max_span_length` is not positive, or exceeds the backbone's.

    Example:

        objectives = [MaskedSpans(), SpanBoundary()]
        task = keras_lm.tasks.Pretrainer(backbone, objectives, tokenizer=tokenizer)

    Source: https://arxiv.org/abs/1907.10529, section 3.2; facebookresearch/SpanBERT,
    `fairseq/data/masking.py`.
    """

    heads = {"span_boundary_logits": "span_boundary"}
    row_names = ("span_boundaries", "span_places")

    def __init__(
        self, special_ids: Sequence[int] | None = None, max_span_length: int | None = None
    ):
        if max_span_length is not None and max_span_length < 1:
            raise ValueError(f"max_span_length={max_span_length}: pass 1 or more.")
        self.given = special_ids, max_span_length
        self.max_span_length = max_span_length
        self.set_tokenizer(None)

    def set_tokenizer(self, tokenizer: Any) -> None:
        self.special_ids, _ = self.given
        if self.special_ids is None and tokenizer is not None:
            self.special_ids = special_ids(tokenizer)

    def set_backbone(self, backbone: keras.Model) -> None:
        _, given = self.given
        most = backbone.config.get("max_span_length")  # None: another network, with its own head
        if None not in (given, most) and given > most:
            raise ValueError(
                f"max_span_length={given}, but the backbone's head has positions for {most}: pass "
                f"{most} or less, or leave it out."
            )
        self.max_span_length = most if given is None else given

    def corrupt(
        self, inputs: dict[str, Tensor], training: bool | None = True
    ) -> tuple[dict[str, Tensor], Any]:
        """Find the span of each masked token; the labels (B, M, 1) are the tokens.

        Adds `span_boundaries` (B, M, 2), the positions left and right of the token's span, and
        `span_places` (B, M), its place in the span. Labels without targets are `IGNORED`.

        Raises:
            ValueError: if nothing is masked, or `special_ids` is missing and there is no tokenizer.
        """
        self._check(inputs)
        columns = ops.shape(inputs["token_ids"])[1]
        labels = inputs["mask_labels"]
        known = ops.not_equal(labels, IGNORED)
        places = ops.where(known, inputs["mask_positions"], columns)
        order = ops.argsort(places, axis=1)
        positions, labels, known = (
            ops.take_along_axis(x, order, axis=1) for x in (places, labels, known)
        )
        slots = ops.arange(ops.shape(positions)[1], dtype="int32")
        # Within a span, position and slot grow together; from one span to the next they do not.
        offset = positions - slots[None]
        same = ops.equal(offset[:, :, None], offset[:, None, :])
        same = ops.logical_and(same, known[:, None, :])  # (B, M, M): in the span of each token
        earlier = ops.logical_and(same, slots[None, :] < slots[:, None])
        place, size = (ops.sum(ops.cast(x, "int32"), axis=2) for x in (earlier, same))  # (B, M)
        left = positions - place - 1
        right = left + size + 1

        is_text = text_tokens(inputs["token_ids"], inputs["padding_mask"], self.special_ids)
        inside = ops.logical_and(left >= 0, right < columns)
        is_early = place < (self.max_span_length or columns)
        is_target = ops.logical_and(known, ops.logical_and(inside, is_early))
        ends = ops.where(is_target[..., None], ops.stack([left, right], axis=2), 0)  # (B, M, 2)
        for side in (0, 1):
            beside = ops.take_along_axis(is_text, ends[:, :, side], axis=1)
            is_target = ops.logical_and(is_target, beside)
        labels = ops.where(is_target, labels, IGNORED)
        spans = {"span_boundaries": ends, "span_places": ops.where(is_target, place, 0)}
        return inputs | spans, labels[:, :, None]

    def _check(self, inputs):
        if "mask_labels" not in inputs:
            raise ValueError(
                "SpanBoundary finds no masked tokens: in objectives, put one that masks before it, "
                "such as MaskedSpans(), or pass span_boundary_labels with the data."
            )
        if self.special_ids is None:
            raise ValueError("SpanBoundary has no special_ids: give the task a tokenizer.")

    def loss(self) -> SpanCrossentropy:
        return SpanCrossentropy()

    def metrics(self) -> list[keras.metrics.Metric]:
        return [MaskedAccuracy()]
