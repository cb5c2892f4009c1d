"""The command line, through its real entry point."""

import subprocess
import sys
import time
from pathlib import Path

from click.testing import CliRunner

from keras_lm.cli import main

COMMAND = Path(sys.executable).with_name("keras-lm")


def test_help_names_the_commands_and_shows_the_library():
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0, result.output
    assert "demo" in result.output
    assert "from_preset" in result.output


def test_installed_command_answers_help_without_tensorflow():
    check = "import sys; sys.argv = ['keras-lm', '--help']\nfrom keras_lm.cli import main\n"
    check += "try: main()\nfinally: assert 'tensorflow' not in sys.modules, 'imported too early'"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    start = time.perf_counter()
    done = subprocess.run([COMMAND, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Usage: keras-lm" in done.stdout
    assert done.stderr == ""
    assert time.perf_counter() - start < 5


def test_version_is_that_of_the_package():
    result = CliRunner().invoke(main, ["--version"])
    assert result.output.startswith("keras-lm, version 0.")


def test_unknown_command_is_an_error_with_advice():
    result = CliRunner().invoke(main, ["demi"])
    assert result.exit_code == 2
    assert "--help" in result.output
