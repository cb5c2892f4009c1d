"""Tasks whose answers are compared with the labels, beside the loss."""

from typing import Any

from keras_lm.feeding.feed import labelled
from keras_lm.tasks.task import Task
from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import RawLabels, RawTexts


class ScoredAnswers(Task):
    """A task whose measures need whole answers: `evaluate` and `fit`'s validation add them.

    A subclass defines `score(x, y, batch_size, verbose)`, a dict of floats, and may override
    `has_answers`.
    """

    _validation = None  # rows of `fit` whose answers are compared after each epoch

    def has_answers(self, x: RawTexts, y: RawLabels) -> bool:
        """Return whether `y` can be compared with the answers to `x`: both are raw."""
        return y is not None and not self.is_packed(x)

    def validation_batches(self, data: Any, batch_size: int, steps: int | None = None) -> Any:
        batches = super().validation_batches(data, batch_size, steps)
        x, y = data[:2] if isinstance(data, (tuple, list)) and len(data) > 1 else (data, None)
        self._validation = *labelled(self.feed, x, y), batch_size
        return batches

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """As `TextModel.fit`; of `validation_data` there are also the scores of `evaluate`."""
        try:
            return super().fit(*args, **kwargs)
        finally:
            self._validation = None

    def evaluate(
        self,
        x: RawTexts | None = None,
        y: RawLabels = None,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        return_dict: bool = False,
        **kwargs: Any,
    ) -> Any:
        """As `keras.Model.evaluate`, and the scores of raw texts' answers; see `score`."""
        x, y = labelled(self.feed, x, y)
        logs = super().evaluate(x, y, batch_size, verbose, return_dict=True, **kwargs)
        if kwargs.get("_use_cached_eval_dataset"):  # called by `fit`, which draws a bar itself
            x, y, batch_size = self._validation
            verbose = 0
        if isinstance(x, tf.data.Dataset) and kwargs.get("steps"):
            x = x.take(kwargs["steps"])
        if self.has_answers(x, y):
            logs |= self.score(x, y, 32 if batch_size is None else batch_size, verbose)
        return logs if return_dict else list(logs.values())
