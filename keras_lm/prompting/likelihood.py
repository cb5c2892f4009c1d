"""Choosing answers by their likelihood.

Shapes: B contexts, C choices.
"""

from collections.abc import Callable, Iterable, Sequence
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
    scored = task.score_continuations(contexts, choices, batch_size, verbose)
    is_choice = scored["num_tokens"] > 0
    compared = scored["scores"]
    if normalization == "tokens":
        compared = compared / np.maximum(scored["num_tokens"], 1)
    elif normalization == "unconditional":
        rows = [tuple(row) for row in choices]
        different = list(dict.fromkeys(rows))
        alone = task.score_continuations(
            [answer_context] * len(different), [list(row) for row in different], batch_size, verbose
        )["scores"]
        alone = alone[[different.index(row) for row in rows]]
        compared = np.where(is_choice, compared - np.where(is_choice, alone, 0.0), -np.inf)
    return compare(compared, scored)


def compare(compared, scored):
    """Return the result of `choose` for scores (B, C) to compare, -inf if there is no choice."""
    odds = np.exp(compared - compared.max(axis=1, keepdims=True))
    return {
        "labels": compared.argmax(axis=1),
        "scores": (odds / odds.sum(axis=1, keepdims=True)).astype("float32"),
        "log_likelihoods": scored["scores"],
        "num_tokens": scored["num_tokens"],
    }


def perplexity(
    task: CausalLM,
    documents: Iterable[str],
    detokenizer: Callable[[str], str] | None = None,
    stride: int | None = None,
    batch_size: int = 8,
    verbose: int | str = "auto",
) -> dict[str, float]:
    """Return a language model's perplexity over a corpus, per token of the corpus.

    The model reads plain text in its own tokens, while published figures count those of the corpus:
    words, and the end of each line. The perplexity is the exponential of the negative total
    log-likelihood divided by their number.

    Args:
        task: `keras_lm.tasks.CausalLM`.
        documents: list of str, each scored by itself; a string is a single document.
        detokenizer: callable such as `wikitext` from a document to plain text; None for plain text.
        stride, batch_size, verbose: int; see `CausalLM.score`, which reads long documents in
            windows.

    Returns:
        dict of `perplexity`, `bits_per_byte` (of the documents as given), `log_likelihood` (the
        natural logarithm), `num_tokens` (words and ends of lines) and `num_model_tokens`.

    Raises:
        ValueError: if the documents have no words, or as `CausalLM.score` does.

    Example:
        perplexity(task, Path("wiki.test.tokens").read_text(), wikitext)["perplexity"]

    Source: GPT-2, "Language Models are Unsupervised Multitask Learners", section 3.1.
    """
    documents = [documents] if isinstance(documents, str) else list(documents)
    num_tokens = sum(len(text.split()) + text.count("\n") for text in documents)
    if not num_tokens:
        raise ValueError("documents have no words: pass some text.")
    texts = documents if detokenizer is None else [detokenizer(text) for text in documents]
    scored = task.score(texts, stride=stride, batch_size=batch_size, verbose=verbose)
    log_likelihood = float(np.sum(scored["scores"], dtype="float64"))
    num_bytes = sum(len(text.encode("utf-8", "surrogatepass")) for text in documents)
    return {
        "perplexity": float(np.exp(-log_likelihood / num_tokens)),
        "bits_per_byte": -log_likelihood / np.log(2.0) / num_bytes,
        "log_likelihood": log_likelihood,
        "num_tokens": num_tokens,
        "num_model_tokens": int(scored["num_tokens"].sum()),
    }
