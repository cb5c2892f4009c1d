"""Masking by how often tokens occur. Shapes: B batch, S sequence, V vocabulary."""

import numpy as np
from keras import ops


def positive(weights):
    """Return float32 weights around 1, if all are positive."""
    weights = np.asarray(weights, "float64")
    fits = weights.ndim == 1 and weights.size and np.isfinite(weights).all()
    if not (fits and (weights > 0).all()):
        raise ValueError(
            f"token_weights of shape {weights.shape}: pass V numbers above 0, with the shape (V,)."
        )
    return (weights / np.exp(np.log(weights).mean())).astype("float32")


def weighted(chance, weights, token_ids):
    """Return (B, S) numbers below 1 whose order samples by weight (V,), without replacement.

    They are exponential waiting times with the weights as rates, so token i is first with the
    probability of its share, and so on. Source: Efraimidis and Spirakis 2006, "Weighted random
    sampling with a reservoir".
    """
    rates = ops.take(ops.convert_to_tensor(weights), token_ids, axis=0)
    times = -ops.log1p(-chance) / rates  # in [0, 17 ÷ weight]; 0 for the chance 0
    return times / (1.0 + times)


def cumulative_shares(counts):
    """Return the cumulative shares (V,) of counts, float32, if there are any."""
    counts = np.asarray(counts, "float64")
    if counts.ndim != 1 or not (counts >= 0).all() or not 0 < counts.sum() < np.inf:
        raise ValueError(
            f"token_counts of shape {counts.shape}: pass V numbers from 0, not all of them 0, with "
            "the shape (V,)."
        )
    # In float32 the last share may be a little below 1, where a random number would find no token.
    last = np.flatnonzero(counts)[-1]
    shares = counts.cumsum() / counts.sum()
    shares[last:] = 1.0
    return shares.astype("float32")


def drawn_by(shares, chance):
    """Return tokens, of the shape of `chance`, by cumulative shares (V,): int32."""
    shares = ops.convert_to_tensor(shares, "float32")
    tokens = ops.searchsorted(shares, ops.reshape(chance, (-1,)), side="right")
    return ops.reshape(ops.cast(tokens, "int32"), ops.shape(chance))
