"""From charts of spans to constituents, and back.

Shapes: B batch, W words, F places between words, L labels, K constituents of a text, N of all.
"""

from keras_lm.datasets.trees import CHAIN, NO_TAG
from keras_lm.layers.masks import IGNORED
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings
from keras_lm.tokenizers.splitting import SPACES


def chart_of_spans(spans, lengths, size):
    """Return the label of each span, (B, F, F) int32: 0 for none, `IGNORED` outside of a text.

    Args:
        spans: ragged (B, K, 3) int32: start, end and label of constituents, in words. Those that
            end after their text, which was truncated, are left out.
        lengths: (B,) int32, the number of words.
        size: F.
    """
    places = tf.range(size)
    inside = (places[:, tf.newaxis] < places) & (places <= lengths[:, tf.newaxis, tf.newaxis])
    row, values = spans.value_rowids(), tf.cast(spans.values, tf.int32)
    kept = tf.where(values[:, 1] <= tf.gather(lengths, row))[:, 0]
    row, values = tf.cast(tf.gather(row, kept), tf.int32), tf.gather(values, kept)
    index = tf.concat([row[:, tf.newaxis], values[:, :2]], axis=1)
    return tf.tensor_scatter_nd_update(tf.where(inside, 0, IGNORED), index, values[:, 2])


def constituents_in_graph(tree, scores, class_names, words, places):
    """Return the constituents of trees in pre-order, in the graph, and each tree in brackets.

    `labels`, `scores`, `start` and `end` are (B, K), padded with empty strings and zeros, where
    start and end are in characters of strings, in words of lists; `text` is (B,).

    Args:
        tree: what `keras_lm.layers.span_chart.best_trees` returns.
        scores: (B, F, F, L) float.
        class_names: list of str, of labels 1, 2, …; the parts of `S::VP` are several constituents.
        words: ragged (B, W) strings.
        places: dict of `start` and `end`, ragged (B, W) int, or empty.
    """
    in_tree, labels = tree
    last = tf.shape(labels, tf.int64)[1] - 1
    # The widest of those with one start comes first.
    found = tf.where(tf.reverse(in_tree & (labels > 0), axis=[2]))
    row, start, end = found[:, 0], found[:, 1], last - found[:, 2]
    index = tf.stack([row, start, end], axis=1)
    chains = tf.ragged.constant([[], *(name.split(CHAIN) for name in class_names)], tf.string)
    names = tf.gather(chains, tf.gather_nd(labels, index))  # (N, of a chain)
    best = tf.gather_nd(tf.reduce_max(scores, axis=-1), index)
    row, start, end, best = (tf.repeat(x, names.row_lengths()) for x in (row, start, end, best))
    names = names.values
    first = tf.gather(tf.cast(words.row_starts(), tf.int64), row)
    text = _in_brackets(words, names, first + start, first + end - 1)
    if places:
        start = tf.gather(places["start"].values, first + start)
        end = tf.gather(places["end"].values, first + end - 1)

    by_text = tf.RaggedTensor.from_value_rowids(names, row, words.nrows(), validate=False)
    return {
        "text": text,
        "labels": by_text.to_tensor(),
        "scores": by_text.with_values(best).to_tensor(),
        "start": by_text.with_values(tf.cast(start, tf.int32)).to_tensor(),
        "end": by_text.with_values(tf.cast(end, tf.int32)).to_tensor(),
    }


def _in_brackets(words, names, first, last):
    """Return trees in brackets, as `Tree` writes them, (B,), for the words of constituents.

    `first` and `last` are places among the words of all texts.
    """
    join, number = tf.strings.unsorted_segment_join, tf.size(words.values)
    inner = words.values
    for pattern, escape in ((SPACES, ""), (r"\(", "-LRB-"), (r"\)", "-RRB-"), ("^$", "_")):
        inner = tf.strings.regex_replace(inner, pattern, escape)
    opened = join(tf.strings.join(["(", names, " "]), first, number)
    closed = join(tf.fill(tf.shape(last), ")"), last, number)
    parts = tf.strings.join([opened, f"({NO_TAG} ", inner, ")", closed])
    texts = join(parts, strings.row_ids(words), words.nrows(), " ")
    return tf.where(words.row_lengths() > 0, tf.strings.join(["(TOP ", texts, ")"]), "")
