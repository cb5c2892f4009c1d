"""The options of the board, and its steps."""

import dataclasses
import itertools
import logging
import warnings
from pathlib import Path

import click

from glue.board import Board, Setting
from glue.published import ScoredRow
from glue.report import pack_answers, write_report
from glue.tasks import SMALL, TASKS, find_tasks
from keras_lm.cli.command import Command
from keras_lm.utils.registry import advice

# What papers tried: batch sizes, epochs and learning rates.
GRIDS = {
    # Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 4.1, and appendix A.3
    "bert": ((32,), (3,), (5e-5, 4e-5, 3e-5, 2e-5)),
    "bert-appendix": ((16, 32), (2, 3, 4), (5e-5, 3e-5, 2e-5)),
    # Radford et al. 2018, section 4.1
    "gpt": ((32,), (3,), (6.25e-5,)),
    # Liu et al. 2019, https://arxiv.org/abs/1907.11692, section 5.1
    "roberta": ((16, 32), (10,), (1e-5, 2e-5, 3e-5)),
}
MOST_FREQUENT = "most frequent answer"


def parse_tasks(ctx, param, value):
    """Callback of `--tasks`: `"CoLA,rte"` → a list of GLUE's names."""
    if value is None:
        return list(TASKS)
    known = {name.lower(): name for name in TASKS}
    names = [name.strip() for name in value.split(",")]
    for name in names:
        if name.lower() not in known:
            raise click.BadParameter(
                f"{name!r} is not one of {', '.join(TASKS)}.{advice(name.lower(), known)}"
            )
    return [name for name in TASKS if name.lower() in {each.lower() for each in names}]


def parse_name(ctx, param, value):
    """Callback of `--name`, which is also a folder's."""
    if value is not None and (Path(value).name != value or value.startswith(".")):
        raise click.BadParameter(f"{value!r} cannot be the name of a folder.")
    return value


@click.command("glue", cls=Command)
@click.argument("preset")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder with GLUE's folders: CoLA, SST-2, MRPC, …",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder of the board. A run that it has is not repeated.",
)
@click.option(
    "--name",
    callback=parse_name,
    help="What the model is called in the table.  [default: the end of PRESET]",
)
@click.option(
    "--tasks",
    callback=parse_tasks,
    metavar="NAME,NAME…",
    help="Only these.  [default: all that DATA has]",
)
@click.option(
    "--grid",
    type=click.Choice([*GRIDS]),
    help="Train by each setting of a paper and keep what is best on the dev set.  [default: one "
    "setting]",
)
@click.option("--epochs", type=click.IntRange(1), help="[default: 3]")
@click.option("--batch-size", type=click.IntRange(1), help="[default: 32]")
@click.option(
    "--learning-rate",
    type=click.FloatRange(0, min_open=True),
    help="At its peak.  [default: by the model's width, 5e-5 for BERT-base]",
)
@click.option(
    "--restarts",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help=f"Train this many times, with other seeds, on sets of fewer than {SMALL:,} rows, and keep "
    "the best run on the dev set.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="The first one.")
@click.option(
    "--rows",
    type=click.IntRange(2),
    help="A small board: train and measure on this many random rows of each file, and skip the "
    "test sets.",
)
@click.option(
    "--sequence-length",
    type=click.IntRange(3),
    help="Cut texts to this many tokens.  [default: what the model has positions for]",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "mixed_bfloat16", "mixed_float16"]),
    help="What to compute in.  [default: as PRESET]",
)
@click.option(
    "--baselines",
    is_flag=True,
    help="Train models from before BERT, too: CBoW, BiLSTM + attention and ESIM, on word vectors, "
    "and the last two on ELMo. These are learned from the board's own texts, unless given:",
)
@click.option(
    "--word-vectors",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of GloVe, word2vec or fastText for --baselines.",
)
@click.option("--elmo", help="An ELMo for --baselines.")
@click.option("--cove", help="A CoVe with its word vectors for more --baselines.")
def glue_command(
    preset, data, output, name, tasks, grid, restarts, seed, rows, baselines, **options
):
    """Fine-tune a model on the tasks of GLUE, and set its scores beside published ones.

    \b
      python examples/glue bert-base --data glue_data --output board
      python examples/glue bert-base --data glue_data --output board --grid bert --restarts 5
      python examples/glue minilm --data glue_data --output small-board --tasks CoLA,RTE --rows 300
      python examples/glue bert-base --data glue_data --output board --baselines

    PRESET is a preset, a published checkpoint, or hf://OWNER/NAME. DATA is GLUE as it is
    downloaded, or a part of it: tasks without a training file or without a dev set are left out,
    and named with the reason. Dev sets choose among runs; MNLI's model also answers AX.

    \b
    Writes to OUTPUT:
      scores.md, scores.json, scores.png   the table, beside what papers published; the picture
                                           needs matplotlib: pip install 'keras-lm[plot]'
      runs/MODEL/TASK/                     each run's settings and scores: a command that was
                                           interrupted goes on after them, and one with other
                                           settings or another model adds to the same table
      baselines/                           word vectors and an ELMo, if they were learned
      presets/MODEL/TASK                   the best run's task, for predict, evaluate, export
      submission/MODEL/                    the leaderboard's files, and all in submission.zip
    """
    settings = list_settings(grid, seed, options)
    sources = {key: options[key] for key in ("word_vectors", "elmo", "cove")}
    for key, source in sources.items():
        if source and not baselines:
            raise click.UsageError(f"--{key.replace('_', '-')} is for --baselines.")
    results, skipped = find_tasks(data, tasks)
    for each, reason in skipped.items():
        click.echo(f"{each} is left out: {reason}.")
    if not results:
        raise click.ClickException(f"{data} has nothing to train on and to measure.")
    name = name or Path(preset).resolve().name
    about = {"source": preset, **{key: options[key] for key in ("sequence_length", "dtype")}}
    board = Board(output, data, rows)
    board.begin(name, about)

    # TensorFlow notes that much is traced anew, as the functions of each run have to be.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    from glue.training import answer_tests, most_frequent, run_settings

    def make(cls, arguments):
        given = {key: about[key] for key in ("sequence_length", "dtype") if about[key]}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*new and random")  # the head, each time
            return cls.from_preset(preset, **arguments, **given)

    for each in results:
        times = restarts if each.is_small() else 1
        seeded = [
            dataclasses.replace(setting, seed=seed + time)
            for setting, time in itertools.product(settings, range(times))
        ]
        run_settings(board, name, each, seeded, make, keeps=True)
        if rows is None:
            answer_tests(board, name, each)
    if baselines:
        from glue.baselines import run_baselines

        run_baselines(board, results, sources, seed)
    names = [each.task.name for each in results]
    frequent = {each.task.name: most_frequent(each, rows) for each in results}
    note = "the class that most rows of the training file have, or the mean of its numbers"
    table = [ScoredRow(MOST_FREQUENT, "dev", frequent, note), *board.table(names)]
    write_report(board, table, names, skipped)
    if rows is None:
        missing = pack_answers(output / "submission" / name)
        if missing:
            click.echo(f"The leaderboard also wants {', '.join(missing)}.")
    click.echo((output / "scores.md").read_text(encoding="utf-8"))


def list_settings(grid, seed, options):
    """Return the list of `Setting` of a grid, or of the options."""
    given = {key: options[key] for key in ("batch_size", "epochs", "learning_rate")}
    if grid is None:
        defaults = {"batch_size": 32, "epochs": 3, "learning_rate": None}
        chosen = {key: given[key] or default for key, default in defaults.items()}
        return [Setting(**chosen, seed=seed)]
    for key, value in given.items():
        if value is not None:
            raise click.UsageError(
                f"--grid {grid} has its own --{key.replace('_', '-')}: leave one of them out."
            )
    return [Setting(*values, seed) for values in itertools.product(*GRIDS[grid])]
