"""`keras-lm finetune`: a file of texts and labels → a trained task."""

import json
import math
import sys
from pathlib import Path

import click

from keras_lm.cli import options as opt
from keras_lm.cli.command import ConfiguredCommand, config_option, write_config
from keras_lm.cli.options import (
    INPUT_FILE,
    TASKS,
    Choice,
    ExportPath,
    FloatRange,
    Source,
    TaskChoice,
)
from keras_lm.cli.terminal import megabytes, notes, say_left_out, say_rows
from keras_lm.datasets import PUBLISHED
from keras_lm.datasets.examples import UNLABELLED, check_file, read_examples
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


# The first is the default.
FINETUNED = [name for name in TASKS if name not in ("feature-extractor", "pretrainer")]
# What is a text classifier over texts with marks → the format of its rows.
MARKED = {"relation": "relations", "typing": "typing"}
SEARCH = ("num_beams", "length_penalty", "coverage_penalty")
# Options that are for some tasks only.
ONLY_FOR = {
    "class_names": ("text-classifier", "token-classifier", "constituency-parser"),
    "multi_label": ("text-classifier",),
    "class_weight": ("text-classifier", "token-classifier"),
    **dict.fromkeys(("choices", "graph", "hops"), ("multiple-choice",)),
    "text_pair": (
        *("text-classifier", "text-regressor", "question-answerer", "masked-lm", "seq2seq-lm"),
    ),
    "early_stopping": tuple(name for name in FINETUNED if name != "causal-lm"),
    **dict.fromkeys(SEARCH, ("seq2seq-lm",)),
    **dict.fromkeys(
        ("targets", "validation_targets", "target_length", "label_smoothing"), ("seq2seq-lm",)
    ),
}


@click.command(
    "finetune", cls=ConfiguredCommand, short_help="A file of texts and labels → a trained preset."
)
@click.argument("source", type=Source())
@click.argument("train", type=INPUT_FILE)
@opt.trained_preset
@opt.option(
    "--task",
    type=TaskChoice([*FINETUNED, *MARKED]),
    help="relation and typing are text-classifier over --format relations and typing.  [default: "
    "that of a published data set, otherwise what SOURCE has a head for, otherwise "
    "text-classifier]",
)
@held_out_options
@opt.format
@opt.text
@opt.labels
@opt.choices
@opt.skip_empty
@opt.option(
    "--class-names",
    callback=opt.parse_class_names,
    metavar="NAME,NAME…",
    help="Classes in the order of the scores.  [default: those of SOURCE if they fit the labels, "
    "otherwise the labels in TRAIN, sorted]",
)
@opt.option(
    "--graph",
    metavar="STORE",
    help="For multiple-choice: read each choice with the paths to its text in a graph of concepts, "
    "as keras-lm knowledge writes it; its vectors, STORE-trans-e, are used if they are there.  "
    "[default: that of SOURCE, if it has one]",
)
@opt.option(
    "--hops",
    type=click.IntRange(1, 4),
    help="Edges of the longest path in --graph. An export finds paths of 1 or 2 itself, and takes "
    "packed graphs beside the texts for longer ones.  [default: 2]",
)
@opt.option("--multi-label", is_flag=True, help="A text may have any number of labels.")
@opt.option(
    "--class-weight",
    callback=parse_class_weight,
    metavar="balanced|NAME=WEIGHT,…",
    help="How much a text of a class counts, or a word if words have labels, 1 if not named; "
    "balanced for classes that count the same, however many texts or words they have.",
)
@opt.targets
@opt.option("--validation-targets", type=INPUT_FILE, help="The same for the lines of --validation.")
@opt.option(
    "--target-length",
    type=click.IntRange(2),
    help="For seq2seq-lm: cut targets to this many tokens, which the preset then writes at most.  "
    "[default: SOURCE's, otherwise the sequence length]",
)
@opt.option(
    "--label-smoothing",
    type=FloatRange(0, 1, max_open=True),
    help="For seq2seq-lm: what share of the probability the loss spreads over all tokens, 0.1 for "
    "translations from random weights.",
)
@opt.search
@opt.option(
    "--lora",
    type=click.IntRange(1),
    metavar="RANK",
    help="Train the head, and an update of this rank of the kernels that make queries, keys and "
    "values, instead of all weights: less memory, and often a rate ten times as high.",
)
@opt.option(
    "--adapters",
    type=click.IntRange(1),
    metavar="WIDTH",
    help="Train the head, the norms, and layers of this many units after each part of a block, "
    "instead of all weights; also at a higher rate, such as 5e-4, and for more epochs.",
)
@opt.option(
    "--seeds",
    type=click.IntRange(1),
    default=1,
    help="Train this many times, with --seed and the numbers after it, and keep the best by the "
    "validation loss; says what each reaches, their mean and deviation.",
)
@training_options
@config_option
@opt.overwrite
def finetune_command(source, train, output, export_path, overwrite, **options):
    """Train a pretrained model on a file of texts and their labels.

    \b
      keras-lm finetune bert-base train.csv --output film-critic --validation-split 0.1
      keras-lm finetune bert-base train.tsv --output similarity --task text-regressor
      keras-lm finetune bert-base train.conll --output tagger --task token-classifier
      keras-lm finetune bert-base swag.csv --output chooser --task multiple-choice
      keras-lm finetune bert-base rows.jsonl --output knower --task multiple-choice --graph STORE
      keras-lm finetune bert-base train-v2.0.json --output reader --task question-answerer
      keras-lm finetune bert-base texts.txt --output my-bert --task masked-lm
      keras-lm finetune gpt2 corpus.txt --output my-gpt2 --task causal-lm --sequence-length 128
      keras-lm finetune opus-mt-en-de train.en --targets train.de --output translator --num-beams 4

    SOURCE is a preset, a published checkpoint, or hf://OWNER/NAME. TRAIN is CSV, TSV or JSONL with
    the columns text and label (others are named with --text and --labels), and text_pair for pairs.
    Labels are names, or positions in the class names; for a regressor numbers; masked-lm and
    causal-lm need none and also read plain lines, without the blank ones. Empty texts and labels of
    another task are an error, which counts them; --skip-empty leaves them out. With --format,
    published data sets are read as they are; that decides the task and the classes, too.

    token-classifier reads CoNLL files (a word and its label on a line, first and last column, an
    empty line after a sentence) and lists in JSONL, {"words": […], "labels": […]}. multiple-choice
    reads {"text": "…", "choices": […], "label": 0}, or a CSV with numbered columns, choice0,
    choice1, …, or those of SWAG; a label is a position.

    coreference-resolver reads JSONL, {"words": […], "labels": [[[0, 2], [5, 6]]]}: clusters of
    mentions. A mention is the numbers of its first word and of the word after it, from 0.

    question-answerer reads SQuAD's JSON, and JSONL with the columns question, context and answers
    (others are named with --text, --text-pair and --labels), where answers are [{"text": "…",
    "start": 0}], with the number of characters before the text in its context, or [] if there is
    none. If all questions of TRAIN have answers, the preset always
    answers; otherwise held-out rows decide how sure it must be.

    A relation or a type is a class of a text with marks around its entities: --task relation reads
    JSONL, {"text": "…", "head": [0, 3], "tail": [13, 20], "label": "…"}, --task typing
    {"text": "…", "mention": [0, 3], "labels": […]}, places in characters; or FewRel, TACRED, FIGER
    and Open Entity with --format.

    constituency-parser reads trees in brackets, --format penn, and words with a tree in JSONL,
    {"words": […], "labels": "(S …)"}.

    seq2seq-lm reads columns, too: text, and labels (or target, translation, summary) with the text
    to write for it; or two files of plain lines, TRAIN and --targets.

    Writes a preset with configuration, vocabulary and the weights after the last epoch, and nothing
    if anything goes wrong before that. A preset there is replaced with --overwrite only. Its
    run.toml holds all options; with it, --config repeats the run. For
    causal-lm, texts are concatenated and cut into full windows of tokens, and an interrupted run
    can be continued: until it has ended, OUTPUT.unfinished holds its state, and the same command
    continues it; one of several --seeds does not repeat those that are done. Several processes
    train together by keras-lm launch, or where TF_CONFIG is set.
    """
    if options["lora"] and options["adapters"]:
        raise click.UsageError("--lora and --adapters are two ways to train few weights: drop one.")
    _choose_task(options)
    check_data(train, options)
    graphs = _open_graphs(options)
    import keras

    from keras_lm import presets, tasks
    from keras_lm.cli.terminal import load_task, notes
    from keras_lm.training.distribution import strategy_of_workers, workers_of

    strategy = strategy_of_workers()
    workers = workers_of(strategy)
    if options["seeds"] > 1 and workers.number > 1:
        raise click.UsageError("--seeds is for one process: start one command for each --seed.")

    # First the checkpoint's configuration, then the rows, and only after that its weights.
    opened = presets.Source.open(source)
    name = options["task"] or _task_of(opened.usual_task)
    _check_options(name, options, source)
    # Choices have a graph if one is named or SOURCE has one.
    has_graph = graphs or (name == "multiple-choice" and opened.usual_task is tasks.GraphChoice)
    cls = tasks.GraphChoice if has_graph else getattr(tasks, TASKS[name])
    stated = opened.task_arguments(cls) or {}
    multi_label = options["multi_label"] or stated.get("multi_label", False)
    if multi_label and options["class_weight"]:
        raise click.UsageError("--class-weight is for texts with one label each.")
    if stated.get("crf") and options["class_weight"]:
        raise click.UsageError(
            f"--class-weight weighs single words, and {source} is trained on whole texts (a CRF)."
        )
    data, held_out = read_data(train, name, options, multi_label)
    _refuse_labels(data.rows, name, options, source)
    arguments = _arguments(name, data, options) | graphs
    class_names = None
    if name in ONLY_FOR["class_names"]:
        class_names = options["class_names"] or notes()(data.class_names)(stated)
        _check_classes(class_names, train, multi_label)
        arguments["class_names"] = class_names
    if name == "text-classifier":
        arguments["multi_label"] = multi_label
    check_class_weight(options["class_weight"], class_names)
    rows = {
        "x": data.texts,
        "y": data.targets(class_names, multi_label),
        "validation_data": held_out
        and (held_out.texts, held_out.targets(class_names, multi_label)),
        "class_weight": options["class_weight"],
    }
    say_data(data, held_out, class_names)

    rates = []

    def train_once(seed, output):
        """Return a task trained with a seed, its history, and its `Run` if it has one."""
        keras.utils.set_random_seed(seed)
        with strategy.scope():
            task = load_task(opened, cls, **arguments)
            rate = _compile(task, options)
        rates.append(rate)
        how = options | {"seed": seed, "learning_rate": rate}
        if not workers.is_chief:
            how["tensorboard"] = None
        elif options["seeds"] > 1 and options["tensorboard"]:
            how["tensorboard"] = options["tensorboard"] / output.name
        if name == "causal-lm":
            return task, *_fit_windows(task, output, data, held_out, source, how, strategy)
        stop = keras.callbacks.TerminateOnNaN()
        history = task.fit(**rows, **fit_options(how, stop)).history
        check_loss(history, rate)
        return task, history, None

    if options["seeds"] > 1:
        from keras_lm.training.runs import SeveralSeeds, fingerprint

        digest = fingerprint(json.dumps([each.texts, each.labels]) for each in (data, held_out))
        same = {n: v for n, v in options.items() if n not in ("tensorboard", "skip_empty")}
        same |= {"source": source, "rows": digest}
        run = SeveralSeeds(output, same, say=click.echo)
        seeds = range(options["seed"], options["seed"] + options["seeds"])
        best, history = run.best(train_once, seeds, options["early_stopping"])
        task = load_task(best)
    else:
        task, history, run = train_once(options["seed"], output)
    if not workers.is_chief:
        return
    if name == "question-answerer" and held_out:
        _tune(task, held_out)
    task.save_to_preset(output, overwrite=True)
    if not rates:  # all seeds were done before
        rates = [load_task(opened, cls, **arguments).backbone.learning_rate]
    write_config(output, task=name, learning_rate=rates[0], format=options["format"])
    if run:
        run.remove()
    exported = export_too(task, export_path)
    say_results(history, options["early_stopping"], output, exported)


def _check_classes(names, train, multi_label):
    """Raise an error if there are fewer classes than a classifier needs."""
    if len(names) < (1 if multi_label else 2):
        raise click.ClickException(
            f"{train} has only the label {names[0]!r}: a classifier needs two classes. Name those "
            "that it lacks with --class-names."
            if names
            else f"{train} has no label at all: name the classes with --class-names."
        )


def _choose_task(options):
    """Set the task, format and form of labels that follow from the other options; check these."""
    if options["task"] in MARKED:
        options["format"] = options["format"] or MARKED[options["task"]]
        options["task"] = FINETUNED[0]
    if options["format"] in PUBLISHED:
        options["task"] = options["task"] or PUBLISHED[options["format"]].task
        options["multi_label"] |= PUBLISHED[options["format"]].multi_label
    if options["task"]:
        _check_options(options["task"], options)


def _check_options(name, options, source=None):
    """Refuse options of other tasks; `source` is what the task follows from, if none is named."""
    for option, names in ONLY_FOR.items():
        if options[option] and name not in names:
            flag = f"--{option.replace('_', '-')}"
            chosen = f"--task {name}" if options["task"] else f"{name}, which follows from {source}"
            raise click.UsageError(f"{flag} is not for {chosen}, only for {', '.join(names)}.")


def _open_graphs(options):
    """Return `graphs`, the argument of a `GraphChoice`, as options name it, in a dict."""
    store = options["graph"]
    if store is None:
        if options["hops"]:
            raise click.UsageError("--hops is for paths in a graph: give --graph STORE.")
        return {}
    from keras_lm.knowledge import SchemaGraphs

    store = store.rstrip("/")
    vectors = Path(f"{store}-trans-e").expanduser()
    trans_e = vectors if vectors.is_dir() else None
    hops = options["hops"] or 2
    return {"graphs": SchemaGraphs(store, trans_e, f"{store}-paths.sqlite", max_hops=hops)}


def _task_of(stated):
    """Return the name of the task of a class, or of what it is a kind of."""
    names = {TASKS[name]: name for name in FINETUNED}
    kinds = [base.__name__ for base in stated.__mro__] if stated else []
    return next((names[kind] for kind in kinds if kind in names), FINETUNED[0])


def _refuse_labels(rows, name, options, source):
    """Raise an error if the source's task would leave labels unread, and nobody asked for it."""
    if options["task"] or name not in UNLABELLED:
        return
    if label := rows.find("labels", options["labels"], required=False):
        raise click.UsageError(
            f"{source} is a {TASKS[name]}, which learns from texts alone, and {rows.name} has the "
            f"labels {label!r}: pass --task {FINETUNED[0]} to train on them, or --task {name}."
        )


def _arguments(name, data, options):
    """Return the arguments of a task that follow from its data and the options."""
    arguments = {key: options[key] for key in ("sequence_length", "dtype") if options[key]}
    if name in ONLY_FOR["text_pair"] or name == "causal-lm":
        arguments["text_pair"] = "text_pair" in data.texts
    if "predicate" in data.texts:
        arguments["predicate"] = True
    if name == "question-answerer":
        arguments["null_threshold"] = None if all(data.labels) else 0.0
    if name == "seq2seq-lm":
        given = {key: options[key] for key in ("target_length", *SEARCH)}
        arguments |= {key: value for key, value in given.items() if value is not None}
    return arguments


def _compile(task, options):
    """Make a task ready to be trained as the options say; return the learning rate."""
    from keras_lm import objectives, training

    if options["lora"]:
        training.enable_lora(task, options["lora"])
    if options["adapters"]:
        training.enable_adapters(task, options["adapters"])
    loss = "auto"
    if options["label_smoothing"]:
        loss = objectives.MaskedCrossentropy(label_smoothing=options["label_smoothing"])
    rate = options["learning_rate"] or task.backbone.learning_rate
    task.compile(optimizer=training.AdamW(rate), loss=loss)
    return rate


def _fit_windows(task, output, data, held_out, source, options, strategy):
    """Train on packed windows, which can be interrupted; return the history and the `Run`."""
    from keras_lm.training.runs import Run, fingerprint

    names = ["epochs", "batch_size", "learning_rate", "sequence_length", "seed", "dtype"]
    names += [name for name in ("lora", "adapters") if options[name]]
    texts = {"text": data.texts["text"], "validation": held_out and held_out.texts["text"]}
    digests = {name: each and fingerprint(each) for name, each in texts.items()}
    settings = {"source": source, **{name: options[name] for name in names}, **digests}
    run = Run(output, settings, strategy, say=click.echo)
    fitting = fit_options(options) | {"seed": options["seed"]}
    return run.fit(task, texts["text"], texts["validation"], **fitting), run


def _tune(task, held_out):
    """Set the threshold for no answer, if some of the held-out questions have none."""
    if task.null_threshold is not None and any(held_out.labels) and not all(held_out.labels):
        threshold = task.tune_null_threshold(held_out.texts, held_out.labels)
        click.echo(f"null threshold  {threshold:.4f}")
