"""Processors of logits × a slow reference for each row."""

import resource

import numpy as np
import pytest

from keras_lm.generation.logits import (
    BANNED,
    ban_repeated_ngrams,
    ban_sequences,
    penalize_repetition,
)

VOCABULARY = 6


def batch(rows=5, columns=12, end=9, seed=0):
    """Rows padded on the left by different numbers, with free columns from `end` on."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(rows, VOCABULARY)).astype("float32")
    ids = random.integers(VOCABULARY, size=(rows, columns)).astype("int32")
    column = np.arange(columns)
    mask = ((column >= np.arange(rows)[:, None]) & (column < end)).astype("int32")
    return logits, ids, mask


def real(ids, mask):
    return [list(row[known > 0]) for row, known in zip(ids, mask)]


def test_repetition_penalty_equals_the_rule_row_by_row():
    logits, ids, mask = batch()
    penalty = np.array([1.0, 2.0, 0.5, 1.3, 1.0], "float32")
    expected = logits.copy()
    for row, tokens in enumerate(real(ids, mask)):
        for token in set(tokens):
            value = logits[row, token]
            expected[row, token] = value * penalty[row] if value < 0 else value / penalty[row]
    assert (expected != logits).any()
    actual = penalize_repetition(logits, ids, mask, penalty)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_padding_is_no_repetition():
    logits = np.ones((1, VOCABULARY), "float32")
    ids, mask = np.array([[5, 5, 2]], "int32"), np.array([[0, 0, 1]], "int32")
    actual = penalize_repetition(logits, ids, mask, np.array([2.0], "float32"))
    np.testing.assert_array_equal(actual, [[1, 1, 0.5, 1, 1, 1]])


def banned_tokens(tokens, size):
    """Every token that followed what the row now ends with."""
    if not size:
        return set()
    ngrams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
    ending = tuple(tokens[len(tokens) - size + 1 :]) if len(tokens) >= size - 1 else None
    return {ngram[-1] for ngram in ngrams if ngram[:-1] == ending}


@pytest.mark.parametrize("seed", range(4))
def test_ngram_ban_equals_the_rule_row_by_row(seed):
    logits, ids, mask = batch(rows=6, columns=24, end=20, seed=seed)
    ids %= 3  # so that there are repetitions
    size = np.array([2, 1, 3, 0, 4, 2**31 - 1], "int32")
    expected = logits.copy()
    for row, tokens in enumerate(real(ids, mask)):
        expected[row, list(banned_tokens(tokens, size[row]))] = BANNED
    actual = ban_repeated_ngrams(logits, ids, mask, np.full(6, 20, "int32"), size)
    np.testing.assert_array_equal(actual, expected)
    assert (expected[:3] == BANNED).any(axis=1).all()


def test_a_row_too_short_for_an_ngram_bans_nothing():
    logits, ids, mask = batch(rows=1, columns=4, end=2)
    ids[:] = 1
    mask[:] = [[0, 1, 0, 0]]
    end, size = np.array([[2], [3]], "int32")
    actual = ban_repeated_ngrams(logits, ids, mask, end, size)
    np.testing.assert_array_equal(actual, logits)


def test_an_ngram_as_long_as_a_row_takes_no_memory_by_its_square():
    columns = 2**15
    logits, ids, mask = batch(rows=1, columns=columns, end=columns - 1)
    end, size = np.array([[columns - 1], [columns - 1]], "int32")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    np.testing.assert_array_equal(ban_repeated_ngrams(logits, ids, mask, end, size), logits)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**19  # kB


@pytest.mark.parametrize("seed", range(3))
def test_sequence_ban_equals_the_rule_row_by_row(seed):
    logits, ids, mask = batch(seed=seed)
    rows = real(ids, mask)
    sequences = [[5], rows[0][-1:] + [2], rows[1][-2:] + [3], [7, 7, 1], [*rows[4], 0]]
    longest = max(map(len, sequences))
    padded = np.array([[-1] * (longest - len(s)) + s for s in sequences], "int32")
    expected = logits.copy()
    for row, tokens in enumerate(rows):
        for *begin, last in sequences:
            if tokens[len(tokens) - len(begin) :] == begin and len(begin) <= len(tokens):
                expected[row, last] = BANNED
    actual = ban_sequences(logits, ids, mask, np.full(5, 9), np.tile(padded, [5, 1, 1])).numpy()
    np.testing.assert_array_equal(actual, expected)
    assert (actual[:, 5] == BANNED).all() and actual[0, 2] == actual[1, 3] == actual[4, 0] == BANNED
    none = ban_sequences(logits, ids, mask, np.full(5, 9), np.zeros([5, 0, 1], "int32"))
    np.testing.assert_array_equal(none, logits)
