"""Which rows a task answers wrongly, and which class it takes for which."""

import collections
import csv

from keras_lm import files, tasks
from keras_lm.cli.terminal import json_lines


def right_and_found(task, examples, batch_size):
    """Return the right labels of rows and those that a task finds: lists of str, or of lists."""
    if isinstance(task, tasks.MultipleChoice):
        found = task.choose(examples.texts, batch_size)["labels"].tolist()
        return [str(label) for label in examples.labels], [str(label) for label in found]
    names = task.class_names or [str(i) for i in range(task.num_classes)]
    multi_label = getattr(task, "multi_label", False)
    y = examples.targets(names, multi_label)
    if isinstance(task, tasks.TokenClassifier):
        return [[names[i] for i in row] for row in y], task.tag(examples.texts, batch_size)[
            "labels"
        ]
    found = list(task.classify(examples.texts, batch_size)["labels"])
    if multi_label:
        right = [sorted(names[i] for i in row.nonzero()[0]) for row in y]
        return right, [sorted(labels) for labels in found]
    return [names[i] for i in y], found


def write_errors(path, examples, right, found):
    """Write the rows that are answered wrongly as JSONL; return how many there are."""
    texts = examples.texts
    wrong = [n for n, pair in enumerate(zip(right, found, strict=True)) if pair[0] != pair[1]]
    with json_lines(path) as write:
        write(
            {
                examples.rows.unit: examples.lines[n],
                "input": {name: column[n] for name, column in texts.items()},
                "label": right[n],
                "answer": found[n],
            }
            for n in wrong
        )
    return len(wrong)


def write_confusion(path, right, found):
    """Write how often which class is found for which, as CSV: a row for each right class.

    Of words with labels, these are counted.
    """
    if right and isinstance(right[0], list):
        right, found = ([label for row in rows for label in row] for rows in (right, found))
    counts = collections.Counter(zip(right, found, strict=True))
    names = sorted({*right, *found})
    with files.replacing(path) as new, open(new, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["right / found", *names])
        table.writerows([name, *(counts[name, other] for other in names)] for name in names)
