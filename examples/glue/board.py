"""The folder of a board: its runs, a JSON file each, by which an interrupted one goes on.

board.json                  what all runs have in common
runs/MODEL/TASK/RUN.json    a run's settings and scores
presets/MODEL/TASK          the best of them
submission/MODEL/TASK.tsv   its answers to the test set, and all of them in submission.zip
scores.md scores.json scores.png
"""

import dataclasses
import json

import click

from glue.published import ScoredRow
from keras_lm.utils.files import replacing, require_free


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a run trains: `learning_rate` None is the model's own."""

    batch_size: int
    epochs: int
    learning_rate: float | None
    seed: int

    @property
    def name(self):
        """What the run's file is called."""
        rate = "" if self.learning_rate is None else f"-rate{self.learning_rate:g}"
        return f"batch{self.batch_size}-epochs{self.epochs}{rate}-seed{self.seed}"


class Board:
    """The runs of a folder, all of the same `data` (a path) and number of `rows` (None for all).

    Raises:
        click.ClickException: if the folder holds runs of others.
        FileExistsError: if it holds something else.
    """

    def __init__(self, folder, data, rows):
        self.folder = folder
        self.rows = rows
        require_free(folder, "holds no board", "board.json")
        about = {"data": str(data.resolve()), "rows": rows}
        self._check(folder / "board.json", about)

    def _check(self, path, about):
        """Write what runs have in common, or refuse to go on with something else."""
        if not path.is_file():
            _write(path, about)
            return
        stored = json.loads(path.read_text(encoding="utf-8"))
        changed = [key for key in about if stored.get(key) != about[key]]
        if changed:
            raise click.ClickException(
                f"{path.parent} holds runs with another {' and '.join(changed)}, "
                f"{', '.join(str(stored.get(key)) for key in changed)}: give the same, or choose "
                "another --output."
            )

    def begin(self, model, about):
        """Begin a model's runs, or go on with them; `about` is what they have in common."""
        self._check(self.folder / "runs" / model / "about.json", about)

    def read(self, model, task, setting):
        """Return what a run has written, or None if there is none yet."""
        path = self._path(model, task, setting)
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def write(self, model, task, setting, result):
        """Write the result of a run, a dict with `scores`, in percent."""
        result = dataclasses.asdict(setting) | result
        _write(self._path(model, task, setting), result)

    def best(self, model, task):
        """Return the run of a model whose scores are highest in the mean; None without a run."""
        paths = sorted((self.folder / "runs" / model / task).glob("*.json"))
        runs = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        return max(runs, key=mean_score, default=None)

    def table(self, tasks):
        """Return a `ScoredRow` for each model with runs on some of the tasks, the first one first.

        Of a task, it has the scores of the best run.
        """
        abouts = (self.folder / "runs").glob("*/about.json")
        models = [path.parent.name for path in sorted(abouts, key=lambda p: p.stat().st_mtime_ns)]
        rows = []
        for model in models:
            best = {task: self.best(model, task) for task in tasks}
            best = {task: run for task, run in best.items() if run}
            about = json.loads((self.folder / "runs" / model / "about.json").read_text("utf-8"))
            note = f"{about['source']}; {_told(best, self.rows)}"
            scores = {task: run["scores"] for task, run in best.items()}
            rows += [ScoredRow(model, "dev", scores, note)] if scores else []
        return rows

    def _path(self, model, task, setting):
        return self.folder / "runs" / model / task / f"{setting.name}.json"


def _told(best, rows):
    """Say how the best runs were trained, a dict of a task → the run."""
    told = {}
    for task, run in best.items():
        setting = f"batch size {run['batch_size']}, epochs {run['epochs']}, learning rate "
        told.setdefault(setting + f"{run['learning_rate']:.3g}", []).append(task)
    said = "; ".join(f"{setting} ({', '.join(names)})" for setting, names in told.items())
    return said + (f"; {rows:,} rows of each file" if rows else "")


def mean_score(run):
    """Return the mean of a run's scores."""
    return sum(run["scores"].values()) / len(run["scores"])


def _write(path, content):
    with replacing(path) as new:
        new.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
