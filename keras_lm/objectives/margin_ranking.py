"""The loss of choices that are ranked. Shapes: B batch, C choices."""

import keras
from keras import ops

from keras_lm.objectives.losses import MeanLoss, label_weights

MISSING = -1e8  # no logit of a choice is as low, and that of a missing one is lower


@keras.saving.register_keras_serializable("keras_lm")
class MarginRanking(MeanLoss):
    """How much less than a margin the right choice is more probable than each wrong one: the mean.

    Choices that a row lacks are left out: those whose logits are at most `MISSING`.

    Args:
        margin: float.

    Call: `loss(labels, logits, sample_weight=None)`, the positions of the right choices (B,) and
    logits (B, C), whose sigmoid is compared.

    Example:

        MarginRanking()(np.array([0]), np.array([[2.0, -2.0]], "float32"))  # 0.0

    Source: INK-USC/KagNet, `models/main.py`: `torch.nn.MarginRankingLoss` with margin 0.2.
    """

    def __init__(self, margin: float = 0.2, name: str = "margin_ranking"):
        super().__init__(name)
        self.margin = margin

    def sum_and_count(self, labels, logits, sample_weight=None):
        logits = ops.convert_to_tensor(logits, "float32")
        scores = ops.sigmoid(logits)  # (B, C)
        is_right = ops.one_hot(ops.cast(labels, "int32"), ops.shape(logits)[-1], dtype="float32")
        right = ops.sum(scores * is_right, axis=-1, keepdims=True)
        is_wrong = (1 - is_right) * ops.cast(logits > MISSING, "float32")
        short = ops.sum(ops.relu(self.margin - right + scores) * is_wrong, axis=-1)
        losses = ops.divide_no_nan(short, ops.sum(is_wrong, axis=-1))  # (B,)
        weight = label_weights(labels, sample_weight)
        return ops.sum(losses * weight), ops.sum(weight)

    def get_config(self):
        return super().get_config() | {"margin": self.margin}
