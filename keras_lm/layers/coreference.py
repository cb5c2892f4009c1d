"""Scores of mentions and of their antecedents.

Shapes: B documents, W words, D their width, L words of the longest span, G the width of a span's
vector, K spans that are kept, A antecedents that each is compared with.
"""

from typing import Any

import keras
from keras import ops

from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import Dense
from keras_lm.utils.argument_types import Shape, Tensor

LOWEST = -1e9  # the score of what is not there: finite, but below all others
FARTHEST = 64  # spans apart, from where on all distances are alike


@keras.saving.register_keras_serializable("keras_lm")
class CoreferenceHead(keras.layers.Layer):
    """Finds spans of words that may be mentions, and scores their possible antecedents.

    A span's vector consists of those of its first and last word, the mean of its words by learned
    attention, and an embedding of its width. The spans with the best mention scores are kept,
    except those that cross a better one. Each is compared with the `max_antecedents` earlier spans
    with the best bilinear scores. In a round of refinement, a span's vector is mixed, through a
    gate, with the mean of its antecedents by their probabilities. All values are float32.

    Args:
        max_span_width: int. L.
        span_ratio: float. The number of spans to keep per word, above 0 and at most 1.
        max_antecedents: int. A.
        num_rounds: int. Rounds of refinement: 1 is the papers' second order, 0 the first.
        hidden_dim: int. Width of both hidden layers of a score.
        feature_dim: int. Width of the embeddings of widths and distances.
        dropout: float. For words, hidden layers and these embeddings.

    Call: `head(words, mask)` with (B, W, D) and (B, W) int32, 1 where a word has a vector. Returns
    a dict of

    - `start` and `end`, (B, K) int32: the first word of each span and the word after its last, in
      the order of the document, zeros in padding;
    - `mention_scores` (B, K);
    - `antecedents` (B, K, A) int32: numbers of spans;
    - `antecedent_scores` (B, K, 1 + A): first the score of no antecedent, always 0, then those of
      the antecedents, `LOWEST` if there are fewer.

    K is `span_ratio` times W, rounded up.

    Example:

        head = CoreferenceHead(max_span_width=3)
        head(np.ones((1, 7, 16)), np.ones((1, 7), "int32"))["start"].shape  # (1, 3)

    Source: Lee et al. 2017, https://arxiv.org/abs/1707.07045, sections 3 to 5, and Lee et al. 2018,
    https://arxiv.org/abs/1804.05392, without the features of speakers and genres.
    """

    def __init__(
        self,
        max_span_width: int = 10,
        span_ratio: float = 0.4,
        max_antecedents: int = 50,
        num_rounds: int = 1,
        hidden_dim: int = 150,
        feature_dim: int = 20,
        dropout: float = 0.3,
        **kwargs: Any,
    ):
        super().__init__(**{"dtype": "float32"} | kwargs)
        self.max_span_width = max_span_width
        self.span_ratio = span_ratio
        self.max_antecedents = max_antecedents
        self.num_rounds = num_rounds
        self.hidden_dim = hidden_dim
        self.feature_dim = feature_dim
        self.dropout_rate = dropout

    def build(self, words_shape: Shape, mask_shape: Shape | None = None) -> None:
        dim = words_shape[-1]
        span_dim = 3 * dim + self.feature_dim
        self.dropout = Dropout(self.dropout_rate, dtype="float32")
        self.attention = Score(self.hidden_dim, self.dropout_rate, name="attention")
        self.attention.build((None, dim))
        self.width_embedding = self._embedding(self.max_span_width, "width_embedding")
        self.mention_score = Score(self.hidden_dim, self.dropout_rate, name="mention_score")
        self.mention_score.build((None, span_dim))
        self.coarse_score = Dense(span_dim, use_bias=False, dtype="float32", name="coarse_score")
        self.coarse_score.build((None, span_dim))
        self.distance_embedding = self._embedding(len(BUCKETS) + 1, "distance_embedding")
        self.pair_score = Score(self.hidden_dim, self.dropout_rate, name="pair_score")
        self.pair_score.build((None, 3 * span_dim + self.feature_dim))
        if self.num_rounds:
            self.gate = Dense(span_dim, "sigmoid", dtype="float32", name="gate")
            self.gate.build((None, 2 * span_dim))

    def _embedding(self, number, name):
        layer = keras.layers.Embedding(number, self.feature_dim, dtype="float32", name=name)
        layer.build()
        return layer

    def call(self, words: Tensor, mask: Tensor, training: bool | None = None) -> dict[str, Tensor]:
        words = self.dropout(ops.cast(words, "float32"), training=training)
        spans, is_span = self.spans(words, mask, training)  # (B, W, L, G), (B, W, L)
        mentions = ops.where(is_span, self.mention_score(spans, training=training), LOWEST)
        places, is_kept = self.best_places(mentions, is_span, mask)  # (B, K)
        x = take_rows(ops.reshape(spans, (ops.shape(spans)[0], -1, spans.shape[-1])), places)
        scores = take_rows(ops.reshape(mentions, (ops.shape(spans)[0], -1, 1)), places)[:, :, 0]
        scores = ops.where(is_kept, scores, LOWEST)
        start = places // self.max_span_width
        end = start + places % self.max_span_width + 1
        antecedents, coarse = self.coarse(x, scores)
        return {
            "start": ops.where(is_kept, start, 0),
            "end": ops.where(is_kept, end, 0),
            "mention_scores": scores,
            "antecedents": antecedents,
            "antecedent_scores": self.fine(x, antecedents, coarse, training),
        }

    def spans(
        self, words: Tensor, mask: Tensor, training: bool | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the vectors (B, W, L, G) of the spans from each word on, and which ones exist."""
        longest, number = self.max_span_width, ops.shape(words)[1]

        def windows(x):  # (B, W, …) → (B, W, L, …): each word, and the next ones
            x = ops.pad(x, [[0, 0], [0, longest - 1]] + [[0, 0]] * (len(x.shape) - 2))
            return ops.stack([x[:, n : n + number] for n in range(longest)], axis=2)

        inside = windows(words)  # (B, W, L, D)
        there = windows(mask) > 0  # (B, W, L)
        attention = windows(self.attention(words, training=training))
        attention = ops.where(there, attention, LOWEST)[:, :, None, :]  # (B, W, 1, L)
        up_to_end = ops.tril(ops.ones((longest, longest), "bool"))  # of each width, its words
        attention = ops.softmax(ops.where(up_to_end, attention, 2 * LOWEST))  # (B, W, L, L)
        widths = self.dropout(self.width_embedding(ops.arange(longest)), training=training)
        shape = ops.shape(inside)
        spans = ops.concatenate(
            [
                ops.broadcast_to(inside[:, :, :1], shape),
                inside,
                ops.matmul(attention, inside),
                ops.broadcast_to(widths, (*shape[:3], self.feature_dim)),
            ],
            axis=-1,
        )
        return spans, ops.logical_and(there[:, :, :1], there)

    def best_places(self, mentions: Tensor, is_span: Tensor, mask: Tensor) -> tuple[Any, Any]:
        """Return the places (B, K) in W · L of the spans to keep, ascending, and which are real.

        Fewer spans are kept for documents with fewer words.
        """
        ratio = round(1000 * self.span_ratio)  # in whole numbers: W may be a tensor
        number = (ops.shape(mask)[1] * ratio + 999) // 1000
        own = (ops.sum(mask, axis=1, keepdims=True) * ratio + 999) // 1000  # (B, 1)
        mentions = in_steps(ops.stop_gradient(mentions))
        kept = without_crossing(mentions, is_span)
        flat = ops.reshape(ops.where(kept, mentions, 2 * LOWEST), (ops.shape(mask)[0], -1))
        best, places = ops.top_k(flat, number)
        order = ops.arange(ops.shape(best)[1], dtype="int32")
        is_kept = ops.logical_and(best > 1.5 * LOWEST, order < own)
        last = ops.shape(flat)[1]
        places = ops.sort(ops.where(is_kept, ops.cast(places, "int32"), last), axis=1)
        return ops.where(places < last, places, 0), places < last

    def coarse(self, x: Tensor, scores: Tensor) -> tuple[Any, Any]:
        """Return the best antecedents (B, K, A) of spans (B, K, G), and their coarse scores."""
        place = ops.arange(ops.shape(x)[1], dtype="int32")
        pairs = ops.matmul(self.coarse_score(x), ops.transpose(x, (0, 2, 1)))  # (B, K, K)
        pairs += scores[:, :, None] + scores[:, None, :]
        is_there = (scores > LOWEST / 2)[:, :, None] & (scores > LOWEST / 2)[:, None, :]
        is_there &= place[None, :] < place[:, None]
        pairs = ops.where(is_there, pairs, LOWEST)
        # Pad to A columns if there are fewer spans.
        pairs = ops.pad(pairs, [[0, 0], [0, 0], [0, self.max_antecedents]], "constant", LOWEST)
        _, antecedents = ops.top_k(in_steps(pairs), self.max_antecedents)
        coarse = ops.take_along_axis(pairs, antecedents, axis=2)
        return ops.where(coarse > LOWEST / 2, ops.cast(antecedents, "int32"), 0), coarse

    def fine(
        self, x: Tensor, antecedents: Tensor, coarse: Tensor, training: bool | None = None
    ) -> Tensor:
        """Return the scores of none and of `antecedents`, (B, K, 1 + A), after all rounds."""
        number = ops.arange(ops.shape(x)[1], dtype="int32")[:, None]
        distance = ops.maximum(number - antecedents, 1)  # (B, K, A)
        distance = self.dropout(self.distance_embedding(bucket(distance)), training=training)
        is_there = coarse > LOWEST / 2
        for left in range(self.num_rounds, -1, -1):
            others, own = take_rows(x, antecedents), x[:, :, None]  # (B, K, A, G), (B, K, 1, G)
            pairs = own, others, own * others, distance
            scores = coarse + self.pair_score.of_parts(pairs, training)
            scores = ops.where(is_there, scores, LOWEST)
            scores = ops.pad(scores, [[0, 0], [0, 0], [1, 0]])  # the score of none is 0
            if left:
                likely = ops.softmax(scores)[:, :, None]  # (B, K, 1, 1 + A)
                expected = likely[..., 0] * x + ops.matmul(likely[..., 1:], others)[:, :, 0]
                gate = self.gate(ops.concatenate([x, expected], axis=-1))
                x = gate * x + (1.0 - gate) * expected
        return scores

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "max_span_width": self.max_span_width,
            "span_ratio": self.span_ratio,
            "max_antecedents": self.max_antecedents,
            "num_rounds": self.num_rounds,
            "hidden_dim": self.hidden_dim,
            "feature_dim": self.feature_dim,
            "dropout": self.dropout_rate,
        }


class Score(keras.layers.Layer):
    """Two hidden layers with dropout, and a number: (…, D) → (…,) float32."""

    def __init__(self, hidden_dim, dropout, **kwargs):
        super().__init__(dtype="float32", **kwargs)
        sizes = {"hidden_0": hidden_dim, "hidden_1": hidden_dim}
        self.hidden = [Dense(n, "relu", dtype="float32", name=name) for name, n in sizes.items()]
        self.dropout = Dropout(dropout, dtype="float32")
        self.score = Dense(1, dtype="float32", name="score")

    def build(self, input_shape):
        for layer in (*self.hidden, self.score):
            layer.build(input_shape)
            input_shape = (None, layer.units)

    def call(self, x, training=None):
        return self._after(self.hidden[0](x), training)

    def of_parts(self, parts, training=None):
        """Return the score of the concatenation of broadcasting parts, without building it."""
        kernel, x, begin = self.hidden[0].kernel, self.hidden[0].bias, 0
        for part in parts:
            end = begin + part.shape[-1]
            x = x + ops.tensordot(part, kernel[begin:end], axes=1)
            begin = end
        return self._after(ops.relu(x), training)

    def _after(self, x, training):
        x = self.hidden[1](self.dropout(x, training=training))
        return self.score(self.dropout(x, training=training))[..., 0]


def in_steps(scores):
    """Return scores in steps of 2⁻¹⁰, by which spans are chosen and compared.

    A graph adds in another order than Python, so that the scores of equal words differ in their
    last digits, and would decide between spans that are equally good. Then the first is taken.
    """
    return ops.round(scores * 1024.0) / 1024.0


BUCKETS = (2, 3, 4, 5, 8, 16, 32, FARTHEST)  # the first distance of each bucket after that of 1


def bucket(distance):
    """Return the number of the bucket of a distance of 1 or more: 1, 2, 3, 4, 5–7, 8–15, …"""
    return sum(ops.cast(distance >= begin, "int32") for begin in BUCKETS)


def take_rows(x, index):
    """Return rows of x (B, N, D) at (B, …) int32: (B, …, D)."""
    shape = ops.shape(x)
    first = ops.arange(shape[0], dtype="int32") * shape[1]
    first = ops.reshape(first, (-1, *[1] * (len(index.shape) - 1)))
    return ops.take(ops.reshape(x, (-1, x.shape[-1])), index + first, axis=0)


def without_crossing(scores, is_span):
    """Return which spans a greedy choice keeps: from the best to the worst, unless they cross.

    Two spans cross if they overlap and neither is within the other. In each round, the spans that
    are better than all spans that they cross are kept, and the latter are removed. This gives the
    result of choosing spans one after the other, in few rounds. Of equal scores, the first counts
    as better.

    Args:
        scores, is_span: (B, W, L), float32 and bool, of spans by their first word and width.
    """
    shape = ops.shape(scores)
    order = ops.argsort(-ops.reshape(scores, (shape[0], -1)), axis=1)
    rank = -ops.reshape(ops.argsort(order, axis=1), shape)  # 0 is the best
    lowest = -shape[1] * shape[2] - 1
    rank = ops.cast(rank, "int32")

    def choose(left, kept):
        best = best_crossing(ops.where(left, rank, lowest), lowest)
        new = ops.logical_and(left, rank > best)
        crossed = best_crossing(ops.where(new, 0, lowest), lowest) == 0
        left = ops.logical_and(left, ops.logical_not(ops.logical_or(new, crossed)))
        return left, ops.logical_or(kept, new)

    state = (is_span, ops.zeros_like(is_span))
    return ops.while_loop(lambda left, kept: ops.any(left), choose, state)[1]


def best_crossing(rank, lowest):
    """Return the best rank of the spans that cross each span, (B, W, L) int32, or `lowest`."""
    longest, number = rank.shape[2], ops.shape(rank)[1]

    def moved(x, step):  # (B, W): what is `step` words further
        x = ops.pad(x, [[0, 0], [longest, longest]], "constant", lowest)
        return x[:, longest + step : longest + step + number]

    def best_from(columns):  # the best of each width and above
        best = [columns[-1]]
        for column in columns[-2::-1]:
            best.insert(0, ops.maximum(best[0], column))
        return best

    by_start = best_from([rank[:, :, width] for width in range(longest)])
    by_end = best_from([moved(rank[:, :, width], -width) for width in range(longest)])
    none = ops.full_like(by_start[0], lowest)
    before, after = [none], [none]  # a span of one word crosses none
    for width in range(1, longest):
        # It ends within the span, and began before: at its last word but one, or earlier.
        before.append(ops.maximum(before[-1], moved(by_end[width], width - 1)))
        # It begins within the span, at its second word or later, and ends after.
        after.append(moved(ops.maximum(by_start[width], after[-1]), 1))
    return ops.maximum(ops.stack(before, axis=2), ops.stack(after, axis=2))


def antecedent_losses(outputs, clusters):
    """Return the losses (B,) of documents, from the total probability of all right antecedents.

    Args:
        outputs: dict, of `CoreferenceHead`.
        clusters: (B, M, 3) int32, for each mention its first word, the word after its last, and the
            number of its cluster, from 1. Rows of zeros are padding.

    Source: Lee et al. 2017, section 4.
    """
    cluster = clusters_of_spans(outputs, clusters)
    others = take_rows(cluster[:, :, None], outputs["antecedents"])[..., 0]  # (B, K, A)
    scores = outputs["antecedent_scores"]
    right = ops.logical_and(others == cluster[:, :, None], cluster[:, :, None] > 0)
    right = ops.logical_and(right, scores[:, :, 1:] > LOWEST / 2)
    none = ops.logical_not(ops.any(right, axis=2, keepdims=True))
    right = ops.where(ops.concatenate([none, right], axis=2), scores, LOWEST)
    return ops.sum(ops.logsumexp(scores, axis=2) - ops.logsumexp(right, axis=2), axis=1)


def mention_losses(outputs, clusters):
    """Return the cross-entropies (B,) of documents: which of the spans that are kept are mentions?

    The arguments are those of `antecedent_losses`, which ignores mentions whose
    partners were not kept: with badly chosen first spans, that loss alone may be low.

    Source: Zhang et al. 2018, https://arxiv.org/abs/1805.04893, section 3.
    """
    is_mention = clusters_of_spans(outputs, clusters) > 0
    scores = outputs["mention_scores"]
    losses = ops.softplus(ops.where(is_mention, -scores, scores))
    return ops.sum(ops.where(outputs["end"] > 0, losses, 0.0), axis=1)


def clusters_of_spans(outputs, clusters):
    """Return the number of the cluster of each span that is kept, (B, K) int32, 0 for none."""
    same = outputs["start"][:, :, None] == clusters[:, None, :, 0]
    same = ops.logical_and(same, outputs["end"][:, :, None] == clusters[:, None, :, 1])  # (B, K, M)
    return ops.sum(ops.where(same, clusters[:, None, :, 2], 0), axis=2)
