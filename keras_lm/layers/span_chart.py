"""Scores of the spans of a sentence, and the best tree over them.

Shapes: B batch, S sequence, W words, F = W + 1 places between words, L labels, H hidden. A span
(i, j) has the words from place i to place j; a chart (B, F, F) has a cell for each span.
"""

from typing import Any

import keras
from keras import ops

from keras_lm.layers.basic import Dense, LayerNormalization
from keras_lm.utils.argument_types import Shape, Tensor


class SpanScorer(keras.layers.Layer):
    """Scores every label of every span, from the difference of the vectors at its ends.

    The vector of a place between two words is the sum of the left word's first half and the right
    word's second half; before the first and after the last word, there is a learned vector. A
    hidden layer and a linear layer read the difference. Label 0, no constituent, has the score 0.

    Args:
        num_classes: int. L - 1, the labels without the first.
        hidden_dim: int. H, the width of the hidden layer.

    Call: `layer(tokens, word_positions)`: (B, S, 2 H) float; (B, W) int32, 1 + the column of each
    word, 0 after the last one. Returns (B, F, F, L) float32.

    Example:

        scorer = SpanScorer(num_classes=2, hidden_dim=8)
        scorer(np.ones((1, 5, 16), "float32"), np.array([[2, 3, 4]])).shape  # (1, 4, 4, 3)

    Source: Kitaev and Klein 2018, https://arxiv.org/abs/1805.01052, section 2 and equation 1; the
    vectors of places: Stern et al. 2017, https://arxiv.org/abs/1705.03919, section 3.2.
    """

    def __init__(self, num_classes: int, hidden_dim: int = 250, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.hidden_dim = hidden_dim

    def build(
        self, tokens_shape: Shape | None = None, word_positions_shape: Shape | None = None
    ) -> None:
        size, part = self.hidden_dim, {"dtype": "float32"}
        self.edge: keras.Variable = self.add_weight(
            name="edge", shape=(2 * size,), initializer="zeros"
        )
        self.bias: keras.Variable = self.add_weight(name="bias", shape=(size,), initializer="zeros")
        self.norm: LayerNormalization = LayerNormalization(name="norm", **part)
        self.norm.build((None, None, None, size))
        self.logits: Dense = Dense(self.num_classes, name="logits", **part)
        self.logits.build((None, None, None, size))
        self.built = True

    def call(self, tokens: Tensor, word_positions: Tensor) -> Tensor:
        x = ops.cast(tokens, "float32")
        edge = ops.broadcast_to(ops.cast(self.edge, "float32"), (ops.shape(x)[0], 1, x.shape[-1]))
        rows = ops.concatenate([edge, x], axis=1)  # the edge has the position 0
        places = ops.pad(word_positions, ((0, 0), (1, 1)))  # (B, W + 2)
        words = ops.take_along_axis(rows, ops.expand_dims(places, -1), axis=1)
        left, right = ops.split(words, 2, axis=-1)
        between = left[:, :-1] + right[:, 1:]  # (B, F, H)
        spans = ops.expand_dims(between, 1) - ops.expand_dims(between, 2)  # end - start
        hidden = ops.relu(self.norm(spans + ops.cast(self.bias, "float32")))
        return ops.pad(self.logits(hidden), ((0, 0), (0, 0), (0, 0), (1, 0)))

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "num_classes": self.num_classes,
            "hidden_dim": self.hidden_dim,
        }


def best_trees(scores, lengths):
    """Return the spans of the best binary tree of each sentence, and the best label of each span.

    The score of a tree is the sum of the scores of its spans' best labels. A span with label 0 is
    not a constituent, so constituents may have any number of children.

    Args:
        scores: (B, F, F, L) float.
        lengths: (B,) int32, the words of each sentence.

    Returns:
        `(in_tree, labels)`, (B, F, F) bool and int32.

    Source: Stern et al. 2017, https://arxiv.org/abs/1705.03919, section 3.3.
    """
    scores = ops.stop_gradient(ops.cast(scores, "float32"))
    return _outside(_inside(ops.max(scores, axis=-1)), lengths), _argmax(scores)


def _argmax(x):
    return ops.cast(ops.argmax(x, axis=-1), "int32")


def _ends(size):
    """Return the first and the last place of each span, (F, 1) and (1, F) int32."""
    places = ops.arange(size, dtype="int32")
    return ops.expand_dims(places, 1), ops.expand_dims(places, 0)


def _inside(own):
    """Return where the best tree splits each span, (B, F, F) int32, given the spans' own scores."""
    size = ops.shape(own)[1]
    start, end = _ends(size)

    def widen(width, state):
        best, parts = state  # for all spans of fewer words
        # At (i, m) is the best score of (m, i + width); the spans are (i, i + width).
        rest = ops.take(ops.transpose(best, (0, 2, 1)), _shifted(size, width), axis=1)
        both = ops.where((start < end) & (end < start + width), best + rest, float("-inf"))
        is_here = end - start == width
        best = ops.where(is_here, ops.max(both, axis=2, keepdims=True) + own, best)
        return best, ops.where(is_here, ops.expand_dims(_argmax(both), 2), parts)

    return ops.fori_loop(2, size, widen, (own, ops.zeros_like(own, dtype="int32")))[1]


def _outside(parts, lengths):
    """Return the spans of the tree over all words of each sentence, (B, F, F) bool."""
    size = ops.shape(parts)[1]
    start, end = _ends(size)
    lengths = ops.reshape(ops.cast(lengths, "int32"), (-1, 1, 1))

    def part(number, in_tree):
        width = size - 1 - number  # the widest first
        is_here = in_tree & (end - start == width)
        at = ops.sum(ops.where(is_here, parts, 0), axis=2, keepdims=True)  # (B, F, 1), 0 for none
        left = (at == end) & (at > 0)  # (i, m) of (i, i + width)
        right = ops.take(ops.transpose(left, (0, 2, 1)), _shifted(size, -width), axis=2)
        return in_tree | left | (right & (end >= width))

    whole = (start == 0) & (end == lengths) & (end > 0)
    return ops.fori_loop(0, ops.maximum(size - 2, 0), part, whole)


def _shifted(size, by):
    """Return the places that are `by` after each place, (F,) int32, clipped to the last."""
    return ops.clip(ops.arange(size, dtype="int32") + by, 0, size - 1)
