"""The answers of a task to labelled rows, those that are wrong, and for what."""

import csv
from typing import Any, NamedTuple

from keras_lm import tasks
from keras_lm.datasets.examples import Examples
from keras_lm.evaluation.class_reports import ClassReport
from keras_lm.tasks.task import Task
from keras_lm.utils import files
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.json_values import json_line, plain

PICTURES = (".png", ".svg", ".pdf")  # suffixes of confusions that are drawn


class Answered(NamedTuple):
    """The answers to rows.

    Attributes:
        right, found: lists of the right labels and of those found, str or lists of str.
        scores: list with a dict for each row, of its right and its found labels → scores; or if
            words have labels with a list, the score of each word's.
    """

    right: list[Any]
    found: list[Any]
    scores: list[Any]


def answer_examples(task: Task, examples: Examples, batch_size: int) -> Answered:
    """Return the answers of a task to labelled rows.

    Args:
        task: `TextClassifier`, `TokenClassifier` or `MultipleChoice`.
        examples: `keras_lm.data.Examples`.
        batch_size: int.
    """
    if isinstance(task, tasks.MultipleChoice):
        answer = task.choose(examples.texts, batch_size)
        right, answers = (
            [[str(label)] for label in labels] for labels in (examples.labels, answer["labels"])
        )
        names = [str(i) for i in range(answer["scores"].shape[1])]
    else:
        names = task.class_names or [str(i) for i in range(task.num_classes)]
        y = examples.targets(names, getattr(task, "multi_label", False))
        if isinstance(task, tasks.TokenClassifier):
            answer = task.tag(examples.texts, batch_size)
            right = [[names[i] for i in row] for row in y]
            return Answered(right, answer["labels"], answer["scores"])
        answer = task.classify(examples.texts, batch_size)
        if task.multi_label:
            right = [sorted(names[i] for i in row.nonzero()[0]) for row in y]
            answers = [sorted(labels) for labels in answer["labels"]]
        else:
            right, answers = [[names[i]] for i in y], [[name] for name in answer["labels"]]
    places = {name: place for place, name in enumerate(names)}
    scores = [
        {name: row[places[name]] for name in sorted({*a, *b})}
        for a, b, row in zip(right, answers, answer["scores"], strict=True)
    ]
    if not getattr(task, "multi_label", False):
        right, answers = ([name for (name,) in labels] for labels in (right, answers))
    return Answered(right, answers, scores)


def write_errors(path: PathLike, examples: Examples, answers: Answered) -> int:
    """Write the rows that are answered wrongly as JSONL; return how many there are.

    Args:
        path: path of the file.
        examples: `keras_lm.data.Examples`; their `others` are written, too, if they were kept.
        answers: `Answered`, see `answer_examples`.
    """
    wrong = [n for n, right in enumerate(answers.right) if right != answers.found[n]]
    with files.replacing(path) as new, open(new, "wb") as file:
        for n in wrong:
            row = {
                examples.rows.unit: examples.lines[n],
                "input": {name: column[n] for name, column in examples.texts.items()},
                "label": answers.right[n],
                "answer": answers.found[n],
                "scores": plain(answers.scores[n]),
            }
            if examples.others and examples.others[n]:
                row["columns"] = examples.others[n]
            file.write(json_line(row))
    return len(wrong)


def write_confusion(path: PathLike, answers: Answered) -> None:
    """Write a matrix of confusions: a row for each right class, a column for each answer.

    Args:
        path: path of a CSV, or of a picture if it ends in `.png`, `.svg` or `.pdf`.
        answers: `Answered`, see `answer_examples`. If words have labels, these are counted.

    Raises:
        ValueError: if the path has another ending.
    """
    suffix = files.as_path(path).suffix
    if suffix not in (".csv", *PICTURES):
        raise ValueError(f"path={str(path)!r}: name a file that ends in .csv, .png, .svg or .pdf.")
    report = ClassReport(answers.right, answers.found)
    if suffix in PICTURES:
        report.draw().save(path)
        return
    with files.replacing(path) as new, open(new, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["right / found", *report.class_names])
        for name, counts in zip(report.class_names, report.confusion.tolist()):
            table.writerow([name, *counts])
