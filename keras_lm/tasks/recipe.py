"""GPT's fine-tuning recipe: the language model's loss beside a task's.

Source: GPT, "Improving Language Understanding by Generative Pre-Training", sections 3.2 and 3.3;
openai/finetune-transformer-lm, `train.py`.
"""

import keras
from keras import ops

from keras_lm.objectives import IGNORED, CausalLanguageModel


def language_model_terms(task, outputs, inputs):
    """Return what the language model adds to the training loss for a backbone's outputs."""
    terms = []
    logits = task.read_head(task.lm_head, outputs, inputs, True, terms)
    return [*terms, (*language_model_losses(logits, inputs), task.lm_loss_weight)]


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
