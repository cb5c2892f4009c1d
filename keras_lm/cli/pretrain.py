"""`keras-lm pretrain`: text files and a vocabulary → a language model from random weights."""

import sys

import click

from keras_lm.cli.shared_options import PresetFolder, Source, overwrite_option
from keras_lm.cli.size_names import size_names
from keras_lm.cli.terminal import megabytes, say_rows
from keras_lm.files import find_files
from keras_lm.registry import advice


@click.command("pretrain", short_help="Text files and a vocabulary → a language model of its own.")
@click.argument("files", nargs=-1, required=True)
@click.option("--output", type=PresetFolder(), required=True, help="Folder for the trained preset.")
@click.option(
    "--vocabulary",
    metavar="SOURCE",
    type=Source(),
    required=True,
    help="Preset or checkpoint whose tokenizer to take, such as one of keras-lm vocab.",
)
@click.option("--size", default="gpt2_base_en", show_default=True, help="Name of a size, to vary:")
@click.option("--num-layers", type=click.IntRange(1), help="Its own if omitted.")
@click.option("--hidden-dim", type=click.IntRange(1), help="The same; inner layers scale with it.")
@click.option("--num-heads", type=click.IntRange(1), help="The same.")
@click.option("--sequence-length", type=click.IntRange(2), help="Tokens read at once; the same.")
@click.option(
    "--dropout",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="Helps where the same text is read in many epochs.",
)
@click.option(
    "--document",
    type=click.Choice(["line", "file"]),
    default="line",
    show_default=True,
    help="What is one document: the end of each becomes a token.",
)
@click.option("--validation", multiple=True, metavar="FILE", help="To measure on after each epoch.")
@click.option("--epochs", type=click.IntRange(1), default=1, show_default=True)
@click.option("--batch-size", type=click.IntRange(1), default=16, show_default=True)
@click.option(
    "--learning-rate",
    type=click.FloatRange(0, min_open=True),
    default=1e-3,
    show_default=True,
    help="At its peak: it warms up over a tenth of the steps, then falls to zero. Larger models "
    "need a lower one.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--dtype", type=click.Choice(["float32", "mixed_bfloat16"]), default="float32")
@click.option(
    "--save-every",
    "minutes",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    metavar="MINUTES",
    help="How often to save where the run is, besides after each epoch.",
)
@overwrite_option
def pretrain_command(files, output, overwrite, **options):
    """Train a causal language model from random weights.

    \b
      keras-lm vocab "corpus/*.txt" --kind byte-pair --size 8192 --output vocabulary
      keras-lm pretrain "corpus/*.txt" --vocabulary vocabulary --output my-gpt2 \\
          --num-layers 4 --hidden-dim 256 --num-heads 4 --sequence-length 128
      keras-lm evaluate my-gpt2 held-out.txt

    FILES are paths or patterns of text in UTF-8, perhaps with .gz. Documents are concatenated and
    cut into full windows of tokens.

    The run can be interrupted at any time. Until it has ended, OUTPUT.unfinished holds its tokens
    and where it is; the same command then goes on, and ends in the same weights as in one go. To go
    on training published weights, use keras-lm finetune --task causal-lm.
    """
    corpus = {
        name: find_files(paths)
        for name, paths in (("text", files), ("validation", options["validation"]))
        if paths
    }
    if options["size"] not in size_names():
        raise click.UsageError(
            f"--size {options['size']} is no size.{advice(options['size'], size_names())} All are "
            "listed by keras-lm models."
        )
    import keras

    from keras_lm import data, models, registry, tasks, training
    from keras_lm.cli.runs import Run, fingerprint
    from keras_lm.tokenizers import Tokenizer

    tokenizer = Tokenizer.from_preset(options["vocabulary"])
    if "eos" not in tokenizer.special_tokens:
        raise click.UsageError(
            f"--vocabulary {options['vocabulary']} has no special token for the end of a "
            "text (eos): make one with keras-lm vocab --kind byte-pair."
        )
    sizes = {n: c for n, c in registry.sizes().items() if issubclass(c, models.CausalBackbone)}
    if options["size"] not in sizes:
        raise click.UsageError(
            f"--size {options['size']} is not one of a causal model: {', '.join(sizes)}."
        )
    cls = sizes[options["size"]]
    arguments = _arguments(cls.SIZES[options["size"]], options, tokenizer.vocabulary_size)
    keras.utils.set_random_seed(options["seed"])
    backbone = cls(**arguments, dtype=options["dtype"])
    task = tasks.CausalLM(backbone, tokenizer=tokenizer)
    # As GPT-3 was trained (https://arxiv.org/abs/2005.14165, appendix B), but for beta_2, which is
    # 0.95 for its batches of half a million tokens and more: small ones are noisier.
    optimizer = training.AdamW(
        options["learning_rate"], weight_decay=0.1, beta_2=0.99, epsilon=1e-8, global_clipnorm=1.0
    )
    task.compile(optimizer=optimizer)
    say_rows(
        [
            ("model", f"{cls.__name__}, {backbone.count_params():,} parameters"),
            ("window", f"{task.packing['sequence_length']:,} tokens"),
        ]
    )

    contents = {name: fingerprint(_contents(paths)) for name, paths in corpus.items()}
    decisive = {
        key: value for key, value in options.items() if key not in ("validation", "minutes")
    }
    run = Run(output, decisive | contents)
    documents = {
        name: data.read_documents(paths, options["document"]) for name, paths in corpus.items()
    }
    history = run.fit(
        task,
        documents["text"],
        documents.get("validation"),
        minutes=options["minutes"],
        batch_size=options["batch_size"],
        epochs=options["epochs"],
        seed=options["seed"],
        verbose=1 if sys.stdout.isatty() else 2,
    )
    task.save_to_preset(output)
    run.remove()
    say_rows(
        [
            *((metric.replace("val_", "validation "), f"{values[-1]:.4f}")
              for metric, values in history.items()),
            ("preset", f"{output} ({megabytes(output)})"),
        ]
    )  # fmt: skip


def _arguments(size, options, vocabulary_size):
    """The arguments of a size, with what the user varies."""
    given = {name: options[name] for name in ("num_layers", "hidden_dim", "num_heads", "dropout")}
    given["max_sequence_length"] = options["sequence_length"]
    if options["hidden_dim"]:
        given["intermediate_dim"] = (
            options["hidden_dim"] * size["intermediate_dim"] // size["hidden_dim"]
        )
    given = {name: value for name, value in given.items() if value is not None}
    return size | given | {"vocabulary_size": vocabulary_size}


def _contents(paths):
    """What stands in files, in parts, and an empty one after each file."""
    for path in paths:
        with open(path, "rb") as file:
            yield from iter(lambda file=file: file.read(2**20), b"")
        yield b""
