"""CONTRIBUTING.md names files and functions that exist, and all files of its examples."""

import re
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
TEXT = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")


def section(title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", TEXT, re.S | re.M)[1]


def files_of_table(title):
    """Return the files in the first column of a section's table."""
    rows = re.findall(r"^\| (`[^|]*`) \|", section(title), re.M)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def files_with(pattern, *folders):
    """Return the tracked files that match a regular expression in any case."""
    command = ["git", "grep", "-liE", pattern, "--", *folders]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode > 1:
        pytest.skip("not a git checkout")
    return set(done.stdout.split())


def test_questions_are_answered_in_three_files_at_most():
    rows = re.findall(r"^\| (\w.*\?) \| (.*) \|$", section("Where to look"), re.M)
    assert len(rows) == 5
    for question, answer in rows:
        parts = re.split(r"`((?:keras_lm|export)/[\w/]+\.py)`:?", answer)[1:]
        files = parts[::2]
        assert 0 < len(files) <= 3, question
        for file, said in zip(files, parts[1::2], strict=True):
            code = (REPOSITORY / file).read_text(encoding="utf-8")
            symbols = re.findall(r"`(\w+)`", said)
            assert symbols, file
            for symbol in symbols:
                defined = rf"^\s*(def|class) {symbol}\b|^{symbol} = |\b{symbol}\("
                assert re.search(defined, code, re.M), f"{question} {file} has no {symbol}"


@pytest.mark.parametrize(
    "title, pattern",
    [
        ("Adding a model", "mpnet"),
        ("Adding a task", "ConstituencyParser|constituency[-_]parser"),
    ],
)
def test_the_example_names_every_file_of_the_library(title, pattern):
    named = files_of_table(title)
    assert all((REPOSITORY / name).exists() for name in named)
    assert files_with(pattern, "keras_lm", "export") <= set(named)


def test_files_that_it_names_exist():
    named = re.findall(r"`((?:keras_lm|export|tests|docs|benchmarks|lectures)/[\w./]+)`", TEXT)
    assert not [name for name in named if not (REPOSITORY / name).exists()]


def test_every_file_of_the_model_names_it():
    named = set(files_of_table("Adding a model"))
    assert named <= files_with("mpnet", "."), "not needed for a model"
