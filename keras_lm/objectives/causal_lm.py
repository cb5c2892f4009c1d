"""Causal language modelling. Shapes: B batch, S sequence, V vocabulary."""

import keras
from keras import ops

from keras_lm.layers.masks import IGNORED
from keras_lm.objectives.losses import MaskedCrossentropy
from keras_lm.objectives.objective import MaskedAccuracy, Objective, register_objective


@keras.saving.register_keras_serializable("keras_lm")
class Perplexity(keras.metrics.Mean):
    """Exponential of the mean cross-entropy over all labels that are not `IGNORED`.

    The mean is over the tokens of all batches, so it does not depend on the batch size. Call: see
    `MaskedCrossentropy`.
    """

    def __init__(self, name="perplexity", **kwargs):
        super().__init__(name=name, **kwargs)

    def update_state(self, labels, logits, sample_weight=None):
        total, count = MaskedCrossentropy().sum_and_count(labels, logits, sample_weight)
        return super().update_state(ops.divide_no_nan(total, count), sample_weight=count)

    def result(self):
        return ops.exp(super().result())


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

    def corrupt(self, inputs, training=True):
        """Make the labels (B, S); nothing is masked, as the network cannot look ahead."""
        token_ids = ops.convert_to_tensor(inputs["token_ids"])
        labels = token_ids[:, 1:]
        if "padding_mask" in inputs:
            mask = ops.cast(inputs["padding_mask"], "bool")
            labels = ops.where(ops.logical_and(mask[:, :-1], mask[:, 1:]), labels, IGNORED)
        labels = ops.pad(labels, [[0, 0], [0, 1]], constant_values=IGNORED)
        return inputs, labels

    def loss(self):
        return MaskedCrossentropy()

    def metrics(self):
        return [Perplexity(), MaskedAccuracy()]
