"""What `keras-lm finetune` and `keras-lm distill` share: options, files, what they mean and say."""

import math
import sys

import click

from keras_lm.cli import shared_options as opt
from keras_lm.cli.terminal import megabytes, notes, say_rows
from keras_lm.cli.texts_and_rows import say_left_out
from keras_lm.cli.types import INPUT_FILE, Choice, ExportPath, FloatRange
from keras_lm.datasets.examples import check_file, read_examples
from keras_lm.datasets.row_files import check_targets
from keras_lm.utils.files import export_format
from keras_lm.utils.optional_dependencies import check_installed
from keras_lm.utils.registry import advice

held_out_options = opt.together(
    opt.option("--validation", type=INPUT_FILE, help="File to measure on after each epoch."),
    opt.option(
        "--validation-split",
        type=FloatRange(0, 1, min_open=True, max_open=True),
        help="Or hold a random share of TRAIN out for that, such as 0.1.",
    ),
)
training_options = opt.together(
    opt.option("--epochs", type=click.IntRange(1), default=3),
    opt.option("--batch-size", type=click.IntRange(1), default=16),
    opt.option(
        "--early-stopping",
        type=click.IntRange(1),
        metavar="EPOCHS",
        help="Stop after this many epochs without a lower validation loss, and keep the weights of "
        "the best epoch.",
    ),
    opt.option(
        "--learning-rate",
        type=FloatRange(0, min_open=True),
        help="At its peak: it warms up over a tenth of the steps, then falls to zero.  [default: "
        "by the model's width, 5e-5 for BERT-base]",
    ),
    opt.option(
        "--sequence-length",
        type=click.IntRange(3),
        help="Cut texts to this many tokens.  [default: what the model has positions for]",
    ),
    opt.option("--seed", type=int, default=0),
    opt.option(
        "--dtype",
        type=Choice(["float32", "mixed_bfloat16", "mixed_float16"]),
        help="What to compute in.  [default: as what it starts from]",
    ),
    opt.tensorboard,
    opt.option("--export", "export_path", type=ExportPath(), help="Export there, too."),
)


def parse_class_weight(ctx, param, value):
    """Callback of `--class-weight`: `"bad=2,good=1"` → a dict; `"balanced"` stays."""
    if value in (None, "balanced"):
        return value
    weights = {}
    for part in value.split(","):
        name, is_there, number = part.rpartition("=")
        try:
            weights[name.strip()] = float(number)
        except ValueError:
            is_there = ""
        if not is_there or not 0 <= weights[name.strip()] < float("inf"):
            raise click.BadParameter(f"{part!r} is neither balanced nor NAME=WEIGHT.")
    return weights


def check_class_weight(given, class_names):
    """Raise an error if weights, as `parse_class_weight` returns them, name an unknown class."""
    for name in given if isinstance(given, dict) else ():
        if name not in class_names:
            raise click.UsageError(
                f"--class-weight names {name!r}, and the classes are {', '.join(class_names)}."
                + advice(name, class_names)
            )


def fit_options(options, *callbacks):
    """Return what `fit` takes, of a command's options; with further callbacks."""
    import keras

    callbacks = list(callbacks)
    if options["tensorboard"]:
        callbacks.append(keras.callbacks.TensorBoard(str(options["tensorboard"])))
    if options.get("early_stopping"):
        patience = {"patience": options["early_stopping"], "restore_best_weights": True}
        callbacks.append(keras.callbacks.EarlyStopping("val_loss", mode="min", **patience))
    verbose = 1 if sys.stdout.isatty() else 2
    return {
        "batch_size": options["batch_size"],
        "epochs": options["epochs"],
        "callbacks": callbacks,
        "verbose": 0 if options.get("seeds", 1) > 1 else verbose,  # what each reaches is told
    }


def check_data(train, options):
    """Refuse files and options that do not fit, before TensorFlow is imported."""
    if options["tensorboard"]:
        check_installed("tensorboard", "--tensorboard")
    if options["format"] == "lambada":
        raise click.UsageError(
            "lambada's passages lack their last words, which keras-lm evaluate asks for. Train on "
            "plain lines."
        )
    if options["validation"] and options["validation_split"]:
        raise click.UsageError("--validation and --validation-split are both given: choose one.")
    if options["early_stopping"] and not (options["validation"] or options["validation_split"]):
        raise click.UsageError(
            "--early-stopping looks at the validation loss: give --validation FILE or "
            "--validation-split SHARE."
        )
    if options.get("seeds", 1) > 1 and not (options["validation"] or options["validation_split"]):
        raise click.UsageError(
            "--seeds keeps the best by the validation loss: give --validation FILE or "
            "--validation-split SHARE."
        )
    if options.get("validation_targets") and not options["validation"]:
        raise click.UsageError("--validation-targets has targets for the lines of --validation.")
    columns = {role: options[role] for role in ("text", "text_pair", "labels")}
    for file, targets in (
        (train, options.get("targets")),
        (options["validation"], options.get("validation_targets")),
    ):
        if targets:
            check_targets(file, targets, options["format"])
        elif file:
            check_file(file, options["format"], columns, options.get("task"))


def read_data(train, name, options, multi_label, needs_labels=True):
    """Return the `Examples` to train on, and those held out or None.

    `name` is that of the task. Unless `needs_labels`, the first file may lack labels.
    """
    columns = {role: options.get(role) for role in ("text", "text_pair", "labels", "choices")}
    columns["separator"] = options["label_separator"] if multi_label else None
    columns["skip_empty"] = options["skip_empty"]

    def read(path, targets, **how):
        return read_rows(path, name, options["format"], options.get(targets), **columns, **how)

    pairs = False if name == "causal-lm" else None
    data = read(train, "targets", pairs=pairs, needs_labels=needs_labels, refuse_blank=True)
    if options["validation_split"]:
        return data.split(options["validation_split"], options["seed"])
    if options["validation"] is None:
        return data, None
    pairs = "text_pair" in data.texts
    return data, read(options["validation"], "validation_targets", pairs=pairs)


def read_rows(path, *arguments, **options):
    """Return the `Examples` of a file, and say how many of its rows are left out."""
    with notes():
        examples = read_examples(path, *arguments, **options)
    say_left_out(examples.rows)
    return examples


def check_loss(history, learning_rate):
    """Raise an error if the last loss is not a number."""
    if not math.isfinite(history["loss"][-1]):
        raise click.ClickException(
            f"the loss is no longer a number after {len(history['loss'])} epochs: try a lower "
            f"--learning-rate than {learning_rate:g}. Nothing was written."
        )


def export_too(task, path):
    """Export a task to a path, if there is one, and return where the export lies."""
    if path is None:
        return None
    with notes():
        return task.export(path, format=export_format(path))


def say_data(data, held_out, class_names):
    """Print how many texts there are, and their classes."""
    texts = f"{len(data.lines):,} to train on"
    if held_out:
        texts += f", {len(held_out.lines):,} held out"
    labels = None
    if class_names:
        more = f" and {len(class_names) - 20} more" if len(class_names) > 20 else ""
        labels = ", ".join(class_names[:20]) + more
    say_rows([("texts", texts), ("labels", labels)])


def say_results(history, early_stopping, output, exported):
    """Print the metrics of the last epoch, or of the best one, and what was written."""
    best = -1
    if early_stopping:
        best = history["val_loss"].index(min(history["val_loss"]))
    say_rows(
        [
            ("kept", f"epoch {best + 1} of {len(history['loss'])}" if early_stopping else None),
            *((metric.replace("val_", "validation "), f"{values[best]:.4f}")
              for metric, values in history.items()),
            ("preset", f"{output} ({megabytes(output)})"),
            ("export", exported and f"{exported} ({megabytes(exported)})"),
        ]
    )  # fmt: skip
