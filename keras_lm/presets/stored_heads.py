"""Heads of published folders: an error if a folder says that it has one, and the task lacks it."""

import re
from collections.abc import Collection, Sequence
from typing import Any

import keras

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.published_labels import architecture_of
from keras_lm.utils.registry import TASKS


def check_head(
    source: Any, cls: type, backbone: keras.Model, unused: Collection[str], missing: Sequence[str]
) -> None:
    """Raise a CheckpointError if a folder should have a task's head, and the task lacks it.

    Args:
        source: `Source`.
        cls: class of the task. Nothing is wrong if the configuration names no class with its kind
            of head.
        backbone: its network.
        unused: names of tensors that may be the head in another form.
        missing: paths of the head's weights that are not there. A Pretrainer may have new ones.
    """
    named = source.checkpoint.format == "huggingface" and architecture_of(
        source.checkpoint.config, cls.__name__
    )
    unused = [name for name in unused if not re.search(backbone.LEFT_OUT, name)]
    if cls is TASKS["Pretrainer"] and not unused:
        return
    if named and (unused or missing):
        is_of_texts = str(named).endswith("ForSequenceClassification")
        kind = source.checkpoint.config.get("problem_type") if is_of_texts else None
        said = [f"missing are {summary_of(missing)}"] if missing else []
        said += [f"left over are {summary_of(unused)}"] if unused else []
        raise CheckpointError(
            f"{source} is a {named}{f' for {kind}' if kind else ''}, and {cls.__name__} over a "
            f"{type(backbone).__name__} does not find its head there: {'; '.join(said)}. If "
            "the file is damaged, copy or download it again; for a new head, pass "
            "models.Backbone.from_preset(SOURCE) to the task."
        )


def summary_of(names: Sequence[str]) -> str:
    """Return the first of several names, and how many more there are."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
