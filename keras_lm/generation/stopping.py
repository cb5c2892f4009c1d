"""Stop strings.

Shapes: B texts, P prompts, K stop strings of each.
"""

from keras_lm.tensorflow import tf

NOWHERE = 2**31 - 1


def first_place(text, stops):
    """Return the byte (B,) at which the first stop string begins in a text, or `NOWHERE`.

    `stops` is (P, K), or (K,) for all texts; empty strings are padding. `text` (B,) has the same
    number of adjacent texts for each of P prompts.
    """
    stops = tf.convert_to_tensor(stops, tf.string)
    stops = stops[tf.newaxis] if stops.shape.rank == 1 else stops
    nowhere = tf.fill(tf.shape(text), NOWHERE)
    every = tf.unique(tf.reshape(stops, [-1])).y
    every = tf.boolean_mask(every, every != "")
    times = tf.size(text) // tf.maximum(tf.shape(stops)[0], 1)

    def earlier(i, places):
        parts = tf.raw_ops.StringSplitV2(input=text, sep=every[i], maxsplit=1)
        is_first = parts.indices[:, 1] == 0
        before = tf.strings.length(tf.boolean_mask(parts.values, is_first))
        rows = tf.boolean_mask(parts.indices[:, :1], is_first)
        before = tf.scatter_nd(rows, before, tf.shape(text, tf.int64))
        counts = tf.repeat(tf.reduce_any(stops == every[i], axis=1), times)
        found = counts & (before < tf.strings.length(text))
        return i + 1, tf.where(found, tf.minimum(before, places), places)

    return tf.while_loop(lambda i, _: i < tf.size(every), earlier, [0, nowhere])[1]


def cut(text, stops):
    """Return each text up to its first stop string; see `first_place`."""
    return tf.strings.substr(text, tf.zeros(tf.shape(text), tf.int32), first_place(text, stops))


def longest(stops):
    """Return the length of the longest stop string in bytes, int32; 0 without any."""
    lengths = tf.strings.length(tf.reshape(stops, [-1]))
    return tf.reduce_max(tf.concat([[0], lengths], axis=0))
