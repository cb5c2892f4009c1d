"""The protocol and the statistics, with programs that need no library."""

import json
import sys
from pathlib import Path

import pytest
from rounds import PeerError, Result, Worker, measure, quantile

FAKE = Path(__file__).with_name("fake_peer.py")


def command(seconds, **settings):
    return [sys.executable, str(FAKE), "sleep", json.dumps({"seconds": seconds} | settings)]


def test_contenders_take_turns(tmp_path):
    diary = str(tmp_path / "diary")
    result = measure({"a": command(0.001, diary=diary), "b": command(0.003, diary=diary)}, rounds=3)
    rounds = (tmp_path / "diary").read_text().split()
    assert rounds[:2] == ["0.001", "0.003"]  # warming up
    assert rounds[2:] == ["0.001", "0.003"] * 3
    assert result.samples == {
        "a": {"seconds": [[0.001, 0.001]] * 3},
        "b": {"seconds": [[0.003, 0.003]] * 3},
    }
    assert list(result.versions) == ["click"]
    assert not result.left_out


@pytest.mark.slow
def test_who_spins_while_another_computes_is_noticed():
    quiet, spinning = (
        measure({"a": command(0.2), "b": command(0.2, behaviour=how)}, rounds=2).waiting_share
        for how in ("", "spins")
    )
    assert quiet < 0.03 < spinning  # of one that spins, in half of the turns
    assert measure({"a": command(0.001)}, rounds=1).waiting_share is None


def test_who_fails_is_left_out_and_the_others_go_on():
    commands = {
        "good": command(0.001),
        "mute": [sys.executable, "-c", "raise SystemExit('no module')"],
        "unable": command(0.001, behaviour="cannot start"),
        "dying": command(0.001, behaviour="dies"),
        "missing": ["/no/such/python"],
    }
    result = measure(commands, rounds=3, left_out={"absent": "not installed"})
    assert list(result.samples) == ["good"]
    assert len(result.samples["good"]["seconds"]) == 3
    assert result.left_out["absent"] == "not installed"
    assert "no module" in result.left_out["mute"]
    assert result.left_out["unable"] == "ValueError: no such layer"
    assert "out of memory" in result.left_out["dying"]
    assert "/no/such/python" in result.left_out["missing"]


def test_worker_that_was_killed_is_left_out():
    worker = Worker(command(0.0))
    worker.process.kill()
    worker.process.wait()
    with pytest.raises(PeerError, match="killed by signal 9"):
        worker.run_round()
    worker.stop()


def test_worker_ends_when_stopped():
    worker = Worker(command(0.0))
    worker.stop()
    assert worker.process.returncode == 0
    with pytest.raises(PeerError, match="ended with"):
        Worker([sys.executable, "-c", ""])


@pytest.mark.parametrize("share, expected", [(0, 1), (0.25, 1.75), (0.5, 2.5), (0.9, 3.7), (1, 4)])
def test_quantile_lies_between_neighbours(share, expected):
    assert quantile([4, 1, 3, 2], share) == pytest.approx(expected)


def test_ratios_are_of_medians_and_by_round():
    result = Result(
        samples={
            "a": {"seconds": [[1.0], [2.0], [30.0]]},
            "b": {"seconds": [[2.0], [2.0], [20.0]]},
        }
    )
    assert result.ratio("b", "a") == 1.0
    assert result.round_ratios("b", "a") == pytest.approx([2.0, 1.0, 2 / 3])
    assert quantile([7], 0.9) == 7
