"""Hides what C++ libraries write to standard error, which Python's logging does not control."""

import contextlib
import os
import sys


@contextlib.contextmanager
def quiet():
    """Discard what is written to standard error inside the block; exceptions are still raised."""
    if sys.stderr is not None:
        sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # standard error is closed, as in some services
        yield
        return
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
