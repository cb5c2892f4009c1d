"""A folder of shards, as `keras-lm prepare` writes it, in the place of text files."""

import dataclasses
import json
from pathlib import Path

import click
from click.core import ParameterSource

from keras_lm.cli.objective_options import PAIRS

INDEX = "tokens.json"  # as `keras_lm.data.shards` calls it, without its TensorFlow
# Options that say how text files become rows.
OF_TEXTS = ("document", "split_sentences", "form", "short_share", "single_share")


def find_shards(paths):
    """Return the folder if `paths` names one with shards, else None."""
    remote = [path for path in paths if "://" in path]
    folders = [path for path in paths if Path(path).expanduser().is_dir()]
    if not remote and not folders:
        return None
    if len(paths) > 1:
        raise click.UsageError(
            f"{(remote + folders)[0]} is a folder: give one folder of shards, or text files."
        )
    if folders and not (Path(paths[0]).expanduser() / INDEX).is_file():
        raise click.UsageError(
            f"{paths[0]} is a folder without {INDEX}: name text files in it, or write it with "
            "keras-lm prepare, to the end."
        )
    return paths[0] if remote else Path(paths[0]).expanduser()


def files_of(corpus):
    """Return the files that tell a corpus from another: of shards, the index with their hashes."""
    return corpus if isinstance(corpus, list) else [f"{corpus}/{INDEX}"]


def take_over(folder, options):
    """Set the options that say how rows are made to those with which a folder was."""
    index = read(folder)
    context = click.get_current_context()
    for name in OF_TEXTS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"--{name.replace('_', '-')} is for text files, and {folder} holds tokens: leave "
                "it out, or run keras-lm prepare again with it."
            )
    if options["sequence_length"] not in (None, index["sequence_length"]):
        raise click.UsageError(
            f"--sequence-length {options['sequence_length']} is another than that of {folder}, "
            f"{index['sequence_length']}: leave it out, or run keras-lm prepare again with it."
        )
    options["sequence_length"] = index["sequence_length"]
    settings = index.get("settings", {})
    form = settings.get("form", "").replace("_", "-") or None
    prepared = index.get("prepared", {"document": "block" if form in PAIRS else "line"})
    options["form"] = form
    options["document"] = prepared["document"]
    options["split_sentences"] = prepared.get("sentences") == "rule"
    for name in ("short_share", "single_share"):
        options[name] = settings.get(name, 0.0)


def check_shards(folder, task):
    """Raise an error if a task would read other rows than a folder has."""
    index = read(folder)
    length = task.packing["sequence_length"]
    template = None if task.backbone.is_causal else dataclasses.asdict(task.packer.template)
    if template != index.get("template"):
        raise click.UsageError(
            f"{folder} holds {'rows' if 'template' in index else 'windows'} for another model "
            f"than {type(task.backbone).__name__}: run keras-lm prepare for this one."
        )
    if length != index["sequence_length"]:
        raise click.UsageError(
            f"{folder} has rows of {index['sequence_length']} tokens, and the model reads "
            f"{length}: run keras-lm prepare with --sequence-length {length}."
        )


def read(folder):
    """Return the index of a folder."""
    if isinstance(folder, Path):  # in full it is checked when it is read
        try:
            index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
            if type(index["sequence_length"]) is int:
                return index
        except (KeyError, RecursionError, TypeError, ValueError):
            pass
        raise click.UsageError(f"{folder / INDEX} is damaged: copy the folder again, whole.")
    from keras_lm import data

    return data.read_token_index(folder)
