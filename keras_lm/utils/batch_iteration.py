"""Batches outside of a graph: those of a dataset, how many rows they have, how many are done."""

import sys
import time

import keras

from keras_lm.utils.user_arguments import check_verbose

SILENT_SECONDS = 5


def iterate_batches(dataset):
    """Yield the elements of a dataset.

    A plain loop would also end with a log line of TensorFlow, "Local rendezvous is aborting with
    status: OUT_OF_RANGE".
    """
    iterator = iter(dataset)
    while (element := iterator.get_next_as_optional()).has_value():
        yield element.get_value()


def with_progress(batches, number, verbose):
    """Yield batches, and draw Keras's progress bar; `number` is their number, None if unknown.

    `verbose="auto"` draws it after `SILENT_SECONDS`, if the output is interactive.
    """
    check_verbose(verbose)
    is_drawn, begins = verbose != "auto", time.monotonic() + SILENT_SECONDS
    verbose = int(_is_watched()) if verbose == "auto" else verbose
    bar = keras.utils.Progbar(number, verbose=verbose, unit_name="batch")
    done = 0
    for done, batch in enumerate(batches, start=1):
        yield batch
        is_drawn = is_drawn or time.monotonic() >= begins
        if is_drawn:
            bar.update(done, finalize=done == number)
    if done and number is None and is_drawn:
        bar.update(done, finalize=True)


def _is_watched():
    return keras.config.is_interactive_logging_enabled() and (
        sys.stdout.isatty() or "ipykernel" in sys.modules
    )
