"""The task that a command asks of its source. Imports TensorFlow."""

from keras_lm import tasks
from keras_lm.cli.types import TASKS

# What pretraining leaves ready; heads of other tasks do nothing of use before they are trained.
PRETRAINED = ("masked-lm", "causal-lm", "seq2seq-lm", "feature-extractor", "pretrainer")


def choose_task(source, name):
    """Return the class of the task `name`; for None what an opened source holds, or None."""
    if name is None:
        return source.usual_task
    cls = getattr(tasks, TASKS[name])
    if name not in PRETRAINED and source.task_arguments(cls) is None:
        raise ValueError(
            f"{source} has no head for {name}. Train one: keras-lm finetune {source} TRAIN "
            f"--task {name} --output PRESET"
        )
    return cls
