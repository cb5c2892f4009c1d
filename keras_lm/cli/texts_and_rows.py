"""Texts that a command reads, from wherever they come, and the rows that it writes for them."""

import contextlib
import os
import sys
from pathlib import Path

import click

from keras_lm.datasets.row_files import Rows, open_rows
from keras_lm.utils import files
from keras_lm.utils.json_values import json_line

LONGEST_PATH = 1024  # characters


@contextlib.contextmanager
def progress(size, label):
    """Yield `advance(n)`; it moves a bar if standard error is a terminal and the size is known."""
    if size is None or not sys.stderr.isatty():
        yield lambda n: None
        return
    with click.progressbar(length=size, label=label, file=sys.stderr) as bar:
        yield bar.update


def open_input(texts, path, format):
    """Return a context with the `Rows` of texts from the command line, a file or standard input."""
    if texts and path:
        raise click.UsageError("texts are given and --input, too: choose one.")
    for text in texts:
        if Path(text).suffix and len(text) < LONGEST_PATH and os.path.isfile(text):
            raise click.UsageError(f"{text} is a file: pass it by --input {text}.")
    if texts:
        numbered = enumerate(({"text": text} for text in texts), start=1)
        return contextlib.nullcontext(Rows("the command line", numbered, ["text"]))
    if path is None and sys.stdin.isatty():
        raise click.UsageError("no texts: give them as arguments, by --input FILE, or by a pipe.")
    return open_rows(path or "-", format)


def with_progress(batches, rows, label):
    """Yield the batches of `Rows`, and move a bar over the bytes that are read."""
    read = 0
    with progress(rows.size, label) as advance:
        for batch in batches:
            yield batch
            advance(rows.position() - read)
            read = rows.position()


def say_left_out(rows):
    """Print how many of `Rows` have been left out."""
    if rows.left_out:
        click.echo(
            f"{rows.name}: {rows.left_out:,} rows left out, without a label or damaged", err=True
        )
    if rows.num_empty:
        click.echo(f"{rows.name}: {rows.num_empty:,} rows left out, which are empty", err=True)


@contextlib.contextmanager
def json_lines(path, line=None):
    """Yield `write(rows)` to standard output, or to a JSONL file that appears at the end.

    `line` makes the bytes of a row; None for `json_line`.
    """
    with contextlib.ExitStack() as stack:
        if path is None:
            stream = sys.stdout.buffer
        else:
            stream = stack.enter_context(open(stack.enter_context(files.replacing(path)), "wb"))

        def write(rows):
            for row in rows:
                stream.write((line or json_line)(row))
            stream.flush()

        yield write
