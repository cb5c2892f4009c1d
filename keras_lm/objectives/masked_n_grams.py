"""ALBERT's masking: n-grams of whole words."""

from typing import Any

from keras_lm.objectives.masked_runs import MaskedRuns
from keras_lm.objectives.objective import register_objective


@register_objective
class MaskedNGrams(MaskedRuns):
    """ALBERT's masking: up to three whole words in a row, n of them with probability ∝ 1 / n.

    An n-gram that would exceed the row's budget is cut to the words that fit, and one that overlaps
    another is skipped. As in the authors' code, two n-grams may be adjacent, so some masked runs
    are longer than `longest`.

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

    def weight(self, words):
        return 1 / words
