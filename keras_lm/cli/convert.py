"""`keras-lm convert`: published weights → a preset folder."""

import click

from keras_lm.cli import options as opt
from keras_lm.cli.command import Command
from keras_lm.cli.options import (
    TASKS,
    Choice,
    PresetFolder,
    Source,
    choose_task,
    megabytes,
    notes,
    say_rows,
)

# What --to says → the method that writes it.
FORMS = {
    "preset": "save_to_preset",
    "huggingface": "save_to_huggingface",
    "google": "save_to_google",
    "kerashub": "save_to_keras_hub",
}


@click.command("convert", cls=Command, short_help="Published weights → a preset folder.")
@click.argument("source", type=Source())
@click.argument("preset", type=PresetFolder())
@opt.option(
    "--to",
    "form",
    type=Choice([*FORMS]),
    default="preset",
    show_default=True,
    help="What to write: a preset, a folder that Hugging Face's transformers loads, a TensorFlow 1 "
    "checkpoint of google-research's form, or a preset of KerasHub's.",
)
@opt.option(
    "--task",
    type=Choice([*TASKS]),
    help="Load this head too.  [default: a classification or regression head if there is one, or "
    "the vectors of sentence-transformers, otherwise backbone and tokenizer alone]",
)
@opt.overwrite
def convert_command(source, preset, form, task, overwrite):
    """Bring published weights, their configuration and their tokenizer into one preset folder.

    \b
      keras-lm convert hf://google-bert/bert-base-uncased bert-base
      keras-lm convert downloads/uncased_L-12_H-768_A-12 bert-base
      keras-lm convert bert-base bert-for-transformers --to huggingface

    SOURCE is a folder with a checkpoint (Hugging Face, google-research, TensorFlow Model Garden,
    KerasHub, or a preset) or hf://OWNER/NAME. PyTorch is not needed.

    PRESET holds keras_lm.json, model.safetensors and assets/, all that every other command and
    from_preset need. With --overwrite an earlier preset there is replaced, once the new one is
    complete; any other folder is refused. With --to huggingface it is a folder for transformers,
    with --to google and --to kerashub one for these. It must be new or empty then, and what they
    have no counterpart for is refused.
    """
    from keras_lm import presets, tasks  # imports TensorFlow

    opened = presets.Source.open(source)
    cls = choose_task(opened, task)
    with notes():
        # By itself, a feature extractor has no weights: it brings backbone and tokenizer.
        loaded = (cls or tasks.FeatureExtractor).from_preset(opened)
    save = FORMS[form]
    if form == "preset":  # PRESET was checked, with --overwrite
        if cls is not None:
            loaded.save_to_preset(preset, overwrite=True)
        else:
            presets.save(preset, loaded.backbone, tokenizer=loaded.tokenizer, overwrite=True)
    elif cls is not None:
        getattr(loaded, save)(preset)
    else:
        getattr(loaded.backbone, save)(preset, tokenizer=loaded.tokenizer)
    if loaded.tokenizer is None:
        click.echo("Note: no vocabulary there, so the preset has no tokenizer.", err=True)

    class_names = getattr(loaded, "class_names", None)
    tokenizer = loaded.tokenizer
    say_rows(
        [
            ("preset" if form == "preset" else "folder", f"{preset} ({megabytes(preset)})"),
            ("model", type(loaded.backbone).__name__),
            ("task", cls and cls.__name__),
            ("parameters", f"{loaded.count_params():,}"),
            ("labels", class_names and ", ".join(class_names)),
            (
                "tokenizer",
                tokenizer and f"{type(tokenizer).__name__}, {tokenizer.vocabulary_size:,} entries",
            ),
        ]
    )
