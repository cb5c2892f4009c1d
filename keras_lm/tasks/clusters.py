"""Clusters of mentions: from labels to numbers, and from scores to clusters.

Shapes: B documents, W words, K spans, A antecedents, M mentions.
"""

import numpy as np

from keras_lm.datasets.mentions import check_place, mentions_of
from keras_lm.layers.coreference import in_steps
from keras_lm.layers.tensorflow.tracing import required
from keras_lm.tensorflow import tf


def mentions_of_rows(labels):
    """Return the mentions of all clusters, ragged (B, M, 3) int32: start, end, cluster from 1.

    `labels` has a list of clusters for each text, a cluster is a list of mentions, and these are
    pairs `(start, end)`, or dicts that have both.
    """
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu" and labels.shape[2:] == (3,):
        return tf.RaggedTensor.from_tensor(tf.constant(labels, tf.int32))
    rows = []
    for row, clusters in enumerate(labels):
        try:
            rows.append(mentions_of(clusters))
        except ValueError as error:
            raise ValueError(f"labels[{row}]: {error}") from error
    flat = np.array([mention for row in rows for mention in row], "int32").reshape(-1, 3)
    return tf.RaggedTensor.from_row_lengths(flat, [len(row) for row in rows])


def check_mentions(mentions, text, words, places):
    """Raise a ValueError for a mention that is not a span of words of its text.

    `mentions` are ragged (B, M, 3), in words, or in characters if there are `places`, of the
    `words`, ragged (B, W), in the strings `text`.
    """
    lengths = words.row_lengths().numpy()
    for row, found in enumerate(mentions):
        bounds = [range(lengths[row]), range(1, lengths[row] + 1)]
        size, unit = lengths[row], "words"
        if places:
            bounds = [set(places[name][row].numpy().tolist()) for name in ("start", "end")]
            size, unit = len(text[row].numpy().decode("utf-8", "replace")), "characters"
        for start, end, _ in found.numpy().tolist():
            check_place((start, end), size, unit, f"labels[{row}]: ")
            if start not in bounds[0] or end not in bounds[1]:
                raise ValueError(
                    f"labels[{row}]: the mention ({start}, {end}) does not begin and end with a "
                    f"word of text[{row}]: pass lists of words, to part them yourself, with "
                    "mentions in words."
                )


def in_words(mentions, places):
    """Return mentions (B, M, 3) in characters as mentions in words; padding as it is, zeros."""
    start, end, cluster = (mentions[:, :, n] for n in range(3))

    def word(at, place):  # (B, M)
        bounds = tf.cast(place, tf.int32).to_tensor(-1)[:, tf.newaxis]  # (B, 1, W)
        same = tf.pad(bounds, [[0, 0], [0, 0], [0, 1]], constant_values=-1) == at[:, :, tf.newaxis]
        return tf.argmax(same, axis=2, output_type=tf.int32), tf.reduce_any(same, axis=2)

    (first, begins), (last, ends) = word(start, places["start"]), word(end, places["end"])
    is_padding = cluster <= 0
    are_words = begins & ends | is_padding
    message = "labels: mentions must begin and end with words of their texts, and one is"
    found = tf.stack([first, last + 1, cluster], axis=2)
    found = required(found, are_words, message, tf.boolean_mask(mentions, ~are_words)[:1, :2])
    return tf.where(is_padding[:, :, tf.newaxis], 0, found)


def clusters_of(outputs):
    """Return the mentions of clusters by the scores of a `CoreferenceHead`, in the graph.

    A span goes back to its best antecedent, and those that are connected are a cluster. `start`,
    `end` (in words) and `cluster`, (B, M) int32 each, are in the order of the text; clusters are
    numbered from 1 in that of their first mentions. Rows are padded with zeros.
    """
    scores, antecedents = outputs["antecedent_scores"], outputs["antecedents"]
    shape = tf.shape(outputs["start"])
    number = tf.broadcast_to(tf.range(shape[1]), shape)  # (B, K)
    best = tf.argmax(in_steps(scores), axis=2, output_type=tf.int32)  # 0 is none
    earlier = tf.gather(antecedents, tf.maximum(best - 1, 0), batch_dims=2)
    earlier = tf.where(best > 0, earlier, number)
    (first,) = tf.while_loop(  # of each, the first of its cluster
        lambda first: tf.reduce_any(tf.gather(first, first, batch_dims=1) != first),
        lambda first: (tf.gather(first, first, batch_dims=1),),
        (earlier,),
    )
    size = tf.reduce_sum(tf.one_hot(first, shape[1], dtype=tf.int32), axis=1)  # (B, K)
    cluster = tf.cumsum(tf.cast(size > 1, tf.int32), axis=1)
    found = {
        "start": outputs["start"],
        "end": outputs["end"],
        "cluster": tf.gather(cluster, first, batch_dims=1),
    }
    is_mention = tf.gather(size, first, batch_dims=1) > 1
    return {
        name: tf.ragged.boolean_mask(value, is_mention).to_tensor() for name, value in found.items()
    }
