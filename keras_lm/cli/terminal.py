"""What commands say and write: progress, tables, notes and rows."""

import contextlib
import json
import math
import re
import sys
import warnings

import click

from keras_lm import files


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


@contextlib.contextmanager
def progress(size, label):
    """Yield `advance(n)`; it moves a bar if standard error is a terminal and the size is known."""
    if size is None or not sys.stderr.isatty():
        yield lambda n: None
        return
    with click.progressbar(length=size, label=label, file=sys.stderr) as bar:
        yield bar.update


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


def first_line(error):
    """What an exception of somebody else's says, as a sentence."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return line if line.endswith(".") else f"{line}."


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


def json_line(row):
    """Return an object as a line of UTF-8."""
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair has no UTF-8, and JSON an escape for it
        return json.dumps(row).encode() + b"\n"


def plain(value):
    """A row of numpy arrays or bytes as JSON has it, numbers as short as their precision allows."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if hasattr(value, "ndim") and value.ndim:
        return [plain(part) for part in value]
    if hasattr(value, "dtype") and value.dtype.kind == "f":
        # float32 0.1 as a Python float is 0.10000000149011612.
        return float(str(value)) if math.isfinite(value) else None
    return value.item() if hasattr(value, "item") else value
