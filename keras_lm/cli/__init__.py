"""The command line, `keras-lm`.

A command's module is imported when it is called, or its help shown, and TensorFlow once it runs.
"""

import importlib
import os
import runpy
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read by TensorFlow's C++ side when it loads

import click

from keras_lm.utils.registry import advice
from keras_lm.version import __version__

# As `--help` lists them: the name of a command → its module here.
SECTIONS = {
    "From weights to answers": {
        "convert": "convert",
        "finetune": "finetune",
        "evaluate": "evaluate",
        "export": "export",
        "serve": "serve",
        "predict": "predict",
    },
    "Besides": {
        "search": "search",
        "translate": "predict",
        "features": "predict",
        "distill": "distill",
        "inspect": "inspect",
        "models": "inspect",
        "vocab": "vocab",
        "knowledge": "knowledge",
        "prepare": "prepare",
        "pretrain": "pretrain",
        "launch": "workers",
        "lecture": "lecture",
    },
}
MODULES = {name: module for names in SECTIONS.values() for name, module in names.items()}
# Commands of earlier versions that are examples of the repository now.
EXAMPLES = ("demo", "glue")


class Commands(click.Group):
    """The group of all commands, which imports one when it is asked for."""

    def list_commands(self, ctx):
        return [*MODULES]

    def get_command(self, ctx, name):
        if name in EXAMPLES:
            return example_command(name)
        if name not in MODULES:
            return None
        module = importlib.import_module(f"keras_lm.cli.{MODULES[name]}")
        return getattr(module, f"{name}_command")

    def resolve_command(self, ctx, args):
        backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
        try:
            name, command, rest = super().resolve_command(ctx, args)
        except click.UsageError as error:
            error.message += advice(args[0], [*MODULES])
            raise
        if backend != "tensorflow" and name != "launch":  # which may start a script
            raise click.UsageError(
                f"KERAS_BACKEND={backend}: the commands run on TensorFlow. Leave it out, or train "
                "from Python."
            )
        return name, command, rest

    def format_commands(self, ctx, formatter):
        width = formatter.width - 6 - max(map(len, MODULES))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                helps = [self.get_command(ctx, name).get_short_help_str(width) for name in names]
                formatter.write_dl([*zip(names, helps)])


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


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="keras-lm")
def main():
    """Fine-tune classic language models on strings; ship one artefact that takes strings.

    \b
    The whole way, from published weights to a server that answers:
      keras-lm convert hf://google-bert/bert-base-uncased bert-base
      keras-lm finetune bert-base train.csv --output film-critic --validation-split 0.1
      keras-lm evaluate film-critic test.csv
      keras-lm export film-critic exported/film-critic
      keras-lm serve exported/film-critic
      keras-lm predict --server http://localhost:8501 --model film-critic "never a dull moment"

    For help on a step: keras-lm COMMAND --help. A CSV needs the columns text and label. A server is
    not needed to try a model: keras-lm predict film-critic "a text".

    \b
    From Python it is as short:
      task = keras_lm.tasks.TextClassifier.from_preset("bert-base", class_names=["bad", "good"])
      task.fit(texts, labels)
      task.export("exported/film-critic")
    """
    if "tensorflow" not in sys.modules:
        from keras_lm.utils.quiet_stderr import QuietImport

        sys.meta_path.insert(0, QuietImport("tensorflow"))
