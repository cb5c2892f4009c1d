"""Causal language modelling. Shapes: B batch, S sequence, V vocabulary."""

from typing import Any

import keras
from keras import ops

from keras_lm.layers.masks import IGNORED
from keras_lm.objectives.objective import (
    MaskedAccuracy,
    MaskedCrossentropy,
    MeanOfKnown,
    Objective,
    register_objective,
)
from keras_lm.utils.argument_types import Tensor


@keras.saving.register_keras_serializable("keras_lm")
class Perplexity(keras.metrics.Mean):
    """Exponential of the mean cross-entropy over all labels that are not `IGNORED`.

    The mean is over the tokens of all batches, so it does not depend on the batch size. Call: see
    `MaskedCrossentropy`.
    """

    loss_class = MaskedCrossentropy

    def __init__(self, name: str = "perplexity", **kwargs: Any):
        super().__init__(name=name, **kwargs)

    def update_state(self, labels: Any, outputs: Any, sample_weight: Tensor | None = None) -> None:
        total, count = self.loss_class().sum_and_count(labels, outputs, sample_weight)
        return super().update_state(ops.divide_no_nan(total, count), sample_weight=count)

    def result(self) -> Tensor:
        return ops.exp(super().result())


@keras.saving.register_keras_serializable("keras_lm")
class PerplexityOfLosses(Perplexity):
    """`Perplexity` of the losses that a head has computed. Call: see `MeanOfKnown`."""

    loss_class = MeanOfKnown


@keras.saving.register_keras_serializable("keras_lm")
class BitsPerToken(Perplexity):
    """Mean cross-entropy in bits over all labels that are not `IGNORED`.

    If tokens are characters, as in enwik8, these are bits per character. Call: `metric(labels,
    outputs, sample_weight=None)` with logits (B, S, V), or the losses (B, S) of a head.
    """

    def __init__(self, name: str = "bits_per_token", **kwargs: Any):
        super().__init__(name=name, **kwargs)

    def update_state(self, labels: Any, outputs: Any, sample_weight: Tensor | None = None) -> None:
        is_loss = len(outputs.shape) == len(labels.shape)
        self.loss_class = MeanOfKnown if is_loss else MaskedCrossentropy
        return super().update_state(labels, outputs, sample_weight)

    def result(self) -> Tensor:
        return ops.log2(super().result())


@register_objective
class CausalLanguageModel(Objective):
    """Next-token prediction: the label of each position is the token after it.

    Positions before or within padding, and the last, have no label.

    Example:

        objective = CausalLanguageModel()
        inputs, labels = objective.corrupt({"token_ids": np.array([[5, 6, 7]])})
        labels  # [[6, 7, IGNORED]]

    Source: GPT, section 3.1, equation 1,
    https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf
    """

    heads = {"token_logits": "causal_lm"}
    row_names = ("labels",)
    # Whether the head computes the losses of labels, without the logits of all tokens.
    of_losses = False

    def set_backbone(self, backbone: keras.Model) -> None:
        head = backbone.HEADS.get(self.heads["token_logits"])
        self.of_losses = getattr(getattr(head, "layer", None), "computes_losses", False)

    def corrupt(
        self, inputs: dict[str, Tensor], training: bool | None = True
    ) -> tuple[dict[str, Tensor], Any]:
        """Make the labels (B, S); nothing is masked, as the network cannot look ahead."""
        token_ids = ops.convert_to_tensor(inputs["token_ids"])
        labels = token_ids[:, 1:]
        if "padding_mask" in inputs:
            mask = ops.cast(inputs["padding_mask"], "bool")
            labels = ops.where(ops.logical_and(mask[:, :-1], mask[:, 1:]), labels, IGNORED)
        labels = ops.pad(labels, [[0, 0], [0, 1]], constant_values=IGNORED)
        return inputs, labels

    def loss(self) -> MeanOfKnown | MaskedCrossentropy:
        return MeanOfKnown() if self.of_losses else MaskedCrossentropy()

    def metrics(self) -> list[keras.metrics.Metric]:
        return [PerplexityOfLosses()] if self.of_losses else [Perplexity(), MaskedAccuracy()]
