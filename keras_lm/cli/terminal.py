"""What commands say: tables, and notes of what they load."""

import contextlib
import re
import warnings

import click

from keras_lm.utils import files


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
