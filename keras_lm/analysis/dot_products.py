"""Why attention divides by √d: the variance of a dot product. Shapes: P pairs, D width."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def dot_product_variance(
    dims: Sequence[int] = (4, 16, 64, 256, 1024), num_pairs: int = 20_000, seed: int = 0
) -> list[dict[str, Any]]:
    """Return the variance of q·k and of q·k / √d for random vectors of several widths.

    The parts of q and k are independent, with mean 0 and variance 1, so that q·k has the variance
    d, and q·k / √d the variance 1. Without the division, the softmax over a few keys gives nearly
    all of its weight to one of them, where its gradient vanishes: `largest` shows it.

    Args:
        dims: ints, the widths d.
        num_pairs: int. Pairs of vectors to draw for each width.
        seed: int.

    Returns:
        A list with a dict for each width: `dim`; `variance` of q·k, and `scaled_variance` of
        q·k / √d; `largest` and `scaled_largest`, the mean of the largest of the weights that a
        softmax gives to ten keys.

    Raises:
        ValueError: if a width is less than 1, or there are fewer than ten pairs.

    Example:

        (row,) = dot_product_variance([64])
        round(row["variance"] / 64, 1), round(row["scaled_variance"], 1)  # (1.0, 1.0)

    Source: https://arxiv.org/abs/1706.03762, section 3.2.1, note 4.
    """
    dims = [int(dim) for dim in dims]
    if min(dims, default=0) < 1 or num_pairs < 10:
        raise ValueError(
            f"dims={dims}, num_pairs={num_pairs}: pass widths of 1 or more, and ten pairs or more."
        )
    generator, found = np.random.default_rng(seed), []
    for dim in dims:
        products = np.concatenate(
            [
                np.einsum("pd,pd->p", *generator.standard_normal((2, size, dim), dtype="float32"))
                for size in _parts(num_pairs, max(2**22 // dim, 10))
            ]
        ).astype("float64")
        scaled = products / np.sqrt(dim)
        found.append(
            {
                "dim": dim,
                "variance": float(products.var()),
                "scaled_variance": float(scaled.var()),
                "largest": _largest(products),
                "scaled_largest": _largest(scaled),
            }
        )
    return found


def _parts(number, size):
    """Yield the sizes of parts, so that all vectors need not be in memory at once."""
    while number > 0:
        yield min(number, size)
        number -= size


def _largest(scores):
    scores = scores[: len(scores) // 10 * 10].reshape(-1, 10)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return float((weights.max(axis=1) / weights.sum(axis=1)).mean())
