"""What libraries in C++ write to standard error, which no level of Python's logging keeps back."""

import contextlib
import os
import sys


@contextlib.contextmanager
def quiet():
    """Keep off standard error what is written there meanwhile; errors still raise."""
    if sys.stderr is not None:
        sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # it is closed already, as of some services
        yield
        return
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
