"""Two files, of which the second has the target of each line, or segment, of the first."""

import contextlib
import os

import click

from keras_lm.cli.row_files import Rows, as_messages, open_rows
from keras_lm.cli.shared_options import INPUT_FILE
from keras_lm.published import PUBLISHED
from keras_lm.published.aligned_texts import aligned

targets_option = click.option(
    "--targets",
    type=INPUT_FILE,
    help="For seq2seq-lm: a text file with the target of each line, if the other has lines, too; "
    "with --format wmt, of each segment.",
)


@contextlib.contextmanager
def open_parallel(sources, targets, format=None):
    """Yield the `Rows` of two files of lines, with the columns `text` and `labels`.

    Iterating raises an error if one has more lines than the other.
    """
    format = format or "lines"
    with open_rows(sources, format) as first, open_rows(targets, format) as second:
        rows = aligned(iter(first), iter(second), [first.name, second.name])
        yield Rows(f"{sources} and {targets}", as_messages(rows), ["text", "labels"])


def check_parallel(sources, targets, format=None):
    """Refuse two files that do not fit each other, before the model is loaded.

    What is no file of its own, such as standard input, is read only once, later.
    """
    in_pairs = [None, "lines", *(name for name, each in PUBLISHED.items() if each.in_pairs)]
    if format not in in_pairs:
        raise click.UsageError(
            f"--targets has lines for those of {sources}, and --format is {format}: leave one out."
        )
    if os.path.isfile(sources) and os.path.isfile(targets):
        with open_parallel(sources, targets, format) as rows:
            if not sum(1 for _ in rows):
                raise click.ClickException(f"{sources} has no rows.")
    elif sources == targets:
        raise click.UsageError("standard input is read only once: name a file for --targets.")
