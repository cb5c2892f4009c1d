"""The form of `findings/`: what its scripts show, and of which versions; they need a network."""

import ast
import re
import shlex
import subprocess
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "findings").glob("*.sh"))
LONGEST_SCRIPT = 60
VERSION = re.compile(r"\d+\.\d+\.\d+")


def packages(text):
    """What a script installs, as `name==version`."""
    joined = text.replace("\\\n", " ")
    lines = re.findall(r"^env/bin/pip install (.*)$", joined, re.MULTILINE)
    return [word for line in lines for word in shlex.split(line) if not word.startswith("-")]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_names_versions_behaviour_and_output(script):
    text = script.read_text()
    first, *lines = text.splitlines()
    head = lines[: lines.index("set -euo pipefail")]
    assert first == "#!/usr/bin/env bash"
    assert 2 <= len(head) <= 8 and all(line.startswith("# ") for line in head)
    assert any(line.startswith("# Output seen") for line in head)
    pins = packages(text)
    assert pins and all(re.fullmatch(r"[a-z0-9-]+==[\w.]+", pin) for pin in pins)
    pinned = {pin.partition("==")[2] for pin in pins}
    assert set(VERSION.findall(head[0])) & pinned, "the head's first line names no version"
    assert set(VERSION.findall(" ".join(head))) <= pinned


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_runs_a_short_program_that_checks_something(script):
    text = script.read_text()
    subprocess.run(["bash", "-n", script], check=True)
    program = re.search(r"<<'END'\n(.*\n)END\n$", text, re.DOTALL)[1]
    assert any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(program)))
    assert "keras_lm" not in program
    assert len(text.splitlines()) <= LONGEST_SCRIPT
    assert max(map(len, text.splitlines())) <= 100
