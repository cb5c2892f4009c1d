"""Options of the commands that may run on Apache Beam, and Beam's own after `--`."""

import contextlib
import logging

import click

from keras_lm.cli import shared_options as opt
from keras_lm.cli.command import Command
from keras_lm.utils import optional_dependencies
from keras_lm.utils.quiet_stderr import quiet

RUNNER = "--runner"
BEAM = "beam_flags"


class BeamCommand(Command):
    """A command on whose line Beam's own options may follow after `--`.

    If `only_with_runner`, they do so only where `--runner` is given; else `--` means what it always
    means: that no option follows.
    """

    only_with_runner = False

    def parse_args(self, ctx, args):
        flags = []
        given = any(arg.partition("=")[0] == RUNNER for arg in args)
        if "--" in args and (given or not self.only_with_runner):
            border = args.index("--")
            args, flags = args[:border], args[border + 1 :]
        ctx.meta[BEAM] = flags
        return super().parse_args(ctx, args)


class PerhapsBeamCommand(BeamCommand):
    """A `BeamCommand` that runs on Beam only with `--runner`."""

    only_with_runner = True


def beam_flags(runner, processes):
    """Return Beam's options: those of ours, in its words, and those after `--`."""
    if processes > 1 and runner != "DirectRunner":
        raise click.UsageError(
            f"--processes is for --runner DirectRunner; {runner} has options of its own, after --."
        )
    flags = [f"--runner={runner}"]
    if processes > 1:
        flags += ["--direct_running_mode=multi_processing", f"--direct_num_workers={processes}"]
    return [*flags, *click.get_current_context().meta[BEAM]]


@contextlib.contextmanager
def beam(purpose, runner):
    """Import Beam for a command, and keep its remarks off the terminal.

    Workers of the DirectRunner print the traceback of any error there, which is raised besides.
    Other runners may say there how far they are.
    """
    log = logging.getLogger()
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with quiet() if runner == "DirectRunner" else contextlib.nullcontext():
            optional_dependencies.require("apache_beam", purpose)
            yield
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    finally:
        log.setLevel(level)


processes_option = opt.option(
    "--processes", type=click.IntRange(1), default=1, help="Of the DirectRunner, on this machine."
)
