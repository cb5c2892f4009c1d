"""T5's pretraining: spans of a text become single tokens, and the target has the spans.

Shapes: B batch, S sequence, T target.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.layers.masks import IGNORED
from keras_lm.objectives.causal_lm import Perplexity
from keras_lm.objectives.objective import (
    Draws,
    MaskedAccuracy,
    MaskedCrossentropy,
    Objective,
    register_objective,
)
from keras_lm.utils.argument_types import Tensor


@register_objective
class SpanCorruption(Objective):
    """Replaces spans of a text by sentinels; the target is the sentinels, each with its span.

    Of a text of `n` tokens, ⌊n · rate⌉ are replaced, at least one and not all, in spans of
    `mean_span` tokens on average. "Thank you for inviting me to your party last week" may become
    "Thank you <extra_id_0> me to your party <extra_id_1> week", with the target "<extra_id_0> for
    inviting <extra_id_1> last"; both end with the end token. A text begins with tokens that are
    kept, and ends with a span; texts of fewer than two tokens have no labels.

    Args:
        rate: float in (0, 1). The share of tokens to replace.
        mean_span: float, 1 or more. The mean length of a span, in tokens.
        sentinels: list of str, entries of the vocabulary, for the first span, the second, …; by
            default all of T5's `<extra_id_0>`, `<extra_id_1>`, … in the vocabulary. A text has at
            most this many spans.
        seed: int. The same seed gives the same spans.

    Raises:
        ValueError: if an argument is out of range, or the vocabulary lacks sentinels or an end.

    Example:

        objective = keras_lm.objectives.SpanCorruption()
        task = keras_lm.tasks.Seq2SeqLM(t5, tokenizer=tokenizer)
        pretrainer = keras_lm.tasks.Pretrainer(
            t5, [objective], {"seq2seq_lm": task.head}, tokenizer=tokenizer
        )
        pretrainer.fit(texts)  # trains the task's own weights

    Source: Raffel et al. 2020, https://arxiv.org/abs/1910.10683, sections 3.1.4 and 3.3.4;
    google-research/text-to-text-transfer-transformer, `t5/data/preprocessors.py`, which ends no
    target with a further sentinel, unlike figure 2 of the paper.
    """

    heads = {"token_logits": "seq2seq_lm"}
    row_names = ()

    def __init__(
        self,
        rate: float = 0.15,
        mean_span: float = 3.0,
        sentinels: Sequence[str] | None = None,
        seed: int | None = None,
    ):
        if not 0 < rate < 1:
            raise ValueError(f"rate={rate}: pass a number between 0 and 1.")
        if mean_span < 1:
            raise ValueError(f"mean_span={mean_span}: pass 1 or more.")
        self.rate, self.mean_span = rate, mean_span
        self.sentinels = sentinels
        self.seed_generator = keras.random.SeedGenerator(seed)

    def set_tokenizer(self, tokenizer: Any) -> None:
        if tokenizer is None:
            raise ValueError("SpanCorruption needs sentinels: give the task a tokenizer.")
        known = set(tokenizer.vocabulary)
        tokens = self.sentinels
        if tokens is None:
            number = next(i for i in range(len(known) + 1) if f"<extra_id_{i}>" not in known)
            tokens = [f"<extra_id_{i}>" for i in range(number)]
        missing = [token for token in tokens if token not in known]
        if missing or not tokens:
            raise ValueError(
                f"The vocabulary has no sentinel {missing[0] if missing else '<extra_id_0>'!r}: "
                "pass sentinels=[…], or a tokenizer with some, such as "
                "tokenizer.with_special_tokens(['<extra_id_1>', '<extra_id_0>'])."
            )
        self.sentinel_ids = np.array([tokenizer.token_to_id(token) for token in tokens], "int32")
        roles = tokenizer.special_tokens
        self.end_id, self.start_id = (
            next((tokenizer.special_id(role) for role in wanted if role in roles), None)
            for wanted in (("eos", "sep"), ("pad", "bos"))
        )
        if self.end_id is None or self.start_id is None:
            raise ValueError(
                "SpanCorruption needs an end token (eos or sep) and a start token for the decoder "
                f"(pad or bos), but the tokenizer only has {sorted(roles)}: pass another one."
            )

    def corrupt(
        self, inputs: dict[str, Tensor], training: bool | None = True
    ) -> tuple[dict[str, Tensor], Any]:
        """Return the inputs of an encoder-decoder, and the labels (B, T)."""
        token_ids = ops.cast(inputs["token_ids"], "int32")
        mask = inputs.get("padding_mask")
        mask = ops.ones_like(token_ids) if mask is None else ops.cast(mask, "int32")
        size = ops.shape(token_ids)[1]
        draws = Draws(self.seed_generator if training else None)

        # The lengths of rows, without the end token that packing adds.
        number = ops.sum(mask, axis=1, keepdims=True)  # (B, 1)
        places = ops.arange(size, dtype="int32")[None]  # (1, S)
        is_last = ops.equal(places, number - 1)
        is_end = ops.logical_and(is_last, ops.equal(token_ids, self.end_id))
        number = number - ops.sum(ops.cast(is_end, "int32"), axis=1, keepdims=True)

        # Of texts of 0 to S tokens, (S + 1,) each.
        lengths = np.arange(size + 1) if isinstance(size, int) else ops.arange(size + 1)
        noise, spans = _numbers(lengths, self.rate, self.mean_span, len(self.sentinel_ids))
        drawn = draws.uniform(ops.shape(token_ids))
        keys = _spans(number, ops.take(noise, number), ops.take(spans, number), drawn)  # (B, S)
        is_real = places < number
        is_noise = ops.logical_and(is_real, ops.equal(keys % 2, 1))
        begins = ops.not_equal(keys, ops.pad(keys, [[0, 0], [1, 0]], constant_values=-1)[:, :-1])
        sentinels = ops.take(self.sentinel_ids, ops.clip(keys // 2, 0, len(self.sentinel_ids) - 1))
        is_kept = ops.logical_and(is_real, ops.logical_not(is_noise))
        (source, source_mask), (target, target_mask) = (
            self._collapse(token_ids, sentinels, is_real, is_dropped, begins, width)
            for is_dropped, width in (
                (is_noise, _longest(lengths - noise + spans) + 1),
                (is_kept, _longest(noise + spans) + 1),
            )
        )
        has_labels = ops.logical_and(target_mask > 0, number > 1)
        start = ops.full_like(target[:, :1], self.start_id)
        more = {name: x for name, x in inputs.items() if name not in ("token_ids", "padding_mask")}
        return more | {
            "encoder_token_ids": source,
            "encoder_padding_mask": source_mask,
            "decoder_token_ids": ops.concatenate([start, target[:, :-1]], axis=1),
            "decoder_padding_mask": target_mask,
        }, ops.where(has_labels, target, IGNORED)

    def _collapse(self, token_ids, sentinels, is_real, is_dropped, begins, width):
        """Return tokens (B, width), sentinels for dropped spans, the end token, and their mask."""
        tokens = ops.where(is_dropped, sentinels, token_ids)
        stays = ops.logical_and(is_real, ops.logical_or(ops.logical_not(is_dropped), begins))
        size = ops.shape(tokens)[1]
        order = ops.arange(size, dtype="int32")[None] + size * ops.cast(
            ops.logical_not(stays), "int32"
        )
        tokens = ops.take_along_axis(tokens, ops.argsort(order, axis=1), axis=1)
        tokens = ops.pad(tokens, [[0, 0], [0, 1]])[:, :width]
        number = ops.sum(ops.cast(stays, "int32"), axis=1, keepdims=True)
        places = ops.arange(width, dtype="int32")[None]
        tokens = ops.where(places < number, tokens, ops.where(places > number, 0, self.end_id))
        tokens = ops.where(places > number, self.start_id, tokens)
        return tokens, ops.cast(places <= number, "int32")

    def loss(self) -> MaskedCrossentropy:
        return MaskedCrossentropy()

    def metrics(self) -> list[keras.metrics.Metric]:
        return [Perplexity(), MaskedAccuracy()]


def _numbers(length, rate, mean_span, most_spans=np.inf):
    """Return how many tokens of texts of a length are replaced, and in how many spans, int32.

    It computes in float32, as T5 does: double precision rounds some lengths otherwise.
    """
    numpy, cast = (np, np.asarray) if isinstance(length, np.ndarray) else (ops, ops.cast)
    length = cast(length, "float32")
    noise = numpy.round(length * np.float32(rate))
    noise = numpy.minimum(numpy.maximum(noise, 1), numpy.maximum(length - 1, 0))
    spans = numpy.maximum(numpy.round(noise / np.float32(mean_span)), 1)
    spans = numpy.minimum(spans, numpy.minimum(noise, length - noise))
    return cast(noise, "int32"), cast(numpy.minimum(spans, most_spans), "int32")


def _longest(lengths):
    return int(lengths.max()) if isinstance(lengths, np.ndarray) else ops.max(lengths)


def _spans(number, noise, spans, drawn):
    """Return (B, S) int: 2k for tokens of the k-th kept span, 2k + 1 for the span after it.

    `number`, `noise` and `spans` are (B, 1), `drawn` is uniform in [0, 1), (B, S).
    """
    places = ops.arange(ops.shape(drawn)[1], dtype="int32")[None]
    kept = number - noise
    # First the kept tokens, then the replaced ones; both are divided into `spans` spans.
    is_kept, is_noise = places < kept, ops.logical_and(places >= kept, places < number)
    parts = []
    for slots, first in ((is_kept, 0), (is_noise, kept)):
        may_begin = ops.logical_and(slots, places > first)  # the first always begins a span
        rank = ops.argsort(ops.argsort(ops.where(may_begin, drawn, 2.0), axis=1), axis=1)
        begins = ops.logical_and(may_begin, rank < spans - 1)
        parts.append(ops.cumsum(ops.cast(begins, "int32"), axis=1))
    keys = ops.where(is_kept, 2 * parts[0], 2 * parts[1] + 1)
    return ops.sort(ops.where(places < number, keys, 2**30), axis=1)


def span_corruption_lengths(
    sequence_length: int, rate: float = 0.15, mean_span: float = 3.0
) -> tuple[int, int]:
    """Return `(tokens, targets)`: the longest text whose corrupted form has `sequence_length`.

    `targets` is the length of its target; both include end tokens. T5 cuts its corpus into texts of
    568 tokens, which become 512 tokens and targets of 114.

    Args:
        sequence_length: int, 3 or more.
        rate, mean_span: as in `SpanCorruption`.

    Raises:
        ValueError: if `sequence_length` is less than 3.

    Example:

        tokens, targets = keras_lm.objectives.span_corruption_lengths(512)
        windows = keras_lm.data.token_windows(texts, tokenizer, tokens)

    Source: google-research/text-to-text-transfer-transformer, `t5/data/preprocessors.py`,
    `random_spans_helper`.
    """
    if sequence_length < 3:
        raise ValueError(f"sequence_length={sequence_length}: pass 3 or more.")

    def lengths(tokens):
        noise, spans = map(int, _numbers(np.array(tokens), rate, mean_span))
        return tokens - noise + spans + 1, noise + spans + 1

    tokens = sequence_length - 1
    while lengths(tokens + 1)[0] <= sequence_length:
        tokens += 1
    return tokens, lengths(tokens)[1]
