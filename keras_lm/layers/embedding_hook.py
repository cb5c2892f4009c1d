"""Token embeddings of which something else is computed. Shapes: B batch, S sequence, D width."""

import contextlib

import keras
import numpy as np

from keras_lm.tensorflow import tf

NAMES = ("token_embedding", "word_embedding")


def token_embedding_of(model):
    """Return the layer that embeds a model's tokens, or None if there is none."""
    layers = {id(layer): layer for layer in model._flatten_layers()}.values()
    embeddings = [e for e in layers if isinstance(e, keras.layers.Embedding) and e.name in NAMES]
    return embeddings[0] if embeddings else None


@contextlib.contextmanager
def changed(embedding, change):
    """A context in which an embedding returns `change(x)` for what it returned, x (B, S, D).

    As a language model's head, which multiplies by its table, it stays as it is.
    """
    original = embedding.call

    def call(token_ids, *args, **kwargs):
        x = original(token_ids, *args, **kwargs)
        return x if args or kwargs.get("reverse") else change(x)

    embedding.call = call
    try:
        yield
    finally:
        del embedding.call


@contextlib.contextmanager
def in_int8(embedding):
    """A context for exports in which an embedding is computed from an int8 table (V, D).

    Each row has a scale. The layer's own table holds the same rounded numbers meanwhile, so that a
    product with it, rounded in the same way, has the same int8 table.
    """
    original, table = embedding.call, np.array(embedding.embeddings)
    scales = np.abs(table).max(axis=1, keepdims=True) / 127
    scales[scales == 0] = 1
    rounded = np.round(table / scales).astype("int8")
    stored = [tf.Variable(part, trainable=False) for part in (rounded, scales)]

    def call(token_ids, *args, **kwargs):
        if args or kwargs.get("reverse"):
            return original(token_ids, *args, **kwargs)
        rows, scales = (tf.gather(part, token_ids) for part in stored)
        return tf.cast(rows, tf.float32) * scales

    embedding.call = call
    embedding.embeddings.assign(rounded * scales)
    try:
        yield
    finally:
        del embedding.call
        embedding.embeddings.assign(table)
