"""Pictures of attention, for a paper or a page. Shapes: L layers, N heads, S, T tokens."""

from typing import Any

import numpy as np

from keras_lm.analysis.drawings import Picture

MOST_NAMES = 60  # of tokens beside a picture


def draw_head(found: Any, layer: int, head: int | None) -> Picture:
    """Draw one head: a row for each token that reads, a column for each that is read.

    Args:
        found: `AttentionMap`.
        layer: int.
        head: int, or None for the mean of all heads of the layer.

    Returns:
        A `Picture`.

    Raises:
        ImportError: if `matplotlib` is missing; the message has the command that installs it.
        ValueError: if there is no such layer or head.

    Example:

        cells = np.eye(3, dtype="float32")[np.newaxis, np.newaxis]
        attention = keras_lm.analysis.AttentionMap(["a", "b", "c"], ["a", "b", "c"], cells)
        draw_head(attention, layer=0, head=0).save("head.png")
    """
    layers, heads = found.probabilities.shape[:2]
    if not 0 <= layer < layers or (head is not None and not 0 <= head < heads):
        raise ValueError(
            f"layer={layer}, head={head}: there are layers 0 to {layers - 1}, and heads 0 to "
            f"{heads - 1}."
        )
    cells = found.probabilities[layer]
    cells = cells.mean(axis=0) if head is None else cells[head]  # (S, T)
    width, height = (np.clip(1.5 + 0.22 * size, 4, 12) for size in cells.shape[::-1])
    picture = Picture.of_size(width, height)
    axes = picture.figure.subplots()
    # The root makes small shares visible.
    image = axes.imshow(np.sqrt(cells), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.xaxis.tick_top()
    _name(axes.set_xticks, found.attended, rotation=60, ha="left")
    _name(axes.set_yticks, found.tokens)
    axes.set_title(f"layer {layer}, {'mean of heads' if head is None else f'head {head}'}")
    bar = picture.figure.colorbar(image, ticks=np.sqrt([0, 0.05, 0.25, 0.5, 1]))
    bar.ax.set_yticklabels(["0", "0.05", "0.25", "0.5", "1"])
    return picture


def _name(set_ticks, tokens, **options):
    """Write the tokens beside an axis, if there is room."""
    if len(tokens) > MOST_NAMES:
        return
    # As they are: two dollar signs would be a formula.
    set_ticks(range(len(tokens)), tokens, fontsize=8, parse_math=False, **options)


def draw_heads(found: Any) -> Picture:
    """Draw all heads of all layers, small: a row for each layer, a column for each head.

    Args:
        found: `AttentionMap`.

    Returns:
        A `Picture`.

    Raises:
        ImportError: if `matplotlib` is missing; the message has the command that installs it.

    Example:

        cells = np.eye(3, dtype="float32")[np.newaxis, np.newaxis]
        attention = keras_lm.analysis.AttentionMap(["a", "b", "c"], ["a", "b", "c"], cells)
        draw_heads(attention).save("heads.png")
    """
    layers, heads = found.probabilities.shape[:2]
    picture = Picture.of_size(0.8 + 0.8 * heads, 0.6 + 0.8 * layers)
    grid = picture.figure.subplots(layers, heads, squeeze=False)
    for layer, row in enumerate(grid):
        for head, axes in enumerate(row):
            cells = np.sqrt(found.probabilities[layer, head])
            axes.imshow(cells, cmap="Blues", vmin=0, vmax=1, aspect="auto")
            axes.set_xticks([])
            axes.set_yticks([])
            if not layer:
                axes.set_title(f"{head}", fontsize=9)
        row[0].set_ylabel(f"layer {layer}", fontsize=9)
    return picture
