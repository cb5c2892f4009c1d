"""`keras-lm inspect`: what a folder or a file holds, and how large a model of a size would be."""

import json
from pathlib import Path

import click

from keras_lm.cli.command import Command
from keras_lm.cli.shared_options import check_artefact
from keras_lm.cli.terminal import say_rows
from keras_lm.files import find_saved_model, find_saved_models


@click.command("inspect", cls=Command, short_help="What a preset, a checkpoint or an export holds.")
@click.argument("path")
@click.option("--version", type=click.IntRange(0), help="Of an export.  [default: the latest]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def inspect_command(path, version, as_json):
    """Say what a preset, a checkpoint or an export holds, without loading its weights.

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
    found = inspect_path(path, version)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        names = {"bytes": "size"}
        say_rows(
            (names.get(name, name.replace("_", " ")), readable(name, value))
            for name, value in found.items()
            if value is not None
        )


def inspect_path(path, version=None):
    """Return what is at a path, or what a size would need, as a dict that JSON can hold."""
    local = Path(path).expanduser()
    folder = find_saved_model(local, version)
    if folder is not None:
        from keras_lm.cli.artefacts import inspect_saved_model

        return inspect_saved_model(folder, [*find_saved_models(local)])
    if version is not None:
        raise click.UsageError(f"{path} has no versions: leave --version out.")
    check_artefact(path)
    if local.suffix == ".tflite":
        from keras_lm.cli.artefacts import inspect_tflite

        return inspect_tflite(local)

    from keras_lm import registry
    from keras_lm.cli.checkpoints import inspect_checkpoint

    if path in registry.sizes() and not local.exists():
        return inspect_size(path)
    return inspect_checkpoint(path)


def inspect_size(name):
    """Return what a size would need as a dict that JSON can hold; see `keras_lm.models.sizes`."""
    from keras_lm import registry
    from keras_lm.models.sizes import estimate

    def count(name):
        cls = registry.sizes()[name]
        return estimate(cls, **cls.SIZES[name])

    cls, found = registry.sizes()[name], count(name)
    if name in cls.PRETRAINED_WITH:  # a step of pretraining takes both
        beside = count(cls.PRETRAINED_WITH[name])["flops_per_token"]["pretraining"]
        found["flops_per_token"]["pretraining"] += beside
    return {
        "size": name,
        "what": "size",
        "model": cls.__name__,
        "published": cls.PUBLISHED.get(name),
        "arguments": cls.SIZES[name],
        **found,
    }


def readable(name, value):
    """Return a value of the dict as one line of a table, or as a list of lines."""
    if name == "bytes":
        return f"{value / 1e6:.1f} MB"
    if name == "memory":
        return [f"{key}: {item / 1e9:,.2f} GB" for key, item in value.items()]
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
