"""Text regression: one number for a text or a pair."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_lm.converters.published_labels import ONE_TEXT, Labels
from keras_lm.feeding.feed import TaskLabels, labels_from_user
from keras_lm.models.backbone import Backbone
from keras_lm.tasks.task import Prompted, Task, checked_prompt
from keras_lm.tasks.text_classifier import GPTFineTuning
from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import RawTexts, Tensor


class NumberLabels(TaskLabels):
    """A number for each row, (B,) or (B, 1); `is_share` if a sigmoid gives only 0 to 1."""

    def __init__(self, is_share):
        self.is_share = is_share

    def prepare(self, labels):
        if labels.dtype.kind in "cmM":  # complex, differences of times, and times
            raise ValueError(f"labels are of dtype {labels.dtype}, and must be real numbers.")
        try:
            labels = labels.astype("float32")
        except (TypeError, ValueError) as error:
            raise ValueError(f"labels must be numbers: {error}.") from error
        if labels.ndim > 2 or (labels.ndim == 2 and labels.shape[1] != 1):
            raise ValueError(f"labels has shape {labels.shape}: pass one number per row.")
        for row in np.flatnonzero(~np.isfinite(labels.reshape(-1)))[:1]:
            raise ValueError(f"labels[{row}]={labels.reshape(-1)[row]} is not a finite number.")
        is_reached = (labels >= 0) & (labels <= 1) | (not self.is_share)
        for row in np.flatnonzero(~is_reached)[:1]:
            raise ValueError(
                f"labels[{row}]={labels.reshape(-1)[row]}, and a sigmoid gives 0 to 1: scale the "
                "labels, or make the task with activation=None."
            )
        return labels.reshape(-1, 1)

    def prepare_tensor(self, labels):
        if labels.dtype == tf.string:
            raise ValueError("labels are strings, and must be numbers.")
        rest = labels.shape[1:] if labels.shape.rank else []
        if len(rest) > 1 or any(size not in (None, 1) for size in rest):
            raise ValueError(f"labels has shape {labels.shape}: pass one number per row.")
        # (B,) against (B, 1) would broadcast to (B, B) in the loss.
        return keras.ops.reshape(keras.ops.cast(labels, "float32"), (-1, 1))


@keras.saving.register_keras_serializable("keras_lm")
class TextRegressor(Prompted, Task):
    """Predict a number for each text, or pair of texts.

    Args:
        activation: `"sigmoid"` for numbers from 0 to 1, or None for any.
        symmetric, lm_loss_weight, prompt: see `TextClassifier`.
        backbone, **arguments: see `Task`.

    A cross-encoder of sentence-transformers with one output is such a task, for pairs. `activation`
    is what its folder states, so that scores are those of `CrossEncoder(folder).predict(pairs)`.
    Folders of older versions do not state the sigmoid that is done then: pass it.

    In a first `fit` on lists or arrays, a new head begins with the mean of all labels, which its
    bias would take most of a short training to reach.

    Call: `task(inputs)` returns (B, 1), float32, after the activation.

    Raises:
        ValueError: if `activation` is another one.

    Example:

        task = keras_lm.tasks.TextRegressor.from_preset(SOURCE)
        task.fit((["A man sings."], ["Someone is singing."]), [4.2])
        task.regress((["A dog barks."], ["A cat sleeps."]))  # {"scores": [0.7]}

    Source: BERT, https://arxiv.org/abs/1810.04805, section 4.1 (STS-B).
    """

    def __init__(
        self,
        backbone: Backbone,
        symmetric: bool = False,
        lm_loss_weight: float | None = None,
        activation: str | Callable[[Tensor], Tensor] | None = None,
        prompt: str | None = None,
        **arguments: Any,
    ):
        if activation not in (None, "sigmoid"):
            raise ValueError(f"activation={activation!r}: pass 'sigmoid', or None for any number.")
        super().__init__(backbone, **arguments)
        self.prompt = checked_prompt(prompt)
        self.activation = activation
        self.labels = NumberLabels(is_share=activation is not None)
        self.fine_tuning = GPTFineTuning(self, "classification", symmetric, lm_loss_weight)
        self.rows, self.lm_head = self.fine_tuning.rows, self.fine_tuning.lm_head
        self.head = self.add_head("classification", num_classes=1)
        self._finish()

    @classmethod
    def arguments_from_checkpoint(cls, labels: Any) -> dict[str, Any] | None:
        if labels.num_classes != 1 or labels.problem_type not in ONE_TEXT:
            return None
        is_linear = labels.activation in (None, "linear")
        return labels.read_texts | ({} if is_linear else {"activation": labels.activation})

    def published_labels(self) -> Any:
        self.check_without_prompt()
        return Labels(1, problem_type="regression", activation=self.activation or "linear")

    def get_arguments(self) -> dict[str, Any]:
        own = self.fine_tuning.get_arguments() | {"activation": self.activation}
        return super().get_arguments() | own

    def call(
        self, inputs: dict[str, Tensor], training: bool | None = None, with_terms: bool = False
    ) -> Any:
        outputs = super().call(inputs, training, with_terms)
        if self.activation is None:
            return outputs
        if with_terms:
            return keras.ops.sigmoid(outputs[0]), outputs[1]
        return keras.ops.sigmoid(outputs)

    def default_loss(self) -> Any:
        return keras.losses.MeanSquaredError()

    def divergence(self, outputs: Any, others: Any) -> Tensor:
        """Return how far the numbers of texts differ, (B,), for `AdversarialSmoothing`."""
        return keras.ops.square(outputs - others)[:, 0]

    def default_metrics(self) -> list[keras.metrics.Metric]:
        return [keras.metrics.MeanAbsoluteError(name="mean_absolute_error")]

    def start_from(self, labels: Any) -> None:
        weights = self.head.weights
        biases = [v for v in weights if v.path.endswith("/bias") and v.shape == (1,)]
        is_begun = not biases or np.any(biases[-1].numpy())  # GPT's head has none
        if labels is None or is_begun or self.activation:
            return
        mean = np.mean(self.labels.prepare(labels_from_user(labels, len(labels))))
        is_sum = self.fine_tuning.symmetric  # of both orders
        biases[-1].assign([mean / 2 if is_sum else mean])

    def decode(self, outputs: Any, packed: dict[str, Tensor]) -> dict[str, Any]:
        return {"scores": outputs[:, 0]}

    def example_signature(self) -> Any:
        return "regress", lambda answer: {"outputs": answer["scores"]}

    def regress(self, x: RawTexts, batch_size: int = 32, verbose: int | str = "auto") -> np.ndarray:
        """Return `scores` (B,) for raw texts in any form that `predict` takes."""
        return self.answer_all(x, batch_size, verbose=verbose)
