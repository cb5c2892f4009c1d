"""The command line, through its real entry point."""

import dataclasses
import importlib
import json
import subprocess
import sys
import time
import types
from pathlib import Path

from click.testing import CliRunner

from keras_lm.cli import inspect as inspect_module
from keras_lm.cli import main
from keras_lm.cli.options import TrainingOptions, size_names
from keras_lm.cli.pretrain import PretrainOptions
from keras_lm.converters import open_checkpoint
from keras_lm.utils import registry

COMMAND = Path(sys.executable).with_name("keras-lm")


COMMANDS = [
    *("convert", "finetune", "evaluate", "export", "serve", "predict", "search"),
    *("translate", "features", "distill", "inspect", "models", "vocab", "knowledge", "prepare"),
    *("pretrain", "launch", "lecture"),
]


def test_help_shows_the_way_in_its_order():
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0, result.output
    way = ["From weights to answers:", *COMMANDS[:6], "Besides:", *COMMANDS[6:]]
    lines = result.output.split("From weights to answers:")[1].splitlines()
    assert [line.split()[0] for line in lines if line.strip()] == [
        line.split()[0] for line in way[1:]
    ]
    assert "from_preset" in result.output


def test_every_help_comes_without_tensorflow():
    check = """
import sys
from keras_lm_command import main
for command in [[], *([name] for name in main.list_commands(None))]:
    try: main([*command, "--help"])
    except SystemExit as end: assert end.code == 0
assert "tensorflow" not in sys.modules, "imported too early"
"""
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # Each with a line to copy.
    for name in COMMANDS:
        assert f"\n    keras-lm {name} " in done.stdout or f"\n  keras-lm {name} " in done.stdout


def test_what_is_not_there_is_refused_without_tensorflow(tmp_path):
    (tmp_path / "train.csv").write_text("text,label\nx,good\n")
    (tmp_path / "titles.csv").write_text("title,label\nx,good\n")
    (tmp_path / "lines.txt").write_text("a\nb\n\n")
    (tmp_path / "two.txt").write_text("x\ny")
    (tmp_path / "film-critic").mkdir()
    (tmp_path / "rows.xlsx").write_bytes(b"PK\x03\x04")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "tags.tsv").write_text("Ada\tB-PER\nwrote\tO\n")
    (tmp_path / "words.npz").touch()
    (tmp_path / "my.tflite").touch()
    new = ["--output", "new"]
    mistakes = [
        (["convert", "film-critc", "new"], "'film-critc'. Did you mean film-critic?"),
        (["finetune", "bert_base_uncased", "train.csv", *new], "Did you mean bert_base_en_uncased"),
        (["finetune", "film-critic", "none.csv", *new], "'none.csv' does not exist"),
        (["finetune", "film-critic", "train.csv", *new, "--text", "titel"], "no column 'titel'"),
        (["finetune", "film-critic", "titles.csv", *new], "Name the column: --text NAME"),
        (["finetune", "film-critic", "my.tflite", *new], "name its format with --format"),
        (["finetune", "film-critic", "train.csv", *new, "--early-stopping", "1"], "--validation"),
        (["distill", "train.csv", *new, "--teacher", "film-critc", "--student", "film-critic"],
         "Did you mean film-critic?"),
        (["distill", "titles.csv", *new, "--teacher", "film-critic", "--student", "film-critic"],
         "Name the column: --text NAME"),
        (["evaluate", "train.csv", "train.csv"], "train.csv is a file"),
        (["export", "hf://bert", "new"], "hf://OWNER/NAME"),
        (["export", "film-critic", "my.tflite"], "my.tflite exists"),
        (["export", "film-critic", "train.csv"], "train.csv is a file"),
        (["evaluate", "my.tflite", "train.csv"], "my.tflite is an export, for keras-lm predict"),
        (["predict", "none.tflite", "x"], "No such file: 'none.tflite'"),
        (["predict", "film-critc", "x"], "Did you mean film-critic?"),
        (["finetune", "film-critic", "lines.txt", *new, "--targets", "two.txt"],
         "lines.txt has 3 lines, but two.txt has 2: each line needs its target"),
        (["evaluate", "film-critic", "two.txt", "--targets", "lines.txt"],
         "lines.txt has 3 lines, but two.txt has 2"),
        (["evaluate", "film-critic", "train.csv", "--format", "csv", "--targets", "two.txt"],
         "but --format csv: leave one"),
        (["finetune", "film-critic", "train.csv", *new, "--validation-targets", "two.txt"],
         "for the lines of --validation"),
        (["finetune", "film-critic", "train.csv", *new, "--num-beams", "2", "--task", "causal-lm"],
         "--num-beams is not for --task causal-lm"),
        (["translate", "film-critc", "x"], "Did you mean film-critic?"),
        (["translate", "film-critic", "x", "--num-return-sequences", "2"], "add --json"),
        (["features", "film-critic", "x", "--output", "words.npz"], "with --overwrite"),
        (["inspect", "film-critc"], "Did you mean film-critic?"),
        (["finetune", "film-critic", "rows.xlsx", *new], "a spreadsheet (.xlsx, .ods) or another"),
        (["finetune", "film-critic", "empty.csv", *new], "empty.csv is empty: it has no rows"),
        (["finetune", "film-critic", "tags.tsv", *new], "pass --format conll, with a tab or a"),
        (["fintune", "film-critic"], "Did you mean finetune?"),
        (["finetune", "film-critic", "train.csv", *new, "--task", "text_clasifier"],
         "Did you mean text-classifier"),
        (["predict", "film-critic", "--format", "mnlii"], "Did you mean mnli?"),
        (["predict", "film-critic", "a", "--max-length", "3"], "Did you mean '--max-new-tokens'"),
        (["finetune", "film-critic", "train.csv", *new, "--num_train_epochs", "3"],
         "Did you mean '--epochs'"),
        (["finetune", "film-critic", "train.csv", *new, "--lr", "3"],
         "Did you mean '--learning-rate'"),
        (["vocab", "none.txt", *new], "'none.txt': there is no such file"),
        (["vocab", "rows.xlsx", *new], "save it as CSV"),
        (["pretrain", "none.txt", *new, "--vocabulary", "film-critic"], "'none.txt'"),
        (["pretrain", "train.csv", *new, "--vocabulary", "film-critic", "--size", "gpt2_bas_en"],
         "Did you mean gpt2_base_en"),
    ]  # fmt: skip
    check = f"""
import sys
from click.testing import CliRunner
from keras_lm_command import main
for arguments, message in {mistakes!r}:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in (1, 2), (arguments, result.output)
    assert message in " ".join(result.output.split()), (arguments, result.output)
assert "tensorflow" not in sys.modules, "imported too early"
"""
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    names = {
        "train.csv",
        "titles.csv",
        "lines.txt",
        "two.txt",
        "film-critic",
        "rows.xlsx",
        "empty.csv",
        "tags.tsv",
        "words.npz",
        "my.tflite",
    }
    assert {path.name for path in tmp_path.iterdir()} == names


def test_models_lists_all_sizes():
    assert set(size_names()) == set(registry.sizes())
    result = CliRunner().invoke(main, ["models"])
    rows = [line.split() for line in result.output.splitlines()]
    assert [row[0] for row in rows] == [*registry.sizes()]
    (row,) = [row for row in rows if row[0] == "bert_base_en_uncased"]
    assert row[1:] == ["Bert", "109,482,240", "hf://google-bert/bert-base-uncased"]
    result = CliRunner().invoke(main, ["models", "XLM", "large", "--json"])
    assert [json.loads(line)["size"] for line in result.output.splitlines()] == [
        "xlm_roberta_large_multi"
    ]
    assert CliRunner().invoke(main, ["models", "bart"]).exit_code == 1


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


def test_commands_are_for_tensorflow(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    result = CliRunner().invoke(main, ["models"])
    assert result.exit_code == 2
    assert "KERAS_BACKEND=jax: the commands run on TensorFlow" in result.output


def test_version_is_that_of_the_package():
    result = CliRunner().invoke(main, ["--version"])
    assert result.output.startswith("keras-lm, version 0.")


def test_unknown_command_is_an_error_with_advice():
    result = CliRunner().invoke(main, ["demi"])
    assert result.exit_code == 2
    assert "--help" in result.output


def test_commands_that_became_examples_still_run(monkeypatch, tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    command = [COMMAND, "demo", "--output", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "run python examples/demo" in done.stderr and "not the output of" in done.stderr
    monkeypatch.setattr("keras_lm.cli.__file__", str(tmp_path / "a" / "b" / "c"))
    result = CliRunner().invoke(main, ["glue", "bert-base"])
    assert result.exit_code == 2 and "python examples/glue, in a clone" in result.output


def test_options_of_commands_are_typed():
    """What a line may say is a field of the command's dataclass, or an argument by its name."""
    typed = ["finetune", "pretrain", "distill", "evaluate", "predict", "export", "serve"]
    for name in typed:
        options = getattr(importlib.import_module(f"keras_lm.cli.{name}"), f"{name.title()}Options")
        params = main.get_command(None, name).params
        fields = {field.name for field in dataclasses.fields(options)}
        assert fields == {param.name for param in params if param.expose_value}


def test_one_rule_gives_the_learning_rate():
    backbone = types.SimpleNamespace(learning_rate=3e-4)
    rest = dict.fromkeys(["output", "overwrite", "epochs", "batch_size", "sequence_length"])
    rest |= dict.fromkeys(["seed", "dtype", "tensorboard"])

    def rate(given, **more):
        return made(learning_rate=given, **rest, **more).with_learning_rate(backbone).learning_rate

    made = TrainingOptions
    assert rate(None) == 3e-4 and rate(0.1) == 0.1
    names = {field.name for field in dataclasses.fields(PretrainOptions)}
    rest |= dict.fromkeys(names - {"learning_rate", "optimizer"})
    made = PretrainOptions
    assert rate(None, optimizer="lamb") == 3e-4
    assert rate(None, optimizer="adafactor") == 0.01 and rate(0.1, optimizer="adafactor") == 0.1
