"""Loading a source for a command. Importing this module imports TensorFlow."""

import click

from keras_lm import models, presets, registry, tasks
from keras_lm.cli.shared_options import TASKS
from keras_lm.cli.terminal import notes
from keras_lm.converters import open_checkpoint

# What pretraining leaves ready; heads of other tasks do nothing of use before they are trained.
PRETRAINED = ("masked-lm", "causal-lm", "seq2seq-lm", "feature-extractor", "pretrainer")


def open_source(source):
    """Return the `Checkpoint` of a source; for the name of a size, say where its weights are."""
    if source in registry.sizes():
        place = registry.sizes()[source].PUBLISHED.get(source)
        raise click.ClickException(
            f"{source} names a size, and no weights come with the package. "
            + (
                f"They are published at {place}: give that, or a folder with a copy of it."
                if place
                else "They were never published: train your own with keras-lm pretrain."
            )
        )
    return open_checkpoint(source)


def stated_task(checkpoint):
    """Return the class of the task whose head a checkpoint holds, or None.

    Checkpoints of encoder-decoders state none: they write.
    """
    stated = presets.stated_task(checkpoint)
    if stated is None:
        backbone_class, _ = presets.recognise(checkpoint)
        return (
            tasks.Seq2SeqLM if issubclass(backbone_class, models.EncoderDecoderBackbone) else None
        )
    return stated


def choose_task(checkpoint, name):
    """Return the class of the task `name`; for None what the checkpoint has a head for, or None."""
    if name is None:
        return stated_task(checkpoint)
    cls = getattr(tasks, TASKS[name])
    if name not in PRETRAINED and presets.stated_arguments(checkpoint, cls) is None:
        raise click.ClickException(
            f"{checkpoint.source} has no head for {name}. Train one: keras-lm finetune "
            f"{checkpoint.source} TRAIN --task {name} --output PRESET"
        )
    return cls


def load_task(source, cls=None, several=False, **arguments):
    """Load a task with a tokenizer, by default the source's own; print the library's warnings.

    A `MultiTask` is for commands that take `several`.
    """
    checkpoint = open_source(source)
    cls = cls or stated_task(checkpoint)
    if cls is tasks.MultiTask and not several:
        raise click.ClickException(
            f"{source} holds several tasks, and this takes one: in Python, "
            "MultiTask.from_preset(…).tasks['NAME'].save_to_preset(…) writes a preset of it."
        )
    if cls is None:
        raise click.ClickException(
            f"{source} holds no task, only a pretrained model: train one with keras-lm finetune, "
            "or get vectors from it with keras-lm features."
        )
    with notes():
        task = cls.from_preset(source, **arguments)
    if task.tokenizer is None:
        raise click.ClickException(
            f"{source} has no vocabulary, so it cannot read texts: put the vocabulary's files, as "
            "they are published, beside the weights."
        )
    return task
