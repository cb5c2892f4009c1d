"""Masked language modelling.

Shapes: B batch, S sequence, M masked positions, V vocabulary, K numbers a row.
"""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.layers.masks import IGNORED
from keras_lm.objectives.objective import (
    Draws,
    MaskedAccuracy,
    MaskedCrossentropy,
    Objective,
    register_objective,
)
from keras_lm.objectives.whole_words import choose_words, word_starts
from keras_lm.utils.argument_types import Tensor
from keras_lm.utils.user_arguments import checks_flags


def positive(weights):
    """Return float32 weights around 1, if all are positive."""
    weights = np.asarray(weights, "float64")
    fits = weights.ndim == 1 and weights.size and np.isfinite(weights).all()
    if not (fits and (weights > 0).all()):
        raise ValueError(
            f"token_weights of shape {weights.shape}: pass V numbers above 0, with the shape (V,)."
        )
    return (weights / np.exp(np.log(weights).mean())).astype("float32")


def weighted(chance, weights, token_ids):
    """Return (B, S) numbers below 1 whose order samples by weight (V,), without replacement.

    They are exponential waiting times with the weights as rates, so token i is first with the
    probability of its share, and so on. Source: Efraimidis and Spirakis 2006, "Weighted random
    sampling with a reservoir".
    """
    rates = ops.take(ops.convert_to_tensor(weights), token_ids, axis=0)
    times = -ops.log1p(-chance) / rates  # in [0, 17 ÷ weight]; 0 for the chance 0
    return times / (1.0 + times)


def cumulative_shares(counts):
    """Return the cumulative shares (V,) of counts, float32, if there are any."""
    counts = np.asarray(counts, "float64")
    if counts.ndim != 1 or not (counts >= 0).all() or not 0 < counts.sum() < np.inf:
        raise ValueError(
            f"token_counts of shape {counts.shape}: pass V numbers from 0, not all of them 0, with "
            "the shape (V,)."
        )
    # In float32 the last share may be a little below 1, where a random number would find no token.
    last = np.flatnonzero(counts)[-1]
    shares = counts.cumsum() / counts.sum()
    shares[last:] = 1.0
    return shares.astype("float32")


def drawn_by(shares, chance):
    """Return tokens, of the shape of `chance`, by cumulative shares (V,): int32."""
    shares = ops.convert_to_tensor(shares, "float32")
    tokens = ops.searchsorted(shares, ops.reshape(chance, (-1,)), side="right")
    return ops.reshape(ops.cast(tokens, "int32"), ops.shape(chance))


def static_draws(token_ids, mask, number, seed_generator=None):
    """Return the draws for one of a `number` of masks of each text (B, S), one at random.

    Without a seed generator, they are those of the first mask.
    """
    if seed_generator is None:
        return DrawsOfText(token_ids, mask, 0)
    # The seed itself, which a training checkpoint has, and not the state, which changes.
    seed = ops.cast(seed_generator.state[0], "uint32") * number
    which = keras.random.randint((ops.shape(token_ids)[0], 1), 0, number, seed=seed_generator)
    return DrawsOfText(token_ids, mask, seed + ops.cast(which, "uint32"))


class DrawsOfText:
    """Random numbers (B, K) that only depend on the tokens of their row and a seed.

    So a text has the same numbers in each epoch, whatever else is in its batch, and however long
    the batch is, if rows are padded at the end.

    Args:
        token_ids, mask: (B, S) int, the rows and which of their tokens are real.
        seeds: int, or (B, 1); other seeds give other numbers.
    """

    def __init__(self, token_ids, mask, seeds):
        ids = ops.cast(token_ids, "uint32")
        places = ops.cast(ops.arange(1, ops.shape(ids)[1] + 1), "uint32")[None]
        tokens = _mix(_mix(ids) + places) * ops.cast(ops.not_equal(mask, 0), "uint32")
        self.keys = _mix(ops.sum(tokens, axis=1, keepdims=True) + _mix(seeds))  # (B, 1)

    def _bits(self, shape):
        self.keys = _mix(self.keys + 1)
        return _mix(self.keys + _mix(ops.arange(shape[1])[None]))

    def uniform(self, shape):
        """Return float32 numbers in [0, 1)."""
        return ops.cast(ops.right_shift(self._bits(shape), 8), "float32") * 2.0**-24

    def integers(self, shape, stop):
        """Return int32 numbers in [0, stop)."""
        return ops.cast(self._bits(shape) % stop, "int32")


def _mix(x):
    """Hash `x` to uint32 of the same shape, every bit of which depends on every bit of `x`.

    Source: C. Wellons, "Prospecting for hash functions", `lowbias32`,
    https://nullprogram.com/blog/2018/07/31/
    """
    x = ops.cast(x, "uint32")
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ops.bitwise_xor(x, ops.right_shift(x, shift)) * ops.cast(factor, "uint32")
    return ops.bitwise_xor(x, ops.right_shift(x, 16))


@register_objective
class MaskedLanguageModel(Objective):
    """BERT's masking: of 15 % of the tokens, 80 % become `[MASK]`, 10 % a random token, 10 % stay.

    The masked positions are a (B, M) tensor with M = ⌈rate · S⌉, so shapes are static, and the
    model projects only these positions onto its vocabulary. Missing arguments are taken from the
    task's tokenizer. ELECTRA's generator has `mask_share=0.85, random_share=0.0`. To choose other
    tokens, override `choose`; to replace them differently, override `draw_fates`; see
    `MaskedNGrams` and `MaskedSpans`.

    Args:
        mask_id: int. Id of the mask token.
        vocabulary_size: int. V; random tokens are drawn from all of it.
        special_ids: list of int. Tokens that are never masked; by default all special tokens of the
            tokenizer except the unknown token.
        rate: float in (0, 1]. Fraction of a row's tokens that are masked; at least one per row.
        whole_words: bool. Mask all tokens of a word or none; needs a tokenizer. A word that exceeds
            the rest of the row's budget is skipped.
        seed: int, for training; evaluation always uses the same masks for the same batch shape.
        mask_share, random_share: floats with a sum of at most 1. The shares of the chosen tokens
            that become the mask token and a random token; the rest does not change.
        token_counts: (V,) how often each token occurs in the corpus. Random tokens are drawn with
            these frequencies, as in SpanBERT; by default all tokens are equally likely.
        token_weights: (V,) relative weights with which tokens are chosen for masking; by default
            they are equal. DistilBERT masks rare tokens more often, by
            `np.maximum(counts, 1) ** -0.7`.
        masks_per_text: int. Static masking: the number of different masks of a text, which are the
            same in every epoch; each step uses one of them at random. By default, every step makes
            new masks. BERT's data had 10, also in RoBERTa's comparison. Evaluation always uses the
            first.

    Raises:
        ValueError: if `rate` is not in (0, 1]; a share is negative, or their sum exceeds 1;
            `token_counts` or `token_weights` do not fit the vocabulary, or the latter are passed
            for whole words; `masks_per_text` is not a positive int; or the tokenizer has no mask
            token.

    Source: https://arxiv.org/abs/1810.04805, section 3.1, task 1, and section A.1; whole words:
    google-research/bert, `create_pretraining_data.py`; ELECTRA's shares: google-research/electra,
    `pretrain/pretrain_helpers.py`; static masking: https://arxiv.org/abs/1907.11692, section 4.1;
    weights: DistilBERT's `distiller.py`, which draws for a batch as a whole and not for each row.
    """

    heads = {"token_logits": "token"}
    row_names = ("mask_positions", "mask_labels")

    @checks_flags
    def __init__(
        self,
        mask_id: int | None = None,
        vocabulary_size: int | None = None,
        special_ids: Sequence[int] | None = None,
        rate: float = 0.15,
        whole_words: bool = False,
        seed: int | None = None,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        token_counts: Sequence[float] | None = None,
        token_weights: Sequence[float] | None = None,
        masks_per_text: int | None = None,
    ):
        if not 0 < rate <= 1:
            raise ValueError(f"rate={rate}: pass a number above 0 and at most 1.")
        if min(mask_share, random_share) < 0 or mask_share + random_share > 1:
            raise ValueError(
                f"mask_share={mask_share} and random_share={random_share}: pass numbers from 0 "
                "with a sum of at most 1."
            )
        if masks_per_text is not None and (masks_per_text < 1 or masks_per_text % 1):
            raise ValueError(
                f"masks_per_text={masks_per_text}: pass an int, 1 or more, or None for new masks "
                "in every step."
            )
        self.given = (mask_id, vocabulary_size, special_ids)
        self.rate = rate
        self.whole_words = whole_words
        self.mask_share, self.random_share = mask_share, random_share
        if whole_words and token_weights is not None:
            raise ValueError(
                "token_weights choose tokens, and whole_words=True words: leave one of them out."
            )
        self.token_shares = None if token_counts is None else cumulative_shares(token_counts)
        self.token_weights = None if token_weights is None else positive(token_weights)
        self.masks_per_text = masks_per_text
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.set_tokenizer(None)

    def set_tokenizer(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.mask_id, self.vocabulary_size, self.special_ids = self.given
        if tokenizer is not None:
            if self.mask_id is None:
                self.mask_id = _mask_id(tokenizer)
            if self.vocabulary_size is None:
                self.vocabulary_size = tokenizer.vocabulary_size
            if self.special_ids is None:
                self.special_ids = special_ids(tokenizer)
        size = self.vocabulary_size
        given = {"token_counts": self.token_shares, "token_weights": self.token_weights}
        for name, numbers in given.items():
            if numbers is not None and size is not None and len(numbers) != size:
                raise ValueError(
                    f"{name} has {len(numbers)} numbers for a vocabulary of {size}: pass one for "
                    "each token."
                )

    def corrupt(
        self, inputs: dict[str, Tensor], training: bool | None = True
    ) -> tuple[dict[str, Tensor], Any]:
        """Mask tokens at `mask_positions` (B, M), and return their ids as labels, or `IGNORED`.

        The labels are also in the inputs, as `mask_labels`, for objectives that come after.

        Raises:
            ValueError: if an argument is missing, and the task has no tokenizer.
        """
        self._check()
        token_ids, mask = inputs["token_ids"], inputs["padding_mask"]
        maskable = text_tokens(token_ids, mask, self.special_ids)
        draws = self._draws(token_ids, mask, training)
        length = ops.shape(token_ids)[1]
        # Subtract a little, since in float32, 0.15 times 100 is more than 15.
        if isinstance(length, int):  # JAX slices by static numbers only
            number = math.ceil(self.rate * length - 1e-4)  # M
        else:
            number = ops.ceil(self.rate * ops.cast(length, "float32") - 1e-4)
            number = ops.cast(number, "int32")
        available = ops.sum(ops.cast(maskable, "float32"), axis=-1, keepdims=True)  # (B, 1)
        wanted = ops.minimum(ops.maximum(self.budget(available), 1.0), available)

        columns, wanted = self.choose(token_ids, maskable, wanted, draws)
        positions = ops.cast(columns[:, :number], "int32")  # (B, M)
        chosen = ops.cast(ops.arange(number), "float32")[None, :] < wanted  # (B, M)
        originals = ops.take_along_axis(token_ids, positions, axis=1)
        labels = ops.where(chosen, originals, IGNORED)

        fate = self.draw_fates(positions, draws)
        anything = self._draw_tokens(ops.shape(positions), draws)
        changed = self.mask_share + self.random_share
        replacement = ops.where(fate < changed, anything, originals)
        replacement = ops.where(fate < self.mask_share, self.mask_id, replacement)
        replacement = ops.where(chosen, replacement, originals)
        rank = ops.argsort(columns, axis=-1)  # (B, S): the place of each column in the order
        replaced = ops.take_along_axis(replacement, ops.minimum(rank, number - 1), axis=1)
        token_ids = ops.where(rank < number, replaced, token_ids)
        masked = {"token_ids": token_ids, "mask_positions": positions, "mask_labels": labels}
        return inputs | masked, labels

    # === For subclasses to override ===

    def budget(self, available: Tensor) -> Tensor:
        """Return how many of the `available` (B, 1) tokens to mask at most, float32."""
        return ops.round(self.rate * available)

    def choose(
        self, token_ids: Tensor, maskable: Tensor, wanted: Tensor, draws: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Choose up to `wanted` (B, 1) of the tokens that are `maskable` (B, S).

        Returns all columns of each row (B, S), the chosen ones first, and how many these are,
        (B, 1) float32.
        """
        chance = draws.uniform(ops.shape(token_ids))
        if self.whole_words:
            return choose_words(self.word_starts(token_ids), maskable, wanted, chance)
        if self.token_weights is not None:
            chance = weighted(chance, self.token_weights, token_ids)
        return ops.argsort(ops.where(maskable, chance, 2.0), axis=-1), wanted

    def word_starts(self, token_ids: Tensor) -> Tensor:
        return word_starts(token_ids, self.tokenizer.begins_word, self.tokenizer.ends_word)

    def draw_fates(self, positions: Tensor, draws: Tensor) -> Tensor:
        """Return numbers in [0, 1) for the tokens at positions (B, M).

        Numbers below `mask_share` mask a token, those in the next `random_share` replace it.
        """
        return draws.uniform(ops.shape(positions))

    # === Random numbers ===

    def _draws(self, token_ids, mask, training):
        generator = self.seed_generator if training else None
        if self.masks_per_text is None:
            return Draws(generator)
        return static_draws(token_ids, mask, self.masks_per_text, generator)

    def _draw_tokens(self, shape, draws):
        if self.token_shares is None:
            return draws.integers(shape, self.vocabulary_size)
        return drawn_by(self.token_shares, draws.uniform(shape))

    def _check(self):
        names = ["mask_id", "vocabulary_size", "special_ids"] + ["tokenizer"] * self.whole_words
        missing = [name for name in names if getattr(self, name) is None]
        if missing:
            raise ValueError(
                f"{type(self).__name__} has no {', '.join(missing)}: give the task a tokenizer."
            )

    def loss(self) -> MaskedCrossentropy:
        return MaskedCrossentropy()

    def metrics(self) -> list[keras.metrics.Metric]:
        return [MaskedAccuracy()]


def special_ids(tokenizer: Any) -> list[int]:
    """Return the ids of a tokenizer's special tokens, sorted, without the unknown token."""
    roles = set(tokenizer.special_tokens) - {"unknown"}
    return sorted({tokenizer.special_id(role) for role in roles})


def text_tokens(token_ids, mask, special):
    """Return which tokens (B, S) are neither padding nor special, (B, S) bool."""
    is_text = ops.equal(mask, 1)
    for special_id in special:
        is_text = ops.logical_and(is_text, ops.not_equal(token_ids, special_id))
    return is_text


def _mask_id(tokenizer: Any) -> int:
    if "mask" not in tokenizer.special_tokens:
        raise ValueError(
            f"{type(tokenizer).__name__} has no mask token, only {dict(tokenizer.special_tokens)}: "
            "create it with mask_token=…, an entry of its vocabulary, or pass mask_id=… to the "
            "objective, the id of an entry that does not occur in texts."
        )
    return tokenizer.special_id("mask")


class MasksByAnother:
    """A mixin before `Objective`: tokens are masked by a `MaskedLanguageModel`, `masking`."""

    masking: MaskedLanguageModel

    def set_tokenizer(self, tokenizer: Any) -> None:
        self.masking.set_tokenizer(tokenizer)

    def corrupt(
        self, inputs: dict[str, Tensor], training: bool | None = True
    ) -> tuple[dict[str, Tensor], Any]:
        """Mask tokens, see `MaskedLanguageModel.corrupt`."""
        return self.masking.corrupt(inputs, training)
