"""`keras-lm pretrain`: text files → a language model, from published weights or random ones.

Functions import TensorFlow where they need it: what can be refused without is refused at once.
"""

import dataclasses
import inspect
from pathlib import Path

import click
from click.core import ParameterSource

from keras_lm.cli import options as opt
from keras_lm.cli.command import (
    ConfiguredCommand,
    Files,
    config_option,
    recipes_option,
    takes,
    write_config,
)
from keras_lm.cli.finetune import fit_arguments
from keras_lm.cli.objective_options import (
    ObjectiveOptions,
    check_objectives,
    choose_objectives,
    distilled_from,
    document_options,
    form_of,
    make_objectives,
    objective_option,
    replaced_by,
    vocabulary_for,
    with_generator,
)
from keras_lm.cli.options import (
    INPUT_FILE,
    Choice,
    FloatRange,
    Source,
    check_size,
    flag_of,
    load_task,
    megabytes,
    say_rows,
)
from keras_lm.cli.prepare import check_shards, files_of, find_shards, take_over
from keras_lm.datasets.text_lines import decoded
from keras_lm.utils.files import open_file
from keras_lm.utils.input_files import find_files
from keras_lm.utils.optional_dependencies import check_installed

DEFAULT_SIZE = "gpt2_base_en"
# Options that do not change what a run ends in.
NOT_DECISIVE = ("files", "output", "overwrite", "validation", "minutes", "tensorboard")
# Options of a model with random weights only.
ONLY_FROM_SCRATCH = ("vocabulary", "size", "num_layers", "hidden_dim", "num_heads")
# What Adafactor has rules of its own for.
NOT_FOR_ADAFACTOR = ("warmup", "weight_decay", "beta_2", "epsilon", "bias_correction")
# What a student has from its teacher.
NOT_FOR_STUDENTS = ("vocabulary", "num_heads", "add_words")

model_options = opt.together(
    opt.option(
        "--from",
        "source",
        metavar="SOURCE",
        type=Source(),
        help="Preset or checkpoint to continue training, with its network, tokenizer and heads.",
    ),
    opt.option(
        "--add-words",
        type=INPUT_FILE,
        help="File of words, one a line, for the vocabulary of --from: each becomes one token, "
        "whose embedding starts as the mean of its pieces'.",
    ),
    opt.option(
        "--vocabulary",
        metavar="SOURCE",
        type=Source(),
        help="Without --from: preset or checkpoint with the tokenizer, such as one made by "
        "keras-lm vocab.",
    ),
    opt.option(
        "--size", help=f"Without --from: name of a size to start from.  [default: {DEFAULT_SIZE}]"
    ),
    opt.option("--num-layers", type=click.IntRange(1), help="[default: that of --size]"),
    opt.option(
        "--hidden-dim",
        type=click.IntRange(1),
        help="Inner layers scale with it.  [default: that of --size]",
    ),
    opt.option("--num-heads", type=click.IntRange(1), help="[default: that of --size]"),
    opt.option(
        "--sequence-length",
        type=click.IntRange(2),
        help="Tokens read at once.  [default: that of --size]",
    ),
    opt.option(
        "--dropout",
        type=FloatRange(0, 1, max_open=True),
        help="Helps if the same text is read in many epochs.  [default: the model's own, but 0 for "
        "a causal model from random weights]",
    ),
)

streams_option = opt.option(
    "--streams",
    is_flag=True,
    help="Read the corpus in order, in as many streams as --batch-size, with the model's state or "
    "memory carried along: as recurrent models, Transformer-XL and XLNet were trained.",
)
data_options = opt.together(
    objective_option,
    opt.option(
        "--mask-rate",
        type=FloatRange(0, 1, min_open=True),
        help="Share of the tokens that are masked.  [default: 0.15]",
    ),
    opt.option(
        "--whole-words", is_flag=True, help="For masked-lm: mask all tokens of a word, or none."
    ),
    opt.option(
        "--masks-per-text",
        type=click.IntRange(1),
        help="Static masks: this many for each text, the same in every epoch.  [default: new "
        "masks in every step]",
    ),
    opt.option(
        "--mean-span",
        type=FloatRange(1),
        help="For span-corruption: tokens of a span on average.  [default: 3]",
    ),
    opt.option(
        "--generator",
        metavar="SOURCE",
        type=Source(),
        help="For replaced-tokens, with --from: the generator to continue with.  [default: the one "
        "in the folder generator of --from, otherwise a new one]",
    ),
    opt.option(
        "--generator-size",
        type=FloatRange(0, min_open=True),
        help="For replaced-tokens: a new generator's width, relative to the model's.  [default: "
        "0.25]",
    ),
    opt.option(
        "--teacher",
        metavar="SOURCE",
        type=Source(),
        help="For distillation: the masked language model to learn from. Without --from, the "
        "student starts with half of its layers, or with as many as --size, of its kind.",
    ),
    document_options,
    streams_option,
    opt.option(
        "--own-shards",
        is_flag=True,
        help="With several processes, each opens only the shards with its own windows; otherwise "
        "all read everything.",
    ),
    opt.option(
        "--validation", multiple=True, metavar="FILE", help="File to evaluate on after each epoch."
    ),
)

training_options = opt.together(
    opt.option("--epochs", type=click.IntRange(1), default=1),
    opt.option(
        "--steps",
        type=click.IntRange(1),
        help="Length of the run in steps, as in papers, instead of --epochs.",
    ),
    opt.option("--batch-size", type=click.IntRange(1), default=16),
    opt.option(
        "--micro-batch-size",
        type=click.IntRange(1),
        help="Rows computed at a time, if a batch exceeds the memory; steps are the same.",
    ),
    opt.option(
        "--optimizer",
        type=Choice(["adamw", "lamb", "adafactor"]),
        default="adamw",
        help="adafactor has T5's schedule: the rate is constant, then falls as 1 / sqrt(step).",
    ),
    opt.option(
        "--learning-rate",
        type=FloatRange(0, min_open=True),
        help="Peak learning rate.  [default: by the model's width, with --from 5e-5 for BERT-base, "
        "else 1e-4 for BERT-base and 6e-4 for GPT-2; 0.01 for adafactor]",
    ),
    opt.option(
        "--warmup",
        type=FloatRange(0, 1, max_open=True),
        default=0.1,
        help="Share of the steps in which the learning rate rises; then it falls to zero.",
    ),
    opt.option(
        "--weight-decay",
        type=FloatRange(0),
        help="[default: 0.01; 0.1 for a causal model from random weights]",
    ),
    opt.option(
        "--beta-2",
        type=FloatRange(0, 1, max_open=True),
        help="[default: 0.999; 0.99 for a causal model from random weights]",
    ),
    opt.option(
        "--epsilon",
        type=FloatRange(0, min_open=True),
        help="[default: 1e-6; 1e-8 for a causal model from random weights]",
    ),
    opt.option(
        "--bias-correction/--no-bias-correction",
        default=True,
        help="Whether the optimizer corrects its moments for their start at zero; BERT's, ALBERT's "
        "and ELECTRA's code does not.",
    ),
    opt.option("--seed", type=int, default=0),
    opt.option(
        "--dtype",
        type=Choice(["float32", "mixed_bfloat16", "mixed_float16"]),
        default="float32",
        help="Precision to compute in.",
    ),
    opt.tensorboard,
    opt.option(
        "--save-every",
        "minutes",
        type=FloatRange(0),
        default=5.0,
        metavar="MINUTES",
        help="How often to save the state of the run, besides after each epoch.",
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainOptions(ObjectiveOptions, opt.TrainingOptions):
    """What `keras-lm pretrain` runs with; None for what follows from the model."""

    files: tuple[str, ...]
    source: str | None
    add_words: str | None
    vocabulary: str | None
    size: str | None
    num_layers: int | None
    hidden_dim: int | None
    num_heads: int | None
    dropout: float | None
    own_shards: bool
    validation: tuple[str, ...]
    steps: int | None
    micro_batch_size: int | None
    optimizer: str
    warmup: float | None
    weight_decay: float | None
    beta_2: float | None
    epsilon: float | None
    bias_correction: bool | None
    minutes: float


@click.command(
    "pretrain",
    cls=ConfiguredCommand,
    short_help="Text files → a language model, published or of its own.",
)
@click.argument("files", nargs=-1, required=True, cls=Files)
@opt.trained_preset
@model_options
@data_options
@training_options
@config_option
@recipes_option
@opt.overwrite
@takes(PretrainOptions)
def pretrain_command(options):
    """Train a language model on plain text, from published weights or from random ones.

    \b
      keras-lm pretrain "reports/*.txt" --from bert-base --output my-bert
      keras-lm finetune my-bert train.csv --output film-critic --task text-classifier

    With --from, a published model learns the language of your texts before it is fine-tuned.
    Without, weights are random, and a size and a vocabulary say what to train:

    \b
      keras-lm vocab "corpus/*.txt" --kind byte-pair --size 8192 --output vocabulary
      keras-lm pretrain "corpus/*.txt" --vocabulary vocabulary --output my-gpt2 \\
          --num-layers 4 --hidden-dim 256 --num-heads 4 --sequence-length 128
      keras-lm evaluate my-gpt2 held-out.txt

    With --teacher, a smaller model learns what a larger one makes of masked texts, as DistilBERT:

    \b
      keras-lm pretrain "corpus/*.txt" --teacher bert-base --size distil_bert_base_en_uncased \\
          --output my-distil-bert

    T5 learns to write what spans of a text were; its vocabulary has sentinels for them:

    \b
      keras-lm vocab "corpus/*.txt" --kind unigram --special-tokens t5 --output vocabulary
      keras-lm pretrain "corpus/*.txt" --objective span-corruption --vocabulary vocabulary \\
          --size t5_small_multi --output my-t5

    --config takes options from a file, also from a published recipe by its name (--recipes):

    \b
      keras-lm pretrain "corpus/*.txt" --config bert-base --vocabulary vocabulary --output my-bert

    FILES are paths or patterns of text in UTF-8, perhaps with .gz, or one folder that keras-lm
    prepare wrote. For a causal model, documents
    are concatenated and cut into full windows of tokens. For an encoder, rows are filled with whole
    sentences, which are lines; next-sentence and sentence-order read pairs of them.

    The run can be interrupted at any time. Until it has ended, OUTPUT.unfinished holds its tokens
    and where it is; the same command then goes on, and ends in the same weights as in one go; at an
    address, such as gs://bucket/my-bert, also on another machine. The
    preset's run.toml holds all options; with it, --config repeats the run. replaced-tokens also
    writes the generator, a preset in the folder generator of the preset. Several processes train
    together by keras-lm launch, or where TF_CONFIG is set.
    """
    corpus = _find_corpus(options)
    options = _choose_length(options)
    if options.streams:
        _check_streams(options, corpus)
    if not isinstance(corpus["text"], list):
        options = take_over(corpus["text"], options)
    elif options.own_shards:
        raise click.UsageError(
            "--own-shards is for a folder of shards, and FILES are texts: write one with keras-lm "
            "prepare, and give its name."
        )
    options = _check(options)
    words = _read_words(options)
    import keras

    from keras_lm.utils.processes import strategy_of_workers, workers_of

    strategy = strategy_of_workers()
    keras.utils.set_random_seed(options.seed)
    with strategy.scope():
        task, options = make_task(options, words)
    for paths in corpus.values():
        if not isinstance(paths, list):
            check_shards(paths, task)
    say_rows(
        [
            (
                "model",
                f"{type(task.backbone).__name__}, {task.backbone.count_params():,} parameters",
            ),
            ("objective", ", ".join(options.objectives)),
            ("window", f"{task.packing['sequence_length']:,} tokens"),
            ("rate", f"{options.learning_rate:.3g} at its peak"),
        ]
    )
    run, history = _train(task, corpus, words, options, strategy)
    if not workers_of(strategy).is_chief:
        return
    with opt.writing_preset(options.output) as folder:
        task.save_to_preset(folder, overwrite=True)
        for objective in task.objectives:
            for generator in objective.companions:
                generator.save_to_preset(folder / "generator")
        write_config(options, folder)
    run.remove()
    say_rows(
        [
            *((metric.replace("val_", "validation "), f"{values[-1]:.4f}")
              for metric, values in history.items()),
            ("preset", f"{options.output} ({megabytes(options.output)})"),
        ]
    )  # fmt: skip


def _train(task, corpus, words, options, strategy):
    """Train a task on a corpus; return the `Run`, which can be interrupted, and the history."""
    from keras_lm import training
    from keras_lm.training.runs import Run, fingerprint
    from keras_lm.utils.processes import workers_of

    decisive = {name: value for name, value in vars(options).items() if name not in NOT_DECISIVE}
    contents = {name: fingerprint(_contents(files_of(at))) for name, at in corpus.items()}
    run = Run(options.output, decisive | contents | {"add_words": words}, strategy, say=click.echo)
    documents = {name: _documents(paths, options) for name, paths in corpus.items()}
    order = {"streams": True} if options.streams else {"seed": options.seed}
    options = dataclasses.replace(options, epochs=options.epochs or 1)
    if not workers_of(strategy).is_chief:
        options = dataclasses.replace(options, tensorboard=None)
    speed = training.TokensPerSecond(options.batch_size * task.packing["sequence_length"])
    history = run.fit(
        task,
        documents["text"],
        documents.get("validation"),
        rows=_rows(options, task.backbone),
        minutes=options.minutes,
        own_shards=options.own_shards,
        steps=options.steps,
        **order,
        **fit_arguments(options, speed),
    )
    return run, history


# === What the line says ===


def _find_corpus(options):
    """Return the files of texts, or the folder of shards, to train on and to validate on."""
    return {
        name: find_shards(paths) or find_files(paths, tables=True)
        for name, paths in (("text", options.files), ("validation", options.validation))
        if paths
    }


def _check(options):
    """Refuse what can be refused before TensorFlow is imported; return the options."""
    if options.tensorboard:
        check_installed("tensorboard", "--tensorboard")
    if options.optimizer == "adafactor":
        for name in NOT_FOR_ADAFACTOR:
            if _is_given(name):
                raise click.UsageError(
                    f"{flag_of(name)} is not for --optimizer adafactor, which has a rule of its "
                    "own for it."
                )
        options = dataclasses.replace(options, **dict.fromkeys(NOT_FOR_ADAFACTOR))
    if options.teacher:
        options = dataclasses.replace(options, objectives=options.objectives or ("distillation",))
        for name in NOT_FOR_STUDENTS:
            if getattr(options, name):
                raise click.UsageError(
                    f"{flag_of(name)} is not for --teacher, whose vocabulary and heads the student "
                    "has."
                )
    if options.source:
        for name in ONLY_FROM_SCRATCH:
            if getattr(options, name):
                raise click.UsageError(
                    f"{flag_of(name)} is not for --from, whose network and tokenizer are taken as "
                    "they are."
                )
    else:
        options = _check_new_model(options)
    check_objectives(options)
    return options


def _check_new_model(options):
    """Refuse what does not go with random weights; return the options with the size."""
    if options.generator:
        raise click.UsageError("--generator is for --from: a new model has a new one.")
    if options.add_words:
        raise click.UsageError("--add-words is for --from: train a vocabulary with keras-lm vocab.")
    if not (options.vocabulary or options.teacher):
        raise click.UsageError(
            "Say what to train: --from SOURCE goes on with published weights; --vocabulary SOURCE, "
            "with --size NAME, begins with random ones."
        )
    check_size(options.size)
    if options.teacher:
        return options
    return dataclasses.replace(options, size=options.size or DEFAULT_SIZE)


def _read_words(options):
    """Return the words that join the vocabulary, each once."""
    if not options.add_words:
        return []
    with click.open_file(options.add_words, "rb") as file:
        words = [line.strip() for _, line in decoded(options.add_words, file)]
    return [*dict.fromkeys(filter(None, words))]


def _check_streams(options, corpus):
    if not all(isinstance(paths, list) for paths in corpus.values()):
        raise click.UsageError(
            "--streams reads text files in their order, and shards have another: name the files."
        )
    for name in ("form", "short_share", "single_share"):
        if getattr(options, name):
            raise click.UsageError(
                f"{flag_of(name)} is not for --streams, whose rows have a form of their own."
            )


def _choose_length(options):
    """Return the options with either steps or epochs: what the line says, else the file."""
    ctx = click.get_current_context()
    given = [name for name in ("steps", "epochs") if _is_given(name)]
    on_line = [n for n in given if ctx.get_parameter_source(n) is ParameterSource.COMMANDLINE]
    if len(on_line or given) > 1:
        raise click.UsageError("--steps and --epochs both say how long the run is: choose one.")
    (chosen,) = on_line or given or ["epochs"]
    return dataclasses.replace(options, **{"epochs" if chosen == "steps" else "steps": None})


def _is_given(name):
    source = click.get_current_context().get_parameter_source(name)
    return source is not ParameterSource.DEFAULT


# === The corpus ===


def _documents(paths, options):
    """Return the documents of files, or the folder of shards itself."""
    from keras_lm import data

    if not isinstance(paths, list):
        return paths
    documents = data.read_documents(paths, options.document)
    return data.split_sentences(documents) if options.split_sentences else documents


def _rows(options, backbone):
    """Return the settings of the rows that the objectives read; None for windows."""
    if not options.form:
        return None
    if options.streams:
        return {"reuse_length": backbone.config.get("reuse_length"), "seed": options.seed}
    shares = {"short_share": options.short_share, "single_share": options.single_share}
    return shares | {"form": options.form.replace("-", "_"), "seed": options.seed}


def _contents(paths):
    """The contents of files, in parts, and an empty one after each file."""
    for path in paths:
        with open_file(path) as file:
            yield from iter(lambda file=file: file.read(2**20), b"")
        yield b""


# === The task ===


def make_task(options, words):
    """Return the compiled task, and the options with what follows from the model.

    `words` join the vocabulary of a published model.
    """
    if options.teacher:
        task, options = _student(options)
    elif options.source:
        task, options = _going_on(options, words)
    else:
        task, options = _from_scratch(options)
    if "replaced-tokens" in options.objectives and not options.generator:
        task = with_generator(task, options)
    if options.streams and not task.backbone.carries_state:
        raise click.UsageError(
            f"--streams carries a state along, and {type(task.backbone).__name__} has none: leave "
            "it out."
        )
    options = _choose_numbers(options, task.backbone)
    task.compile(optimizer=_optimizer(options), micro_batch_size=options.micro_batch_size)
    return task, options


def _going_on(options, words):
    """Return the task of --from, and the options with what follows from it."""
    from keras_lm import presets, tasks

    source = presets.Source.open(options.source)
    backbone_class, _ = source.recognise()
    options = choose_objectives(backbone_class, options, source)
    cls, arguments = _task_class(options)
    options = _choose_generator(options, words)
    if options.generator:
        generator = load_task(options.generator, tasks.MaskedLM, **_given(options))
        arguments["objectives"] = [replaced_by(generator, options)]
        arguments["embeddings_of"] = generator.backbone
    if options.streams and backbone_class.STREAM_LENGTHS:
        options = dataclasses.replace(options, sequence_length=options.sequence_length or 512)
        arguments |= _stream_lengths(backbone_class, options.sequence_length)
    task = load_task(source, cls, **arguments | _given(options))
    if words:
        before = task.tokenizer.vocabulary_size
        task = task.with_words(words)
        more = task.tokenizer.vocabulary_size - before
        click.echo(f"vocabulary: {more:,} entries more, for {len(words):,} words")
    return task, options


def _given(options):
    """Return the options of a model that is loaded, if they are given."""
    return opt.given(options, ("dropout", "sequence_length", "dtype"))


def _student(options):
    """Return the task of a student: --from, or one that begins with layers of the teacher.

    And the options with the form of the teacher's rows.
    """
    from keras_lm import tasks

    teacher = _teacher(options)
    objectives = [distilled_from(teacher, options)]
    form = form_of(options.objectives, options.form, teacher.backbone.TEMPLATE)
    options = dataclasses.replace(options, form=form)
    if options.source:
        given = _given(options)
        task = load_task(options.source, tasks.Pretrainer, objectives=objectives, **given)
        return task, options
    task = tasks.Pretrainer(
        _layers_of(teacher.backbone, options),
        objectives,
        tokenizer=teacher.tokenizer,
        **teacher.packing,
    )
    task.heads["token"].set_weights(teacher.head.get_weights())
    return task, options


def _teacher(options):
    from keras_lm import tasks
    from keras_lm.inspection import inspect_checkpoint

    stated = inspect_checkpoint(options.teacher)
    if stated["model"] and "masked language model" not in stated["heads"]:
        raise click.UsageError(
            f"--teacher {options.teacher} has no head that predicts masked tokens: give a "
            "checkpoint with one, such as keras-lm pretrain writes."
        )
    return load_task(options.teacher, tasks.MaskedLM, **_given(options))


def _layers_of(teacher, options):
    """Return a student's backbone, with some of the layers of a teacher's."""
    from keras_lm.utils import registry

    kind, size = type(teacher), {"num_layers": max(teacher.config["num_layers"] // 2, 1)}
    if options.size:
        kind = registry.sizes()[options.size]
        size = kind.SIZES[options.size]
    layers = options.num_layers or size["num_layers"]
    theirs = teacher.config["hidden_dim"]
    ours = options.hidden_dim or size.get("hidden_dim", theirs)
    if ours != theirs:
        raise click.UsageError(
            f"The student is {ours} wide, and --teacher {theirs}, whose layers it begins with: "
            f"choose another --size, or say --hidden-dim {theirs}."
        )
    if kind is type(teacher):
        return teacher.with_layers(layers)
    if kind.from_teacher is None:
        raise click.UsageError(
            f"--size {options.size} is a {kind.__name__}, and --teacher a "
            f"{type(teacher).__name__}: leave out --size, for a student of the teacher's kind."
        )
    return kind.from_teacher(teacher, layers)


def _choose_generator(options, words):
    """Return the options with the source of the generator to go on with, None for a new one."""
    if options.objectives != ("replaced-tokens",) or options.generator_size:
        return dataclasses.replace(options, generator=None)
    inside = Path(options.source).expanduser() / "generator"
    if not options.generator and inside.is_dir() and not words:
        options = dataclasses.replace(options, generator=str(inside))
    if options.generator and words:
        raise click.UsageError("--generator does not go with --add-words, which need a new one.")
    return options


def _from_scratch(options):
    """Return the task of a new model, and the options with its objectives."""
    from keras_lm.tokenizers import Tokenizer
    from keras_lm.utils import registry

    backbone_class = registry.sizes()[options.size]
    options = choose_objectives(backbone_class, options)
    cls, arguments = _task_class(options)
    tokenizer = Tokenizer.from_preset(options.vocabulary)
    _check_vocabulary(options, backbone_class, tokenizer)
    size, given, more = _configuration(options, backbone_class)
    given |= {"vocabulary_size": tokenizer.vocabulary_size, "dtype": options.dtype}
    backbone = backbone_class(**(size | given))
    return cls(backbone, tokenizer=tokenizer, **arguments, **more), options


def _check_vocabulary(options, backbone_class, tokenizer):
    """Raise an error if a vocabulary lacks a special token that the objectives need."""
    needed, kind = vocabulary_for(backbone_class, options.objectives)
    roles = [f"in the role of {role}" for role in tokenizer.special_tokens]
    if needed not in {*roles, *tokenizer.vocabulary}:
        raise click.UsageError(
            f"--vocabulary {options.vocabulary} has no special token {needed}, which --size "
            f"{options.size} needs: make one with keras-lm vocab --kind {kind}."
        )


def _configuration(options, backbone_class):
    """Return the arguments of a new backbone: its size's, those given; and those of its task."""
    size = backbone_class.SIZES[options.size]
    is_causal = "causal-lm" in options.objectives
    if not is_causal and backbone_class.in_both_directions:
        size = size | backbone_class.in_both_directions(size)
    names = ("num_layers", "hidden_dim", "num_heads", "dropout")
    given, of_task = {name: getattr(options, name) for name in names}, {}
    if "max_sequence_length" in inspect.signature(backbone_class).parameters:
        given["max_sequence_length"] = options.sequence_length
    else:  # its texts may have any length
        of_task["sequence_length"] = options.sequence_length
    if options.streams:
        of_task["sequence_length"] = options.sequence_length or size.get("memory_length") or 512
        given |= _stream_lengths(backbone_class, of_task["sequence_length"])
    if options.hidden_dim:
        given |= backbone_class.of_width(size, options.hidden_dim)
    if is_causal and options.dropout is None:
        given["dropout"] = 0.0
    given = {name: value for name, value in given.items() if value is not None}
    for name in given.keys() - inspect.signature(backbone_class).parameters:
        raise click.UsageError(
            f"{flag_of(name)} is not for --size {options.size}: its model has none."
        )
    return size, given, of_task


def _stream_lengths(backbone_class, sequence_length):
    return {n: int(share * sequence_length) for n, share in backbone_class.STREAM_LENGTHS.items()}


def _task_class(options):
    """Return the class of the task for the objectives, and its arguments."""
    from keras_lm import objectives, tasks

    if "causal-lm" in options.objectives:
        return tasks.CausalLM, {}
    made = make_objectives(options.objectives, options)
    if len(made) == 1 and isinstance(made[0], objectives.MaskedLanguageModel):
        return tasks.MaskedLM, {"objective": made[0]}
    return tasks.Pretrainer, {"objectives": made}


def _choose_numbers(options, backbone):
    """Return the options with the optimizer's numbers: the user's, or those that suit the model."""
    options = options.with_learning_rate(backbone)
    if options.optimizer == "adafactor":
        return options
    numbers = {"weight_decay": 0.01, "beta_2": 0.999, "epsilon": 1e-6}  # BERT's
    if not options.source and backbone.is_causal:
        # As GPT-3 was trained (https://arxiv.org/abs/2005.14165, appendix B), but for beta_2, which
        # is 0.95 for its batches of half a million tokens and more: small ones are noisier.
        numbers = {"weight_decay": 0.1, "beta_2": 0.99, "epsilon": 1e-8}
    return dataclasses.replace(options, **numbers | opt.given(options, numbers))


def _optimizer(options):
    import keras

    from keras_lm import training

    if options.optimizer == "adafactor":
        return keras.optimizers.Adafactor(options.learning_rate, name="adafactor")
    schedule = training.WarmupLinearDecay(options.learning_rate, warmup=options.warmup)
    cls = training.Lamb if options.optimizer == "lamb" else training.AdamW
    names = ("weight_decay", "beta_2", "epsilon", "bias_correction")
    return cls(schedule, **{name: getattr(options, name) for name in names})
