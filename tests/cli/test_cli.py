"""The command line, through its real entry point."""

import subprocess
import sys
import time
from pathlib import Path

from click.testing import CliRunner

from keras_lm.cli import main
from keras_lm.converters import open_checkpoint

inspect_module = sys.modules["keras_lm.cli.inspect"]

COMMAND = Path(sys.executable).with_name("keras-lm")


COMMANDS = [
    *("convert", "finetune", "evaluate", "export", "serve", "predict"),
    *("features", "inspect", "vocab", "pretrain"),
]


def test_help_shows_the_way_in_its_order():
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0, result.output
    way = ["From weights to answers:", *COMMANDS[:6], "Besides:", *COMMANDS[6:], "demo"]
    lines = result.output.split("From weights to answers:")[1].splitlines()
    assert [line.split()[0] for line in lines if line.strip()] == [
        line.split()[0] for line in way[1:]
    ]
    assert "from_preset" in result.output


def test_every_help_comes_without_tensorflow():
    check = """
import sys
from keras_lm_command import main
for command in [[], *([name] for name in main.commands)]:
    try: main([*command, "--help"])
    except SystemExit as end: assert end.code == 0
assert "tensorflow" not in sys.modules, "imported too early"
"""
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # Each with a line to copy.
    for name in COMMANDS:
        assert f"\n    keras-lm {name} " in done.stdout or f"\n  keras-lm {name} " in done.stdout


def test_installed_command_answers_at_once():
    start = time.perf_counter()
    done = subprocess.run([COMMAND, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage: keras-lm" in done.stdout
    assert done.stderr == ""
    assert time.perf_counter() - start < 5


def test_mistakes_get_a_message_and_bugs_a_traceback(monkeypatch):
    def inspect(path, *_):
        return open_checkpoint(path)

    monkeypatch.setattr(inspect_module, "inspect_path", inspect)
    mistake = CliRunner().invoke(main, ["inspect", "no such folder"])
    assert mistake.exit_code == 1
    assert mistake.output.startswith("Error: There is no folder")

    monkeypatch.setattr(inspect_module, "inspect_path", lambda *_: int("a bug"))
    bug = CliRunner().invoke(main, ["inspect", "x"])
    assert type(bug.exception) is ValueError
    assert bug.output == ""


def test_version_is_that_of_the_package():
    result = CliRunner().invoke(main, ["--version"])
    assert result.output.startswith("keras-lm, version 0.")


def test_unknown_command_is_an_error_with_advice():
    result = CliRunner().invoke(main, ["demi"])
    assert result.exit_code == 2
    assert "--help" in result.output
