"""Vectors as points in two dimensions, or in TensorBoard's projector.

Shapes: N vectors, D width, K dimensions of a picture.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_lm.analysis.drawings import Picture
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import on_disk, replacing
from keras_lm.utils.optional_dependencies import require


def principal_components(vectors: npt.ArrayLike, number: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors (N, D) by their directions of largest variance, and the share of each.

    Args:
        vectors: (N, D) floats.
        number: int. Dimensions K to keep.

    Returns:
        (N, K) floats, and (K,) shares of the whole variance.

    Raises:
        ValueError: if the vectors have fewer dimensions.

    Example:

        points, shares = principal_components([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]], 1)
        shares.round(3).tolist()  # [1.0]
    """
    vectors = np.asarray(vectors, "float64")
    if vectors.ndim != 2 or not 1 <= number <= min(vectors.shape):
        raise ValueError(
            f"number={number} with vectors of shape {vectors.shape}: pass (N, D), and a number up "
            "to the smaller of both."
        )
    centred = vectors - vectors.mean(axis=0)
    left, sizes, right = np.linalg.svd(centred, full_matrices=False)
    # The sign of a direction is free: the largest part of each is positive.
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    variances = sizes**2
    shares = variances / max(variances.sum(), 1e-300)
    return (left * sizes * signs)[:, :number], shares[:number]


def tsne(vectors: npt.ArrayLike, perplexity: float = 30.0, seed: int = 0) -> np.ndarray:
    """Return a t-SNE of vectors (N, D), (N, 2) floats: similar ones are near, distances say little.

    Args:
        vectors: (N, D) floats.
        perplexity: float. About how many neighbours count; at most a third of N is taken.
        seed: int.

    Raises:
        ImportError: if scikit-learn is missing; the message has the command that installs it.
        ValueError: if there are fewer than 4 vectors.

    Source: van der Maaten and Hinton, "Visualizing Data using t-SNE", 2008.
    """
    vectors = np.asarray(vectors, "float32")
    if vectors.ndim != 2 or len(vectors) < 4:
        raise ValueError(f"vectors has the shape {vectors.shape}: pass (N, D), 4 or more.")
    manifold = require("sklearn.manifold", "t-SNE")
    perplexity = min(perplexity, max((len(vectors) - 1) / 3, 1.0))
    made = manifold.TSNE(2, perplexity=perplexity, init="pca", random_state=seed)
    return made.fit_transform(vectors)


def draw_points(
    points: npt.ArrayLike,
    labels: Sequence[Any] | None = None,
    words: Sequence[str] | None = None,
    title: str = "",
) -> Picture:
    """Draw points of two dimensions, a colour for each label: a `Picture`.

    Args:
        points: (N, 2) floats, see `principal_components` and `tsne`.
        labels: N values, such as the sense of the word in each text; None for one colour.
        words: N str to write beside the points; None for none.
        title: str.

    Raises:
        ImportError: if `matplotlib` is missing; the message has the command that installs it.
        ValueError: if there are not as many labels or words as points.

    Example:

        points = [[0.0, 1.0], [0.2, 0.9], [3.0, -1.0]]
        draw_points(points, labels=["river", "river", "money"]).save("bank.svg")
    """
    points = np.asarray(points)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"points has the shape {points.shape}: pass (N, 2).")
    for name, given in (("labels", labels), ("words", words)):
        if given is not None and len(given) != len(points):
            raise ValueError(f"{name} has {len(given)} entries for {len(points)} points.")
    picture = Picture.of_size(6, 4.5)
    axes = picture.figure.subplots()
    labels = [""] * len(points) if labels is None else list(labels)
    for label in dict.fromkeys(labels):
        own = points[[other == label for other in labels]]
        axes.scatter(own[:, 0], own[:, 1], s=24, label=str(label))
    if len(set(labels)) > 1:
        axes.legend(frameon=False)
    for (x, y), word in zip(points, words or [], strict=False):
        # As it is: a dollar sign would start a formula.
        axes.annotate(
            word, (x, y), (3, 3), textcoords="offset points", fontsize=8, parse_math=False
        )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, parse_math=False)
    return picture


def write_projector(
    folder: PathLike, vectors: npt.ArrayLike, columns: Mapping[str, Sequence[Any]]
) -> None:
    """Write vectors for TensorBoard's projector, which shows them by PCA, t-SNE and UMAP.

    Open it with `tensorboard --logdir FOLDER`, or load the two `.tsv` files at
    projector.tensorflow.org.

    Args:
        folder: path; made if it is not there. Files of an earlier call are replaced.
        vectors: (N, D) floats.
        columns: dict of a column's name → N values, such as `{"word": …, "sense": …}`.

    Raises:
        ValueError: if there is no column, or one does not have N values.

    Example:

        write_projector("words", np.eye(2), {"word": ["cat", "dog"]})
    """
    vectors = np.asarray(vectors, "float32")
    lengths = {name: len(values) for name, values in columns.items()}
    if vectors.ndim != 2 or {*lengths.values()} != {len(vectors)}:
        raise ValueError(
            f"vectors has the shape {vectors.shape}, and columns the lengths {lengths}: pass "
            "(N, D), and one or more columns of N values."
        )
    folder = on_disk(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = ["\t".join(f"{number:.6g}" for number in row) for row in vectors]
    values = ["\t".join(map(_cell, row)) for row in zip(*columns.values(), strict=True)]
    if len(columns) > 1:  # of a single column, the projector takes the first line as a value
        values.insert(0, "\t".join(map(_cell, columns)))
    config = 'embeddings {\n  tensor_path: "vectors.tsv"\n  metadata_path: "metadata.tsv"\n}'
    for name, lines in (
        ("vectors.tsv", rows),
        ("metadata.tsv", values),
        ("projector_config.pbtxt", [config]),
    ):
        with replacing(folder / name) as new:
            Path(new).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _cell(value):
    return " ".join(str(value).split()) or " "
