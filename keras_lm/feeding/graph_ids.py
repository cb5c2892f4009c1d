"""Ids that come from outside, in a graph: see `keras_lm.models.known_ids`."""

from typing import Any

import keras

from keras_lm.layers.tensorflow.tracing import required
from keras_lm.models.known_ids import allowed_ids, id_limit
from keras_lm.tensorflow import tf


def with_known_ids(model: keras.Model, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return a backbone's inputs, tensors, available once their ids are checked.

    An `InvalidArgumentError` is raised when the graph runs if one has ids that are none of its own.
    """
    checked = dict(inputs)
    for name, ids in inputs.items():
        limit = id_limit(model, name)
        if limit is None:
            continue
        least, largest = tf.reduce_min(ids), tf.reduce_max(ids)
        is_known = (least >= 0) & (tf.cast(largest, tf.int64) < int(min(limit, 2**31)))
        message = f"{name}: {allowed_ids(model, limit)}, but the least and the largest here are"
        checked[name] = required(ids, is_known, message, least, largest)
    return checked
