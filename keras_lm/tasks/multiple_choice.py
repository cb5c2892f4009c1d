"""Multiple choice: which of several texts fits a text? Shapes: B batch, C choices, S sequence."""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.converters.published_labels import Labels
from keras_lm.feeding.feed import Preprocessor, TaskLabels
from keras_lm.layers.backend import argmax
from keras_lm.models.backbone import Backbone
from keras_lm.packers import Choices
from keras_lm.tasks import classes
from keras_lm.tasks.task import Task
from keras_lm.tasks.text_classifier import GPTFineTuning
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.training.smoothing import symmetric_divergence
from keras_lm.utils.argument_types import RawTexts, Tensor


class ChoiceLabels(TaskLabels):
    """The position of the right choice in each row, (B,), or one-hot or soft labels, (B, C).

    `inputs` are the names of packed inputs.
    """

    def __init__(self, inputs):
        self.inputs = inputs

    def match(self, labels, columns, is_packed):
        self._check_positions(labels, columns)
        if getattr(self.loss, "label_smoothing", 0) and "choices" in columns:
            _refuse_padding(columns["choices"].numpy())
        return labels

    def learn_names(self, names):
        """Raise ValueError if names of positions, such as "0" or "A", are not in their order."""
        if names != sorted(names, key=lambda name: (len(name), name)):
            raise ValueError(
                f"the table names its labels {names}, and MultipleChoice takes positions of "
                "choices, from 0: pass these as a list, y."
            )

    def prepare(self, labels):
        labels = classes.without_last_axis(labels)
        if labels.ndim == 2 and labels.dtype.kind not in "US":
            return classes.check_probabilities(labels, self.loss)
        try:
            whole = labels.astype("int32")
            is_whole = labels.ndim == 1 and np.array_equal(whole, labels)
        except (TypeError, ValueError):
            is_whole = False
        if not is_whole:
            raise ValueError(
                f"labels has shape {labels.shape} and dtype {labels.dtype}: pass for each row the "
                "position of the right choice, an integer from 0, or one-hot or soft labels, a "
                "number for each choice."
            )
        return whole

    def prepare_tensor(self, labels):
        labels = classes.without_last_axis(labels)
        if labels.shape.rank == 1:
            return classes.check_number_tensor(labels)
        return classes.check_probability_tensor(labels, self.loss)

    def _check_positions(self, labels, columns):
        name = next(name for name in ("choices", *self.inputs) if name in columns)
        number = columns[name].shape[1]
        if labels.ndim == 2:
            _check_likely(labels, columns.get("choices"), number)
            return
        for row in np.flatnonzero((labels < 0) | (labels >= number))[:1]:
            raise ValueError(
                f"labels[{row}]={labels[row]}, but there are {number} choices: their positions "
                f"count from 0 to {number - 1}."
            )
        if "choices" in columns:
            right = tf.gather(columns["choices"], labels, batch_dims=1).numpy()
            for row in np.flatnonzero(right == b"")[:1]:
                raise ValueError(
                    f"labels[{row}]={labels[row]}, but choices[{row}] has no such choice: an "
                    "empty one does not count."
                )

    def for_loss(self, labels, outputs, sample_weight):
        return classes.for_loss(self.loss, labels, outputs), sample_weight

    def for_metrics(self, labels, outputs):
        return classes.for_metrics(labels, outputs)

    def check_loss(self, loss):
        classes.warn_of_probabilities(loss)


def _refuse_padding(choices):
    """Raise ValueError if a row lacks choices, as a loss that smooths labels counts them."""
    for row in np.flatnonzero((choices == b"").any(axis=1))[:1]:
        raise ValueError(
            f"choices[{row}] has fewer choices than others, and the loss smooths labels over all: "
            "pass the same number for each text, or a loss without label_smoothing."
        )


def _check_likely(labels, choices, number):
    """The same of one-hot or soft labels."""
    if labels.shape[1] != number:
        raise ValueError(
            f"labels has shape {labels.shape}, but there are {number} choices: pass "
            f"({len(labels)}, {number}), with 0 for choices that a row lacks."
        )
    lacks = np.zeros(labels.shape, bool) if choices is None else choices.numpy() == b""
    for row in np.flatnonzero((lacks & (labels > 0)).any(axis=1))[:1]:
        raise ValueError(f"labels[{row}]={labels[row]} is more than 0 for an empty choice.")


@dataclasses.dataclass(frozen=True, eq=False)
class ChoicePreprocessor(Preprocessor):
    """A `Preprocessor` of texts with choices, which it pads with empty ones."""

    def columns(self, x):
        columns = super().columns(x)
        choices = columns["choices"]
        if isinstance(choices, tf.RaggedTensor):
            lengths = choices.row_lengths().numpy()
        elif IS_INSTALLED or any(isinstance(row, bytes) for row in choices):
            raise ValueError(
                "choices is a list of strings: pass a list of choices for each text, such as "
                "[['yes', 'no'], …]."
            )
        else:
            lengths = np.array([len(row) for row in choices])
        for row in np.flatnonzero(lengths == 0)[:1]:
            raise ValueError(f"choices[{row}] is empty: pass at least one choice for each text.")
        return columns | ({"choices": choices.to_tensor("")} if IS_INSTALLED else {})


@keras.saving.register_keras_serializable("keras_lm")
class MultipleChoice(Task):
    """Choose the best of several texts: an ending, an answer, a cause.

    Each choice is read together with the text, as a pair, and gets one logit; scores are a softmax
    over the choices of a text. The number of choices may differ between texts and calls. Empty
    choices are padding and never chosen.

    Args:
        symmetric: bool. Must be False.
        lm_loss_weight: see `TextClassifier`.
        backbone, **arguments: see `Task`. `truncation="only_first"` truncates texts, not choices.

    Raw data have the keys `text`, a string for each row, and `choices`, a list of strings for each;
    a tuple is `(text, choices)`. Labels are the positions of the right choices, from 0, or one-hot
    or soft labels, (B, C), see `TextClassifier`.

    Call: `task(inputs)` takes packed inputs (B, C, S) and returns logits (B, C), float32.

    Example:

        task = keras_lm.tasks.MultipleChoice.from_preset(SOURCE)
        data = {"text": ["She fell on the ice."], "choices": [["She got up.", "The ice sang."]]}
        task.fit(data, [0])
        task.choose(data)  # {"labels": [0], "scores": [[0.9, 0.1]]}

    Source: BERT, https://arxiv.org/abs/1810.04805, section 4.4 (SWAG); GPT,
    https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf,
    section 3.3.
    """

    preprocessor_class = ChoicePreprocessor
    rows = Choices()

    def __init__(
        self,
        backbone: Backbone,
        symmetric: bool = False,
        lm_loss_weight: float | None = None,
        **arguments: Any,
    ):
        if symmetric:
            raise ValueError("symmetric=True is for pairs of texts: MultipleChoice has none.")
        super().__init__(backbone, **arguments)
        self.labels = ChoiceLabels(self.backbone.input_names)
        self.fine_tuning = GPTFineTuning(self, "multiple_choice", lm_loss_weight=lm_loss_weight)
        self.lm_head: keras.layers.Layer | None = self.fine_tuning.lm_head
        self.head = self.add_head("multiple_choice")
        self._finish()

    @classmethod
    def arguments_from_checkpoint(cls, labels: Any) -> dict[str, Any] | None:
        return {} if labels.may_be("multiple_choice") else None

    def published_labels(self) -> Any:
        return Labels(1, problem_type="multiple_choice")

    def get_arguments(self) -> dict[str, Any]:
        return super().get_arguments() | self.fine_tuning.get_arguments()

    def default_loss(self) -> Any:
        return classes.ClassCrossentropy()

    def divergence(self, outputs: Any, others: Any) -> Tensor:
        """Return how far the probabilities of choices differ, (B,), for `AdversarialSmoothing`."""
        return symmetric_divergence(outputs, others)

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    # === Answers ===

    def decode(self, outputs: Any, packed: dict[str, Tensor]) -> Any:
        """Return `labels` (B,), the position of the best choice, int32, and `scores` (B, C)."""
        return {
            "labels": argmax(outputs),
            "scores": ops.softmax(outputs),
        }

    def choose(
        self, x: RawTexts, batch_size: int = 32, verbose: int | str = "auto"
    ) -> dict[str, Any]:
        """Return `labels` and `scores` for raw texts and choices; see `decode`."""
        return self.answer_all(x, batch_size, verbose=verbose)
