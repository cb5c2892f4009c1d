"""GLUE's tasks: their files, what they are measured by, and what of them a folder holds."""

import dataclasses
import itertools
import random
from pathlib import Path

from keras_lm.datasets import PUBLISHED, read_published
from keras_lm.datasets.row_files import open_rows

SMALL = 10_000  # rows; with fewer, scores differ much from seed to seed
SUFFIXES = (".tsv", ".csv", ".jsonl")
DEV, TEST = {"": ("dev", "sts-dev")}, ("test", "sts-test")
BOTH_METRICS = ("f1", "accuracy")


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """A task of GLUE.

    Args:
        name: str, what GLUE calls it, and its folder.
        format: str, its name in `keras_lm.datasets`.
        measures: tuple of str; their mean is the task's score. If there are several held-out sets,
            there is one for each.
        dev: dict of the name of a held-out set → what its file may be called, without a suffix.
        test: dict of a file of the submission → what the file of its texts may be called.
        words: bool. Whether a submission has the names of the classes, and not their numbers.
    """

    name: str
    format: str
    measures: tuple
    dev: dict
    test: dict
    words: bool = False

    @property
    def class_names(self):
        """The names of the classes, in order; an empty list if labels are numbers."""
        return list(PUBLISHED[self.format].class_names)


def _task(name, format, measures=("accuracy",), dev=DEV, test=None, words=False):
    return GlueTask(name, format, measures, dev, test or {f"{name}.tsv": TEST}, words)


TASKS = {
    task.name: task
    for task in (
        _task("CoLA", "cola", ("matthews",)),
        _task("SST-2", "sst2"),
        _task("MRPC", "mrpc", BOTH_METRICS),
        _task("STS-B", "stsb", ("pearson", "spearman")),
        _task("QQP", "qqp", BOTH_METRICS),
        _task(
            "MNLI",
            "mnli",
            ("matched", "mismatched"),
            dev={"matched": ("dev_matched", "dev"), "mismatched": ("dev_mismatched",)},
            test={"MNLI-m.tsv": ("test_matched",), "MNLI-mm.tsv": ("test_mismatched",)},
            words=True,
        ),
        _task("QNLI", "qnli", words=True),
        _task("RTE", "rte", words=True),
        _task("WNLI", "wnli"),
    )
}
# Answered by the model of MNLI, and by none of its own.
DIAGNOSTIC, DIAGNOSTIC_FOLDERS = "AX.tsv", ("AX", "diagnostic")
DIAGNOSTIC_FILES = ("diagnostic", "AX", "test")
# The files of a submission, all of which the leaderboard wants.
SUBMITTED = [*(file for task in TASKS.values() for file in task.test), DIAGNOSTIC]


@dataclasses.dataclass
class FoundTask:
    """What a folder holds of a task: `train` is a path, `dev` and `test` are dicts of paths.

    `test` may lack files, which are then not answered, and `dev` the second held-out set.
    """

    task: GlueTask
    train: Path
    dev: dict
    test: dict

    def is_small(self):
        """Return whether the training file has few rows."""
        with open_rows(str(self.train), self.task.format) as rows:
            return sum(1 for _ in itertools.islice(rows, SMALL)) < SMALL

    def read(self, path, rows=None):
        """Return the rows of a file, or a random sample of them, the same each time.

        They are a dict of texts and the list of labels, or None, and a list of ids or None.
        """
        data = read_published(path, self.task.format)
        x, labels, ids = data.x, data.labels, data.ids
        number = len(x["text"])
        if rows is not None and rows < number:
            chosen = sorted(random.Random(0).sample(range(number), rows))
            x = {key: [column[i] for i in chosen] for key, column in x.items()}
            labels = labels and [labels[i] for i in chosen]
        return x, labels, ids


def find_tasks(data, names):
    """Return a list of `FoundTask` in a folder, and a dict of the names of others → the reason.

    Args:
        data: `Path` with a folder for each task, called as GLUE calls it.
        names: list of str, the tasks to look for.

    Raises:
        ValueError: if the first row of a file cannot be read; names file and line.
    """
    results, skipped = [], {}
    for name in names:
        try:
            results.append(_find_task(data, TASKS[name]))
        except LookupError as reason:
            skipped[name] = reason.args[0]
    mnli = next((each for each in results if each.task.name == "MNLI"), None)
    diagnostic = next(filter(None, (_folder(data, name) for name in DIAGNOSTIC_FOLDERS)), None)
    file = diagnostic and _file(diagnostic, DIAGNOSTIC_FILES)
    if mnli and file:
        mnli.test[DIAGNOSTIC] = file
    elif "MNLI" in names:
        wanted = f"{DIAGNOSTIC_FOLDERS[0]}/{DIAGNOSTIC_FILES[0]}.tsv"
        skipped["AX"] = f"{data} has no {wanted}" if mnli else "it is for the model of MNLI"
    return results, skipped


def _find_task(data, task):
    folder = _folder(data, task.name)
    if folder is None:
        raise LookupError(f"{data} has no folder {task.name}")
    there = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
    train = _file(folder, ("train", "sts-train"))
    if train is None:
        raise LookupError(f"{folder} has no training file, train.tsv; it has {there}")
    dev = _files(folder, task.dev)
    if not dev:
        wanted = f"{next(iter(task.dev.values()))[0]}.tsv"
        raise LookupError(f"{folder} has no file {wanted} to measure on; it has {there}")
    for file in (train, *dev.values()):
        if not _has_labels(file, task.format):
            raise LookupError(f"{file} has no labels")
    return FoundTask(task, train, dev, _files(folder, task.test))


def _folder(data, name):
    """Return the folder of a task, which may be written in other cases and without hyphens."""

    def plain(name):
        return name.lower().replace("-", "").replace("_", "")

    folders = (path for path in sorted(data.iterdir()) if path.is_dir())
    return next((path for path in folders if plain(path.name) == plain(name)), None)


def _files(folder, wanted):
    results = {key: _file(folder, names) for key, names in wanted.items()}
    return {key: path for key, path in results.items() if path}


def _file(folder, names):
    """Return the first file with one of the names and a known suffix, perhaps packed; or None."""
    paths = (
        folder / f"{name}{suffix}{packed}"
        for name in names
        for suffix in SUFFIXES
        for packed in ("", ".gz")
    )
    return next((path for path in paths if path.is_file()), None)


def _has_labels(path, format):
    with open_rows(str(path), format) as rows:
        _, row = next(iter(rows))
        return row.get("labels") is not None
