"""Choosing answers by their likelihood.

Shapes: B contexts, C choices.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_lm.tasks.causal_lm import CausalLM

NORMALIZATIONS = ("tokens", "unconditional", None)


def choose(
    task: CausalLM,
    contexts: Sequence[str],
    choices: Sequence[Any],
    normalization: str = "tokens",
    answer_context: str = "Answer:",
    batch_size: int = 8,
    verbose: int | str = "auto",
) -> dict[str, Any]:
    """Choose for each context the continuation that a language model finds likeliest.

    Args:
        task: `keras_lm.tasks.CausalLM`.
        contexts: list of B strings.
        choices: list of B lists of strings, each with the space before it.
        normalization: compensates for the length or frequency of choices. `"tokens"` divides a
            log-likelihood by its number of tokens; `"unconditional"` divides the likelihood by that
            after `answer_context`, as GPT-3 does for ARC, OpenBookQA and RACE; None does neither.
        answer_context: str, for `"unconditional"`: a neutral context before an answer.
        batch_size: int, contexts at a time.
        verbose: see `Task.answer_all`; a second bar for `"unconditional"`.

    Returns:
        dict of numpy arrays: `labels` (B,), the position of the best choice; `scores` (B, C), a
        softmax over the normalized values; and `log_likelihoods` and `num_tokens` (B, C), before
        normalization. Rows with fewer choices are padded with 0, and -inf for log-likelihoods.

    Raises:
        ValueError: if `normalization` is unknown, or as `CausalLM.score_continuations` does.

    Example:
        choose(task, ["The capital of France is"], [[" Paris", " Rome"]])["labels"]

    Source: GPT-3, https://arxiv.org/abs/2005.14165, section 2.4.
    """
    if normalization not in NORMALIZATIONS:
        raise ValueError(f"normalization={normalization!r}: use one of {NORMALIZATIONS}.")
    found = task.score_continuations(contexts, choices, batch_size, verbose)
    is_choice = found["num_tokens"] > 0
    compared = found["scores"]
    if normalization == "tokens":
        compared = compared / np.maximum(found["num_tokens"], 1)
    elif normalization == "unconditional":
        rows = [tuple(row) for row in choices]
        different = list(dict.fromkeys(rows))
        alone = task.score_continuations(
            [answer_context] * len(different), [list(row) for row in different], batch_size, verbose
        )["scores"]
        alone = alone[[different.index(row) for row in rows]]
        compared = np.where(is_choice, compared - np.where(is_choice, alone, 0.0), -np.inf)
    return compare(compared, found)


def compare(compared, found):
    """Return the result of `choose` for scores (B, C) to compare, -inf if there is no choice."""
    odds = np.exp(compared - compared.max(axis=1, keepdims=True))
    return {
        "labels": compared.argmax(axis=1),
        "scores": (odds / odds.sum(axis=1, keepdims=True)).astype("float32"),
        "log_likelihoods": found["scores"],
        "num_tokens": found["num_tokens"],
    }
