"""All pretraining heads of a checkpoint at once."""

import keras

from keras_lm.objectives import MaskedAccuracy, MaskedCrossentropy
from keras_lm.tasks.denoising import DenoisingTask


@keras.saving.register_keras_serializable("keras_lm")
class Pretrainer(DenoisingTask):
    """A backbone with every head that it was pretrained with: BERT's masked LM and next sentence.

    `fit` takes pairs of raw texts with labels, 0 where the second text follows the first and 1
    where it does not, and masks tokens anew in each step; or packed dicts with a dict of labels,
    `token_labels` (B, S), or (B, M) beside `mask_positions`, where -100 is left out of the loss,
    and `next_sentence_labels` (B,).

    Args:
        backbone: see `Task`.
        **arguments: see `Task`.

    Call: `task(inputs)` takes packed inputs and returns a dict with a key a head:
    `token_logits` (B, S, V), or (B, M, V) where `inputs` holds `mask_positions`, and
    `next_sentence_logits` (B, 2).

    Example:

        task = keras_lm.tasks.Pretrainer.from_preset(SOURCE)
        task.fit((["He went out."], ["It was raining."]), [0])

    Source: BERT, https://arxiv.org/abs/1810.04805, section 3.1.
    """

    def __init__(self, backbone, **arguments):
        super().__init__(backbone, **arguments)
        self.heads = {
            name: self.add_head(kind) for name, kind in backbone.PRETRAINING_HEADS.items()
        }
        self._finish()

    def call(self, inputs, training=None):
        outputs = self._encode(inputs, training)
        return {name: head(outputs, inputs, training=training) for name, head in self.heads.items()}

    def default_loss(self):
        return {
            "token_logits": MaskedCrossentropy(),
            "next_sentence_logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        }

    def default_metrics(self):
        return {
            "token_logits": [MaskedAccuracy()],
            "next_sentence_logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        }

    def corrupted(self, data, training):
        inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
        if isinstance(labels, dict):
            targets = {name.replace("_labels", "_logits"): value for name, value in labels.items()}
            return inputs, targets, weights
        if labels is None:
            raise ValueError(
                "y is missing: say which second texts follow (0) and which do not (1)."
            )
        self.require_tokenizer()
        inputs, token_labels = self.objective.corrupt(inputs, training)
        targets = {"token_logits": token_labels, "next_sentence_logits": labels}
        return inputs, targets, weights
