"""Positions as a linear map of the offset. Shapes: P positions, D width."""

import dataclasses

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class OffsetMap:
    """The linear map that best takes each position to the one `offset` further.

    Attributes:
        offset: int.
        matrix: (D, D) float64; `table[:-offset] @ matrix` comes near `table[offset:]`.
        error: float, what is left of the variance: 0 for an exact map, 1 for one that knows no more
            than the mean.
    """

    offset: int
    matrix: np.ndarray
    error: float


def offset_map(table: npt.ArrayLike, offset: int) -> OffsetMap:
    """Return the linear map that best takes position p to p + offset, for all p: an `OffsetMap`.

    Sines and cosines have an exact one, which rotates each frequency's pair by the angle that
    belongs to the offset: so attention can learn to look a fixed number of tokens back. Learned
    positions have none, but training may bring them near one. The map is fitted to every other
    position, and its error measured on the rest, as any few positions could be fitted exactly.

    Args:
        table: (P, D) floats, an embedding of positions, with P of 4·D + offset or more.
        offset: int, 1 or more.

    Raises:
        ValueError: if the table is too short for the width, or the offset.

    Example:

        layer = keras_lm.layers.SinusoidalPositionEmbedding(512, 32)
        layer.build((None, 512, 32))
        keras_lm.analysis.offset_map(layer.embeddings, 5).error < 1e-6  # True

    Source: https://arxiv.org/abs/1706.03762, section 3.5.
    """
    table = np.asarray(table, "float64")
    if table.ndim != 2 or offset < 1 or len(table) - offset < 4 * table.shape[1]:
        raise ValueError(
            f"table has the shape {table.shape} and offset={offset}: pass (P, D) with P of 4·D + "
            "offset or more, and an offset of 1 or more."
        )
    before, after = table[:-offset], table[offset:]
    matrix = np.linalg.lstsq(before[::2], after[::2], rcond=1e-6)[0]
    left = after[1::2] - before[1::2] @ matrix
    spread = after[1::2] - after[1::2].mean(axis=0)
    return OffsetMap(offset, matrix, float((left**2).sum() / max((spread**2).sum(), 1e-300)))
