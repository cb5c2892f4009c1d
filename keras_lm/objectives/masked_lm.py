"""Masked language modelling: hide some tokens and predict them.

Shapes: B batch, S sequence, M masked positions, V vocabulary.
"""

import keras
from keras import ops

from keras_lm.objectives.losses import IGNORED, MaskedAccuracy, MaskedCrossentropy


class MaskedLanguageModel:
    """BERT's corruption: of 15 % of the tokens, 80 % become `[MASK]`, 10 % any token, 10 % stay.

    The masked positions come as a (B, M) tensor with M = ⌈rate · S⌉, so that shapes stay static and
    the model projects only these onto its vocabulary.

    Args:
        mask_id: int. Id of the mask token.
        vocabulary_size: int. V; random tokens come from all of it.
        special_ids: list of int. Tokens that are never masked.
        rate: float. Share of a row's tokens that are masked; at least one of each row.
        seed: int, for training; evaluation always uses the same masks for the same batch shape.

    Raises:
        ValueError: if `rate` is not in (0, 1].

    Source: https://arxiv.org/abs/1810.04805, section 3.1, task 1, and section A.1.
    """

    head = "token_logits"

    def __init__(self, mask_id, vocabulary_size, special_ids, rate=0.15, seed=None):
        if not 0 < rate <= 1:
            raise ValueError(f"rate={rate} is not in (0, 1].")
        self.mask_id = mask_id
        self.vocabulary_size = vocabulary_size
        self.special_ids = list(special_ids)
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator(seed)

    def corrupt(self, inputs, training=True):
        """Mask a batch.

        Args:
            inputs: packed dict of (B, S) int32.
            training: bool. False uses a fixed seed.

        Returns:
            `(inputs, labels)`: the dict with corrupted `token_ids` and with `mask_positions` (B,
            M); labels (B, M), the original ids, `IGNORED` where a row has fewer than M.
        """
        seeds = [self.seed_generator] * 3 if training else [0, 1, 2]
        token_ids, mask = inputs["token_ids"], inputs["padding_mask"]
        maskable = ops.equal(mask, 1)
        for special_id in self.special_ids:
            maskable = ops.logical_and(maskable, ops.not_equal(token_ids, special_id))

        shape = ops.shape(token_ids)
        order_of_choice = ops.where(maskable, keras.random.uniform(shape, seed=seeds[0]), 2.0)
        columns = ops.argsort(order_of_choice, axis=-1)  # (B, S): random order, the rest last
        length = ops.cast(shape[1], "float32")
        # Less a little: in float32 the product of 0.15 and 100 is more than 15.
        number = ops.cast(ops.ceil(self.rate * length - 1e-4), "int32")  # M
        positions = ops.cast(columns[:, :number], "int32")  # (B, M)

        available = ops.sum(ops.cast(maskable, "float32"), axis=-1, keepdims=True)  # (B, 1)
        wanted = ops.minimum(ops.maximum(ops.round(self.rate * available), 1.0), available)
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

    def loss(self):
        """Return the loss of the head that this objective trains."""
        return MaskedCrossentropy()

    def metrics(self):
        """Return its metrics."""
        return [MaskedAccuracy()]
