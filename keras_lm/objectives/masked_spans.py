"""SpanBERT's masking: spans of whole words. Shapes: B batch, M masked positions."""

from typing import Any

from keras import ops

from keras_lm.objectives.masked_runs import MaskedRuns
from keras_lm.objectives.objective import register_objective


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

    def weight(self, words):
        return (1 - self.geometric_p) ** (words - 1)

    def budget(self, available):
        return ops.ceil(self.rate * available - 1e-4)

    def draw_fates(self, positions, draws):
        # Chosen positions are in order: one that is not next to the last begins a span.
        begins = ops.not_equal(positions[:, 1:], positions[:, :-1] + 1)
        span = ops.pad(ops.cumsum(ops.cast(begins, "int32"), axis=1), [[0, 0], [1, 0]])  # (B, M)
        return ops.take_along_axis(draws.uniform(ops.shape(positions)), span, axis=1)
