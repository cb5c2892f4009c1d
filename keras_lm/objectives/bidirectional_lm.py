"""Bidirectional language modelling. Shapes: B batch, S words, T = S + 1 predictions a direction."""

from typing import Any

import keras
from keras import ops

from keras_lm.layers.masks import IGNORED
from keras_lm.objectives.objective import MeanOfKnown, Objective
from keras_lm.utils.argument_types import Tensor


@keras.saving.register_keras_serializable("keras_lm")
class DirectionPerplexity(keras.metrics.Mean):
    """Exponential of the mean loss over the known labels of all batches; called as `MeanOfKnown`.

    Args:
        direction: `"forward"`, `"backward"`, or None for both together.
    """

    def __init__(self, direction: str | None = None, name: str | None = None, **kwargs: Any):
        super().__init__(name=name or "_".join(filter(None, [direction, "perplexity"])), **kwargs)
        self.direction = direction
        self.rows = {"forward": slice(0, 1), "backward": slice(1, 2), None: slice(0, 2)}[direction]

    def update_state(
        self, labels: Any, losses: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        labels, losses = labels[:, self.rows], losses[:, self.rows]
        total, count = MeanOfKnown().sum_and_count(labels, losses, sample_weight)
        return super().update_state(ops.divide_no_nan(total, count), sample_weight=count)

    def result(self) -> Tensor:
        return ops.exp(super().result())

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"direction": self.direction}


class BidirectionalLanguageModel(Objective):
    """Predicts every word of a sentence twice: from the words before it, and from those after it.

    The forward direction predicts the first word from the start of the sentence, and the end from
    the last word; the backward direction does the same in reverse.

    Example:

        objective = BidirectionalLanguageModel()
        inputs, labels = objective.corrupt({"word_ids": np.array([[0, 7, 8, 1]])})  # <S> … </S>
        labels  # [[[7, 8, 1], [0, 7, 8]]]

    Source: ELMo, https://arxiv.org/abs/1802.05365, section 3.1; allenai/bilm-tf, `training.py`.
    """

    heads: dict[str, str] = {"losses": "bidirectional_lm"}
    row_names: tuple[str, str] = ("word_ids", "labels")

    def corrupt(
        self, inputs: dict[str, Tensor], training: bool | None = True
    ) -> tuple[dict[str, Tensor], Any]:
        """Make the labels (B, 2, T) of a batch, `IGNORED` where there is nothing to predict.

        Nothing is masked, because no direction sees the words that it predicts. `word_ids`
        (B, S + 2) are the words of each sentence with its start and end, padded with `IGNORED`.
        """
        word_ids = ops.convert_to_tensor(inputs["word_ids"])
        after = word_ids[:, 1:]
        before = ops.where(ops.equal(after, IGNORED), IGNORED, word_ids[:, :-1])
        labels = ops.stack([after, before], axis=1)
        return inputs | {"labels": labels}, labels

    def loss(self) -> MeanOfKnown:
        return MeanOfKnown()

    def metrics(self) -> list[keras.metrics.Metric]:
        return [DirectionPerplexity(direction) for direction in ("forward", "backward", None)]
