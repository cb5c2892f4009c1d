"""`keras-lm distill`: a trained task and a file of texts → a smaller task that answers alike."""

import dataclasses

import click

from keras_lm.cli import options as opt
from keras_lm.cli.command import ConfiguredCommand, config_option, takes, write_config
from keras_lm.cli.finetune import (
    LabelledTrainingOptions,
    check_data,
    decisive,
    export_too,
    fit_texts,
    held_out_options,
    read_data,
    say_data,
    say_results,
    training_options,
)
from keras_lm.cli.options import INPUT_FILE, TASKS, FloatRange, Source, flag_of, load_task

DISTILLED = ("text-classifier", "text-regressor", "token-classifier", "multiple-choice")
PAIRS = ("text-classifier", "text-regressor")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillOptions(LabelledTrainingOptions):
    """What `keras-lm distill` runs with."""

    teacher: str
    student: str
    layers: int | None
    temperature: float
    label_weight: float


@click.command(
    "distill",
    cls=ConfiguredCommand,
    short_help="A trained task → a smaller one that answers like it.",
)
@click.argument("train", type=INPUT_FILE)
@opt.option("--teacher", type=Source(), required=True, help="The trained task to learn from.")
@opt.option(
    "--student",
    type=Source(),
    required=True,
    help="A preset or checkpoint to start from; or the name of a size, for random weights and the "
    "vocabulary of the teacher.",
)
@opt.option(
    "--layers",
    type=click.IntRange(1),
    help="Keep this many layers of --student, spread evenly from the first to the last.",
)
@opt.trained_preset
@held_out_options
@opt.labelled_rows
@opt.option(
    "--temperature",
    type=FloatRange(0, min_open=True),
    default=1.0,
    help="Divisor of the logits: above 1, more of the teacher's ranking of classes counts.",
)
@opt.option(
    "--label-weight",
    type=FloatRange(0),
    default=0.5,
    help="Weight of the labels' loss, beside the teacher's, if TRAIN has labels.",
)
@training_options
@config_option
@opt.overwrite
@takes(DistillOptions)
def distill_command(options):
    """Train a small model to answer as a large one does.

    \b
      keras-lm distill reviews.csv --teacher film-critic --student film-critic --layers 2 \\
          --output small-critic
      keras-lm distill reviews.txt --teacher film-critic --student bert_tiny_en_uncased \\
          --output tiny-critic

    The teacher is a preset of a classifier, a regressor, a tagger or multiple choice, such as
    keras-lm finetune writes. The student may be any model, with a vocabulary of its own. TRAIN is
    as for keras-lm finetune, but needs no labels, so it may also be plain lines, for a tagger lists
    of words in JSONL: the more texts, the better.

    The teacher reads each text once, before the first epoch. OUTPUT is a preset like any other,
    without the teacher; it is written at the end, and nothing if anything goes wrong before that.
    The run can be interrupted at any time: until it has ended, OUTPUT.unfinished holds its state,
    and the same command goes on, and ends in the same weights as in one go; at an address, also on
    another machine. Its run.toml holds all options; with it, --config repeats the run.
    """
    check_data(options)
    import keras

    from keras_lm import presets, tasks, training

    opened = presets.Source.open(options.teacher)
    name = _task_of_teacher(opened, options)
    multi_label = (opened.task_arguments(opened.task) or {}).get("multi_label")
    data, held_out = read_data(options, name, multi_label, needs_labels=False)
    if held_out and held_out.labels is None:
        raise click.UsageError(
            f"{held_out.rows.name} has no labels, which validation measures on: leave it out."
        )

    keras.utils.set_random_seed(options.seed)
    teacher = load_task(opened)
    class_names, arguments = _arguments(options, name, teacher, data)
    say_data(data, held_out, class_names)
    student = _student(options.student, opened.task, teacher, arguments, options.layers)
    options = options.with_learning_rate(student.backbone)
    distiller = tasks.Distiller(student, teacher, options.temperature, options.label_weight)
    distiller.compile(optimizer=training.AdamW(learning_rate=options.learning_rate))
    rows = {
        "x": data.texts,
        "y": data.targets(class_names, multi_label),
        "validation_data": held_out
        and (held_out.texts, held_out.targets(class_names, multi_label)),
    }
    settings = decisive(options, data, held_out)
    history, run = fit_texts(distiller, options.output, rows, options, settings)
    with opt.writing_preset(options.output) as folder:
        student.save_to_preset(folder, overwrite=True)
        write_config(options, folder)
    run.remove()
    exported = export_too(student, options.export_path)
    say_results(history, options, exported)


def _task_of_teacher(opened, options):
    """Return the name of the task that a teacher holds; refuse options that are not for it."""
    from keras_lm import tasks

    stated = opened.task
    holds = stated.__name__ if stated else "no task"
    # An ensemble is a subclass of its members' task.
    kinds = {name: getattr(tasks, TASKS[name]) for name in DISTILLED}
    name = next((name for name, cls in kinds.items() if stated and issubclass(stated, cls)), None)
    if name is None:
        raise click.ClickException(
            f"{options.teacher} holds {holds}: a teacher is a "
            f"{', '.join(TASKS[n] for n in DISTILLED)}. Train one with keras-lm finetune."
        )
    for option, names in {"choices": ("multiple-choice",), "text_pair": PAIRS}.items():
        if getattr(options, option) and name not in names:
            raise click.UsageError(
                f"{flag_of(option)} is not for {options.teacher}, a {holds}: leave it out."
            )
    return name


def _arguments(options, name, teacher, data):
    """Return the classes of a student, or None, and the arguments of its task."""
    class_names = None
    arguments = opt.given(options, ("sequence_length", "dtype"))
    if name in PAIRS:
        arguments["text_pair"] = "text_pair" in data.texts
    if name in ("text-classifier", "token-classifier"):
        class_names = teacher.class_names or [str(i) for i in range(teacher.num_classes)]
        arguments["class_names"] = class_names
    if name == "text-classifier":
        arguments["multi_label"] = teacher.multi_label
    if name == "token-classifier":
        arguments |= {"splitter": teacher.splitter, "crf": False}
        arguments["whole_texts"] = teacher.whole_texts  # the same words
    return class_names, arguments


def _student(source, cls, teacher, arguments, layers):
    """Return the student task: from a preset, or of a size with the teacher's vocabulary."""
    from keras_lm.tokenizers import Tokenizer
    from keras_lm.utils import registry

    size = registry.sizes().get(source)
    if size is None:
        task = load_task(source, cls, **arguments)
    else:
        expected, tokenizer = size.tokenizer_class, teacher.tokenizer
        if issubclass(expected, Tokenizer) and not isinstance(tokenizer, expected):
            raise click.UsageError(
                f"--student {source} would read texts with a {expected.__name__}, and the "
                f"teacher's vocabulary is that of a {type(tokenizer).__name__}: give a preset "
                "that has a vocabulary, such as one of keras-lm pretrain."
            )
        rows = teacher.backbone.vocabulary_size
        task = cls.from_preset(
            source, load_weights=False, tokenizer=tokenizer, vocabulary_size=rows, **arguments
        )
    if layers is None:
        return task
    backbone = task.backbone.with_layers(layers)
    smaller = cls(backbone, tokenizer=task.tokenizer, **task.get_arguments())
    smaller.head.set_weights(task.head.get_weights())
    return smaller
