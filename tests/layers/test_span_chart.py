"""The best tree over scores of spans, and these scores, against plain Python."""

import itertools

import keras
import numpy as np
import pytest
from tiny import all_trees

from keras_lm.layers import SpanScorer
from keras_lm.layers.span_chart import best_trees


def plain_cky(scores, length):
    """Return the score and the spans of the best tree, by a table that Python fills."""
    table = {}
    for width in range(1, length + 1):
        for start in range(length - width + 1):
            end, best = start + width, (0.0, [])
            if width > 1:
                parts = [
                    (table[start, m][0] + table[m, end][0], table[start, m][1] + table[m, end][1])
                    for m in range(start + 1, end)
                ]
                best = max(parts, key=lambda part: part[0])
            own = scores[start, end].max()
            table[start, end] = (best[0] + own, [(start, end), *best[1]])
    return table[0, length]


def spans_of(in_tree):
    return sorted(map(tuple, np.argwhere(np.asarray(in_tree)).tolist()))


@pytest.fixture(scope="module")
def scores():
    scores = np.random.default_rng(0).normal(size=(7, 10, 10, 4)).astype("float32")
    scores[..., 0] = 0.0
    return scores


def test_best_of_all_binary_trees(scores):
    lengths = np.array([0, 1, 2, 3, 4, 5, 5], "int32")
    in_tree, labels = best_trees(scores, lengths)
    np.testing.assert_array_equal(labels, scores.argmax(axis=-1))
    best = scores.max(axis=-1)
    for row, length in enumerate(lengths):
        trees = list(all_trees(0, length))
        assert len(trees) == [0, 1, 1, 2, 5, 14][length]
        expected = max(trees, default=[], key=lambda tree: sum(best[row][s] for s in tree))
        assert spans_of(in_tree[row]) == sorted(expected)


def test_best_as_a_plain_table(scores):
    lengths = np.array([9, 8, 7, 6, 9, 2, 9], "int32")
    in_tree, _ = best_trees(scores, lengths)
    for row, length in enumerate(lengths):
        score, spans = plain_cky(scores[row], length)
        assert spans_of(in_tree[row]) == sorted(spans)
        total = scores[row].max(axis=-1)[np.asarray(in_tree[row])].sum()
        assert total == pytest.approx(score, rel=1e-5)
    # A row of another width, and what stands outside of the words, change nothing.
    noise = np.full((1, 10, 10, 4), 1e6, "float32")
    noise[:, :7, :7] = scores[3:4, :7, :7]
    assert spans_of(best_trees(noise, [6])[0][0]) == spans_of(in_tree[3])
    assert spans_of(best_trees(scores[3:4, :7, :7], [6])[0][0]) == spans_of(in_tree[3])


def test_equal_trees_are_one_of_them():
    in_tree, _ = best_trees(np.zeros((1, 5, 5, 2), "float32"), [4])
    assert spans_of(in_tree[0]) in [sorted(tree) for tree in all_trees(0, 4)]


def test_scores_are_of_differences():
    scorer = SpanScorer(num_classes=2, hidden_dim=3)
    scorer.build()
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=weight.shape) for weight in scorer.weights]
    scorer.set_weights(weights)
    value = {v.path.split("/", 1)[1]: x for v, x in zip(scorer.weights, weights, strict=True)}
    tokens, positions = rng.normal(size=(2, 5, 6)), np.array([[2, 4, 5], [1, 0, 0]], "int32")
    actual = scorer(tokens.astype("float32"), positions)
    assert actual.shape == (2, 4, 4, 3)
    edge = value["edge"]
    words = [edge, tokens[0, 1], tokens[0, 3], tokens[0, 4], edge]
    for start, end in itertools.combinations(range(4), 2):
        ends = [np.concatenate([words[n][:3], words[n + 1][3:]]) for n in (start, end)]
        halves = ends[1] - ends[0]
        x = halves[:3] + halves[3:] + value["bias"]
        x = (x - x.mean()) / np.sqrt(x.var() + scorer.norm.epsilon)
        x = np.maximum(x * value["norm/gamma"] + value["norm/beta"], 0)
        expected = [0.0, *(x @ value["logits/kernel"] + value["logits/bias"])]
        np.testing.assert_allclose(actual[0, start, end], expected, rtol=1e-4, atol=1e-4)
    again = SpanScorer.from_config(scorer.get_config())
    assert keras.tree.map_structure(lambda x: x, again.get_config()) == scorer.get_config()
