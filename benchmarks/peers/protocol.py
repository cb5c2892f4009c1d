"""What every peer's program shares: the protocol in which the runner asks for rounds.

The runner starts a program with the name of what to measure and its settings as JSON. The program
sets up, runs once to warm up, and prints `{"ready": versions}`. Then it answers each line of its
standard input with one timed round: a JSON object from the name of a measure to a list of numbers.
While it waits it blocks on a read, and takes nothing from the others.
"""

import json
import os
import sys
import time
from importlib import metadata


def serve(functions, packages):
    """Run a peer's program until its standard input ends.

    Args:
        functions: dict from the name of what can be measured to a callable that takes the settings
            by name, sets up, and returns a callable that runs one round.
        packages: list of str. Distributions whose versions belong into the report.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not pass for an answer

    def say(message):
        print(json.dumps(message), file=answers)

    try:
        run_round = functions[sys.argv[1]](**json.loads(sys.argv[2]))
        run_round()
    except Exception as error:
        say({"error": f"{type(error).__name__}: {str(error).strip()[:300]}"})
        raise
    say({"ready": {name: metadata.version(name) for name in packages}})
    for _ in sys.stdin:
        say(run_round())


def timed(function, calls):
    """Return a round that calls `function`, and takes the time of each call.

    Args:
        function: callable without arguments that returns when its work is done.
        calls: int.
    """

    def run_round():
        seconds = []
        for _ in range(calls):
            start = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - start)
        return {"seconds": seconds}

    return run_round


def num_cores():
    """Return how many cores this process may use: every peer is given all of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
