"""Token embeddings of which something else is computed. Shapes: B batch, S sequence, D width."""

import contextlib

import keras

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
