"""A peer without a library: it takes the time that its arguments say, and can misbehave."""

import sys
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "peers"))

from protocol import serve


def sleep(seconds, behaviour="", diary=None, variant="", calls=2):
    print("a library says hello")
    if behaviour == "cannot start":
        raise ValueError("no such layer")
    if behaviour == "spins":
        threading.Thread(target=lambda: all(True for _ in iter(int, 1)), daemon=True).start()
    rounds = []

    def run_round():
        rounds.append(1)
        if behaviour == "dies" and len(rounds) == 3:  # the first warms up
            sys.exit("out of memory")
        if diary:
            with open(diary, "a") as file:
                file.write(f"{seconds} ")
        print("a library says more")
        time.sleep(seconds)
        return {"seconds": [seconds] * calls}

    return run_round


if __name__ == "__main__":
    serve({"sleep": sleep}, ["click"])
