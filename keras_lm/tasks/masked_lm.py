"""Masked language modelling: fill in the blanks."""

import keras
import tensorflow as tf

from keras_lm.objectives import MaskedLanguageModel
from keras_lm.tasks.pretraining import PretrainingTask


@keras.saving.register_keras_serializable("keras_lm")
class MaskedLM(PretrainingTask):
    """Predict masked tokens: fill in masks, or continue pretraining on raw text.

    `fit(texts)` without labels draws new masks in each step. In texts, the mask token (`[MASK]`) is
    always recognised.

    Args:
        top_k: int. Candidates returned for each mask.
        objective: `keras_lm.objectives.MaskedLanguageModel` to train on, such as one of whole
            words; None for BERT's. Presets do not store it.
        backbone, **arguments: see `Task`.

    Call: `task(inputs)` returns logits (B, S, V), or (B, M, V) if it holds `mask_positions` (B, M).

    Example:

        task = keras_lm.tasks.MaskedLM.from_preset(SOURCE)
        task.fill_mask(["Paris is the [MASK] of France."])
        # {"tokens": [[["capital", …]]], "scores": [[[0.9, …]]], "text": ["paris is the capital …"]}

    Source: BERT, https://arxiv.org/abs/1810.04805, section 3.1, task 1.
    """

    uses_pooler = False
    pretraining_head = "token"

    def __init__(self, backbone, top_k=5, objective=None, **arguments):
        vocabulary_size = backbone.vocabulary_size
        if not 1 <= top_k <= vocabulary_size:
            raise ValueError(f"top_k={top_k} is not between 1 and {vocabulary_size}.")
        super().__init__(backbone, **arguments)
        if objective is not None:
            self._train_on([objective])
        self.top_k = top_k
        self.head = self.add_head(self.pretraining_head)
        self._finish()

    def tokens_in_text(self, tokenizer):
        found = super().tokens_in_text(tokenizer)
        return found if found is True else [*(found or []), tokenizer.special_tokens["mask"]]

    def get_arguments(self):
        return super().get_arguments() | {"top_k": self.top_k}

    def make_objectives(self):
        return [MaskedLanguageModel()]

    def decode(self, outputs, packed):
        """Return the candidates for each mask, and each `text` with the best filled in.

        `tokens` and `scores` are (B, M, k): masks from left to right, padded to the most in a text,
        and candidates from best to worst.
        """
        is_mask = tf.equal(packed["token_ids"], self.tokenizer.special_id("mask"))  # (B, S)
        number = tf.reduce_max(tf.reduce_sum(tf.cast(is_mask, tf.int32), axis=1, keepdims=True))
        # Columns of masks first, in order: a stable sort of "is not a mask".
        columns = tf.argsort(tf.cast(~is_mask, tf.int32), axis=1, stable=True)[:, :number]  # (B, M)
        known = tf.gather(is_mask, columns, batch_dims=1)  # (B, M)
        logits = self({**packed, "mask_positions": columns}, training=False)  # (B, M, V)
        scores, ids = tf.math.top_k(tf.nn.softmax(logits), self.top_k)  # (B, M, k)
        filled = tf.where(
            is_mask,
            tf.scatter_nd(_rows_and_columns(columns), ids[:, :, 0], tf.shape(is_mask)),
            packed["token_ids"],
        )
        return {
            "tokens": tf.where(known[:, :, None], self.tokenizer.tokens(ids), ""),
            "scores": tf.where(known[:, :, None], scores, 0.0),
            "text": self.tokenizer.detokenize(filled),
        }

    def answer(self, columns, tokenize=None):
        packed = self.preprocess(columns, tokenize)
        return self.decode(None, packed)

    def fill_mask(self, x, batch_size=32, verbose="auto"):
        """Return `tokens`, `scores` and `text` for raw texts with masks; see `decode`."""
        return self.answer_all(x, batch_size, verbose=verbose)


def _rows_and_columns(columns):
    rows = tf.broadcast_to(tf.range(tf.shape(columns)[0])[:, None], tf.shape(columns))
    return tf.stack([rows, columns], axis=-1)
