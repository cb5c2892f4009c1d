"""MinHash estimates the Jaccard similarity, and bands find what is similar."""

import random

import numpy as np
import pytest

from keras_lm.pipelines.near_duplicates import BAND, BANDS, SHINGLE, buckets, minhash

WORDS = [f"word{i}" for i in range(5000)]


def shingles(text):
    words = text.lower().split()
    return {tuple(words[i : i + SHINGLE]) for i in range(len(words) - SHINGLE + 1)}


def pair(changes):
    """A text of 1,000 words, and one in which some are replaced."""
    words = random.choices(WORDS, k=1000)
    others = list(words)
    for place in random.sample(range(1000), changes):
        others[place] = "another"
    one, other = " ".join(words), " ".join(others)
    shared, union = shingles(one) & shingles(other), shingles(one) | shingles(other)
    return one, other, len(shared) / len(union)


def test_values_agree_as_often_as_shingles_do():
    results = [(pair(changes), changes) for changes in (5, 20, 60, 150) for _ in range(10)]
    errors = [
        np.mean(minhash(one) == minhash(other)) - similarity
        for (one, other, similarity), _ in results
    ]
    # One estimate has a standard deviation of at most 0.5 / √200 = 0.035, their mean of 0.006.
    assert np.abs(errors).max() < 0.15
    assert abs(np.mean(errors)) < 0.025


def test_buckets_meet_as_the_formula_says():
    for changes in (5, 150):
        pairs = [pair(changes) for _ in range(20)]
        meet = [bool({*buckets(one)} & {*buckets(other)}) for one, other, _ in pairs]
        expected = [1 - (1 - s**BAND) ** BANDS for _, _, s in pairs]
        assert np.mean(meet) == pytest.approx(np.mean(expected), abs=0.15)
        assert (np.mean(expected) > 0.99) == (changes == 5)


def test_what_is_compared():
    one = "The film was good, and long."
    assert buckets(one) == buckets("the FILM was good and long!")
    assert buckets(one) != buckets("the film was long and good")
    assert len(set(buckets(one))) == BANDS
    assert buckets("") == buckets("...")
    assert not {*buckets("short")} & {*buckets("text")}
    # A script without spaces has shingles, too.
    assert (
        minhash("吾輩は猫である。名前はまだ無い") == minhash("吾輩は猫である。名前はもう無い")
    ).any()


def test_the_same_everywhere():
    assert buckets("one two three four five six")[0].hex() == "0098ed9eeefe837a2f"
