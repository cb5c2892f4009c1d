"""A picture of the paths that a choice was scored by."""

import textwrap
from pathlib import Path
from typing import Any

from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import replacing
from keras_lm.utils.optional_dependencies import require

WIDTH, ROW = 9, 0.55  # inches, of the picture and of a path
MOST_LETTERS = 22  # of a concept


def draw_explanation(
    explained: dict[str, Any], path: PathLike, choice: int | None = None, most: int = 8
) -> Path:
    """Draw the paths with the most attention, a row for each, and return the file's `Path`.

    The attention of a path is its pair's times its own; a line is as strong as that. A relation
    with `-` in front goes from right to left.

    Args:
        explained: dict of a text, one of those that `GraphChoice.explain` returns.
        path: file to write: `.png`, `.svg` or `.pdf`.
        choice: int, the position of the choice; None for the best.
        most: int. Paths to draw.

    Raises:
        ImportError: if `matplotlib` is missing; the message has the command that installs it.
        ValueError: if there is no such choice.

    Example:

        path = {"concepts": ["ice", "slippery"], "relations": ["HasProperty"], "attention": 1.0}
        pair = {"question": "ice", "answer": "slippery", "attention": 1.0, "paths": [path]}
        choice = {"choice": "slippery", "score": 0.9, "pairs": [pair]}
        explained = {"text": "What is ice?", "label": 0, "choices": [choice]}
        keras_lm.knowledge.draw_explanation(explained, "ice.svg")
    """
    figures = require("matplotlib.figure", "Drawing")  # without pyplot: it needs no display
    choices, number = explained["choices"], explained["label"] if choice is None else choice
    if not 0 <= number < len(choices):
        raise ValueError(
            f"choice={number}: there are {len(choices)}, pass 0 to {len(choices) - 1}."
        )
    one = choices[number]
    rows = [
        (pair["attention"] * concept_path["attention"], concept_path)
        for pair in one["pairs"]
        for concept_path in pair["paths"]
    ]
    rows = sorted(rows, key=lambda row: -row[0])[:most]
    figure = figures.Figure(figsize=(WIDTH, 1.2 + ROW * max(len(rows), 1)), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_xlim(-0.16, 1.1)
    axes.set_ylim(-max(len(rows), 1) + 0.4, 0.6)
    title = "\n".join(textwrap.wrap(f"{explained['text']} → {one['choice']}", 80))
    axes.set_title(f"{title}  ({one['score']:.2f})", fontsize=11)
    if not rows:
        axes.text(
            0.5, 0, "no path between a concept of the text and one of the choice", ha="center"
        )
    strongest = rows[0][0] if rows else 1
    for row, (attention, concept_path) in enumerate(rows):
        _draw_path(axes, -row, concept_path, attention, attention / max(strongest, 1e-9))
    with replacing(path) as new:
        figure.savefig(new, dpi=150)
    return path


def _draw_path(axes, y, concept_path, attention, strength):
    """Draw one path from left to right, with its attention in front."""
    axes.text(-0.15, y, f"{attention:.2f}", va="center", fontsize=9, color="0.4")
    concepts = concept_path["concepts"]
    places = [column / (len(concepts) - 1) for column in range(len(concepts))]
    axes.plot(
        places,
        [y] * len(places),
        color="tab:blue",
        alpha=0.15 + 0.85 * strength,
        linewidth=0.5 + 4 * strength,
        zorder=1,
    )
    for x, concept in zip(places, concepts, strict=True):
        name = textwrap.shorten(concept.replace("_", " "), MOST_LETTERS, placeholder="…")
        box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "0.6"}
        axes.text(x, y, name, ha="center", va="center", fontsize=9, bbox=box, zorder=2)
    for left, right, relation in zip(
        places[:-1], places[1:], concept_path["relations"], strict=True
    ):
        axes.text((left + right) / 2, y + 0.16, relation, ha="center", fontsize=7, color="0.3")
