"""A trigram model with modified Kneser-Ney smoothing: what a neural language model has to beat.

Source: Chen and Goodman 1998, "An Empirical Study of Smoothing Techniques for Language Modeling",
https://dash.harvard.edu/handle/1/25104739, section 3 (interpolated, with three discounts an order).

Shapes: T tokens.
"""

import numpy as np

# Where too few n-grams occur one to four times to estimate the discounts, as KenLM has them.
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)


class KneserNeyTrigram:
    """Probabilities of each next token given the two before it, back to the document's start.

    Args:
        tokens: (T,) int, documents one after the other, each with `end_id` at its end.
        vocabulary_size: int. All ids have a probability, seen or not.
        end_id: int. The token at the end of a document; also what stands before its first token.

    Example:

        model = KneserNeyTrigram(train_tokens, vocabulary_size=8192, end_id=0)
        perplexity = np.exp(-model.log_probabilities(test_tokens).mean())
    """

    def __init__(self, tokens, vocabulary_size, end_id):
        self.size = vocabulary_size
        self.end_id = end_id
        first, second, third = self._trigrams(np.asarray(tokens))
        trigrams, counts = np.unique(
            (first * self.size + second) * self.size + third, return_counts=True
        )
        # A lower order counts in how many contexts an n-gram occurs. At a document's start there
        # is but one context, so there it counts how often, as SRILM and KenLM do.
        bigrams, contexts = np.unique(trigrams % self.size**2, return_counts=True)
        starts = second == end_id
        at_start, often = np.unique((second * self.size + third)[starts], return_counts=True)
        contexts[np.searchsorted(bigrams, at_start)] = often
        unigrams, before = np.unique(bigrams % self.size, return_counts=True)
        self.orders = [_Order(keys, number, self.size) for keys, number in (
            (unigrams, before), (bigrams, contexts), (trigrams, counts)
        )]  # fmt: skip

    def _trigrams(self, tokens):
        """The two tokens before each token, and the tokens, (T,) int64 each."""
        tokens = tokens.astype("int64")
        second = np.concatenate([[self.end_id], tokens[:-1]])
        first = np.concatenate([[self.end_id], second[:-1]])
        return np.where(second == self.end_id, self.end_id, first), second, tokens

    def log_probabilities(self, tokens):
        """Return the natural logarithms of the probability of each token, (T,) float64.

        Args:
            tokens: (T,) int, as for the constructor.
        """
        first, second, third = self._trigrams(np.asarray(tokens))
        probability = np.full(len(third), 1 / self.size)
        for order, context in zip(
            self.orders, (np.zeros_like(third), second, first * self.size + second), strict=True
        ):
            probability = order.interpolate(context, third, probability)
        return np.log(probability)


class _Order:
    """N-grams of one length: `context * size + token` → count, and what is taken off it."""

    def __init__(self, keys, counts, size):
        self.keys, self.size = keys, size
        discounts = np.array([0.0, *_discounts(counts)])[np.minimum(counts, 3)]
        self.kept = counts - discounts
        self.contexts, inverse = np.unique(keys // size, return_inverse=True)
        self.totals = np.bincount(inverse, weights=counts)
        self.taken = np.bincount(inverse, weights=discounts)

    def interpolate(self, context, token, lower):
        """Probabilities of tokens in contexts, given those of the order below."""
        place, is_known = _find(self.contexts, context)
        total = self.totals[place]
        results, is_seen = _find(self.keys, context * self.size + token)
        own = np.where(is_seen, self.kept[results], 0.0)
        return np.where(is_known, (own + self.taken[place] * lower) / total, lower)


def _discounts(counts):
    """Of n-grams that occur once, twice, and more often."""
    n1, n2, n3, n4 = (int((counts == number).sum()) for number in (1, 2, 3, 4))
    if not (n1 and n2 and n3 and n4):
        return FALLBACK_DISCOUNTS
    y = n1 / (n1 + 2 * n2)
    return 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3


def _find(values, wanted):
    """Where `wanted` stand in sorted `values`, and whether they do."""
    place = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return place, values[place] == wanted
