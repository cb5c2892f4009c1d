"""Options that several commands share; a command names those that it takes."""

from pathlib import Path

import click

from keras_lm.cli.types import INPUT_FILE, Choice, Float, FloatRange, PresetFolder
from keras_lm.datasets import PUBLISHED
from keras_lm.datasets.row_files import PLAIN

POSITIVE = click.IntRange(1)


def option(*names, **settings):
    """Return a `click.option` whose help shows its default, if it has one."""
    has_default = settings.get("default") is not None
    return click.option(*names, **({"show_default": True} | settings if has_default else settings))


def together(*decorators):
    """Return one decorator of several, in the order in which `--help` shows them."""

    def decorate(command):
        """Give a command all of them."""
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


# Read before paths are checked.
overwrite = option("--overwrite", is_flag=True, is_eager=True, help="Replace what exists.")

trained_preset = option(
    "--output", type=PresetFolder(), required=True, help="Folder for the trained preset."
)
as_json = option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of a table."
)
# Read before paths are checked, of which one may be a folder.
format = option(
    "--format",
    type=Choice([*PLAIN, *PUBLISHED]),
    metavar="NAME",
    is_eager=True,
    help=f"What the file is: {', '.join(PLAIN)}; or a published data set, "
    f"{', '.join(PUBLISHED)}.  [default: by its suffix, .csv .tsv .jsonl .txt .conll .json, "
    "perhaps with .gz; .json is squad, and for a tagger, .txt is conll]",
)
text = together(
    option("--text", metavar="COLUMN", help="Column of the texts.  [default: text or sentence]"),
    option(
        "--text-pair",
        metavar="COLUMN",
        help="Column of the second texts, for pairs.  [default: text_pair or sentence2]",
    ),
)
labels = together(
    option("--labels", metavar="COLUMN", help="Column of the labels.  [default: labels or label]"),
    option(
        "--label-separator",
        default=",",
        help="What stands between the labels of one text, where a text has several. In JSONL they "
        "may be lists instead.",
    ),
)
choices = option(
    "--choices",
    metavar="COLUMN",
    help="For multiple choice: column of the lists of choices, or what the names of numbered "
    "columns begin with.  [default: choices, choice or ending]",
)
targets = option(
    "--targets",
    type=INPUT_FILE,
    help="For seq2seq-lm: a text file with the target of each line, if the other has lines, too; "
    "with --format wmt, of each segment.",
)
input_file = option(
    "--input",
    "input_file",
    type=INPUT_FILE,
    help="Read texts from a file: .txt one a line, .csv, .tsv or .jsonl by column; - for standard "
    "input, lines unless --format says otherwise.",
)
skip_empty = option(
    "--skip-empty",
    is_flag=True,
    help="Leave out rows whose text or label is empty, and say how many they are.",
)
tensorboard = option(
    "--tensorboard",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the metrics there, for tensorboard --logdir DIR.",
)
# How a `Seq2SeqLM` writes; where nothing is said, as the model's preset says.
search = together(
    option(
        "--num-beams",
        type=click.IntRange(1),
        help="More than 1 is beam search.  [default: the model's]",
    ),
    option(
        "--length-penalty",
        type=Float(),
        help="Beam search divides log-likelihoods by the number of tokens to this power.  "
        "[default: the model's]",
    ),
    option(
        "--coverage-penalty",
        type=FloatRange(0),
        metavar="BETA",
        help="GNMT's: texts that leave parts of the source unread rank lower; --length-penalty is "
        "then GNMT's alpha. Its authors take 0.2 for both.  [default: the model's, else none]",
    ),
)
batch_size = option("--batch-size", type=click.IntRange(1), default=32)


def parse_class_names(ctx, param, value):
    """Callback of `--class-names`: `"bad,good"` → a list."""
    if value is None:
        return None
    names = [name.strip() for name in value.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise click.BadParameter(f"{value!r} has an empty name, or one that stands there twice.")
    return names
