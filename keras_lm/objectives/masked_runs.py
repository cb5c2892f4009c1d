"""Masking of runs of whole words: SpanBERT's spans, ALBERT's n-grams.

Shapes: B batch, S sequence, W = S places for words, M masked positions.
"""

import string
from typing import Any

import numpy as np
from keras import ops

from keras_lm.objectives.masked_lm import MaskedLanguageModel
from keras_lm.objectives.objective import register_objective
from keras_lm.objectives.whole_words import choose_runs, word_starts
from keras_lm.tokenizers.sentence_piece import SentencePieceTokenizer
from keras_lm.tokenizers.sentence_piece_model import MARKS
from keras_lm.utils.argument_types import Shape, Tensor


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

    def choose(
        self, token_ids: Tensor, maskable: Tensor, wanted: Tensor, draws: Any
    ) -> tuple[Tensor, Tensor]:
        shape = ops.shape(token_ids)
        chance, lengths = draws.uniform(shape), self.draw_lengths(shape, draws)
        starts = self.word_starts(token_ids)
        return choose_runs(starts, maskable, wanted, chance, lengths, self.overlap)

    def draw_lengths(self, shape: Shape, draws: Tensor) -> Tensor:
        """Return the lengths, in words, of the runs that would begin at each word, (B, W) int32."""
        chance = draws.uniform(shape)[..., None]
        bounds = np.cumsum(self.length_shares)[:-1].astype("float32")
        return 1 + ops.sum(ops.cast(chance >= bounds, "int32"), axis=-1)


@register_objective
class MaskedSpans(MaskedRuns):
    """SpanBERT's masking: spans of whole words, of 3.8 words on average.

    Lengths in words follow a geometric distribution, cut at the longest. Spans begin at any word
    that is not masked yet; those that overlap or touch become one. ⌈rate · length⌉ tokens are
    masked, or fewer if no further word fits. The tokens of a span are all masked, all replaced by
    random tokens, or all left unchanged.

    Args:
        geometric_p: float in (0, 1]. The probability that a span ends after each word.
        longest: int. The maximum number of words in a span.
        **arguments: see `MaskedLanguageModel`; it needs a tokenizer, which knows the words. The
            authors draw random tokens by their frequency in the corpus: `token_counts=…`.

    Raises:
        ValueError: if `geometric_p` is not in (0, 1], or `longest` not positive; see also
            `MaskedLanguageModel`.

    Example:

        objectives = [MaskedSpans(), SpanBoundary()]
        task = keras_lm.tasks.Pretrainer(backbone, objectives, tokenizer=tokenizer)

    Source: https://arxiv.org/abs/1907.10529, section 3.1; facebookresearch/SpanBERT,
    `fairseq/data/masking.py`, which cuts a last word that exceeds the budget.
    """

    overlap = True

    def __init__(self, geometric_p: float = 0.2, longest: int = 10, **arguments: Any):
        if not 0 < geometric_p <= 1:
            raise ValueError(f"geometric_p={geometric_p}: pass a number above 0 and at most 1.")
        self.geometric_p = geometric_p
        super().__init__(longest, **arguments)

    def weight(self, words: int) -> float:
        return (1 - self.geometric_p) ** (words - 1)

    def budget(self, available: Tensor) -> Tensor:
        return ops.ceil(self.rate * available - 1e-4)

    def draw_fates(self, positions: Tensor, draws: Tensor) -> Tensor:
        # Chosen positions are in order: one that is not next to the last begins a span.
        begins = ops.not_equal(positions[:, 1:], positions[:, :-1] + 1)
        span = ops.pad(ops.cumsum(ops.cast(begins, "int32"), axis=1), [[0, 0], [1, 0]])  # (B, M)
        return ops.take_along_axis(draws.uniform(ops.shape(positions)), span, axis=1)


@register_objective
class MaskedNGrams(MaskedRuns):
    """ALBERT's masking: up to three whole words in a row, n of them with probability ∝ 1 / n.

    An n-gram that would exceed the row's budget is cut to the words that fit, and one that overlaps
    another is skipped. As in the authors' code, two n-grams may be adjacent, so some masked runs
    are longer than `longest`; and a piece of SentencePiece begins a word if it has the mark of a
    space, is a punctuation mark, or has any character but English letters and these.

    Args:
        longest: int. The maximum number of words in an n-gram.
        **arguments: see `MaskedLanguageModel`; it needs a tokenizer, which knows the words.

    Raises:
        ValueError: if `longest` is not positive; see also `MaskedLanguageModel`.

    Example:

        objectives = [MaskedNGrams(), SentenceOrder()]
        task = keras_lm.tasks.Pretrainer(backbone, objectives, tokenizer=tokenizer)

    Source: https://arxiv.org/abs/1909.11942, section 4.1; google-research/albert,
    `create_pretraining_data.py`.
    """

    def __init__(self, longest: int = 3, **arguments: Any):
        super().__init__(longest, **arguments)

    def set_tokenizer(self, tokenizer: Any) -> None:
        super().set_tokenizer(tokenizer)
        self._begins_word = None if tokenizer is None else tokenizer.begins_word
        if isinstance(tokenizer, SentencePieceTokenizer):
            known = MARKS.union(string.ascii_letters)
            self._begins_word = self._begins_word | [
                not known.issuperset(t) for t in tokenizer.vocabulary
            ]

    def word_starts(self, token_ids: Tensor) -> Tensor:
        return word_starts(token_ids, self._begins_word, self.tokenizer.ends_word)

    def weight(self, words: int) -> float:
        return 1 / words
