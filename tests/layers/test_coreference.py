"""Scores of mentions and antecedents, beside plain numpy and Python that follow the papers."""

import keras
import numpy as np
import pytest
from scipy.special import expit, logsumexp, softmax

from keras_lm.layers import CoreferenceHead
from keras_lm.layers.coreference import (
    LOWEST,
    antecedent_losses,
    bucket,
    mention_losses,
    without_crossing,
)

W, D, L = 6, 3, 2
SIZE = {"max_span_width": L, "span_ratio": 0.7, "max_antecedents": 3, "hidden_dim": 5}


def make(**options):
    head = CoreferenceHead(**SIZE | {"feature_dim": 2, "dropout": 0.0} | options)
    head.build((None, None, D))
    for weight in head.weights:
        weight.assign_add(0.5 * keras.random.normal(weight.shape))
    return head


def greedy(scores, is_span):
    """Return the spans (first, last) that are chosen one after the other."""
    spans = [(s, s + w) for s, w in zip(*np.nonzero(is_span))]
    kept = []
    for s, e in sorted(spans, key=lambda span: -scores[span[0], span[1] - span[0]]):
        if not any(a < s <= b < e or s < a <= e < b for a, b in kept):
            kept.append((s, e))
    return set(kept)


def test_rounding_does_not_decide_between_equal_words():
    """Python and a graph add in another order, and would keep other spans of such a text."""
    head = make(max_antecedents=5)
    words = np.resize(np.random.normal(size=(30, D)), (1, 120, D)).astype("float32")
    other = words * (1 + 1e-7 * np.random.choice([-1.0, 0.0, 1.0], words.shape))
    mask = np.ones((1, 120), "int32")
    here, there = head(words, mask), head(other.astype("float32"), mask)
    assert not np.array_equal(here["mention_scores"], there["mention_scores"])
    for name in ("start", "end", "antecedents"):
        np.testing.assert_array_equal(here[name], there[name])


@pytest.mark.parametrize("longest", [1, 2, 5])
def test_spans_are_kept_as_by_a_greedy_choice(longest):
    scores = np.random.normal(size=(4, 11, longest)).astype("float32")
    scores[1] = np.round(scores[1])  # ties
    scores[2] = np.arange(11 * longest).reshape(11, longest)  # each is worse than what crosses it
    ends = np.arange(11)[:, None] + np.arange(longest)
    is_span = np.stack([ends < size for size in (11, 11, 11, 3)])
    kept = np.asarray(without_crossing(scores, is_span))
    for row in range(4):
        results = {(s, s + w) for s, w in zip(*np.nonzero(kept[row]))}
        assert results == greedy(scores[row], is_span[row])
    assert longest == 1 or not kept[:3].all()


def dense(layer, x):
    return x @ np.asarray(layer.kernel) + (np.asarray(layer.bias) if layer.use_bias else 0.0)


def score(layer, x):
    for hidden in layer.hidden:
        x = np.maximum(dense(hidden, x), 0.0)
    return dense(layer.score, x)[..., 0]


def by_hand(head, words):
    """Return the spans of a document that are kept, their scores and those of antecedents."""
    attention, widths = score(head.attention, words), np.asarray(head.width_embedding.embeddings)
    spans = [(s, s + w) for s in range(len(words)) for w in range(L) if s + w < len(words)]
    vectors = {}
    for s, e in spans:
        inside = softmax(attention[s : e + 1]) @ words[s : e + 1]
        vectors[s, e] = np.concatenate([words[s], words[e], inside, widths[e - s]])
    mentions = {span: score(head.mention_score, vectors[span]) for span in spans}
    grid = np.full((len(words), L), -np.inf)
    for s, e in spans:
        grid[s, e - s] = mentions[s, e]
    kept = sorted(greedy(grid, grid > -np.inf), key=lambda span: -mentions[span])
    kept = sorted(kept[: int(np.ceil(head.span_ratio * len(words)))])
    g = np.stack([vectors[span] for span in kept])
    m = np.array([mentions[span] for span in kept])
    coarse = m[:, None] + m + dense(head.coarse_score, g) @ g.T
    chosen = [sorted(range(i), key=lambda j: -coarse[i, j])[:3] for i in range(len(kept))]
    begins = [1, 2, 3, 4, 5, 8, 16, 32, 64]
    for left in range(head.num_rounds, -1, -1):
        results, refined = [], []
        for i, others in enumerate(chosen):
            scores = [0.0]
            for j in others:
                distance = np.asarray(head.distance_embedding.embeddings)[
                    sum(i - j >= begin for begin in begins) - 1
                ]
                pair = np.concatenate([g[i], g[j], g[i] * g[j], distance])
                scores.append(coarse[i, j] + score(head.pair_score, pair))
            results.append(scores)
            likely = softmax(scores)
            expected = likely[0] * g[i] + sum(p * g[j] for p, j in zip(likely[1:], others))
            if left:
                gate = expit(dense(head.gate, np.concatenate([g[i], expected])))
                refined.append(gate * g[i] + (1 - gate) * expected)
        g = np.stack(refined) if left else g
    return kept, m, chosen, results


@pytest.mark.parametrize("num_rounds", [0, 1, 2])
def test_scores_by_hand(num_rounds):
    head = make(num_rounds=num_rounds)
    words = np.random.normal(size=(2, W, D)).astype("float32")
    mask = np.ones((2, W), "int32")
    mask[1, 4:] = 0  # a shorter document beside it, with anything in its padding
    outputs = {name: np.asarray(value) for name, value in head(words, mask).items()}
    for row, size in enumerate((6, 4)):
        kept, mentions, chosen, actual = by_hand(head, words[row, :size])
        n = len(kept)
        assert n == (5, 3)[row]
        spans = zip(outputs["start"][row].tolist(), outputs["end"][row].tolist())
        assert list(spans) == [(s, e + 1) for s, e in kept] + [(0, 0)] * (5 - n)
        np.testing.assert_allclose(outputs["mention_scores"][row, :n], mentions, atol=1e-5)
        for i, others in enumerate(chosen):
            k = len(others)
            assert outputs["antecedents"][row, i, :k].tolist() == others
            scores = outputs["antecedent_scores"][row, i]
            np.testing.assert_allclose(scores[: 1 + k], actual[i], atol=1e-4)
            assert (scores[1 + k :] == LOWEST).all()


def test_the_loss_is_that_of_all_right_antecedents():
    # Four spans, the last two of which may go back to two earlier ones each.
    outputs = {
        "start": np.array([[0, 2, 4, 6, 0]], "int32"),
        "end": np.array([[1, 4, 5, 7, 0]], "int32"),
        "mention_scores": np.array([[0.5, -1.0, 2.0, 0.1, LOWEST]], "float32"),
        "antecedents": np.array([[[0, 0], [0, 0], [1, 0], [2, 0], [0, 0]]], "int32"),
        "antecedent_scores": np.array(
            [
                [
                    [0, LOWEST, LOWEST],
                    [0, 0.5, LOWEST],
                    [0, 1.0, -0.3],
                    [0, 0.2, 2.0],
                    [0, LOWEST, LOWEST],
                ]
            ],
            "float32",
        ),
    }
    scores = outputs["antecedent_scores"][0].astype("float64")
    clusters = np.array([[[6, 7, 1], [0, 1, 1], [4, 5, 1], [2, 4, 2], [9, 12, 2], [0, 0, 0]]])
    right = [[0], [0], [2], [1, 2]]  # the second's only partner was not kept
    expected = sum(logsumexp(scores[i]) - logsumexp(scores[i, r]) for i, r in enumerate(right))
    actual = antecedent_losses(outputs, clusters.astype("int32"))
    np.testing.assert_allclose(actual, [expected], rtol=1e-6)
    nothing = antecedent_losses(outputs, np.zeros((1, 0, 3), "int32"))
    np.testing.assert_allclose(nothing, [logsumexp(scores, axis=1).sum()], rtol=1e-6)
    # All four are mentions, the second one, too, whose partner was not kept; the fifth is padding.
    probabilities = 1 / (1 + np.exp(-outputs["mention_scores"][0, :4].astype("float64")))
    expected = -np.log(probabilities).sum()
    actual = mention_losses(outputs, clusters.astype("int32"))
    np.testing.assert_allclose(actual, [expected], rtol=1e-6)
    nothing = mention_losses(outputs, np.zeros((1, 0, 3), "int32"))
    np.testing.assert_allclose(nothing, [-np.log(1 - probabilities).sum()], rtol=1e-6)


def test_distances():
    actual = np.asarray(bucket(np.array([1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 63, 64, 999])))
    assert actual.tolist() == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8]


def test_documents_of_one_word_and_of_none():
    outputs = make()(np.ones((2, 1, D), "float32"), np.array([[1], [0]], "int32"))
    assert np.asarray(outputs["end"]).tolist() == [[1], [0]]
    assert np.asarray(outputs["antecedent_scores"])[:, :, 0].tolist() == [[0], [0]]
    assert all(np.isfinite(value).all() for value in outputs.values())


def test_config():
    head = make(num_rounds=2)
    again = CoreferenceHead.from_config(head.get_config())
    assert again.get_config() == head.get_config()
    assert again.num_rounds == 2
