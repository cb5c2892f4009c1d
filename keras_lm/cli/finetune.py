"""`keras-lm finetune`: a file of texts and labels → a trained task.

`keras-lm distill` reads the same files, and takes the same options of training.
"""

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

import click

from keras_lm.cli import options as opt
from keras_lm.cli.command import ConfiguredCommand, config_option, takes, write_config
from keras_lm.cli.options import (
    INPUT_FILE,
    TASKS,
    Choice,
    ExportPath,
    FloatRange,
    Source,
    TaskChoice,
    flag_of,
    load_task,
    megabytes,
    notes,
    say_left_out,
    say_rows,
)
from keras_lm.datasets import PUBLISHED
from keras_lm.datasets.examples import UNLABELLED, Examples, check_file, read_examples
from keras_lm.datasets.row_files import check_targets
from keras_lm.utils.files import export_format
from keras_lm.utils.optional_dependencies import check_installed
from keras_lm.utils.registry import advice

# The first is the default.
FINETUNED = [name for name in TASKS if name not in ("feature-extractor", "pretrainer")]
# What is a text classifier over texts with marks → the format of its rows.
MARKED = {"relation": "relations", "typing": "typing"}
SEARCH = ("num_beams", "length_penalty", "coverage_penalty")
# Tasks that learn which texts belong together.
ENCODERS = ("sentence-encoder", "sparse-encoder", "multi-vector-encoder")
# Losses of an encoder with one vector for a text → the classes in `keras_lm.objectives`.
LOSSES = {
    "in-batch-negatives": "InBatchNegatives",
    "triplet": "TripletLoss",
    "cosent": "CoSENT",
    "angle": "AnglE",
    "cosine": "CosineMeanSquares",
    "contrastive": "ContrastiveLoss",
    "supervised-contrastive": "SupervisedContrastive",
}
# Tasks that read one text, or two if the file has pairs.
PAIRED = ("text-classifier", "text-regressor", "question-answerer", "masked-lm", "seq2seq-lm")
# Options that are for some tasks only.
ONLY_FOR = {
    "class_names": ("text-classifier", "token-classifier", "constituency-parser"),
    "multi_label": ("text-classifier",),
    "class_weight": ("text-classifier", "token-classifier"),
    **dict.fromkeys(("choices", "graph", "hops"), ("multiple-choice",)),
    "text_pair": (*PAIRED, *ENCODERS),
    **dict.fromkeys(("loss", "mine_negatives"), ENCODERS[:2]),
    "early_stopping": tuple(name for name in FINETUNED if name != "causal-lm"),
    **dict.fromkeys(SEARCH, ("seq2seq-lm",)),
    **dict.fromkeys(
        ("targets", "validation_targets", "target_length", "label_smoothing"), ("seq2seq-lm",)
    ),
}
# Options that may differ when a run over several seeds goes on, beside those of files.
NOT_DECISIVE = ("tensorboard", "skip_empty")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledTrainingOptions(opt.RowOptions, opt.TrainingOptions):
    """How a command trains on a file of texts and labels."""

    train: str
    validation: str | None
    validation_split: float | None
    early_stopping: int | None
    export_path: Path | None

    @property
    def has_validation(self):
        """Whether there are rows to measure on after each epoch."""
        return bool(self.validation or self.validation_split)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneOptions(LabelledTrainingOptions):
    """What `keras-lm finetune` runs with."""

    source: str
    task: str | None
    class_names: list[str] | None
    graph: str | None
    hops: int | None
    multi_label: bool
    class_weight: str | dict[str, float] | None
    targets: str | None
    validation_targets: str | None
    target_length: int | None
    label_smoothing: float | None
    loss: str | None
    mine_negatives: int | None
    num_beams: int | None
    length_penalty: float | None
    coverage_penalty: float | None
    lora: int | None
    adapters: int | None
    seeds: int


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


held_out_options = opt.together(
    opt.option("--validation", type=INPUT_FILE, help="File to evaluate on after each epoch."),
    opt.option(
        "--validation-split",
        type=FloatRange(0, 1, min_open=True, max_open=True),
        help="Or hold out a random share of TRAIN, such as 0.1, to evaluate on.",
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
        help="Peak learning rate, after a warm-up over a tenth of the steps; then it falls to "
        "zero.  [default: by the model's width, 5e-5 for BERT-base]",
    ),
    opt.option(
        "--sequence-length",
        type=click.IntRange(3),
        help="Truncate texts to this many tokens.  [default: the model's longest sequence]",
    ),
    opt.option("--seed", type=int, default=0),
    opt.option(
        "--dtype",
        type=Choice(["float32", "mixed_bfloat16", "mixed_float16"]),
        help="Precision to compute in.  [default: that of the preset it starts from]",
    ),
    opt.tensorboard,
    opt.option("--export", "export_path", type=ExportPath(), help="Export there, too."),
)
task_options = opt.together(
    opt.option(
        "--class-names",
        callback=opt.parse_class_names,
        metavar="NAME,NAME…",
        help="Classes in the order of the scores.  [default: those of SOURCE if they fit the "
        "labels, otherwise the labels in TRAIN, sorted]",
    ),
    opt.option(
        "--graph",
        metavar="STORE",
        help="For multiple-choice: read each choice with the paths to its text in a graph of "
        "concepts, as keras-lm knowledge writes it; its vectors, STORE-trans-e, are used if they "
        "are there.  [default: that of SOURCE, if it has one]",
    ),
    opt.option(
        "--hops",
        type=click.IntRange(1, 4),
        help="Edges of the longest path in --graph. An export finds paths of 1 or 2 itself, and "
        "takes packed graphs beside the texts for longer ones.  [default: 2]",
    ),
    opt.option("--multi-label", is_flag=True, help="A text may have any number of labels."),
    opt.option(
        "--class-weight",
        callback=parse_class_weight,
        metavar="balanced|NAME=WEIGHT,…",
        help="Weight of the texts of a class, or of its words if words have labels, 1 if "
        "not named; balanced gives all classes the same total weight.",
    ),
    opt.targets,
    opt.option(
        "--validation-targets",
        type=INPUT_FILE,
        help="As --targets, for the lines of --validation.",
    ),
    opt.option(
        "--target-length",
        type=click.IntRange(2),
        help="For seq2seq-lm: truncate targets to this many tokens, which is also the most that "
        "the preset then writes.  [default: SOURCE's, otherwise the sequence length]",
    ),
    opt.option(
        "--label-smoothing",
        type=FloatRange(0, 1, max_open=True),
        help="For seq2seq-lm: share of the probability that the loss spreads over all tokens, such "
        "as 0.1 for translations from random weights.",
    ),
    opt.option(
        "--loss",
        type=Choice([*LOSSES]),
        help="For sentence-encoder: what its vectors learn by; for sparse-encoder, beside its "
        "regularizer.  [default: in-batch-negatives; with scores cosent, with classes "
        "supervised-contrastive]",
    ),
    opt.option(
        "--mine-negatives",
        type=click.IntRange(1),
        metavar="NUMBER",
        help="For sentence-encoder and sparse-encoder: for each pair, also learn from this many "
        "wrong answers that SOURCE takes for right ones, among the positives of other pairs.",
    ),
    opt.search,
    opt.option(
        "--lora",
        type=click.IntRange(1),
        metavar="RANK",
        help="Train the head, and updates of this rank for the kernels of queries, keys and "
        "values, instead of all weights: takes less memory, and often a learning rate ten times "
        "as high.",
    ),
    opt.option(
        "--adapters",
        type=click.IntRange(1),
        metavar="WIDTH",
        help="Train the head, the norms, and layers of this many units after each part of a block, "
        "instead of all weights; use a higher learning rate, such as 5e-4, and more epochs.",
    ),
    opt.option(
        "--seeds",
        type=click.IntRange(1),
        default=1,
        help="Train this many times, with --seed and the numbers after it, and keep the run with "
        "the lowest validation loss; prints the results, their mean and standard deviation.",
    ),
)


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
@opt.labelled_rows
@task_options
@training_options
@config_option
@opt.overwrite
@takes(FinetuneOptions)
def finetune_command(options):
    """Train a pretrained model on a file of texts and their labels.

    \b
      keras-lm finetune bert-base train.csv --output film-critic --validation-split 0.1
      keras-lm finetune bert-base train.tsv --output similarity --task text-regressor
      keras-lm finetune bert-base train.conll --output tagger --task token-classifier
      keras-lm finetune bert-base swag.csv --output chooser --task multiple-choice
      keras-lm finetune bert-base rows.jsonl --output knower --task multiple-choice --graph STORE
      keras-lm finetune bert-base train-v2.0.json --output reader --task question-answerer
      keras-lm finetune bert-base texts.txt --output my-bert --task masked-lm
      keras-lm finetune hf://OWNER/NAME pairs.csv --output encoder --task sentence-encoder
      keras-lm finetune bert-base pairs.csv --output splade --task sparse-encoder
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

    sentence-encoder reads texts that belong together, in the columns anchor and positive (or query
    and answer, text and text_pair), with negative, a string or a list, and a score if there are
    any; or texts with classes; or texts alone, which learn from themselves (SimCSE). sparse-encoder
    (SPLADE) reads the same without classes, and multi-vector-encoder (ColBERT) without scores, too.

    seq2seq-lm reads columns, too: text, and labels (or target, translation, summary) with the text
    to write for it; or two files of plain lines, TRAIN and --targets.

    Writes a preset with configuration, vocabulary and the weights after the last epoch, and nothing
    if anything goes wrong before that. A preset there is replaced with --overwrite only. Its
    run.toml holds all options; with it, --config repeats the run. For
    causal-lm, texts are concatenated and cut into full windows of tokens. The run can be
    interrupted at any time: until it has ended, OUTPUT.unfinished holds its state, and the same
    command goes on, and ends in the same weights as in one go; of several --seeds, those that are
    done are not repeated. OUTPUT may be an address, such as gs://bucket/critic: the state is
    uploaded as it is saved, and another machine can go on. Several processes train together by
    keras-lm launch, or where TF_CONFIG is set.
    """
    options = _follow_format(options)
    _check(options)
    graphs = _open_graphs(options)
    from keras_lm import presets
    from keras_lm.utils.processes import strategy_of_workers, workers_of

    strategy = strategy_of_workers()
    workers = workers_of(strategy)
    if options.seeds > 1 and workers.number > 1:
        raise click.UsageError("--seeds is for one process: start one command for each --seed.")

    # First the checkpoint's configuration, then the rows, and only after that its weights.
    source = presets.Source.open(options.source)
    name, cls = _choose_task(options, source, graphs)
    stated = source.task_arguments(cls) or {}
    multi_label = options.multi_label or stated.get("multi_label", False)
    if options.class_weight:
        _check_weighted(options, multi_label, stated)
    data, held_out = read_data(
        options, name, multi_label, targets=(options.targets, options.validation_targets)
    )
    _refuse_labels(data.rows, name, options)
    _check_learnable(name, data, options)
    if options.mine_negatives:
        _check_minable(data, options)
    class_names = _choose_classes(options, name, data, stated, multi_label)
    check_class_weight(options.class_weight, class_names)
    say_data(data, held_out, class_names)
    if multi_label and not any(len(labels) > 1 for labels in data.labels):
        click.echo(f"Note: no text has several labels, separated by {options.label_separator!r}.")
    finetuning = Finetuning(
        options=options,
        source=source,
        task_class=cls,
        task_arguments=_arguments(options, name, data, class_names, multi_label) | graphs,
        data=data,
        held_out=held_out,
        targets=[
            examples and examples.targets(class_names, multi_label) for examples in (data, held_out)
        ],
        strategy=strategy,
    )
    task, history = finetuning.run()
    if not workers.is_chief:
        return
    with opt.writing_preset(options.output) as folder:
        task.save_to_preset(folder, overwrite=True)
        write_config(dataclasses.replace(finetuning.resolved(), task=name), folder)
    finetuning.remove_state()
    exported = export_too(task, options.export_path)
    say_results(history, options, exported)


@dataclasses.dataclass(kw_only=True)
class Finetuning:
    """The training of a task on the rows of files, with one seed or several."""

    options: FinetuneOptions
    source: Any  # opened
    task_class: type
    task_arguments: dict[str, Any]
    data: Examples
    held_out: Examples | None
    targets: list[Any]  # of both
    strategy: Any
    state: Any = None  # the `Run` of what can be interrupted
    learning_rate: float | None = None  # once a task was trained

    def run(self):
        """Return the trained task, the best of several seeds, and its history."""
        if self.options.seeds == 1:
            task, history, self.state = self._train(self.options.seed, self.options.output)
            return task, history
        from keras_lm.training.runs import SeveralSeeds

        settings = decisive(self.options, self.data, self.held_out)
        self.state = SeveralSeeds(self.options.output, settings, say=click.echo)
        seeds = range(self.options.seed, self.options.seed + self.options.seeds)
        best, history = self.state.best(self._train, seeds, self.options.early_stopping)
        return load_task(best), history

    def resolved(self):
        """Return the options with the learning rate that the task was trained with."""
        if self.learning_rate is None:  # all seeds were done before
            return self.options.with_learning_rate(self._load().backbone)
        return dataclasses.replace(self.options, learning_rate=self.learning_rate)

    def remove_state(self):
        """Remove the state of a run that could be interrupted, which has ended."""
        if self.state:
            self.state.remove()

    def _load(self):
        return load_task(self.source, self.task_class, **self.task_arguments)

    def _train(self, seed, output):
        """Return a task trained with a seed, its history, and its `Run` if it has one."""
        import keras

        from keras_lm import tasks
        from keras_lm.utils.processes import workers_of

        keras.utils.set_random_seed(seed)
        with self.strategy.scope():
            task = self._load()
            options = _compile(task, dataclasses.replace(self.options, seed=seed), self.data)
        self.learning_rate = options.learning_rate
        if not workers_of(self.strategy).is_chief:
            options = dataclasses.replace(options, tensorboard=None)
        elif options.seeds > 1 and options.tensorboard:
            options = dataclasses.replace(options, tensorboard=options.tensorboard / output.name)
        if isinstance(task, tasks.CausalLM):
            return task, *self._fit_windows(task, output, options)
        targets, held_out_targets = self.targets
        rows = {
            "x": self._with_negatives(task),
            "y": targets,
            "validation_data": self.held_out and (self.held_out.texts, held_out_targets),
            "class_weight": options.class_weight,
        }
        settings = decisive(options, self.data, self.held_out)
        history, run = fit_texts(task, output, rows, options, settings, self.strategy)
        is_chief = workers_of(self.strategy).is_chief
        if isinstance(task, tasks.QuestionAnswerer) and self.held_out and is_chief:
            _tune(task, self.held_out, history, options)
        return task, history, run

    def _with_negatives(self, task):
        """Return the texts to train on, with those that `--mine-negatives` asks for."""
        texts, number = self.data.texts, self.options.mine_negatives
        if number is None:
            return texts
        from keras_lm.data import mine_negatives

        size = self.options.batch_size
        mined = mine_negatives(
            task, texts["anchor"], texts["positive"], number=number, batch_size=size
        )
        click.echo(f"negatives  {sum(map(len, mined)):,} for {len(mined):,} pairs")
        return texts | {"negative": mined}

    def _fit_windows(self, task, output, options):
        """Train on packed windows, which can be interrupted; return the history and the `Run`."""
        from keras_lm.training.runs import Run, fingerprint

        names = ["source", "epochs", "batch_size", "learning_rate", "sequence_length", "seed"]
        names += ["dtype", *(name for name in ("lora", "adapters") if getattr(options, name))]
        texts = {
            "text": self.data.texts["text"],
            "validation": self.held_out and self.held_out.texts["text"],
        }
        settings = {name: getattr(options, name) for name in names}
        settings |= {name: column and fingerprint(column) for name, column in texts.items()}
        run = Run(output, settings, self.strategy, say=click.echo)
        fitting = fit_arguments(options, silent=options.seeds > 1) | {"seed": options.seed}
        return run.fit(task, texts["text"], texts["validation"], **fitting), run


def _compile(task, options, data):
    """Make a task ready to be trained; return the options with the learning rate."""
    from keras_lm import objectives, tasks, training

    if options.lora:
        training.enable_lora(task, options.lora)
    if options.adapters:
        training.enable_adapters(task, options.adapters)
    loss = "auto"
    if options.label_smoothing:
        loss = objectives.MaskedCrossentropy(label_smoothing=options.label_smoothing)
    if isinstance(task, (tasks.SentenceEncoder, tasks.SparseEncoder)):
        name = options.loss or _loss_for(data)
        if isinstance(task, tasks.SparseEncoder):
            usual = name == "in-batch-negatives"  # by dot products
            loss = objectives.SpladeLoss(None if usual else getattr(objectives, LOSSES[name])())
        else:
            loss = getattr(objectives, LOSSES[name])()
    options = options.with_learning_rate(task.backbone)
    task.compile(optimizer=training.AdamW(options.learning_rate), loss=loss)
    return options


def _loss_for(data):
    """Return the name of the loss by which vectors learn from a file, by what it has."""
    if data.labels is None:
        return "in-batch-negatives"
    return "cosent" if "anchor" in data.texts else "supervised-contrastive"


# === What is refused, and what follows from the source ===


def _follow_format(options):
    """Return the options with the task, format and form of labels that follow from one another."""
    task, format, multi_label = options.task, options.format, options.multi_label
    if task in MARKED:
        task, format = FINETUNED[0], format or MARKED[task]
    if format in PUBLISHED:
        task = task or PUBLISHED[format].task
        multi_label |= PUBLISHED[format].multi_label
    return dataclasses.replace(options, task=task, format=format, multi_label=multi_label)


def _check(options):
    """Refuse what can be refused before TensorFlow is imported."""
    if options.lora and options.adapters:
        raise click.UsageError("--lora and --adapters are two ways to train few weights: drop one.")
    if options.task:
        _check_options_of(options.task, options)
    if options.seeds > 1 and not options.has_validation:
        raise click.UsageError(
            "--seeds keeps the best by the validation loss: give --validation FILE or "
            "--validation-split SHARE."
        )
    if options.validation_targets and not options.validation:
        raise click.UsageError("--validation-targets has targets for the lines of --validation.")
    check_data(options, options.task, (options.targets, options.validation_targets))


def _check_options_of(name, options):
    """Refuse the options of other tasks than `name`, which may follow from the source."""
    for option, names in ONLY_FOR.items():
        if getattr(options, option) and name not in names:
            follows = f"{name}, which follows from {options.source}"
            chosen = f"--task {name}" if options.task else follows
            raise click.UsageError(
                f"{flag_of(option)} is not for {chosen}, only for --task {' or '.join(names)}."
            )


def _open_graphs(options):
    """Return `graphs`, the argument of a `GraphChoice`, as options name it, in a dict."""
    if options.graph is None:
        if options.hops:
            raise click.UsageError("--hops is for paths in a graph: give --graph STORE.")
        return {}
    from keras_lm.knowledge import SchemaGraphs

    store = options.graph.rstrip("/")
    vectors = Path(f"{store}-trans-e").expanduser()
    trans_e = vectors if vectors.is_dir() else None
    hops = options.hops or 2
    return {"graphs": SchemaGraphs(store, trans_e, f"{store}-paths.sqlite", max_hops=hops)}


def _choose_task(options, source, graphs):
    """Return the name of the task to train, which may follow from the source, and its class."""
    from keras_lm import tasks

    name = options.task or _task_of(source.usual_task)
    _check_options_of(name, options)
    # Choices have a graph if one is named or SOURCE has one.
    if graphs or (name == "multiple-choice" and source.usual_task is tasks.GraphChoice):
        return name, tasks.GraphChoice
    return name, getattr(tasks, TASKS[name])


def _task_of(stated):
    """Return the name of the task of a class, or of what it is a kind of."""
    names = {TASKS[name]: name for name in FINETUNED}
    kinds = [base.__name__ for base in stated.__mro__] if stated else []
    return next((names[kind] for kind in kinds if kind in names), FINETUNED[0])


def _check_weighted(options, multi_label, stated):
    """Refuse weights of classes for a task whose loss is not a sum over classes."""
    if multi_label:
        raise click.UsageError("--class-weight is for texts with one label each.")
    if stated.get("crf"):
        raise click.UsageError(
            f"--class-weight weighs single words, and {options.source} is trained on whole texts "
            "(a CRF)."
        )


def _check_learnable(name, data, options):
    """Refuse labels that the losses of an encoder's kind cannot learn from."""
    if options.loss == "supervised-contrastive" and name == "sparse-encoder":
        raise click.UsageError(
            "--loss supervised-contrastive is for --task sentence-encoder: a sparse-encoder learns "
            "from pairs."
        )
    is_pairs, learns_scores = "anchor" in data.texts, name != "multi-vector-encoder"
    if name not in ENCODERS[1:] or data.labels is None or (is_pairs and learns_scores):
        return
    raise click.UsageError(
        f"{options.train} has {'scores' if is_pairs else 'classes'}, which a {name} does not learn "
        "from: leave the column out, or use --task sentence-encoder."
    )


def _check_minable(data, options):
    """Refuse rows for which `--mine-negatives` cannot find wrong answers."""
    if "anchor" not in data.texts:
        has = "single texts"
    elif "negative" in data.texts:
        has = "the column negative"
    elif data.labels is not None:
        has = "scores"
    else:
        return
    raise click.UsageError(
        f"--mine-negatives is for pairs alone, and {options.train} has {has}: leave it out, or "
        "give the columns anchor and positive."
    )


def _refuse_labels(rows, name, options):
    """Raise an error if the source's task would leave labels unread, and nobody asked for it."""
    if options.task or name not in UNLABELLED:
        return
    if label := rows.find("labels", options.labels, required=False):
        raise click.UsageError(
            f"{options.source} is a {TASKS[name]}, which learns from texts alone, and {rows.name} "
            f"has the labels {label!r}: pass --task {FINETUNED[0]} to train on them, or --task "
            f"{name}."
        )


def _choose_classes(options, name, data, stated, multi_label):
    """Return the classes: the user's, or the source's if they fit the labels, or the labels.

    None for a task without classes.
    """
    if name not in ONLY_FOR["class_names"]:
        return None
    names = options.class_names or notes()(data.class_names)(stated)
    if len(names) < (1 if multi_label else 2):
        raise click.ClickException(
            f"{options.train} has only the label {names[0]!r}: a classifier needs two classes. "
            "Name those that it lacks with --class-names."
            if names
            else f"{options.train} has no label at all: name the classes with --class-names."
        )
    return names


def _arguments(options, name, data, class_names, multi_label):
    """Return the arguments of a task that follow from its data and the options."""
    arguments = opt.given(options, ("sequence_length", "dtype"))
    if name in PAIRED or name == "causal-lm":
        arguments["text_pair"] = "text_pair" in data.texts
    if "predicate" in data.texts:
        arguments["predicate"] = True
    if name == "question-answerer":
        arguments["null_threshold"] = None if all(data.labels) else 0.0
    if name == "seq2seq-lm":
        arguments |= opt.given(options, ("target_length", *SEARCH))
    if class_names is not None:
        arguments["class_names"] = class_names
    if name == "text-classifier":
        arguments["multi_label"] = multi_label
    return arguments


def _tune(task, held_out, history, options):
    """Set the threshold for no answer, if some of the held-out questions have none.

    The figures of the epoch that is kept become those with this threshold.
    """
    if task.null_threshold is None or not any(held_out.labels) or all(held_out.labels):
        return
    threshold = task.tune_null_threshold(held_out.texts, held_out.labels)
    click.echo(f"null threshold  {threshold:.4f}")
    for name, value in task.score(held_out.texts, held_out.labels).items():
        history[f"val_{name}"][_kept_epoch(history, options)] = value


# === What all that train on labelled texts do ===


def check_data(options, task=None, targets=(None, None)):
    """Refuse files and options that do not fit, before TensorFlow is imported.

    `targets` are the files of targets for the lines of the two files, or None.
    """
    if options.tensorboard:
        check_installed("tensorboard", "--tensorboard")
    if options.format == "lambada":
        raise click.UsageError(
            "lambada's passages lack their last words, which keras-lm evaluate asks for. Train on "
            "plain lines."
        )
    if options.validation and options.validation_split:
        raise click.UsageError("--validation and --validation-split are both given: choose one.")
    if options.early_stopping and not options.has_validation:
        raise click.UsageError(
            "--early-stopping looks at the validation loss: give --validation FILE or "
            "--validation-split SHARE."
        )
    for file, targets_of_file in zip((options.train, options.validation), targets):
        if targets_of_file:
            check_targets(file, targets_of_file, options.format)
        elif file:
            columns = {role: options.columns[role] for role in ("text", "text_pair", "labels")}
            check_file(file, options.format, columns, task)


def read_data(options, name, multi_label, needs_labels=True, targets=(None, None)):
    """Return the `Examples` to train on, and those held out or None.

    `name` is that of the task. Unless `needs_labels`, the first file may lack labels.
    """
    how = {**options.columns, "skip_empty": options.skip_empty}
    how["separator"] = options.label_separator if multi_label else None

    def read(path, targets, **more):
        return read_rows(path, name, options.format, targets, **how, **more)

    pairs = False if name == "causal-lm" else None
    data = read(
        options.train, targets[0], pairs=pairs, needs_labels=needs_labels, refuse_blank=True
    )
    if options.validation_split:
        return data.split(options.validation_split, options.seed)
    if options.validation is None:
        return data, None
    return data, read(options.validation, targets[1], pairs="text_pair" in data.texts)


def read_rows(path, *arguments, **options):
    """Return the `Examples` of a file, and say how many of its rows are left out."""
    with notes():
        examples = read_examples(path, *arguments, **options)
    say_left_out(examples.rows)
    return examples


def decisive(options, data, held_out):
    """Return what has to be the same for a run to go on: options, and a digest of the rows."""
    from keras_lm.training.runs import fingerprint

    settings = dataclasses.asdict(options)
    for name in (*NOT_DECISIVE, "train", "output", "export_path", "overwrite"):
        del settings[name]
    rows = (examples and [examples.texts, examples.labels] for examples in (data, held_out))
    return settings | {"rows": fingerprint(json.dumps(row, default=str) for row in rows)}


def fit_texts(task, output, rows, options, settings, strategy=None):
    """Train on rows, in a run that can be interrupted; return the history and the `Run`.

    `rows` are arguments of `fit`; a run of other `settings` cannot go on as this one.
    """
    from keras_lm.training.runs import Run

    run = Run(output, settings, strategy, say=click.echo)
    silent = getattr(options, "seeds", 1) > 1
    callbacks = stopping_callbacks(options)
    fitting = fit_arguments(options, *callbacks, silent=silent) | {"seed": options.seed}
    history = run.fit_texts(task, **rows, **fitting)
    check_loss(history, options)
    return history, run


def fit_arguments(options, *callbacks, silent=False):
    """Return what `fit` takes, of the options of a command that trains; with further callbacks."""
    import keras

    callbacks = list(callbacks)
    if options.tensorboard:
        callbacks.append(keras.callbacks.TensorBoard(str(options.tensorboard)))
    verbose = 1 if sys.stdout.isatty() else 2
    return {
        "batch_size": options.batch_size,
        "epochs": options.epochs,
        "callbacks": callbacks,
        "verbose": 0 if silent else verbose,
    }


def stopping_callbacks(options):
    """Return the callbacks that end a training early."""
    import keras

    if not options.early_stopping:
        return []
    patience = {"patience": options.early_stopping, "restore_best_weights": True}
    return [keras.callbacks.EarlyStopping("val_loss", mode="min", **patience)]


def check_loss(history, options):
    """Raise an error if the last loss is not a number."""
    if not math.isfinite(history["loss"][-1]):
        raise click.ClickException(
            f"the loss is no longer a number after {len(history['loss'])} epochs: try a lower "
            f"--learning-rate than {options.learning_rate:g}. Nothing was written."
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


def _kept_epoch(history, options):
    """Return the index of the epoch whose weights are kept: the best one, or the last."""
    if options.early_stopping:
        return history["val_loss"].index(min(history["val_loss"]))
    return -1


def say_results(history, options, exported):
    """Print the metrics of the last epoch, or of the best one, and what was written."""
    best, kept = _kept_epoch(history, options), None
    if options.early_stopping:
        kept = f"epoch {best + 1} of {len(history['loss'])}"
    say_rows(
        [
            ("kept", kept),
            *((metric.replace("val_", "validation "), f"{values[best]:.4f}")
              for metric, values in history.items()),
            ("preset", f"{options.output} ({megabytes(options.output)})"),
            ("export", exported and f"{exported} ({megabytes(exported)})"),
        ]
    )  # fmt: skip
