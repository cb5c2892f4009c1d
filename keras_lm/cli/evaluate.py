"""`keras-lm evaluate`: how well a task does on a file of labelled texts."""

import dataclasses
import json
from pathlib import Path

import click

from keras_lm.cli import options as opt
from keras_lm.cli.command import Command, takes
from keras_lm.cli.finetune import FINETUNED, SEARCH, read_rows
from keras_lm.cli.options import (
    INPUT_FILE,
    TASKS,
    Choice,
    LinesFile,
    OutputFile,
    Source,
    load_task,
    say_rows,
)
from keras_lm.datasets.examples import check_file
from keras_lm.datasets.row_files import check_targets
from keras_lm.utils.optional_dependencies import check_installed

PICTURES = (".png", ".svg", ".pdf")  # suffixes of confusions that are drawn
# Whose answers are right or wrong.
CLASSIFYING = ("text-classifier", "multiple-choice", "token-classifier")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions(opt.RowOptions):
    """What `keras-lm evaluate` runs with."""

    preset: str
    file: str
    targets: str | None
    chosen: tuple[str, ...]
    bleu_tokenizer: str | None
    num_beams: int | None
    length_penalty: float | None
    coverage_penalty: float | None
    batch_size: int
    errors: Path | None
    confusion: Path | None
    overwrite: bool
    as_json: bool


@click.command(
    "evaluate",
    cls=Command,
    short_help="Measure a trained preset on a file of texts and labels.",
)
@click.argument("preset", type=Source())
@click.argument("file", type=INPUT_FILE)
@opt.labelled_rows
@opt.targets
@opt.option(
    "--metric",
    "chosen",
    type=Choice(["bleu", "chrf", "rouge"]),
    multiple=True,
    help="For seq2seq-lm; may be repeated.  [default: bleu and chrf]",
)
@opt.option(
    "--bleu-tokenizer",
    metavar="NAME",
    help="How sacreBLEU splits words, such as zh, ja-mecab or intl.  [default: 13a]",
)
@opt.search
@opt.batch_size
@opt.option(
    "--errors",
    type=LinesFile(),
    help="JSONL file to write: the wrong answers, with the row's other columns, the label, and the "
    "scores of both.",
)
@opt.option(
    "--confusion",
    type=OutputFile(),
    help="CSV file to write, or .png, .svg or .pdf to draw: how often each class is predicted for "
    "each true one.",
)
@opt.overwrite
@opt.as_json
@takes(EvaluateOptions)
def evaluate_command(options):
    """Measure a trained task on a file of texts and their labels.

    \b
      keras-lm evaluate film-critic test.csv
      keras-lm evaluate film-critic test.tsv --text sentence --json
      keras-lm evaluate film-critic test.csv --errors wrong.jsonl --confusion confusion.csv
      keras-lm evaluate translator test.en --targets test.de --num-beams 4
      keras-lm evaluate summariser articles.jsonl --metric rouge

    PRESET is a preset that holds a task, or a published checkpoint with a classification head.
    FILE is CSV, TSV, JSONL, CoNLL or SQuAD's JSON as `finetune` reads it.

    \b
    Prints, and writes nothing to disk unless asked by --errors and --confusion:
      a classifier   loss, accuracy, Matthews' correlation, how far the probabilities are off
                     (expected calibration error), and for each class precision, recall, F1 and
                     how many texts have it; with several labels a text, accuracy is the share of
                     yes-or-no answers that are right, and there are the loose micro and macro F1
                     of entity typing; with a class no_relation the micro F1 of all others;
      a regressor    mean squared and mean absolute error, Pearson's and Spearman's correlation;
      a tagger       loss, accuracy over words; precision, recall and F1 of whole entities as
                     conlleval counts them, for each type too, or of each label if labels are
                     no B-X and I-X;
      a parser       loss; precision, recall and F1 of constituents as EVALB counts them, from 0 to
                     1, and the share of sentences that are wholly right;
      multiple choice   loss and accuracy;
      an encoder     of pairs how well a search among all positives finds those of each anchor,
                     and with negatives the share of triplets in the right order; with scores
                     Pearson's and Spearman's correlation; of texts with labels how well the
                     most similar pairs are those with one label;
      questions      exact match and F1 of the best answers as SQuAD's script counts them, from 0
                     to 1; the share that is rightly answered or left without; loss and accuracy
                     of both ends of answers, over windows of the contexts;
      a masked LM    loss and accuracy on masked tokens, the same ones every time;
      a causal LM    loss, perplexity and accuracy on each next token, the perplexity per word
                     (split at white space), and the numbers of tokens and words; with --format
                     lambada accuracy and perplexity of each passage's last word;
      a seq2seq LM   loss, perplexity and accuracy on each next token of the targets, and of the
                     texts that it writes BLEU and chrF with sacreBLEU's signatures, from 0 to
                     100, or ROUGE's F1 from 0 to 1, and that of each source's first three
                     sentences, lead3.
    """
    if options.targets:
        check_targets(options.file, options.targets, options.format)
    else:
        check_file(options.file, options.format, options.columns)

    from keras_lm import evaluation, presets  # imports TensorFlow

    opened = presets.Source.open(options.preset)
    name = _choose_task(opened, options)
    stated = opened.task_arguments(opened.usual_task) or {}
    _check_files(options, name, stated.get("multi_label"))
    examples = read_rows(
        options.file,
        name,
        options.format,
        options.targets,
        **options.columns,
        separator=options.label_separator if stated.get("multi_label") else None,
        pairs=stated.get("text_pair"),
        skip_empty=options.skip_empty,
        keep_others=options.errors is not None,
    )
    if name == "seq2seq-lm":
        metrics = evaluation.make_metrics(
            options.chosen or ("bleu", "chrf"), options.bleu_tokenizer or "13a"
        )
        search = {name: getattr(options, name) for name in SEARCH}
        task = load_task(opened, opened.usual_task)
        results = evaluation.measure_written(task, examples, options.batch_size, metrics, search)
    else:
        task = load_task(opened, opened.usual_task)
        results = evaluation.measure(task, examples, options.batch_size)
    if options.errors or options.confusion:
        answers = evaluation.answer_examples(task, examples, options.batch_size)
    if options.errors:
        results["errors"] = evaluation.write_errors(options.errors, examples, answers)
    if options.confusion:
        evaluation.write_confusion(options.confusion, answers)
    if options.as_json:
        click.echo(json.dumps(results, ensure_ascii=False))
    else:
        say_results(results)


def _choose_task(opened, options):
    """Return the name of the task that a preset holds; refuse options that are not for it."""
    from keras_lm import tasks

    cls = opened.usual_task
    if cls is None:
        raise click.ClickException(
            f"{options.preset} holds no task to evaluate. Train one: keras-lm finetune."
        )
    # An ensemble is a subclass of its members' task.
    names = [name for name in FINETUNED if issubclass(cls, getattr(tasks, TASKS[name]))]
    if not names:
        raise click.ClickException(
            f"{options.preset} holds a {cls.__name__}, whose answers are not compared with labels."
        )
    of_texts = ("targets", "chosen", "bleu_tokenizer", *SEARCH)
    if names[0] != "seq2seq-lm" and any(getattr(options, name) for name in of_texts):
        raise click.UsageError(
            f"{options.preset} holds a {cls.__name__}: --targets, --metric, --bleu-tokenizer, "
            "--num-beams, --length-penalty and --coverage-penalty are for a Seq2SeqLM, which "
            "writes texts."
        )
    return names[0]


def _check_files(options, name, multi_label):
    """Refuse files of answers that are neither right nor wrong, before the weights are loaded."""
    confusion = options.confusion
    if (options.errors or confusion) and name not in CLASSIFYING:
        raise click.UsageError(
            f"--errors and --confusion compare classes, and {options.preset} holds a {TASKS[name]}."
        )
    if confusion and multi_label:
        raise click.UsageError("--confusion is for texts with one label each.")
    if confusion and confusion.suffix not in (".csv", *PICTURES):
        raise click.UsageError(
            f"--confusion {confusion}: name a file that ends in .csv, .png, .svg or .pdf."
        )
    if confusion and confusion.suffix in PICTURES:
        check_installed("matplotlib", f"--confusion {confusion}")


def say_results(results):
    """Print measures as rows, and those of classes as a table under them."""
    forms = {float: ".4f", int: ",", str: ""}
    say_rows(
        (name.replace("_", " "), format(value, forms[type(value)]))
        for name, value in results.items()
        if name != "classes"
    )
    if "classes" in results:
        classes = results["classes"]
        width = max(len("class"), *map(len, classes))
        *_, counted = next(iter(classes.values()), {"texts": 0})
        click.echo(f"\n{'class':<{width}}  precision  recall      F1  {counted:>6}")
        for name, row in classes.items():
            click.echo(
                f"{name:<{width}}  {row['precision']:9.4f}  {row['recall']:6.4f}  {row['f1']:6.4f}"
                f"  {row[counted]:{max(6, len(counted))},}"
            )
