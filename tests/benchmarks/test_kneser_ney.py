"""The trigram baseline: hand-computed values, and probabilities that add up."""

import collections
import itertools

import numpy as np
import pytest
from kneser_ney import FALLBACK_DISCOUNTS, KneserNeyTrigram, _discounts

END = 0


def distribution(model, first, second):
    """The probabilities of all tokens after `first second`, at a document's start."""
    # A history in front: END, then the two tokens that are given.
    rows = [[*first, *second, token] for token in range(model.size)]
    return [np.exp(model.log_probabilities(row))[-1] for row in rows]


def test_by_hand():
    # Documents "1 2", "1 2", "3 2 1"; all counts of counts are too sparse, so discounts are the
    # fallback: 0.5, 1 and 1.5 of what occurs once, twice and more often.
    model = KneserNeyTrigram([1, 2, END, 1, 2, END, 3, 2, 1, END], vocabulary_size=5, end_id=END)
    # Unigrams by the number of different tokens before them:
    #   END: 2, 1 → 2.   1: END, 2 → 2.   2: 1, 3 → 2.   3: END → 1.   4: 0.   Together 7.
    taken = (1 + 1 + 1 + 0.5) / 7
    unigram = {0: 1 / 7, 1: 1 / 7, 2: 1 / 7, 3: 0.5 / 7, 4: 0.0}
    unigram = {token: kept + taken / 5 for token, kept in unigram.items()}
    # Behind END, the start of a document, by how often: 1 twice, 3 once.
    start = {1: 1 / 3, 3: 0.5 / 3}
    bigram_start = {t: start.get(t, 0) + (1 + 0.5) / 3 * unigram[t] for t in range(5)}
    # Behind END END the same tokens, as often.
    trigram_start = {t: start.get(t, 0) + (1 + 0.5) / 3 * bigram_start[t] for t in range(5)}
    np.testing.assert_allclose(
        distribution(model, [], []), [trigram_start[t] for t in range(5)], rtol=1e-12
    )
    # Behind 2, by the number of different tokens before it: END (1 2 END) → 1, 1 (3 2 1) → 1.
    bigram_2 = {t: {0: 0.25, 1: 0.25}.get(t, 0) + (0.5 + 0.5) / 2 * unigram[t] for t in range(5)}
    # Behind 1 2: END twice.
    trigram_12 = {t: {0: 0.5}.get(t, 0) + 1 / 2 * bigram_2[t] for t in range(5)}
    np.testing.assert_allclose(
        distribution(model, [1], [2]), [trigram_12[t] for t in range(5)], rtol=1e-12
    )
    # After 4 2, never seen: as after 2.
    np.testing.assert_allclose(
        distribution(model, [4], [2]), [bigram_2[t] for t in range(5)], rtol=1e-12
    )


def test_discounts():
    counts = np.repeat([1, 2, 3, 4, 9], [40, 12, 6, 3, 5])
    y = 40 / (40 + 24)
    assert _discounts(counts) == pytest.approx(
        (1 - 2 * y * 12 / 40, 2 - 3 * y * 6 / 12, 3 - 4 * y * 3 / 6)
    )
    assert _discounts(counts[counts != 4]) == FALLBACK_DISCOUNTS


def test_probabilities_add_up_and_learn():
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.full(20, 0.1), size=20)  # of the next token, by the last
    tokens = [END]
    for _ in range(20_000):
        tokens.append(rng.choice(20, p=chances[tokens[-1]]))
    train, test = np.array(tokens[1:15_000]), np.array(tokens[15_000:])
    model = KneserNeyTrigram(train, vocabulary_size=21, end_id=END)  # 20 never occurs
    for first, second in [([], []), ([3], [7]), ([20], [4]), ([5], [20])]:
        total = distribution(model, first, second)
        assert min(total) > 0
        assert sum(total) == pytest.approx(1.0, abs=1e-12)
    loss = -model.log_probabilities(test).mean()
    counts = collections.Counter(train.tolist())
    unigram = -np.mean([np.log(counts[token] / len(train)) for token in test.tolist()])
    entropy = -np.mean([np.log(chances[a, b]) for a, b in itertools.pairwise(test)])
    assert entropy < loss < entropy + 0.1 < unigram
