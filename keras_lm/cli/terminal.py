"""What commands load, read and print: tasks, texts from wherever they come, answers and tables."""

import contextlib
import os
import re
import sys
import warnings
from pathlib import Path

import click

from keras_lm.cli.options import TASKS
from keras_lm.datasets.row_files import Rows, open_rows
from keras_lm.utils import files
from keras_lm.utils.json_values import json_line

LONGEST_PATH = 1024  # characters
# What pretraining leaves ready; heads of other tasks are useless before they are trained.
PRETRAINED = ("masked-lm", "causal-lm", "seq2seq-lm", "feature-extractor", "pretrainer")


@contextlib.contextmanager
def notes():
    """Print what the library warns of as one line each, without the place in the code.

    A command that loads the same source several times prints it once.
    """
    context = click.get_current_context(silent=True)
    said = context.meta.setdefault(__name__, set()) if context else set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", category=UserWarning)
        yield
    for warning in caught:
        if warning.category is UserWarning:
            # What was called in Python means nothing here, but the source does.
            message = re.sub(r"^\w+\.from_preset\('(.*?)'\):", r"\1:", str(warning.message))
            if message not in said:
                click.echo(f"Note: {message}", err=True)
            said.add(message)


def load_task(source, cls=None, **options):
    """Return the task of a source; see `keras_lm.presets.load_ready_task`."""
    from keras_lm import presets, tasks  # imports TensorFlow

    with notes():
        return presets.load_ready_task(source, cls or tasks.Task, **options)


def choose_task(source, name):
    """Return the class of the task `name`; for None what an opened source holds, or None."""
    from keras_lm import tasks

    if name is None:
        return source.usual_task
    cls = getattr(tasks, TASKS[name])
    if name not in PRETRAINED and source.task_arguments(cls) is None:
        raise ValueError(
            f"{source} has no head for {name}. Train one: keras-lm finetune {source} TRAIN "
            f"--task {name} --output PRESET"
        )
    return cls


def say_rows(pairs):
    """Print `(name, value)` pairs as two columns; a value that is None has no line."""
    pairs = [(name, value) for name, value in pairs if value is not None]
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        first, *rest = value if isinstance(value, list) else [value]
        click.echo(f"{name:<{width}}  {first}")
        for line in rest:
            click.echo(f"{'':<{width}}  {line}")


def megabytes(path):
    """Return the size of a file, or of all files in a folder, as text."""
    return f"{files.size(path) / 1e6:.1f} MB"


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
