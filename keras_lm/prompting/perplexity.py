"""How well a language model predicts a corpus, counted in the corpus's own words."""

from collections.abc import Callable, Iterable

import numpy as np

from keras_lm.tasks.causal_lm import CausalLM


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
    found = task.score(texts, stride=stride, batch_size=batch_size, verbose=verbose)
    log_likelihood = float(np.sum(found["scores"], dtype="float64"))
    num_bytes = sum(len(text.encode("utf-8", "surrogatepass")) for text in documents)
    return {
        "perplexity": float(np.exp(-log_likelihood / num_tokens)),
        "bits_per_byte": -log_likelihood / np.log(2.0) / num_bytes,
        "log_likelihood": log_likelihood,
        "num_tokens": num_tokens,
        "num_model_tokens": int(found["num_tokens"].sum()),
    }
