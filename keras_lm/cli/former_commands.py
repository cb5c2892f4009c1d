"""Commands of earlier versions: forms of `keras-lm predict`, and examples of the repository."""

import runpy
import sys
from pathlib import Path

import click

from keras_lm.cli import shared_options as opt
from keras_lm.cli.command import Command
from keras_lm.cli.predict import answer, load_predictor
from keras_lm.cli.predict_options import VECTORS, WRITING, vector_options, writing_options
from keras_lm.cli.types import OutputFile, Source


def _note_removal(name, form):
    click.echo(f"Note: keras-lm {name} will be removed: use keras-lm predict {form}.", err=True)


@click.command("features", cls=Command, short_help="Now predict --task feature-extractor.")
@click.argument("source", type=Source())
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@opt.input_file
@opt.format
@opt.text
@opt.option(
    "--output",
    type=OutputFile(allow_dash=True),
    required=True,
    help="A .npz or .jsonl file; - for JSONL on standard output.",
)
@vector_options
@opt.batch_size
@opt.overwrite
def features_command(source, texts, input_file, format, output, batch_size, overwrite, **options):
    """Turn texts into vectors. It will be removed: keras-lm predict --task feature-extractor.

    \b
      keras-lm features bert-base --input texts.txt --output vectors.npz --normalize
    """
    _note_removal("features", "--task feature-extractor")
    if output.suffix not in (".npz", ".jsonl") and str(output) != "-":
        raise click.UsageError(f"--output {output} is neither .npz nor .jsonl, nor - for JSONL.")
    given = {name: options[name] for name in VECTORS if options[name] is not None}

    def load():
        is_pair = options["text_pair"] is not None
        return load_predictor(source, is_pair, task="feature-extractor", **given)

    output = None if str(output) == "-" else output
    answer(load, texts, input_file, format, output, batch_size, options)


@click.command("translate", cls=Command, short_help="Now predict --lines.")
@click.argument("preset", type=Source())
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@opt.input_file
@opt.format
@opt.text
@writing_options
@opt.batch_size
@opt.option(
    "--output",
    type=OutputFile(),
    help="File to write; it appears when all is written.  [default: standard output]",
)
@opt.overwrite
@opt.option("--json", "as_json", is_flag=True, help="JSONL with the row that came in, as predict.")
def translate_command(
    preset, texts, input_file, format, output, batch_size, overwrite, as_json, **options
):
    """Write a text for each text, one a line. It will be removed: keras-lm predict --lines.

    \b
      keras-lm translate opus-mt-en-de "The house is small." --num-beams 4
    """
    _note_removal("translate", "--lines")
    given = {name: options[name] for name in WRITING if options[name] not in (None, ())}
    if given.get("num_return_sequences", 1) > 1 and not as_json:
        raise click.UsageError("--num-return-sequences writes several texts for one: add --json.")
    given.setdefault("num_return_sequences", 1)  # it writes in any case

    def load():
        return load_predictor(preset, options["text_pair"] is not None, **given)

    answer(load, texts, input_file, format, output, batch_size, options, lines=not as_json)


def example_command(name):
    """Return a command that runs an example of the repository as `python examples/NAME` does."""
    folder = Path(__file__).parents[2] / "examples" / name

    @click.command(name, add_help_option=False, context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def run(arguments):
        if not folder.is_dir():
            raise click.UsageError(
                f"{name} is an example of the repository now: python examples/{name}, in a clone."
            )
        click.echo(f"Note: keras-lm {name} will be removed: run python examples/{name}.", err=True)
        sys.argv[1:] = arguments
        runpy.run_path(str(folder), run_name="__main__")

    return run
