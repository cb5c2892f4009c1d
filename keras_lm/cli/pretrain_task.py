"""What `keras-lm pretrain` trains, and how: its task and its optimizer, of the options."""

import inspect
from pathlib import Path

import click
import keras

from keras_lm import models, objectives, presets, tasks, training
from keras_lm.cli.objective_options import (
    check_objectives,
    default_objectives,
    distilled_from,
    form_of,
    make_objectives,
    replaced_by,
    vocabulary_for,
    with_generator,
)
from keras_lm.cli.terminal import load_task
from keras_lm.inspection import inspect_checkpoint
from keras_lm.tokenizers import Tokenizer
from keras_lm.utils import registry

# What a model does that an objective is for.
WAYS = {"causal-lm": "reads from left to right", "span-corruption": "writes a text for a text"}
IN_BOTH_DIRECTIONS = "reads in both directions"


def make_task(options, words):
    """Return the compiled task; sets in `options` what follows from the model.

    `words` join the vocabulary of a published model.
    """
    if options["teacher"]:
        task = _student(options)
    else:
        task = _going_on(options, words) if options["source"] else _from_scratch(options)
    if "replaced-tokens" in options["objectives"] and not options["generator"]:
        task = with_generator(task, options)
    if options["streams"] and not task.backbone.carries_state:
        raise click.UsageError(
            f"--streams carries a state along, and {type(task.backbone).__name__} has none: leave "
            "it out."
        )
    task.compile(
        optimizer=_optimizer(task.backbone, options), micro_batch_size=options["micro_batch_size"]
    )
    return task


def _going_on(options, words):
    source = presets.Source.open(options["source"])
    backbone_class, _ = source.recognise()
    cls, arguments = _task_class(backbone_class, options, source)
    given = _given(options)
    if generator := _published_generator(options, words):
        generator = load_task(generator, tasks.MaskedLM, **given)
        arguments["objectives"] = [replaced_by(generator, options)]
        arguments["embeddings_of"] = generator.backbone
    if options["streams"] and backbone_class.STREAM_LENGTHS:
        options["sequence_length"] = options["sequence_length"] or 512
        given["sequence_length"] = options["sequence_length"]
        given |= _stream_lengths(backbone_class, given["sequence_length"])
    arguments |= given
    task = load_task(source, cls, **arguments)
    if words:
        before = task.tokenizer.vocabulary_size
        task = task.with_words(words)
        more = task.tokenizer.vocabulary_size - before
        click.echo(f"vocabulary: {more:,} entries more, for {len(words):,} words")
    return task


def _given(options):
    """Return the options of a model that is loaded, if they are given."""
    given = {name: options[name] for name in ("dropout", "sequence_length", "dtype")}
    return {name: value for name, value in given.items() if value is not None}


def _student(options):
    """Return the task of a student: --from, or one that begins with layers of the teacher."""
    given = _given(options)
    teacher = _teacher(options["teacher"], given)
    objectives = [distilled_from(teacher, options)]
    options["form"] = form_of(options["objectives"], options["form"], teacher.backbone.TEMPLATE)
    if options["source"]:
        return load_task(options["source"], tasks.Pretrainer, objectives=objectives, **given)
    task = tasks.Pretrainer(
        _layers_of(teacher.backbone, options),
        objectives,
        tokenizer=teacher.tokenizer,
        **teacher.packing,
    )
    task.heads["token"].set_weights(teacher.head.get_weights())
    return task


def _teacher(source, given):
    found = inspect_checkpoint(source)
    if found["model"] and "masked language model" not in found["heads"]:
        raise click.UsageError(
            f"--teacher {source} has no head that predicts masked tokens: give a checkpoint with "
            "one, such as keras-lm pretrain writes."
        )
    return load_task(source, tasks.MaskedLM, **given)


def _layers_of(teacher, options):
    """Return a student's backbone, with some of the layers of a teacher's."""
    kind, size = type(teacher), {"num_layers": max(teacher.config["num_layers"] // 2, 1)}
    if options["size"]:
        kind = registry.sizes()[options["size"]]
        size = kind.SIZES[options["size"]]
    layers = options["num_layers"] or size["num_layers"]
    theirs = teacher.config["hidden_dim"]
    ours = options["hidden_dim"] or size.get("hidden_dim", theirs)
    if ours != theirs:
        raise click.UsageError(
            f"The student is {ours} wide, and --teacher {theirs}, whose layers it begins with: "
            f"choose another --size, or say --hidden-dim {theirs}."
        )
    if kind is type(teacher):
        return teacher.with_layers(layers)
    if kind.from_teacher is None:
        raise click.UsageError(
            f"--size {options['size']} is a {kind.__name__}, and --teacher a "
            f"{type(teacher).__name__}: leave out --size, for a student of the teacher's kind."
        )
    return kind.from_teacher(teacher, layers)


def _published_generator(options, words):
    """Return the source of the generator to go on with, or None for a new one; sets the option."""
    inside = Path(options["source"]).expanduser() / "generator"
    if options["objectives"] != ("replaced-tokens",) or options["generator_size"]:
        return None
    if not options["generator"] and inside.is_dir() and not words:
        options["generator"] = str(inside)
    if options["generator"] and words:
        raise click.UsageError("--generator does not go with --add-words, which need a new one.")
    return options["generator"]


def _from_scratch(options):
    backbone_class = registry.sizes()[options["size"]]
    size = backbone_class.SIZES[options["size"]]
    cls, arguments = _task_class(backbone_class, options)
    needed, kind = vocabulary_for(backbone_class, options["objectives"])
    tokenizer = Tokenizer.from_preset(options["vocabulary"])
    roles = [f"in the role of {role}" for role in tokenizer.special_tokens]
    if needed not in {*roles, *tokenizer.vocabulary}:
        raise click.UsageError(
            f"--vocabulary {options['vocabulary']} has no special token {needed}, which --size "
            f"{options['size']} needs: make one with keras-lm vocab --kind {kind}."
        )
    is_causal = "causal-lm" in options["objectives"]
    if not is_causal and backbone_class.in_both_directions:
        size = size | backbone_class.in_both_directions(size)
    given = {name: options[name] for name in ("num_layers", "hidden_dim", "num_heads", "dropout")}
    if "max_sequence_length" in inspect.signature(backbone_class).parameters:
        given["max_sequence_length"] = options["sequence_length"]
    else:  # its texts may have any length
        arguments["sequence_length"] = options["sequence_length"]
    if options["streams"]:
        arguments["sequence_length"] = (
            options["sequence_length"] or size.get("memory_length") or 512
        )
        given |= _stream_lengths(backbone_class, arguments["sequence_length"])
    if options["hidden_dim"]:
        given |= backbone_class.of_width(size, options["hidden_dim"])
    if is_causal and options["dropout"] is None:
        given["dropout"] = 0.0
    given = {name: value for name, value in given.items() if value is not None}
    for name in given.keys() - inspect.signature(backbone_class).parameters:
        raise click.UsageError(
            f"--{name.replace('_', '-')} is not for --size {options['size']}: its model has none."
        )
    given |= {"vocabulary_size": tokenizer.vocabulary_size, "dtype": options["dtype"]}
    return cls(backbone_class(**(size | given)), tokenizer=tokenizer, **arguments)


def _stream_lengths(backbone_class, sequence_length):
    return {n: int(share * sequence_length) for n, share in backbone_class.STREAM_LENGTHS.items()}


def choose_objectives(backbone_class, options, source=None):
    """Return the names of the objectives for a class of backbone; sets them in the options.

    A network that may be of either direction, such as Reformer, is of that which its `source`
    states; a new one is causal unless an objective is for the other.
    """
    is_causal = backbone_class.is_causal
    if backbone_class.in_both_directions:
        is_causal = not options["objectives"] or "causal-lm" in options["objectives"]
        if source:
            is_causal = source.arguments(backbone_class).get("causal", True)
    # A cache, unlike a state that is carried along, is empty at the beginning of each window.
    reads_windows = backbone_class.is_causal and backbone_class.make_cache
    reads_streams = options.get("streams") and backbone_class.is_causal
    if not (reads_windows or reads_streams or backbone_class.PRETRAINING_HEADS):
        raise click.UsageError(
            f"{backbone_class.__name__} is not trained on windows in any order: if it carries a "
            "state, add --streams to keras-lm pretrain; otherwise train it from Python, such as by "
            "keras_lm.training.fit_sentences."
        )
    names = options["objectives"] or default_objectives(backbone_class, is_causal, options)
    options["objectives"] = names
    does = IN_BOTH_DIRECTIONS
    if is_causal:
        does = WAYS["causal-lm"]
    elif issubclass(backbone_class, models.EncoderDecoderBackbone):
        does = WAYS["span-corruption"]
    if any(WAYS.get(name, IN_BOTH_DIRECTIONS) != does for name in names):
        raise click.UsageError(
            f"{backbone_class.__name__} {does}: --objective {names[0]} is not for it. Leave it "
            "out, or choose another model."
        )
    check_objectives(names, options)
    if not is_causal:
        options["form"] = form_of(names, options["form"], backbone_class.TEMPLATE)
    return names


def _task_class(backbone_class, options, source=None):
    """Return the class of the task and its arguments; sets the objectives and the form of rows."""
    names = choose_objectives(backbone_class, options, source)
    if "causal-lm" in names:
        return tasks.CausalLM, {}
    made = make_objectives(names, options)
    if len(made) == 1 and isinstance(made[0], objectives.MaskedLanguageModel):
        return tasks.MaskedLM, {"objective": made[0]}
    return tasks.Pretrainer, {"objectives": made}


def _optimizer(backbone, options):
    """Return the optimizer, with the user's numbers or those that suit the model."""
    if options["optimizer"] == "adafactor":
        # The lower of the rate and 1 / √step, times the size of what it changes: with 0.01, the
        # schedule of T5, https://arxiv.org/abs/1910.10683, section 3.1.2.
        options["learning_rate"] = options["learning_rate"] or 0.01
        return keras.optimizers.Adafactor(options["learning_rate"], name="adafactor")
    numbers = {"weight_decay": 0.01, "beta_2": 0.999, "epsilon": 1e-6}  # BERT's
    if not options["source"] and backbone.is_causal:
        # As GPT-3 was trained (https://arxiv.org/abs/2005.14165, appendix B), but for beta_2, which
        # is 0.95 for its batches of half a million tokens and more: small ones are noisier.
        numbers = {"weight_decay": 0.1, "beta_2": 0.99, "epsilon": 1e-8}
    options["learning_rate"] = options["learning_rate"] or backbone.learning_rate
    for name, number in numbers.items():
        options[name] = number if options[name] is None else options[name]
    schedule = training.WarmupLinearDecay(options["learning_rate"], warmup=options["warmup"])
    cls = training.Lamb if options["optimizer"] == "lamb" else training.AdamW
    return cls(schedule, **{name: options[name] for name in (*numbers, "bias_correction")})
