"""Labelled texts of a file, as `keras-lm finetune` and `keras-lm evaluate` read them."""

import dataclasses
import random

import click

from keras_lm.cli.labels import class_indices, read_labels, read_number
from keras_lm.cli.row_files import Rows, open_rows
from keras_lm.cli.shared_options import UNLABELLED


@dataclasses.dataclass
class Examples:
    """Texts and labels, a row each.

    `texts` is a dict of `"text"`, perhaps `"text_pair"`, → list of str. `labels` is a list of
    strings, lists of strings or floats, or None. `lines` says where the rows stand in the file.
    """

    rows: Rows
    texts: dict
    labels: list | None
    lines: list

    def targets(self, class_names=None, multi_label=False):
        """Return what `fit` takes as `y`; see `class_indices`. Without class names, as they are."""
        if self.labels is None or class_names is None:
            return self.labels
        return class_indices(self.rows, self.labels, self.lines, class_names, multi_label)

    def split(self, share, seed):
        """Return two `Examples`, a random `share` of the rows in the second."""
        order = list(range(len(self.lines)))
        random.Random(seed).shuffle(order)  # files are often sorted by label
        at = len(order) - round(len(order) * share)
        if at in (0, len(order)):
            raise click.ClickException(
                f"{share:g} of {len(order)} rows leaves a side empty: choose another share, or a "
                "file for --validation."
            )
        return self._take(order[:at]), self._take(order[at:])

    def _take(self, order):
        def pick(column):
            return [column[i] for i in order]

        return Examples(
            self.rows,
            {role: pick(column) for role, column in self.texts.items()},
            None if self.labels is None else pick(self.labels),
            pick(self.lines),
        )


def read_examples(path, format, columns, task, separator, pairs=None):
    """Return the `Examples` of a whole file.

    `columns` is a dict of `"text"`, `"text_pair"`, `"labels"` → the user's column or None. If a
    text has one label, `separator` is None. `pairs` says whether there are second texts; None
    leaves that to the file.
    """
    with open_rows(path, format) as rows:
        found = {"text": rows.find("text", columns["text"])}
        if pairs is not False:
            pair = rows.find("text_pair", columns["text_pair"], required=bool(pairs))
            found |= {"text_pair": pair} if pair else {}
        labels_column = None
        if task not in UNLABELLED:
            labels_column = rows.find("labels", columns["labels"])
        texts, labels, lines = {role: [] for role in found}, [], []
        for line, row in rows:
            lines.append(line)
            for role, column in found.items():
                texts[role].append(rows.text(line, row, column))
            if labels_column is not None:
                value = rows.value(line, row, labels_column)
                labels.append(
                    read_number(rows, line, value)
                    if task == "text-regressor"
                    else read_labels(rows, line, value, separator)
                )
    if not lines:
        raise click.ClickException(f"{path} has no rows.")
    return Examples(rows, texts, labels if labels_column is not None else None, lines)
