"""`keras-lm evaluate`: how well a task does on a file of labelled texts."""

import json

import click

from keras_lm.cli import options as opt
from keras_lm.cli.command import Command
from keras_lm.cli.finetune import FINETUNED, SEARCH, read_rows
from keras_lm.cli.options import INPUT_FILE, TASKS, Choice, OutputFile, Source
from keras_lm.cli.terminal import say_rows
from keras_lm.datasets.examples import check_file
from keras_lm.datasets.row_files import check_targets
from keras_lm.utils.optional_dependencies import check_installed

# Whose answers are right or wrong.
CLASSIFYING = ("text-classifier", "multiple-choice", "token-classifier")


@click.command(
    "evaluate",
    cls=Command,
    short_help="How good a trained preset is on a file of texts and labels.",
)
@click.argument("preset", type=Source())
@click.argument("file", type=INPUT_FILE)
@opt.format
@opt.text
@opt.labels
@opt.choices
@opt.skip_empty
@opt.targets
@opt.option(
    "--metric",
    "chosen",
    type=Choice(["bleu", "chrf", "rouge"]),
    multiple=True,
    help="For seq2seq-lm, several times for several.  [default: bleu and chrf]",
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
    type=OutputFile(),
    help="JSONL file to write: the rows that are answered wrongly, with their other columns, the "
    "label, the answer, and the scores of both.",
)
@opt.option(
    "--confusion",
    type=OutputFile(),
    help="CSV file to write, or .png, .svg or .pdf to draw: how often which class is found for "
    "which.",
)
@opt.overwrite
@opt.as_json
def evaluate_command(
    preset,
    file,
    format,
    batch_size,
    as_json,
    label_separator,
    errors,
    confusion,
    overwrite,
    targets,
    **options,
):
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
    columns = {name: options[name] for name in ("text", "text_pair", "labels", "choices")}
    if targets:
        check_targets(file, targets, format)
    else:
        check_file(file, format, columns)

    from keras_lm import evaluation, presets, tasks  # imports TensorFlow
    from keras_lm.cli.terminal import load_task

    opened = presets.Source.open(preset)
    cls = opened.usual_task
    if cls is None:
        raise click.ClickException(
            f"{preset} holds no task, which could be measured. Train one: keras-lm finetune."
        )
    # An ensemble is a subclass of its members' task.
    names = [name for name in FINETUNED if issubclass(cls, getattr(tasks, TASKS[name]))]
    if not names:
        raise click.ClickException(
            f"{preset} holds a {cls.__name__}, whose answers are not compared with labels."
        )
    name = names[0]
    stated = opened.task_arguments(cls) or {}
    only = {name: options[name] for name in ("chosen", "bleu_tokenizer", *SEARCH)} | {
        "targets": targets
    }
    if name != "seq2seq-lm" and any(only.values()):
        raise click.UsageError(
            f"{preset} holds a {cls.__name__}: --targets, --metric, --bleu-tokenizer, --num-beams, "
            "--length-penalty and --coverage-penalty are for a Seq2SeqLM, which writes texts."
        )
    _check_files(preset, name, errors, confusion, stated.get("multi_label"))
    separator = label_separator if stated.get("multi_label") else None
    pairs = stated.get("text_pair")
    how = {"separator": separator, "pairs": pairs, "skip_empty": options["skip_empty"]}
    how["keep_others"] = errors is not None
    examples = read_rows(file, name, format, targets, **columns, **how)
    if name == "seq2seq-lm":
        chosen = options["chosen"] or ("bleu", "chrf")
        chosen = evaluation.make_metrics(chosen, options["bleu_tokenizer"] or "13a")
        search = {name: options[name] for name in SEARCH}
        task = load_task(opened, cls)
        results = evaluation.measure_written(task, examples, batch_size, chosen, search)
    else:
        task = load_task(opened, cls)
        results = evaluation.measure(task, examples, batch_size)
    if errors or confusion:
        answers = evaluation.answer_examples(task, examples, batch_size)
    if errors:
        results["errors"] = evaluation.write_errors(errors, examples, answers)
    if confusion:
        evaluation.write_confusion(confusion, answers)
    if as_json:
        click.echo(json.dumps(results, ensure_ascii=False))
    else:
        say_results(results)


def _check_files(preset, name, errors, confusion, multi_label):
    """Refuse files of answers that are neither right nor wrong, before the weights are loaded."""
    if (errors or confusion) and name not in CLASSIFYING:
        raise click.UsageError(
            f"--errors and --confusion compare classes, and {preset} holds a {TASKS[name]}."
        )
    if confusion and multi_label:
        raise click.UsageError("--confusion is for texts with one label each.")
    if confusion and confusion.suffix in (".png", ".svg", ".pdf"):
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
