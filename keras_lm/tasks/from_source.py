"""The task that a source holds, ready for texts."""

from keras_lm import models, presets
from keras_lm.registry import sizes
from keras_lm.tasks.multi_task import MultiTask
from keras_lm.tasks.seq2seq_lm import Seq2SeqLM


def open_source(source):
    """Return a `presets.Source`; for the name of a size, say where its weights are."""
    if source in sizes():
        place = sizes()[source].PUBLISHED.get(source)
        raise ValueError(
            f"{source} names a size, and no weights come with the package. "
            + (
                f"They are published at {place}: give that, or a folder with a copy of it."
                if place
                else "They were never published: train your own with keras-lm pretrain."
            )
        )
    return presets.Source.open(source)


def stated_task(source):
    """Return the class of the task whose head an opened source holds, or None.

    Checkpoints of encoder-decoders state none: they write.
    """
    if source.task is not None:
        return source.task
    backbone_class, _ = source.recognise()
    return Seq2SeqLM if issubclass(backbone_class, models.EncoderDecoderBackbone) else None


def load_task(source, cls=None, several=False, **arguments):
    """Return a task with a tokenizer, by default the source's own.

    A `MultiTask` is for callers that take `several`.

    Raises:
        ValueError: if the source holds no such task, or no vocabulary.
    """
    source = open_source(source)
    cls = cls or stated_task(source)
    if cls is MultiTask and not several:
        raise ValueError(
            f"{source} holds several tasks, and this takes one: in Python, "
            "MultiTask.from_preset(…).tasks['NAME'].save_to_preset(…) writes a preset of it."
        )
    if cls is None:
        raise ValueError(
            f"{source} holds no task, only a pretrained model: train one with keras-lm finetune, "
            "or get vectors from it with keras-lm predict --task feature-extractor."
        )
    task = cls.from_preset(source, **arguments)
    if task.tokenizer is None:
        raise ValueError(
            f"{source} has no vocabulary, so it cannot read texts: put the vocabulary's files, as "
            "they are published, beside the weights."
        )
    return task
