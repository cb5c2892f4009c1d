"""The task that a source holds, ready for texts."""

from keras_lm import presets
from keras_lm.models import EncoderDecoderBackbone
from keras_lm.tasks.multi_task import MultiTask
from keras_lm.tasks.seq2seq_lm import Seq2SeqLM


def stated_task(source):
    """Return the class of the task whose head an opened source holds, or None.

    Checkpoints of encoder-decoders state none: they write.
    """
    if source.task is not None:
        return source.task
    backbone_class, _ = source.recognise()
    return Seq2SeqLM if issubclass(backbone_class, EncoderDecoderBackbone) else None


def load_task(source, cls=None, several=False, **arguments):
    """Return a task with a tokenizer, by default the source's own.

    A `MultiTask` is for callers that take `several`.

    Raises:
        ValueError: if the source holds no such task, or no vocabulary.
    """
    source = presets.Source.open(source)
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
