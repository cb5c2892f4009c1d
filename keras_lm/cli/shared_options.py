"""Arguments and options that several commands share."""

import os
from pathlib import Path

import click

# As options name them → the classes in `keras_lm.tasks`.
TASKS = {
    "text-classifier": "TextClassifier",
    "text-regressor": "TextRegressor",
    "multiple-choice": "MultipleChoice",
    "token-classifier": "TokenClassifier",
    "masked-lm": "MaskedLM",
    "causal-lm": "CausalLM",
    "feature-extractor": "FeatureExtractor",
    "pretrainer": "Pretrainer",
}


# Tasks whose texts need no labels.
UNLABELLED = ("masked-lm", "causal-lm")


class TaskChoice(click.Choice):
    """One of some tasks; `causal_lm` is `causal-lm`."""

    def convert(self, value, param, ctx):
        return super().convert(str(value).replace("_", "-"), param, ctx)


class PresetFolder(click.Path):
    """A folder to write a preset to; refuses, before anything is loaded, what cannot be."""

    def __init__(self):
        super().__init__(path_type=Path)

    def convert(self, value, param, ctx):
        """Return the `Path` if there is nothing, or a preset, or an empty folder."""
        folder = Path(value).expanduser()
        if folder.is_file():
            self.fail(f"{folder} is a file: choose another name for the preset.", param, ctx)
        if folder.is_dir() and any(folder.iterdir()) and not (folder / "keras_lm.json").is_file():
            self.fail(
                f"{folder} exists and is not a preset: choose another folder. Nothing was written.",
                param,
                ctx,
            )
        parent = next(parent for parent in folder.absolute().parents if parent.exists())
        if not (parent.is_dir() and os.access(parent, os.W_OK)):
            self.fail(f"{folder} cannot be made: {parent} is not a writable folder.", param, ctx)
        return folder


def together(*decorators):
    """Return one decorator of several, in the order in which `--help` shows them."""

    def decorate(command):
        """Give a command all of them."""
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


INPUT_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True)

format_option = click.option(
    "--format",
    type=click.Choice(["csv", "tsv", "jsonl", "lines"]),
    help="What the file is.  [default: by its suffix, .csv .tsv .jsonl .txt, perhaps with .gz]",
)
text_options = together(
    click.option(
        "--text",
        metavar="COLUMN",
        help="Column of the texts.  [default: text or sentence]",
    ),
    click.option(
        "--text-pair",
        metavar="COLUMN",
        help="Column of the second texts, for pairs.  [default: text_pair or sentence2]",
    ),
)
labels_options = together(
    click.option(
        "--labels", metavar="COLUMN", help="Column of the labels.  [default: labels or label]"
    ),
    click.option(
        "--label-separator",
        default=",",
        show_default=True,
        help="What stands between the labels of one text, where a text has several. In JSONL they "
        "may be lists instead.",
    ),
)
input_option = click.option(
    "--input",
    "input_file",
    type=INPUT_FILE,
    help="Read texts from a file: .txt one a line, .csv, .tsv or .jsonl by column; - for standard "
    "input, lines unless --format says otherwise.",
)
batch_size_option = click.option(
    "--batch-size", type=click.IntRange(1), default=32, show_default=True
)


def parse_class_names(ctx, param, value):
    """Callback of `--class-names`: `"bad,good"` → a list."""
    if value is None:
        return None
    names = [name.strip() for name in value.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise click.BadParameter(f"{value!r} has an empty name, or one that stands there twice.")
    return names
