"""`keras-lm inspect`: what a folder, a file or a size holds; `models`: the sizes that there are."""

import json

import click

from keras_lm.cli import options as opt
from keras_lm.cli.command import Command
from keras_lm.cli.options import check_artefact, say_rows
from keras_lm.utils.files import as_local
from keras_lm.utils.model_versions import find_saved_model, find_saved_models


@click.command(
    "inspect", cls=Command, short_help="Show what a preset, a checkpoint or an export contains."
)
@click.argument("path")
@opt.option(
    "--version", type=click.IntRange(0), help="Version of an export.  [default: the latest]"
)
@opt.as_json
def inspect_command(path, version, as_json):
    """Show what a preset, a checkpoint or an export contains, without loading its weights.

    \b
      keras-lm inspect bert-base
      keras-lm inspect exported --json
      keras-lm inspect film-critic.tflite
      keras-lm inspect gpt3_175b

    For a preset or a published checkpoint: the model and its arguments, parameters, tokenizer,
    heads and labels. For an exported SavedModel (a version's folder, or the folder of all) and a
    .tflite: signatures with their inputs and outputs, parameters, and for TF Serving whether
    requests to warm up and settings of batching are there. For the name of a size: its arguments,
    parameters, memory and operations a token, in pretraining too; nothing is built.
    """
    contents = inspect_path(path, version)
    if as_json:
        click.echo(json.dumps(contents, ensure_ascii=False))
    else:
        names = {"bytes": "size"}
        say_rows(
            (names.get(name, name.replace("_", " ")), readable(name, value))
            for name, value in contents.items()
            if value is not None
        )


def inspect_path(path, version=None):
    """Return what is at a path, or what a size would need, as a dict that JSON can hold."""
    local = as_local(path)
    folder = find_saved_model(local, version)
    if folder is not None:
        from keras_lm.export.contents import inspect_saved_model

        return inspect_saved_model(folder, [*find_saved_models(local)])
    if version is not None:
        raise click.UsageError(f"{path} has no versions: leave --version out.")
    check_artefact(path)
    if local.suffix == ".tflite":
        from keras_lm.export.contents import inspect_tflite

        return inspect_tflite(local)

    from keras_lm import inspection
    from keras_lm.utils import registry

    if path in registry.sizes() and not local.exists():
        return inspection.inspect_size(path)
    return inspection.inspect_checkpoint(path)


def readable(name, value):
    """Return a value of the dict as one line of a table, or as a list of lines."""
    if name == "bytes":
        return f"{value / 1e6:.1f} MB"
    if name == "memory":
        return [f"{key}: {_size(item)}" for key, item in value.items()]
    if name == "flops_per_token":
        return [f"{key}: {item / 1e9:,.2f} GFLOP" for key, item in value.items()]
    if name == "signatures":
        return [line for item in value.items() for line in _signature_lines(*item)]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return [f"{key}: {json.dumps(item, ensure_ascii=False)}" for key, item in value.items()]
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return value


def _size(number):
    return f"{number / 1e9:,.2f} GB" if number >= 1e7 else f"{number / 1e6:,.2f} MB"


def _signature_lines(name, signature):
    yield name
    for side in ("inputs", "outputs"):
        for tensor, spec in signature[side].items():
            shape = "unknown shape"
            if spec["shape"] is not None:
                sizes = ["?" if size is None else str(size) for size in spec["shape"]]
                shape = f"[{', '.join(sizes)}]"
            if "default" in spec:
                default = json.dumps(spec["default"])
                shape += f", {default} by default" if len(default) < 40 else ", may be left out"
            yield f"  {side.removesuffix('s')} {tensor}: {spec['dtype']} {shape}"


@click.command(
    "models", cls=Command, short_help="List the sizes of models, and where their weights are."
)
@click.argument("words", metavar="[WORD]...", nargs=-1)
@opt.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def models_command(words, as_json):
    """List the sizes of models: name, class, parameters, and where the weights are published.

    \b
      keras-lm models
      keras-lm models bert multi

    With WORDs, only names that contain all of them. A size says how large a model is: `inspect`
    says what it needs, `pretrain --size` trains one from random weights. Weights are loaded from
    where they are published, or from a folder with a copy of them.
    """
    from keras_lm import inspection

    rows = inspection.find_sizes(words)
    if not rows:
        raise click.ClickException(f"No name of a size contains {' and '.join(words)}.")
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    name, model = (max(len(row[key]) for row in rows) for key in ("size", "model"))
    for row in rows:
        click.echo(
            f"{row['size']:<{name}}  {row['model']:<{model}}  {row['parameters']:>15,}  "
            f"{row['published'] or 'not published'}"
        )
