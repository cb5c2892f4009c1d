"""Contenders take turns, round by round, so that what slows the machine slows them all."""

import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path


class PeerError(Exception):
    """A peer's program could not do what was asked of it."""


class Worker:
    """A running program of a peer; see `peers/protocol.py` for how it is spoken to.

    Args:
        command: list of str.

    Raises:
        PeerError: if the program ends before it is ready, or cannot do what it is asked.
    """

    def __init__(self, command):
        self.log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - see stop
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                text=True,
            )
        except OSError as error:
            raise PeerError(str(error)) from error
        try:
            self.versions = self._read()["ready"]
        except BaseException:
            self.stop()
            raise

    def run_round(self):
        """Run one round; return a dict from the name of a measure to a list of numbers."""
        with contextlib.suppress(BrokenPipeError):  # reading tells why
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        return self._read()

    def processor_seconds(self):
        """Return the seconds of a core that the program has used; 0 if the system does not say."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _read(self):
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            if code < 0:
                raise PeerError(f"its program was killed by signal {-code}")
            self.log.seek(0)
            last = (self.log.read().strip().splitlines() or [""])[-1]
            raise PeerError(f"its program ended with {code}. {last[-300:]}".strip())
        message = json.loads(line)
        if "error" in message:
            raise PeerError(message["error"])
        return message

    def stop(self):
        """End the program and wait for it."""
        with contextlib.suppress(BrokenPipeError):  # it has ended by itself
            self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()


PAUSE = 0.5  # seconds; see `measure`


@dataclass
class Result:
    """What came out of a row.

    Args:
        samples: dict: contender's name → measure's key → a list of numbers for each round.
        left_out: dict: contender's name → why.
        versions: dict: distribution → version.
        waiting_share: float. The share of a core that those who waited used while one computed, or
            None if nobody waited.
    """

    samples: dict = field(default_factory=dict)
    left_out: dict = field(default_factory=dict)
    versions: dict = field(default_factory=dict)
    waiting_share: float | None = None

    def quantile(self, name, key, share):
        """Return a quantile of all numbers of one contender."""
        return quantile([x for numbers in self.samples[name][key] for x in numbers], share)

    def ratio(self, name, base, key="seconds"):
        """Return the ratio of the medians of two contenders."""
        return self.quantile(name, key, 0.5) / self.quantile(base, key, 0.5)

    def round_ratios(self, name, base, key="seconds"):
        """Return, for each round, the ratio of the medians of two contenders."""
        return [
            statistics.median(a) / statistics.median(b)
            for a, b in zip(self.samples[name][key], self.samples[base][key], strict=True)
        ]


def quantile(numbers, share):
    """Return a quantile, linear between two neighbours.

    Args:
        numbers: list of numbers; at least one.
        share: float between 0 and 1; 0.5 gives the median.
    """
    ordered = sorted(numbers)
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def measure(commands, rounds, left_out=None, say=lambda message: None, pause=0.0):
    """Start all contenders, let them take turns, and collect their numbers.

    A contender that fails is left out, from all rounds.

    Args:
        commands: dict from a contender's name to the command that starts its program.
        rounds: int.
        left_out: dict of contenders that are not even started → why.
        say: callable that gets a line on what is going on.
        pause: float, seconds before each turn: PyTorch's threads spin for a while after its own.

    Returns:
        A `Result`.
    """
    result = Result(left_out=dict(left_out or {}))
    workers = {}
    turns = waiting = 0.0

    def leave_out(name, error):
        result.left_out[name] = str(error)
        result.samples.pop(name, None)
        say(f"left out {name}: {error}")

    try:
        for name, command in commands.items():
            say(f"starting {name}")
            try:
                workers[name] = Worker(command)
            except PeerError as error:
                leave_out(name, error)
                continue
            result.versions |= workers[name].versions
            result.samples[name] = {}
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            for name in list(result.samples):
                time.sleep(pause)
                others = [workers[other] for other in result.samples if other != name]
                used, start = sum(o.processor_seconds() for o in others), time.perf_counter()
                try:
                    answer = workers[name].run_round()
                except PeerError as error:
                    leave_out(name, error)
                    continue
                turns += time.perf_counter() - start
                waiting += sum(o.processor_seconds() for o in others) - used
                for key, numbers in answer.items():
                    result.samples[name].setdefault(key, []).append(numbers)
    finally:
        for worker in workers.values():
            worker.stop()
    if turns and len(result.samples) > 1:
        result.waiting_share = waiting / turns
    return result
