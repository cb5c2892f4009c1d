"""Masked language modelling. Shapes: B batch, S sequence, M masked positions, V vocabulary."""

import keras
from keras import ops

from keras_lm.objectives.objective import (
    IGNORED,
    MaskedAccuracy,
    MaskedCrossentropy,
    Objective,
    register_objective,
)
from keras_lm.objectives.whole_words import choose_words, word_starts


@register_objective
class MaskedLanguageModel(Objective):
    """BERT's masking: of 15 % of the tokens, 80 % become `[MASK]`, 10 % any token, 10 % stay.

    The masked positions are a (B, M) tensor with M = ⌈rate · S⌉, so shapes stay static and the
    model projects only these onto its vocabulary. Arguments that are not given come from the task's
    tokenizer.

    Args:
        mask_id: int. Id of the mask token.
        vocabulary_size: int. V; random tokens are drawn from all of it.
        special_ids: list of int. Tokens that are never masked; by default all special tokens of the
            tokenizer except the unknown token.
        rate: float in (0, 1]. Fraction of a row's tokens that are masked; at least one per row.
        whole_words: bool. Mask all tokens of a word or none; needs a tokenizer. A word that exceeds
            the rest of the row's budget is skipped.
        seed: int, for training; evaluation always uses the same masks for the same batch shape.

    Raises:
        ValueError: if `rate` is not in (0, 1].

    Source: https://arxiv.org/abs/1810.04805, section 3.1, task 1, and section A.1; whole words:
    google-research/bert, `create_pretraining_data.py`.
    """

    heads = {"token_logits": "token"}

    def __init__(
        self,
        mask_id=None,
        vocabulary_size=None,
        special_ids=None,
        rate=0.15,
        whole_words=False,
        seed=None,
    ):
        if not 0 < rate <= 1:
            raise ValueError(f"rate={rate} is not in (0, 1].")
        self.given = (mask_id, vocabulary_size, special_ids)
        self.rate = rate
        self.whole_words = whole_words
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.set_tokenizer(None)

    def set_tokenizer(self, tokenizer):
        self.tokenizer = tokenizer
        self.mask_id, self.vocabulary_size, self.special_ids = self.given
        if tokenizer is None:
            return
        if self.mask_id is None:
            self.mask_id = tokenizer.special_id("mask")
        if self.vocabulary_size is None:
            self.vocabulary_size = tokenizer.vocabulary_size
        if self.special_ids is None:
            roles = set(tokenizer.special_tokens) - {"unknown"}
            self.special_ids = sorted({tokenizer.special_id(role) for role in roles})

    def corrupt(self, inputs, training=True):
        """Mask tokens at `mask_positions` (B, M), and return their ids as labels, or `IGNORED`.

        Raises:
            ValueError: if there is no tokenizer to tell what was not given.
        """
        self._check()
        seeds = [self.seed_generator] * 3 if training else [0, 1, 2]
        token_ids, mask = inputs["token_ids"], inputs["padding_mask"]
        maskable = ops.equal(mask, 1)
        for special_id in self.special_ids:
            maskable = ops.logical_and(maskable, ops.not_equal(token_ids, special_id))
        shape = ops.shape(token_ids)
        length = ops.cast(shape[1], "float32")
        # Minus a little: in float32, 0.15 times 100 is more than 15.
        number = ops.cast(ops.ceil(self.rate * length - 1e-4), "int32")  # M
        available = ops.sum(ops.cast(maskable, "float32"), axis=-1, keepdims=True)  # (B, 1)
        wanted = ops.minimum(ops.maximum(ops.round(self.rate * available), 1.0), available)

        # `columns` (B, S): all places, the chosen ones first.
        chance = keras.random.uniform(shape, seed=seeds[0])
        if self.whole_words:
            starts = word_starts(token_ids, self.tokenizer.begins_word, self.tokenizer.ends_word)
            columns, wanted = choose_words(starts, maskable, wanted, chance)
        else:
            columns = ops.argsort(ops.where(maskable, chance, 2.0), axis=-1)
        positions = ops.cast(columns[:, :number], "int32")  # (B, M)
        chosen = ops.cast(ops.arange(number), "float32")[None, :] < wanted  # (B, M)
        originals = ops.take_along_axis(token_ids, positions, axis=1)
        labels = ops.where(chosen, originals, IGNORED)

        fate = keras.random.uniform(ops.shape(positions), seed=seeds[1])
        anything = keras.random.randint(
            ops.shape(positions), 0, self.vocabulary_size, dtype="int32", seed=seeds[2]
        )
        replacement = ops.where(
            fate < 0.8, self.mask_id, ops.where(fate < 0.9, anything, originals)
        )
        replacement = ops.where(chosen, replacement, originals)
        rank = ops.argsort(columns, axis=-1)  # (B, S): where in the order each column stands
        replaced = ops.take_along_axis(replacement, ops.minimum(rank, number - 1), axis=1)
        token_ids = ops.where(rank < number, replaced, token_ids)
        return inputs | {"token_ids": token_ids, "mask_positions": positions}, labels

    def _check(self):
        names = ["mask_id", "vocabulary_size", "special_ids"] + ["tokenizer"] * self.whole_words
        missing = [name for name in names if getattr(self, name) is None]
        if missing:
            raise ValueError(
                f"MaskedLanguageModel has no {', '.join(missing)}: give the task a tokenizer."
            )

    def loss(self):
        return MaskedCrossentropy()

    def metrics(self):
        return [MaskedAccuracy()]
