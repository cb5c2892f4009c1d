"""Runs pipelines, and turns their errors into sentences."""

import logging
import re

from apache_beam import Pipeline
from apache_beam.options.pipeline_options import PipelineOptions

# Marks our own message, so that it can be found in the error that a runner makes of it.
OPENS, CLOSES = "⟦", "⟧"


def input_error(message):
    """Return an error about the input to raise in a worker; the user sees only the message."""
    return ValueError(f"{OPENS}{message}{CLOSES}")


def is_direct(flags):
    """Return whether Beam's options choose the DirectRunner, which is the default."""
    return PipelineOptions(list(flags)).get_all_options()["runner"] in (None, "DirectRunner")


def run(build, flags=()):
    """Run a pipeline to its end.

    Args:
        build: function that takes an `apache_beam.Pipeline` and applies all steps to it.
        flags: list of str, Beam's own options, such as `["--runner=FlinkRunner"]`. The default is
            the DirectRunner, which runs on this machine, in this process, or in several with
            `--direct_running_mode=multi_processing --direct_num_workers=8`.

    Raises:
        ValueError: if Beam does not know an option, or the input is invalid.
    """
    flags = list(flags)
    options = PipelineOptions(flags)
    known = options.get_all_options()
    unknown = options.get_all_options(retain_unknown_options=True).keys() - known.keys()
    if unknown:
        raise ValueError(
            f"Beam has no option {', '.join(f'--{name}' for name in sorted(unknown))}."
        )
    if known["runner"] in (None, "DirectRunner"):
        # Without this permission, the DirectRunner would download Prism and run that instead. It
        # is safe, because our pipelines have no triggers.
        flags = ["--default_sdk_harness_log_level=CRITICAL", "--allow_unsafe_triggers", *flags]
        options = PipelineOptions(flags)
    beam_log = logging.getLogger("apache_beam")
    level = beam_log.level
    try:
        beam_log.setLevel(logging.CRITICAL)  # errors are raised, too
        with Pipeline(options=options) as pipeline:
            build(pipeline)
    except Exception as error:
        if str(error).startswith(KeyboardInterrupt.__name__):  # Ctrl-C in a thread of this process
            raise KeyboardInterrupt from None
        match = re.search(f"{OPENS}(.*?){CLOSES}", str(error), re.DOTALL)
        if not match:
            raise
        raise ValueError(match[1]) from None
    finally:
        beam_log.setLevel(level)
