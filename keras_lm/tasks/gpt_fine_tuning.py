"""How GPT is fine-tuned, for tasks with a logit per text. Shapes: B batch, S sequence."""

import keras
from keras import ops

from keras_lm.feeding.feed import Pairs
from keras_lm.objectives import IGNORED, CausalLanguageModel
from keras_lm.packers import BothOrders, Texts
from keras_lm.utils.user_arguments import check_finite


class GPTFineTuning:
    """GPT's way of fine-tuning: pairs of texts in both orders, and an auxiliary loss.

    The arguments are those of `TextClassifier`: if `symmetric`, a pair is read in both orders; the
    training loss is the task's plus `lm_loss_weight` times the language model's on the same tokens.
    By default the weight is the head's, whose `template` has the special tokens around texts.

    Source: GPT, "Improving Language Understanding by Generative Pre-Training", sections 3.2 and
    3.3; openai/finetune-transformer-lm, `train.py`.
    """

    def __init__(self, task, kind, symmetric=False, lm_loss_weight=None):
        if lm_loss_weight is None:
            head = task.backbone.HEADS.get(kind)
            lm_loss_weight = head.lm_loss_weight if head else 0.0
        check_finite("lm_loss_weight", lm_loss_weight, ", 0 for none")
        if lm_loss_weight < 0:
            raise ValueError(f"lm_loss_weight={lm_loss_weight} is negative: use 0 for none.")
        self.lm_loss_weight = lm_loss_weight
        self.lm_head = task.add_head("causal_lm") if lm_loss_weight else None
        self.symmetric = symmetric
        self.rows = (BothOrders if symmetric else Texts)(takes_words=True)
        if symmetric:
            task.pairs = Pairs(True)

    def get_arguments(self):
        return {"symmetric": self.symmetric, "lm_loss_weight": self.lm_loss_weight}

    def terms(self, task, outputs, inputs):
        """Return what the language model adds to the training loss for a backbone's outputs."""
        if self.lm_head is None:
            return []
        terms = []
        logits = task.read_head(self.lm_head, outputs, inputs, True, terms)
        return [*terms, (*language_model_losses(logits, inputs), self.lm_loss_weight)]


def language_model_losses(logits, inputs):
    """Return the sum of rows' mean cross-entropies of next tokens, and how many rows have any."""
    _, labels = CausalLanguageModel().corrupt(inputs)
    known = ops.not_equal(labels, IGNORED)
    losses = keras.losses.sparse_categorical_crossentropy(
        ops.where(known, labels, 0), ops.cast(logits, "float32"), from_logits=True
    )
    known = ops.cast(known, "float32")
    number = ops.sum(known, axis=1)  # (B,)
    rows = ops.divide_no_nan(ops.sum(losses * known, axis=1), number)
    return ops.sum(rows), ops.sum(ops.cast(number > 0, "float32"))
