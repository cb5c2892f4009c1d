"""What commands say and write: progress, tables, rows, and notes of what they load."""

import contextlib
import re
import sys
import warnings

import click

from keras_lm import files
from keras_lm.plain import json_line
from keras_lm.published.row_files import Rows, open_rows


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


def load_task(*arguments, **options):
    """Return the task of a source; see `keras_lm.tasks.from_source.load_task`."""
    from keras_lm.tasks import from_source  # imports TensorFlow

    with notes():
        return from_source.load_task(*arguments, **options)


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
