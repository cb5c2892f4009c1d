"""Measure keras_lm side by side with its peers. `make bench`, or:

    python benchmarks/run.py [ROW ...] [--rounds N] [--quick] [--write]

docs/benchmarks.md explains the method, and shows what `--write` keeps in `results/`.
"""

import datetime
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path

import click
import materials
import pages
import report
from environments import InstallError, python_of
from rounds import PAUSE, measure
from rows import make_rows

HERE = Path(__file__).parent
KINDS = list(dict.fromkeys(row.kind for row in make_rows(1.0)))


def commands_of(row, environments, settings):
    """Return (dict of contender → command that starts its program, dict of contender → why not)."""
    commands, left_out = {}, {}
    for contender in row.contenders:
        if not can_run(contender.variant):
            left_out[contender.name] = "the processor has nothing for bfloat16"
            continue
        try:
            python = python_of(contender.peer, environments)
        except InstallError as error:
            left_out[contender.name] = str(error)
            continue
        program = HERE / "peers" / f"{contender.peer}_peer.py"
        arguments = json.dumps(settings | {"variant": contender.variant})
        commands[contender.name] = [python, str(program), row.kind, arguments]
    return commands, left_out


def can_run(dtype):
    """Return whether the processor has what a number format needs.

    Without bfloat16 in hardware it takes many times as long, and the figures say nothing.
    """
    return "bfloat16" not in dtype or bool(report.half_precision())


def parse_environments(context, parameter, values):
    """Return the dict of peer → folder that `--environment PEER=FOLDER` means."""
    pairs = dict(value.partition("=")[::2] for value in values)
    for peer, folder in pairs.items():
        if not (Path(folder) / "bin" / "python").exists():
            raise click.BadParameter(f"{peer}={folder}: there is no {folder}/bin/python.")
    return pairs


@click.command()
@click.argument("rows", metavar="[ROW ...]", nargs=-1, type=click.Choice(KINDS))
@click.option("--rounds", type=click.IntRange(1), default=9, show_default=True)
@click.option("--quick", is_flag=True, help="Two short rounds, to see that everything works.")
@click.option(
    "--write", is_flag=True, help="Keep the figures in benchmarks/results, and renew the pages."
)
@click.option(
    "--environment",
    "environments",
    multiple=True,
    callback=parse_environments,
    metavar="PEER=FOLDER",
    help="Use this virtual environment for a peer instead of making one.",
)
def main(rows, rounds, quick, write, environments):
    """Measure keras_lm side by side with its peers, in all rows or some of them."""
    if quick and write:
        raise click.UsageError("--quick is too short for figures to keep: drop it, or --write.")
    rounds = 2 if quick else rounds
    command = shlex.join(["python", "benchmarks/run.py", *sys.argv[1:]])
    date = datetime.date.today().isoformat()
    how = report.how_line(command, date, os.getloadavg()[0], rounds)
    records = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            files, megabytes = materials.prepare(Path(folder))
        except FileNotFoundError as error:
            raise click.ClickException(str(error)) from error
        for row in make_rows(megabytes):
            if (rows and row.kind not in rows) or not can_run(row.settings.get("dtype", "")):
                continue
            click.echo(row.title, err=True)
            if "elmo" in row.needs and "elmo" not in files:
                files["elmo"] = materials.write_elmo(Path(folder))
            if "checkpoint" in row.needs and "checkpoint" not in files:
                files["checkpoint"] = materials.write_checkpoint(Path(folder), files["minilm"])
            if "exports" in row.needs and "exports" not in files:
                files["exports"] = materials.write_exports(Path(folder), files["minilm"])
            if "writers" in row.needs and "writers" not in files:
                files["writers"] = materials.write_writers(Path(folder))
            settings = row.settings | {key: files[key] for key in row.needs}
            settings["calls"] = 1 if quick else row.calls
            commands, left_out = commands_of(row, environments, settings)
            result = measure(
                commands,
                rounds,
                left_out,
                say=lambda line: click.echo(f"  {line}", err=True),
                pause=PAUSE,
            )
            records[row.title] = report.make_record(row, result, how)
            click.echo("\n".join(report.table_lines(row.title, records[row.title])))
    machine = report.describe_machine()
    click.echo("\n".join(machine))
    if write:
        report.save(HERE / "results", machine, records)
        pages.write(HERE)


if __name__ == "__main__":
    main()
