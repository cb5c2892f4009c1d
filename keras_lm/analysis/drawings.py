"""Pictures: drawn without a display, shown by a notebook, saved to a file."""

import io
from pathlib import Path
from typing import Any, Self

from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import as_path, replacing
from keras_lm.utils.optional_dependencies import require


class Picture:
    """A figure of matplotlib that a notebook shows as the value of a cell.

    Args:
        figure: `matplotlib.figure.Figure`.

    Example:

        picture = Picture.of_size(3, 2)
        picture.figure.subplots().plot([1, 2, 4])
        picture.save("line.svg")
    """

    def __init__(self, figure: Any):
        self.figure = figure

    @classmethod
    def of_size(cls, width: float, height: float) -> Self:
        """Return an empty picture of a size in inches.

        Raises:
            ImportError: if `matplotlib` is missing; the message has the command that installs it.
        """
        figures = require("matplotlib.figure", "Drawing")  # without pyplot: it needs no display
        return cls(figures.Figure(figsize=(width, height), layout="constrained"))

    def save(self, path: PathLike) -> Path:
        """Write a `.png`, `.svg` or `.pdf`, in one step, and return its `Path`."""
        with replacing(path) as new:
            self.figure.savefig(new, dpi=150)
        return as_path(path)

    def _repr_png_(self):
        file = io.BytesIO()
        self.figure.savefig(file, format="png", dpi=100)
        return file.getvalue()
