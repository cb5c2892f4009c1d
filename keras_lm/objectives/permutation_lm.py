"""Permutation language modelling. Shapes: B batch, S sequence, R targets per row, V vocabulary."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.layers.masks import IGNORED
from keras_lm.objectives.causal_lm import Perplexity
from keras_lm.objectives.masked_lm import special_ids, text_tokens
from keras_lm.objectives.objective import (
    Draws,
    MaskedAccuracy,
    MaskedCrossentropy,
    Objective,
    register_objective,
)
from keras_lm.objectives.whole_words import word_starts
from keras_lm.utils.argument_types import Tensor


@register_objective
class PermutationLanguageModel(Objective):
    """XLNet's pretraining: tokens are predicted one after the other, in a random order.

    One in `context` of a row's tokens is predicted, at least one: spans of up to `longest` tokens,
    n with probability ∝ 1 / n, each beginning with a word somewhere among n · `context` others;
    then single tokens, until there are enough. All other tokens are known from the start. A target
    sees these, and the targets before it in the order. Special tokens have a place in the order,
    too, but are never targets.

    Nothing is replaced in the text, so no token has to be a mask. Targets are `target_mapping`
    (B, R, S), and which tokens a token does not see is `permutation_mask` (B, S, S). In a row of
    targets alone, the first of the order sees no token: see `XLNetBackbone`.

    Args:
        special_ids: list of int. Tokens that are never targets; by default all special tokens of
            the tokenizer except the unknown token.
        context: int. A row has this many tokens for each target; 6 in the authors' code, K of the
            paper.
        longest: int. The maximum number of tokens in a span.
        permutation_length: int. Orders are drawn within blocks of this many tokens, which follow
            each other from left to right. By default a row is one block, and so is each of its
            parts if there is a `reuse_length`.
        reuse_length: int. Of each row, the first this many tokens are remembered for the next row:
            they see nothing after them, and the others see all of them. By default the
            backbone's `reuse_length`; without one there is one order for all of a row.
        seed: int, for training; evaluation always draws the same for the same batch shape.

    Raises:
        ValueError: if a number is less than 1, `permutation_length` exceeds `reuse_length`, or the
            backbone has no two streams; in the first step, if there are neither `special_ids` nor
            a tokenizer.

    Example:

        objective = keras_lm.objectives.PermutationLanguageModel()
        task = keras_lm.tasks.Pretrainer(xlnet_backbone, [objective], tokenizer=tokenizer)
        task.fit(texts)

    Source: Yang et al. 2019, https://arxiv.org/abs/1906.08237, sections 2.2, 2.3 and 3.1;
    zihangdai/xlnet, `data_utils.py`, which also takes special tokens as targets, without a loss,
    and shuffles all blocks of a row in the same way.
    """

    heads = {"token_logits": "token"}
    row_names = ("is_reversed",)

    def __init__(
        self,
        special_ids: Sequence[int] | None = None,
        context: int = 6,
        longest: int = 5,
        permutation_length: int | None = None,
        reuse_length: int | None = None,
        seed: int | None = None,
    ):
        numbers = {"context": context, "longest": longest}
        numbers |= {"permutation_length": permutation_length, "reuse_length": reuse_length}
        for name, value in numbers.items():
            if value is not None and (value < 1 or value % 1):
                raise ValueError(f"{name}={value}: pass an int, 1 or more.")
        if None not in (permutation_length, reuse_length) and permutation_length > reuse_length:
            raise ValueError(
                f"permutation_length={permutation_length} exceeds reuse_length={reuse_length}: "
                "pass at most as many."
            )
        self.given = special_ids
        self.context, self.longest = context, longest
        self.permutation_length, self.reuse_length = permutation_length, reuse_length
        weights = 1 / np.arange(1, longest + 1)
        self.length_bounds = (weights.cumsum() / weights.sum())[:-1].astype("float32")
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.set_tokenizer(None)

    def set_tokenizer(self, tokenizer: Any) -> None:
        self.tokenizer, self.special_ids = tokenizer, self.given
        if self.special_ids is None and tokenizer is not None:
            self.special_ids = special_ids(tokenizer)

    def set_backbone(self, backbone: keras.Model) -> None:
        if self.reuse_length is None:
            self.reuse_length = backbone.config.get("reuse_length")
        if "target_mapping" not in backbone.fields_of({"target_mapping": None}):
            raise ValueError(
                f"{type(backbone).__name__} has no second stream, which predicts tokens that do "
                "not see themselves: pass another objective, such as MaskedLanguageModel(), or an "
                "XLNetBackbone."
            )

    def corrupt(
        self, inputs: dict[str, Tensor], training: bool | None = True
    ) -> tuple[dict[str, Tensor], Any]:
        """Draw targets and an order; the labels (B, R) are the targets' ids, or `IGNORED`.

        Rows that `is_reversed` names, see `XLNetBackbone`, have their spans from right to left.
        """
        if self.special_ids is None:
            raise ValueError(
                "PermutationLanguageModel has no special_ids: give the task a tokenizer."
            )
        draws = Draws(self.seed_generator if training else None)
        token_ids = ops.cast(inputs["token_ids"], "int32")
        mask = inputs.get("padding_mask")
        mask = ops.ones_like(token_ids) if mask is None else ops.cast(mask, "int32")
        length = ops.shape(token_ids)[1]
        goal = ops.maximum(ops.sum(mask, axis=1, keepdims=True) // self.context, 1)  # (B, 1)
        parts = [(slice(None), goal)]
        is_static = isinstance(length, int)  # as always on JAX
        if self.reuse_length is not None and not (is_static and length <= self.reuse_length):
            first, second = slice(0, self.reuse_length), slice(self.reuse_length, None)
            parts = [(first, goal - goal // 2), (second, goal // 2)]
        chosen, hidden = [], []
        for part, goal in parts:
            ids, real = token_ids[:, part], mask[:, part]
            is_text = text_tokens(ids, real, self.special_ids)
            is_target = self._targets(ids, real, is_text, goal, inputs.get("is_reversed"), draws)
            chosen.append(is_target)
            hidden.append(self._unseen(is_text, is_target, draws))
        is_target = ops.concatenate(chosen, axis=1)
        columns = ops.arange(length, dtype="int32")
        number = (
            max(length // self.context, 1) if is_static else ops.maximum(length // self.context, 1)
        )
        places = ops.sort(ops.where(is_target, columns, length), axis=1)[:, :number]  # (B, R)
        labels = ops.take_along_axis(token_ids, ops.minimum(places, length - 1), axis=1)
        targets = {
            "permutation_mask": _joined(hidden),
            "target_mapping": ops.cast(ops.equal(places[:, :, None], columns), "float32"),
        }
        return inputs | targets, ops.where(places < length, labels, IGNORED)

    def _targets(self, ids, mask, is_text, goal, is_reversed, draws):
        """Return which tokens (B, S) are targets, `goal` (B, 1) of each row."""

        def turned(x):
            if is_reversed is None:
                return x
            return ops.where(ops.expand_dims(is_reversed, 1) > 0, ops.flip(x, axis=1), x)

        ids, mask, is_text = turned(ids), turned(mask), turned(is_text)
        starts = ops.equal(mask, 1)
        if self.tokenizer is not None:
            words = word_starts(ids, self.tokenizer.begins_word, self.tokenizer.ends_word)
            starts = ops.logical_and(starts, words)
        shape = ops.shape(ids)
        lengths = draws.uniform(shape)[..., None] >= self.length_bounds
        lengths = 1 + ops.sum(ops.cast(lengths, "int32"), axis=-1)  # (B, S), of the n-th span
        taken = choose_spans(
            starts, mask, is_text, goal, lengths, draws.uniform(shape), self.context
        )
        # What is chosen comes first, then other tokens of the text, shuffled.
        order = ops.where(taken, -1.0, ops.where(is_text, draws.uniform(shape), 2.0))
        rank = ops.argsort(ops.argsort(order, axis=1), axis=1)
        return turned(ops.logical_and(is_text, rank < goal))

    def _unseen(self, is_text, is_target, draws):
        """Return which tokens (B, S, S) the tokens of a part do not see in it, bool."""
        columns = ops.arange(ops.shape(is_text)[1], dtype="int32")
        block = columns // (self.permutation_length or ops.shape(is_text)[1])
        key = ops.cast(block, "float32") + draws.uniform(ops.shape(is_text))
        order = ops.cast(ops.argsort(ops.argsort(key, axis=1), axis=1), "int32")
        is_known = ops.logical_and(is_text, ops.logical_not(is_target))
        order = ops.where(is_known, -1, order)
        # Special tokens see themselves, targets do not; what is known sees nothing that is not.
        own = ops.where(is_target, order, order + 1)
        later = ops.expand_dims(own, 2) <= ops.expand_dims(order, 1)
        return ops.logical_and(later, ops.expand_dims(ops.logical_not(is_known), 1))

    def loss(self) -> MaskedCrossentropy:
        return MaskedCrossentropy()

    def metrics(self) -> list[keras.metrics.Metric]:
        return [Perplexity(), MaskedAccuracy()]


def choose_spans(starts, mask, is_text, goal, lengths, chance, context):
    """Choose spans of tokens from left to right, until `goal` tokens of the text are chosen.

    A span of n tokens takes up n · `context` others, of which a random part is before it, and moves
    on to the start of a word. One that would reach the row's last token is the end.

    Args:
        starts, mask, is_text: (B, S). Which tokens begin a word, are real, and are text.
        goal: (B, 1) int32.
        lengths, chance: (B, S) int32, and in [0, 1): of the n-th span of a row its length, and the
            share of its context that is before it.
        context: int.

    Returns:
        (B, S) bool, which tokens of the text are chosen.
    """
    length = ops.shape(mask)[1]
    columns = ops.arange(length, dtype="int32")[None]
    last = ops.max(mask * (columns + 1), axis=1, keepdims=True)  # (B, 1), of the real tokens
    begin = ops.sort(ops.where(starts, columns, length), axis=1)
    begin = ops.pad(begin, [[0, 0], [0, 1]], constant_values=length)
    earlier = ops.cumsum(ops.cast(starts, "int32"), axis=1) - ops.cast(starts, "int32")
    next_start = ops.take_along_axis(begin, earlier, axis=1)  # (B, S): at a place or after it

    def goes_on(visited, place, taken, number):
        is_open = ops.logical_and(place < last, number < goal)
        return ops.logical_and(visited < length, ops.any(is_open))

    def visit(visited, place, taken, number):
        size = ops.minimum(ops.take(lengths, visited, axis=1)[:, None], goal - number)  # (B, 1)
        around = size * context
        share = ops.take(chance, visited, axis=1)[:, None]
        before = ops.cast(share * ops.cast(around, "float32"), "int32")
        start = place + before
        first = ops.take_along_axis(next_start, ops.minimum(start, length - 1), axis=1)
        end = ops.where(start < length, first, length) + size
        fits = end < last
        run = ops.logical_and(columns >= end - size, columns < end)
        run = ops.logical_and(is_text, ops.logical_and(run, fits))
        place = ops.where(fits, end + around - before, length)
        return (
            visited + 1,
            place,
            ops.logical_or(taken, run),
            number + ops.sum(ops.cast(run, "int32"), axis=1, keepdims=True),
        )

    before = ops.equal(ops.cumsum(mask, axis=1), 0)
    place = ops.sum(ops.cast(before, "int32"), axis=1, keepdims=True)  # the first real token
    state = (0, place, ops.zeros_like(is_text), ops.zeros_like(place))
    return ops.while_loop(goes_on, visit, state)[2]


def _joined(hidden):
    """Return int32 (B, S, S) of what is unseen in a row, or in its two parts."""
    first, *second = (ops.cast(x, "int32") for x in hidden)
    if not second:
        return first
    (second,) = second
    after = ops.ones_like(ops.matmul(first[:, :, :1], second[:, :1]))
    before = ops.transpose(ops.zeros_like(after), (0, 2, 1))
    rows = [
        ops.concatenate([first, after], axis=2),
        ops.concatenate([before, second], axis=2),
    ]
    return ops.concatenate(rows, axis=1)
