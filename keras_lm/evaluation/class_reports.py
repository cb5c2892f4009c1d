"""Right labels beside those that were found: measures of each class, and a matrix of confusions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_lm.analysis.drawings import Picture
from keras_lm.feeding.feed import named_column
from keras_lm.utils.user_arguments import checks_flags

INCHES, MOST_NAMED = 0.45, 60  # of a class in a picture; more classes have no names and numbers


class ClassReport:
    """How well each class is found, and which one is taken for which.

    Args:
        labels: the right labels, one for each text: names, or positions in `class_names`. Lists of
            them if words have labels, or with `multi_label` texts any number.
        found: what a task answers for the same texts, `task.classify(texts)["labels"]`,
            `task.tag(texts)["labels"]` or `task.choose(texts)["labels"]`.
        class_names: list of str, the order of the classes; None for all that occur, sorted.
        multi_label: bool. Whether lists are the labels of texts, not of words.

    Attributes:
        class_names: list of str, C names.
        classes: dict of name → dict of `precision`, `recall`, `f1` and `number`, how many have it.
        accuracy: float, the share of texts, or words, whose labels are right.
        macro_f1: float, the mean F1 of the classes.
        confusion: (C, C) array, how often the class of a column was found for that of a row; None
            with `multi_label`.

    Raises:
        ValueError: if there are no labels, their numbers differ, or one is not in `class_names`.

    Example:

        report = keras_lm.evaluation.ClassReport(labels, task.classify(texts)["labels"])
        print(report)
        report.draw().save("confusion.png")
    """

    @checks_flags
    def __init__(
        self,
        labels: Sequence[Any],
        found: Sequence[Any],
        class_names: Sequence[str] | None = None,
        multi_label: bool = False,
    ):
        expected, answered = list(named_column(labels, "labels")), list(found)
        _check_numbers(expected, answered, "labels", "found")
        if not multi_label and isinstance(expected[0], (list, tuple, np.ndarray)):
            for row, (right, answer) in enumerate(zip(expected, answered)):
                _check_numbers(right, answer, f"labels[{row}]", f"found[{row}]", least=0)
            expected, answered = ([x for row in rows for x in row] for rows in (expected, answered))
        names = None if class_names is None else [str(name) for name in class_names]
        if names is None and _are_numbers(expected) and not _are_numbers(answered):
            raise ValueError(
                "labels are numbers, and found are names: pass class_names=task.class_names."
            )
        sides = [_named(rows, names, multi_label) for rows in (expected, answered)]
        occurring = {name for side in sides for row in side for name in row}
        self.class_names: list[str] = names or sorted(occurring)
        if unknown := sorted(occurring.difference(self.class_names)):
            raise ValueError(f"{unknown[0]!r} is not one of class_names={self.class_names}.")
        places = {name: place for place, name in enumerate(self.class_names)}
        right, answers = np.zeros((2, len(expected), len(places)), bool)
        for hot, side in zip((right, answers), sides):
            for row, row_names in enumerate(side):
                hot[row, [places[name] for name in row_names]] = True
        self.accuracy: float = float(np.mean((right == answers).all(axis=1)))
        self.classes: dict[str, dict[str, float]] = {
            name: _scores(right[:, place], answers[:, place]) for name, place in places.items()
        }
        self.macro_f1: float = float(np.mean([scores["f1"] for scores in self.classes.values()]))
        self.confusion: np.ndarray | None = None
        if not multi_label:
            self.confusion = right.T.astype(int) @ answers.astype(int)

    def __str__(self):
        width = max(len("class"), *map(len, self.class_names))
        lines = [f"{'class':<{width}}  precision  recall      F1  number"]
        lines += [
            f"{name:<{width}}  {scores['precision']:9.4f}  {scores['recall']:6.4f}"
            f"  {scores['f1']:6.4f}  {scores['number']:6,}"
            for name, scores in self.classes.items()
        ]
        return "\n".join(
            [*lines, "", f"accuracy  {self.accuracy:.4f}", f"macro F1  {self.macro_f1:.4f}"]
        )

    def draw(self) -> Picture:
        """Return the matrix of confusions as a picture: a row for each right class.

        Colours are shares of the row, numbers are counts.

        Raises:
            ImportError: if `matplotlib` is missing; the message has the command that installs it.
            ValueError: with `multi_label`, which has no such matrix.
        """
        if self.confusion is None:
            raise ValueError("multi_label=True: texts with several labels have no such matrix.")
        names, size = self.class_names, min(INCHES * len(self.class_names), 20)
        picture = Picture.of_size(size + 3, size + 2)
        axes = picture.figure.subplots()
        shares = self.confusion / np.maximum(self.confusion.sum(axis=1, keepdims=True), 1)
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        picture.figure.colorbar(image, ax=axes, label="share of the row")
        axes.set(xlabel="found", ylabel="right")
        if len(names) <= MOST_NAMED:
            axes.set_xticks(range(len(names)), names, rotation=90)
            axes.set_yticks(range(len(names)), names)
            for (row, column), number in np.ndenumerate(self.confusion):
                if number:
                    color = "white" if shares[row, column] > 0.5 else "black"
                    axes.text(column, row, f"{number:,}", ha="center", va="center", color=color)
        return picture


def _check_numbers(right, answers, *names, least=1):
    if len(right) != len(answers) or len(right) < least:
        raise ValueError(
            f"{names[0]} has {len(right)} labels and {names[1]} {len(answers)}: pass one for each, "
            "and at least one."
        )


def _are_numbers(labels):
    return all(isinstance(label, (int, np.integer)) for label in labels)


def _named(rows, names, multi_label):
    """Return rows of labels as lists of names; numbers are positions in `names`, if there are."""

    def name(label):
        if isinstance(label, bytes):
            return label.decode("utf-8", "replace")
        is_number = isinstance(label, (int, np.integer))
        return names[label] if is_number and names and 0 <= label < len(names) else str(label)

    return [[name(label) for label in (row if multi_label else [row])] for row in rows]


def _scores(right, answers):
    """Return precision, recall, F1 and the number of a class, of its bool (N,)."""
    hits = int((right & answers).sum())
    precision, recall = (hits / max(int(labels.sum()), 1) for labels in (answers, right))
    f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
    return {"precision": precision, "recall": recall, "f1": f1, "number": int(right.sum())}
