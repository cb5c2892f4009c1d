"""`--config`: what a file may hold, what wins, and that the file beside a result repeats it."""

import pytest

from keras_lm.cli import main
from keras_lm.cli.command import RECIPES, read_config, recipe_names, tomllib

ROWS = "text,label\n" + "the film was good,good\nthe song was bad,bad\n" * 4

pytestmark = pytest.mark.eager


@pytest.fixture
def rows(write):
    return write("train.csv", ROWS)


@pytest.mark.slow
def test_a_run_is_repeated_by_its_file(run, tiny, rows, write, tmp_path):
    config = write(
        "my.toml",
        f'train = "{rows}"\nepochs = 2\nlearning-rate = 1\nclass-weight = "good=2,bad=1.5"\n'
        'class-names = "good,bad"\nbatch-size = 4\n',
    )
    first, again = tmp_path / "first", tmp_path / "again"
    # Without an argument of the line, it is the file's; an option of the line wins.
    line = ["--config", config, "--learning-rate", 1e-3]
    run("finetune", tiny, *line, "--output", first)
    stored = tomllib.loads((first / "run.toml").read_text())
    assert stored["learning-rate"] == 1e-3
    assert stored["epochs"] == 2
    assert stored["class-weight"] == "good=2.0,bad=1.5"
    assert stored["source"] == str(tiny)
    assert stored["task"] == "text-classifier"
    run("finetune", "--config", first / "run.toml", "--output", again)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (first, again)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    "content, message",
    [
        ("epoch = 3", "is not an option of keras-lm finetune that a file can hold. Did you mean"),
        ("learning_rate = 1e-4", "Did you mean learning-rate?"),
        ("overwrite = true", "'overwrite', which is not an option"),
        ('epochs = "3"', 'epochs = "3": it must be a whole number'),
        ("epochs = true", "it must be a whole number"),
        ("learning-rate = [1e-4]", "it must be a number"),
        ("learning-rate = inf", "learning-rate = Infinity: it must be a number, and finite"),
        ("epochs = 0x" + "f" * 100, "it must be a whole number"),
        ("epochs = " + "[" * 10_000, "is not a TOML file"),
        ("a" + ".a" * 20 + " = 1", "is not a TOML file: it has a key of many parts"),
        ('x = {"a" . b' + ".'a'" * 20 + " = 1}", "is not a TOML file: it has a key of many parts"),
        ("#" * (2**20 + 1), "is not a TOML file: it has more than 1048576 bytes"),
        ("multi-label = 1", "it must be true or false"),
        ("labels = 0", 'it must be a text, in "quotes"'),
        ("epochs = 0", "--epochs': 0 is not in the range x>=1. (It stands in"),
        ("epochs 3", "is not a TOML file"),
    ],
)
def test_mistakes_in_a_file_name_it(fail, tiny, rows, write, tmp_path, content, message):
    config = write("my.toml", content)
    shown = fail("finetune", tiny, rows, "--output", tmp_path / "new", "--config", config)
    assert message in shown
    assert "my.toml" in shown


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_numbers_that_are_none(fail, tiny, rows, tmp_path, number):
    for option in ("--learning-rate", "--validation-split"):
        shown = fail("finetune", tiny, rows, "--output", tmp_path / "new", option, number)
        assert "is not a finite number" in shown or "is not in the range" in shown
    assert not (tmp_path / "new").exists()


def test_recipes(run, fail):
    listed = run("pretrain", "--recipes").splitlines()
    assert [line.split()[0] for line in listed] == recipe_names() != []
    assert all("https://" in line for line in listed)
    shown = fail("pretrain", "x.txt", "--config", "electra-smal")
    assert "Did you mean electra-small" in shown
    for name in recipe_names():
        path = RECIPES / f"{name}.toml"
        options = read_config(path, main.get_command(None, "pretrain"))
        assert {"objectives", "learning_rate", "batch_size"} <= set(options)
        lines = path.read_text(encoding="utf-8").splitlines()
        figures = [line for line in lines if line and not line.startswith("#")]
        assert all(" # " in line for line in figures), name  # each says where it stands
