"""The source of a command: its task, with what the library notes of it. Imports TensorFlow."""

from keras_lm import tasks
from keras_lm.cli.terminal import notes
from keras_lm.cli.types import TASKS
from keras_lm.tasks import from_source
from keras_lm.tasks.from_source import stated_task

__all__ = ["choose_task", "load_task", "stated_task"]

# What pretraining leaves ready; heads of other tasks do nothing of use before they are trained.
PRETRAINED = ("masked-lm", "causal-lm", "seq2seq-lm", "feature-extractor", "pretrainer")


def choose_task(source, name):
    """Return the class of the task `name`; for None what an opened source holds, or None."""
    if name is None:
        return stated_task(source)
    cls = getattr(tasks, TASKS[name])
    if name not in PRETRAINED and source.task_arguments(cls) is None:
        raise ValueError(
            f"{source} has no head for {name}. Train one: keras-lm finetune {source} TRAIN "
            f"--task {name} --output PRESET"
        )
    return cls


def load_task(*arguments, **options):
    """Return the task of a source; see `keras_lm.tasks.from_source.load_task`."""
    with notes():
        return from_source.load_task(*arguments, **options)
