"""`keras-lm lecture`: run a table or figure of the lectures."""

import json
import shutil
import textwrap
import time

import click

from keras_lm.cli import options as opt
from keras_lm.cli.command import Command


@click.command("lecture", cls=Command, short_help="Run a table or figure of the lectures.")
@click.argument("name", required=False)
@opt.option("--list", "as_list", is_flag=True, help="List all experiments, and their results.")
@opt.option("--quick", is_flag=True, help="Take seconds and no packages: shows only that it runs.")
@opt.as_json
def lecture_command(name, as_list, quick, as_json):
    """Run a table or figure of the lectures at small scale, and print it beside the published one.

    \b
      keras-lm lecture --list
      keras-lm lecture backpropagation
      keras-lm lecture feature_layers --quick

    Some need packages with texts or weights, and say how to install them. With --json the rows
    come as JSON, with the seconds they took.
    """
    from keras_lm import lectures

    if as_list or name is None:
        _say_list(lectures)
        return
    experiment = lectures.load(name)
    start = time.monotonic()
    rows = experiment.run(quick)
    seconds = round(time.monotonic() - start, 1)
    if as_json:
        result = {"lecture": name, "quick": quick, "seconds": seconds, "rows": rows}
        click.echo(json.dumps(result, ensure_ascii=False, indent=1))
        return
    click.echo(click.style(lectures.title(experiment), bold=True))
    _say("Claim", experiment.CLAIM)
    _say_table(lectures.cells(rows))
    click.echo()
    if quick:
        _say("Quick", "made-up texts and random weights: the figures mean nothing.")
    _say("Published", f"{experiment.PUBLISHED} ({experiment.SOURCE})")
    _say("Found", experiment.FOUND)
    _say("Shows", experiment.SHOWS)


def _say_list(lectures):
    for name in lectures.experiments():
        experiment = lectures.load(name)
        _say(name, f"{lectures.title(experiment)}.")
        click.echo(_wrapped(f"Found: {experiment.FOUND}", "    "))


def _say(head, text):
    click.echo(_wrapped(f"{click.style(head, bold=True)}: {text}", ""))


def _wrapped(text, margin):
    width = min(shutil.get_terminal_size((100, 24)).columns, 100)
    return textwrap.fill(text, width, initial_indent=margin, subsequent_indent=margin or "  ")


def _say_table(table):
    widths = [max(map(len, column)) for column in zip(*table)]
    table.insert(1, ["-" * width for width in widths])
    click.echo()
    for row in table:
        line = [cell.ljust(width) for cell, width in zip(row, widths)]
        click.echo("  ".join(line).rstrip())
