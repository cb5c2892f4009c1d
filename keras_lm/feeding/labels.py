"""A task's labels: from what users pass to what its loss and its metrics compare.

Shapes: B batch, C classes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_lm.objectives.losses import CompiledLosses
from keras_lm.utils.argument_types import Tensor


class TaskLabels:
    """The labels of a task; a subclass says what they are, and overrides what differs.

    Labels take this way: `of_names` reads those in a dict, `prepare` checks a whole array on the
    host (`prepare_tensor` a batch of a `tf.data.Dataset`, in the graph), `match` compares them with
    their texts; in a step, `for_loss` and `for_metrics` give them the form that each compares.

    Attributes:
        loss: what the task was compiled with.
        task: name of the task's class, for errors.
        class_names: list of str, or None if there are none, or none are known yet.
        multi_label: whether a row has any number of classes.
        are_needed: whether data to learn from and to evaluate on must come with labels.
        remedy: what to do where they are missing, for the error.
        columns: what a table's column of labels may be called.
    """

    loss, task = None, "The task"
    class_names = None
    multi_label = False
    are_needed = True
    remedy = "pass y, the labels of x"
    columns = ("labels", "label")

    # === From users ===

    def names(self, is_packed: bool) -> list[str]:
        """Return the keys that a dict of labels may have; without any, labels are no dict."""
        return [name for name in CompiledLosses(self.loss).by_output if name is not None]

    def of_names(self, labels: dict[str, Any], is_packed: bool) -> Any:
        """Return labels in a dict as `prepare` takes them, or as they are."""
        return labels

    def learn_names(self, names: list[str]) -> None:
        """Take the names that a table has for the numbers of its labels, if there are none yet."""

    def prepare(self, labels: np.ndarray) -> Any:
        """Return labels, an array with a row per example, as `match` and the loss take them."""
        return labels

    def prepare_tensor(self, labels: Tensor) -> Any:
        """The same for a batch of a `tf.data.Dataset`, in the graph."""
        return labels

    def match(self, labels: Any, columns: Mapping[str, Any], is_packed: bool) -> Any:
        """Return prepared labels for texts or packed inputs; raise an error if they do not fit."""
        return labels

    # === In a step ===

    def for_loss(self, labels: Any, outputs: Any, sample_weight: Tensor) -> Any:
        """Return labels and their weights as the compiled loss compares them with outputs."""
        return labels, sample_weight

    def for_metrics(self, labels: Any, outputs: Any) -> Any:
        """Return labels of a batch as metrics compare them with outputs."""
        return labels

    def measured(self, labels: Any) -> Any:
        """Return those of a batch's labels that metrics compare; None if there are none."""
        return labels

    # === What `compile` and `fit` were given for them ===

    def compiled(self, loss: Any, task: str) -> None:
        """Take the loss of `compile`, and the name of the task's class."""
        self.loss, self.task = loss, task

    def check_loss(self, loss: Any) -> None:
        """Raise an error, or warn, if a loss does not fit the task's outputs."""

    def metric(self, metric: Any) -> Any:
        """Return a metric, or its name, as it fits labels and outputs."""
        return metric

    def class_weights(self, class_weight: Any, labels: Any = None) -> list[float]:
        """Return the weight of each class, in their order, for `class_weight` of `fit`.

        `labels` are all of them, prepared, or None where they are not in memory.
        """
        raise ValueError(
            f"class_weight weighs classes, and {self.task} has none: pass sample_weight, a number "
            "for each text."
        )
