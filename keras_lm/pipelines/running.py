"""Running a pipeline, and its errors as sentences."""

import logging
import re

from apache_beam import Pipeline
from apache_beam.options.pipeline_options import PipelineOptions

# How an error of ours is found again in what a runner makes of it.
OPENS, CLOSES = "⟦", "⟧"


def input_error(message):
    """Return the error to raise in a worker: a sentence for the user about the input."""
    return ValueError(f"{OPENS}{message}{CLOSES}")


def run(build, flags=()):
    """Run a pipeline to its end.

    Args:
        build: function that takes an `apache_beam.Pipeline` and applies all steps to it.
        flags: list of str, Beam's own options, such as `["--runner=FlinkRunner"]`. Without a
            runner it is the DirectRunner: on this machine, in this process, or in several with
            `--direct_running_mode=multi_processing --direct_num_workers=8`.

    Raises:
        ValueError: if Beam does not know an option, or the input is at fault.
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
        # It would look on the net for Prism, to run that instead, where this is not allowed. There
        # are no triggers here.
        flags = ["--default_sdk_harness_log_level=CRITICAL", "--allow_unsafe_triggers", *flags]
        options = PipelineOptions(flags)
    beam_log = logging.getLogger("apache_beam")
    level = beam_log.level
    try:
        beam_log.setLevel(logging.CRITICAL)  # errors are raised, too
        with Pipeline(options=options) as pipeline:
            build(pipeline)
    except Exception as error:
        if str(error).startswith(KeyboardInterrupt.__name__):  # Ctrl-C, in a worker of this process
            raise KeyboardInterrupt from None
        found = re.search(f"{OPENS}(.*?){CLOSES}", str(error), re.DOTALL)
        if not found:
            raise
        raise ValueError(found[1]) from None
    finally:
        beam_log.setLevel(level)
