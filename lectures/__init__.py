"""The lectures: their tables and figures as small programs, and what we found by each.

This folder is imported as `keras_lm.lectures`; `setup.py` maps it there. Each module beside
`materials.py` is an experiment: `keras-lm lecture NAME` runs it. It has

- a docstring, whose first line is its title;
- `CLAIM`: what the lecture says, in a sentence;
- `PUBLISHED` and `SOURCE`: the figure of the paper, and which paper;
- `NEEDS`: the packages that a full run reads, of `materials.PACKAGES`;
- `FOUND`: what we found, in a sentence, with seeds and spread where there is chance;
- `SHOWS`: what that shows, and what it does not;
- `run(quick)`: returns the rows of its table, dicts. With `quick=True` it takes seconds, needs no
  package, and shows no more than that it runs.

`results/NAME.json` keeps the rows of the full run that `FOUND` describes, as `keras-lm lecture NAME
--json` prints them. `decks/*.toml` list all figures of a lecture and what runs each;
`docs/decks.py` makes pages of all this.
"""

if __name__ != "keras_lm.lectures":
    raise ImportError(f"import it as keras_lm.lectures, not as {__name__!r}")

import importlib
import json
import tomllib
from pathlib import Path

from keras_lm.lectures import materials

__all__ = ["cells", "decks", "experiments", "load", "materials", "results", "title"]

FOLDER = Path(__file__).parent


def experiments():
    """Return the names of all experiments."""
    modules = {path.stem for path in FOLDER.glob("*.py")}
    return sorted(modules - {"__init__", "materials"})


def load(name):
    """Return the module of an experiment.

    Raises:
        ValueError: if there is no experiment of this name.
    """
    if name not in experiments():
        raise ValueError(f"There is no experiment {name!r}: keras-lm lecture --list shows all.")
    return importlib.import_module(f"keras_lm.lectures.{name}")


def title(experiment):
    """Return the first line of an experiment's docstring, without its full stop."""
    return experiment.__doc__.splitlines()[0].removesuffix(".")


def results(name):
    """Return what the kept run of an experiment printed, a dict, or None."""
    path = FOLDER / "results" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def decks():
    """Return a dict of a deck's name → its `title`, `by` and `figures`, all of them in order."""
    paths = sorted((FOLDER / "decks").glob("*.toml"))
    return {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in paths}


def cells(rows):
    """Return the rows of a table as lists of str, its header first."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [names, *([_text(row.get(name, "")) for name in names] for row in rows)]


def _text(value):
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
    return str(value)
