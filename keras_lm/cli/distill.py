"""`keras-lm distill`: a trained task and a file of texts → a smaller task that answers alike."""

import click

from keras_lm.cli import options as opt
from keras_lm.cli.command import ConfiguredCommand, config_option, write_config
from keras_lm.cli.finetune import (
    check_data,
    check_loss,
    export_too,
    fit_options,
    held_out_options,
    read_data,
    say_data,
    say_results,
    training_options,
)
from keras_lm.cli.options import INPUT_FILE, TASKS, FloatRange, Source

DISTILLED = ("text-classifier", "text-regressor", "token-classifier", "multiple-choice")
PAIRS = ("text-classifier", "text-regressor")


@click.command(
    "distill",
    cls=ConfiguredCommand,
    short_help="A trained task → a smaller one that answers as it does.",
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
@opt.format
@opt.text
@opt.labels
@opt.choices
@opt.skip_empty
@opt.option(
    "--temperature",
    type=FloatRange(0, min_open=True),
    default=1.0,
    help="What logits are divided by: more than 1 shows more of how the teacher ranks classes.",
)
@opt.option(
    "--label-weight",
    type=FloatRange(0),
    default=0.5,
    help="How much the loss of labels counts beside the teacher's, if TRAIN has labels.",
)
@training_options
@config_option
@opt.overwrite
def distill_command(train, teacher, student, output, export_path, overwrite, **options):
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
    Its run.toml holds all options; with it, --config repeats the run.
    """
    check_data(train, options)
    import keras

    from keras_lm import presets, tasks, training
    from keras_lm.cli.terminal import load_task

    opened = presets.Source.open(teacher)
    stated = opened.task
    found = stated.__name__ if stated else "no task"
    # An ensemble is a subclass of its members' task.
    kinds = {name: getattr(tasks, TASKS[name]) for name in DISTILLED}
    name = next((name for name, cls in kinds.items() if stated and issubclass(stated, cls)), None)
    if name is None:
        raise click.ClickException(
            f"{teacher} holds {found}: a teacher is a {', '.join(TASKS[n] for n in DISTILLED)}. "
            "Train one with keras-lm finetune."
        )
    for option, names in {"choices": ("multiple-choice",), "text_pair": PAIRS}.items():
        if options[option] and name not in names:
            raise click.UsageError(
                f"--{option.replace('_', '-')} is not for {teacher}, a {found}: leave it out."
            )
    multi_label = (opened.task_arguments(stated) or {}).get("multi_label")
    data, held_out = read_data(train, name, options, multi_label, needs_labels=False)
    if held_out and held_out.labels is None:
        raise click.UsageError(
            f"{held_out.rows.name} has no labels, which validation measures on: leave it out."
        )

    keras.utils.set_random_seed(options["seed"])
    master = load_task(opened)
    class_names = None
    arguments = {key: options[key] for key in ("sequence_length", "dtype") if options[key]}
    if name in PAIRS:
        arguments["text_pair"] = "text_pair" in data.texts
    if name in ("text-classifier", "token-classifier"):
        class_names = master.class_names or [str(i) for i in range(master.num_classes)]
        arguments["class_names"] = class_names
    if name == "text-classifier":
        arguments["multi_label"] = master.multi_label
    if name == "token-classifier":
        arguments |= {"splitter": master.splitter, "crf": False}
        arguments["whole_texts"] = master.whole_texts  # the same words
    y = data.targets(class_names, multi_label)
    validation = held_out and (held_out.texts, held_out.targets(class_names, multi_label))
    say_data(data, held_out, class_names)
    pupil = _student(student, stated, master, arguments, options["layers"])
    distiller = tasks.Distiller(pupil, master, options["temperature"], options["label_weight"])
    rate = options["learning_rate"] or pupil.backbone.learning_rate
    distiller.compile(optimizer=training.AdamW(learning_rate=rate))
    history = distiller.fit(
        data.texts,
        y,
        validation_data=validation,
        **fit_options(options, keras.callbacks.TerminateOnNaN()),
    ).history
    check_loss(history, rate)
    pupil.save_to_preset(output, overwrite=True)
    write_config(output, learning_rate=rate)
    exported = export_too(pupil, export_path)
    say_results(history, options["early_stopping"], output, exported)


def _student(source, cls, teacher, arguments, layers):
    """Return the student task: from a preset, or of a size with the teacher's vocabulary."""
    from keras_lm.cli.terminal import load_task
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
