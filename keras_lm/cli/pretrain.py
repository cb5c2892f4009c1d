"""`keras-lm pretrain`: text files → a language model, from published weights or random ones."""

import click
from click.core import ParameterSource

from keras_lm.cli import shared_options as opt
from keras_lm.cli.command import ConfiguredCommand, Files, config_option, write_config
from keras_lm.cli.config_file import recipes_option
from keras_lm.cli.fitting import fit_options
from keras_lm.cli.objective_options import check_objectives
from keras_lm.cli.prepared_folder import check_shards, files_of, find_shards, take_over
from keras_lm.cli.pretrain_options import (
    DEFAULT_SIZE,
    data_options,
    model_options,
    training_options,
)
from keras_lm.cli.terminal import megabytes, say_rows
from keras_lm.cli.types import check_size
from keras_lm.datasets.text_lines import decoded
from keras_lm.utils.input_files import find_files
from keras_lm.utils.optional_dependencies import check_installed

# Options that do not change what a run ends in.
NOT_DECISIVE = ("validation", "minutes", "tensorboard")
# Options of a model with random weights only.
ONLY_FROM_SCRATCH = ("vocabulary", "size", "num_layers", "hidden_dim", "num_heads")
# What Adafactor has rules of its own for.
NOT_FOR_ADAFACTOR = ("warmup", "weight_decay", "beta_2", "epsilon", "bias_correction")
# What a student has from its teacher.
NOT_FOR_STUDENTS = ("vocabulary", "num_heads", "add_words")


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
def pretrain_command(files, output, overwrite, **options):
    """Train a language model on plain text: go on from published weights, or begin anew.

    \b
      keras-lm pretrain "reports/*.txt" --from bert-base --output my-bert
      keras-lm finetune my-bert train.csv --output film-critic

    With --from, a published model learns the language of one's own texts before it is fine-tuned.
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
    and where it is; the same command then goes on, and ends in the same weights as in one go. The
    preset's run.toml holds all options; with it, --config repeats the run. replaced-tokens also
    writes the generator, a preset in the folder generator of the preset. Several processes train
    together by keras-lm launch, or where TF_CONFIG is set.
    """
    corpus = {
        name: find_shards(paths) or find_files(paths)
        for name, paths in (("text", files), ("validation", options["validation"]))
        if paths
    }
    if options["streams"]:
        _check_streams(corpus, options)
    if not isinstance(corpus["text"], list):
        take_over(corpus["text"], options)
    elif options["own_shards"]:
        raise click.UsageError(
            "--own-shards is for a folder of shards, and FILES are texts: write one with keras-lm "
            "prepare, and give its name."
        )
    words = _check(options)
    import keras

    from keras_lm import training
    from keras_lm.cli.pretrain_task import make_task
    from keras_lm.training.distribution import strategy_of_workers, workers_of
    from keras_lm.training.runs import Run, fingerprint

    strategy = strategy_of_workers()
    is_chief = workers_of(strategy).is_chief
    keras.utils.set_random_seed(options["seed"])
    with strategy.scope():
        task = make_task(options, words)
    for paths in corpus.values():
        if not isinstance(paths, list):
            check_shards(paths, task)
    backbone = task.backbone
    say_rows(
        [
            ("model", f"{type(backbone).__name__}, {backbone.count_params():,} parameters"),
            ("objective", ", ".join(options["objectives"])),
            ("window", f"{task.packing['sequence_length']:,} tokens"),
            ("rate", f"{options['learning_rate']:.3g} at its peak"),
        ]
    )
    contents = {name: fingerprint(_contents(files_of(at))) for name, at in corpus.items()}
    decisive = {key: value for key, value in options.items() if key not in NOT_DECISIVE}
    run = Run(output, decisive | contents | {"add_words": words}, strategy, say=click.echo)
    documents = {name: _documents(paths, options) for name, paths in corpus.items()}
    order = {"streams": True} if options["streams"] else {"seed": options["seed"]}
    how = options | {"epochs": options["epochs"] or 1}
    how |= {} if is_chief else {"tensorboard": None}
    speed = training.TokensPerSecond(options["batch_size"] * task.packing["sequence_length"])
    history = run.fit(
        task,
        documents["text"],
        documents.get("validation"),
        rows=_rows(options, backbone),
        minutes=options["minutes"],
        own_shards=options["own_shards"],
        steps=options["steps"],
        **order,
        **fit_options(how, speed),
    )
    if not is_chief:
        return
    task.save_to_preset(output, overwrite=True)
    for objective in task.objectives:
        for generator in objective.companions:
            generator.save_to_preset(output / "generator")
    write_config(output, **options)
    run.remove()
    say_rows(
        [
            *((metric.replace("val_", "validation "), f"{values[-1]:.4f}")
              for metric, values in history.items()),
            ("preset", f"{output} ({megabytes(output)})"),
        ]
    )  # fmt: skip


def _check(options):
    """Refuse what can be refused before TensorFlow is imported; return the words to add."""
    if options["tensorboard"]:
        check_installed("tensorboard", "--tensorboard")
    _choose_length(options)
    if options["optimizer"] == "adafactor":
        for name in NOT_FOR_ADAFACTOR:
            if _is_given(name):
                raise click.UsageError(
                    f"--{name.replace('_', '-')} is not for --optimizer adafactor, which has a "
                    "rule of its own for it."
                )
            options[name] = None
    if options["teacher"]:
        options["objectives"] = options["objectives"] or ("distillation",)
        for name in NOT_FOR_STUDENTS:
            if options[name]:
                raise click.UsageError(
                    f"--{name.replace('_', '-')} is not for --teacher, whose vocabulary and heads "
                    "the student has."
                )
    if options["source"]:
        for name in ONLY_FROM_SCRATCH:
            if options[name]:
                raise click.UsageError(
                    f"--{name.replace('_', '-')} is not for --from, whose network and tokenizer "
                    "are taken as they are."
                )
    elif options["generator"]:
        raise click.UsageError("--generator is for --from: a new model has a new one.")
    elif options["add_words"]:
        raise click.UsageError("--add-words is for --from: train a vocabulary with keras-lm vocab.")
    elif not (options["vocabulary"] or options["teacher"]):
        raise click.UsageError(
            "Say what to train: --from SOURCE goes on with published weights; --vocabulary SOURCE, "
            "with --size NAME, begins with random ones."
        )
    else:
        if not options["teacher"]:
            options["size"] = options["size"] or DEFAULT_SIZE
        check_size(options["size"])
    check_objectives(options["objectives"], options)
    if not options["add_words"]:
        return []
    with click.open_file(options["add_words"], "rb") as file:
        words = [line.strip() for _, line in decoded(options["add_words"], file)]
    return [*dict.fromkeys(filter(None, words))]


def _check_streams(corpus, options):
    if not all(isinstance(paths, list) for paths in corpus.values()):
        raise click.UsageError(
            "--streams reads text files in their order, and shards have another: name the files."
        )
    for name in ("form", "short_share", "single_share"):
        if options[name]:
            raise click.UsageError(
                f"--{name.replace('_', '-')} is not for --streams, whose rows have a form of their "
                "own."
            )


def _choose_length(options):
    """Keep either --steps or --epochs: what the line says, otherwise the file of --config."""
    ctx = click.get_current_context()
    given = [name for name in ("steps", "epochs") if _is_given(name)]
    on_line = [n for n in given if ctx.get_parameter_source(n) is ParameterSource.COMMANDLINE]
    if len(on_line or given) > 1:
        raise click.UsageError("--steps and --epochs both say how long the run is: choose one.")
    (chosen,) = on_line or given or ["epochs"]
    options["epochs" if chosen == "steps" else "steps"] = None


def _is_given(name):
    source = click.get_current_context().get_parameter_source(name)
    return source is not ParameterSource.DEFAULT


def _documents(paths, options):
    """Return the documents of files, or the folder of shards itself."""
    from keras_lm import data

    if not isinstance(paths, list):
        return paths
    documents = data.read_documents(paths, options["document"])
    return data.split_sentences(documents) if options["split_sentences"] else documents


def _rows(options, backbone):
    """Return the settings of the rows that the objectives read; None for windows."""
    if not options["form"]:
        return None
    if options["streams"]:
        return {"reuse_length": backbone.config.get("reuse_length"), "seed": options["seed"]}
    shares = {name: options[name] for name in ("short_share", "single_share")}
    return shares | {"form": options["form"].replace("-", "_"), "seed": options["seed"]}


def _contents(paths):
    """What stands in files, in parts, and an empty one after each file."""
    import tensorflow as tf

    for path in paths:
        with tf.io.gfile.GFile(path, "rb") as file:
            yield from iter(lambda file=file: file.read(2**20), b"")
        yield b""
