"""Masking of runs of whole words. Shapes: B batch, S sequence, W = S places for words."""

from typing import Any

import numpy as np
from keras import ops

from keras_lm.argument_types import Shape, Tensor
from keras_lm.objectives.masked_lm import MaskedLanguageModel
from keras_lm.objectives.whole_words import choose_runs


class MaskedRuns(MaskedLanguageModel):
    """Masking of runs of whole words; a subclass defines the probabilities of their lengths.

    Args:
        longest: int. The maximum number of words in a run.
        **arguments: see `MaskedLanguageModel`; it needs a tokenizer, which knows the words.

    Raises:
        ValueError: if `longest` is not positive; see also `MaskedLanguageModel`.
    """

    # Whether runs may overlap, and then become one. Adjacent runs are always allowed.
    overlap = False

    def __init__(self, longest: int, **arguments: Any):
        if longest < 1 or longest % 1:
            raise ValueError(f"longest={longest}: pass an int, 1 or more.")
        weights = np.array([self.weight(words) for words in range(1, longest + 1)])
        self.length_shares = weights / weights.sum()
        super().__init__(whole_words=True, **arguments)

    def weight(self, words: int) -> float:
        """Return the relative probability of a run of `words` words."""
        raise NotImplementedError(f"{type(self).__name__} must define weight.")

    def choose(self, token_ids, maskable, wanted, draws):
        shape = ops.shape(token_ids)
        chance, lengths = draws.uniform(shape), self.draw_lengths(shape, draws)
        starts = self.word_starts(token_ids)
        return choose_runs(starts, maskable, wanted, chance, lengths, self.overlap)

    def draw_lengths(self, shape: Shape, draws: Tensor) -> Tensor:
        """Return the lengths, in words, of the runs that would begin at each word, (B, W) int32."""
        chance = draws.uniform(shape)[..., None]
        bounds = np.cumsum(self.length_shares)[:-1].astype("float32")
        return 1 + ops.sum(ops.cast(chance >= bounds, "int32"), axis=-1)
