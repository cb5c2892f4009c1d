"""Two text files, of which the second has the target of each line of the first."""

import contextlib
import itertools
import os

import click

from keras_lm.cli.row_files import Rows, open_rows
from keras_lm.cli.shared_options import INPUT_FILE

targets_option = click.option(
    "--targets",
    type=INPUT_FILE,
    help="For seq2seq-lm: a text file with the target of each line, if the other has lines, too.",
)


@contextlib.contextmanager
def open_parallel(sources, targets):
    """Yield the `Rows` of two files of lines, with the columns `text` and `labels`.

    Iterating raises an error if one has more lines than the other.
    """
    with open_rows(sources, "lines") as first, open_rows(targets, "lines") as second:
        yield Rows(f"{sources} and {targets}", _pairs(first, second), ["text", "labels"])


def _pairs(first, second):
    pairs = itertools.zip_longest(first, second)
    for number, (source, target) in enumerate(pairs, start=1):
        if source is None or target is None:
            longer, left = (first, source) if target is None else (second, target)
            lines = left[0] + sum(1 for _ in longer)
            shorter = second if longer is first else first
            raise click.ClickException(
                f"{longer.name} has {lines:,} lines, and {shorter.name} has {number - 1:,}: the "
                "target of a line is in the same line of the other file, perhaps an empty one."
            )
        yield number, {"text": source[1]["text"], "labels": target[1]["text"]}


def check_parallel(sources, targets, format=None):
    """Refuse two files that do not fit each other, before the model is loaded.

    What is no file of its own, such as standard input, is read only once, later.
    """
    if format not in (None, "lines"):
        raise click.UsageError(
            f"--targets has lines for those of {sources}, and --format is {format}: leave one out."
        )
    if os.path.isfile(sources) and os.path.isfile(targets):
        with open_parallel(sources, targets) as rows:
            if not sum(1 for _ in rows):
                raise click.ClickException(f"{sources} has no rows.")
    elif sources == targets:
        raise click.UsageError("standard input is read only once: name a file for --targets.")
