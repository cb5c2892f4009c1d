"""Masked language modelling: fill in the blanks."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_lm.feeding.feed import Preprocessor
from keras_lm.layers.tensorflow import few_numbers
from keras_lm.models.backbone import Backbone
from keras_lm.objectives import MaskedLanguageModel
from keras_lm.tasks import host_answers
from keras_lm.tasks.pretrainer import PretrainingTask
from keras_lm.tensorflow import IS_INSTALLED, require_installed, tf
from keras_lm.tokenizers import strings
from keras_lm.tokenizers.lite_operations import valid_texts
from keras_lm.utils.argument_types import RawTexts, Tensor
from keras_lm.utils.user_arguments import check_whole


@dataclasses.dataclass(frozen=True, eq=False)
class MaskedPreprocessor(Preprocessor):
    """A `Preprocessor` of texts that may spell the mask."""

    def tokens_in_text(self, tokenizer):
        tokens = super().tokens_in_text(tokenizer)
        return tokens if tokens is True else [*(tokens or []), tokenizer.special_tokens["mask"]]


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

    preprocessor_class = MaskedPreprocessor
    uses_pooler = False
    pretraining_head = "token"
    joins_pieces = True

    def __init__(self, backbone: Backbone, top_k: int = 5, objective: Any = None, **arguments: Any):
        vocabulary_size = backbone.vocabulary_size
        check_whole("top_k", top_k, 1, vocabulary_size, ", the number of tokens")
        super().__init__(backbone, **arguments)
        if objective is not None:
            self._train_on([objective])
        self.top_k = top_k
        self.head = self.add_head(self.pretraining_head)
        self._finish()

    def published_labels(self) -> Any:
        return None

    def get_arguments(self) -> dict[str, Any]:
        return super().get_arguments() | {"top_k": self.top_k}

    def make_objectives(self) -> list[Any]:
        return [MaskedLanguageModel()]

    def decode(self, outputs: Any, packed: dict[str, Tensor]) -> Any:
        """Return the candidates for each mask, and each `text` with the best filled in.

        `tokens` and `scores` are (B, M, k): masks from left to right, padded to the most in a text,
        and candidates from best to worst.
        """
        known, scores, ids, filled = self._filled(packed)
        return {
            "tokens": tf.where(known, self.tokenizer.tokens(ids), ""),
            "scores": scores,
            "text": self.tokenizer.detokenize(filled),
        }

    def answer_lite(self, columns: dict[str, Tensor]) -> Any:
        if not any(map(strings.are_bytes, columns.values())):
            return super().answer_lite(columns)
        packed = self.preprocess(columns, self.preprocessor.tokenize_lite)
        # LiteRT has no outputs without a number, so there is room for one mask at least.
        known, scores, ids, filled = self._filled(packed, least=1)
        nothing = self.tokenizer.vocabulary_size
        rows = tf.range(tf.shape(filled)[0] + 1) * tf.shape(filled)[1]
        filled = tf.reshape(filled, [-1])
        filled = tf.RaggedTensor.from_row_splits(filled, rows, validate=False)
        return {
            "tokens": self.tokenizer.tokens_lite(tf.where(known, ids, nothing)),
            "scores": scores,
            "text": valid_texts(self.tokenizer.detokenize_lite(filled)),
        }

    def _filled(self, packed, least=0):
        """Return which masks exist (B, M, 1), scores and ids (B, M, k), and (B, S) filled ids.

        M is `least` or more.
        """
        is_mask, columns, known = self._masks(packed, least)
        width = self.backbone.vocabulary_size
        columns = few_numbers(columns, *tf.unstack(tf.shape(columns)), width)
        logits = self(self._asking(packed, is_mask, columns, known), training=False)  # (B, M, V)
        scores, ids = tf.math.top_k(tf.nn.softmax(logits), self.top_k)  # (B, M, k)
        best = tf.pad(ids[:, :, 0], [[0, 0], [0, 1]])
        order = tf.cumsum(tf.cast(is_mask, tf.int32), axis=1, exclusive=True)
        best = tf.gather(best, order, batch_dims=1)  # for each token, that of the next mask
        filled = tf.where(is_mask, best, packed["token_ids"])
        known = tf.expand_dims(known, -1)
        return known, tf.where(known, scores, 0.0), ids, filled

    def decode_packed(self, outputs, packed):
        """Return the `logits` of all tokens (B, S, V)."""
        return {self.output_name: outputs}

    def answer(
        self, columns: dict[str, Tensor], tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> Any:
        packed = self.preprocess(columns, tokenize)
        return self.decode(None, packed) if IS_INSTALLED else host_answers.fills(self, packed)

    def fill_mask(
        self, x: RawTexts, batch_size: int = 32, verbose: int | str = "auto"
    ) -> dict[str, Any]:
        """Return `tokens`, `scores` and `text` for raw texts with masks; see `decode`."""
        return self.answer_all(x, batch_size, verbose=verbose)

    def score_fills(self, x: RawTexts, fills: Sequence[str], batch_size: int = 32) -> np.ndarray:
        """Return the log-probabilities of filling all masks of texts, (B,) float32.

        Masks are predicted independently of each other, and the log-probabilities of their tokens
        added. A network with a second stream, XLNet, predicts one after the other from left to
        right, and each sees what was filled in before: log p(New | is a city) + log p(York | New,
        is a city). So it knows that "New" goes with "York", where BERT multiplies the
        probabilities of both alone.

        Args:
            x: raw texts with masks, in any form that `fit` takes.
            fills: list of strings, one for each text: as many tokens as it has masks.
            batch_size: int. Texts to compute at a time.

        Raises:
            ValueError: if the numbers of fills and texts differ, or those of a text's masks and its
                fill's tokens.

        Example:

            task.score_fills(["[MASK] [MASK] is a city"] * 2, ["new york", "los angeles"])

        Source: XLNet, https://arxiv.org/abs/1906.08237, section 2.6.
        """
        require_installed("Scoring fills")
        packed = self.preprocess(x)
        is_mask, columns, known = self._masks(packed)
        ids = self.tokenizer(tf.constant(fills))
        numbers = tf.reduce_sum(tf.cast(is_mask, tf.int32), axis=1).numpy()
        if len(fills) != len(numbers):
            raise ValueError(f"fills has {len(fills)}, and x {len(numbers)} texts: pass one each.")
        for row, (masks, tokens) in enumerate(zip(numbers, ids.row_lengths().numpy(), strict=True)):
            if masks != tokens:
                raise ValueError(
                    f"fills[{row}]={fills[row]!r} has {tokens} tokens, and the text {masks} masks: "
                    "write a mask for each token."
                )
        labels = tf.cast(ids.to_tensor(shape=[None, columns.shape[1]]), tf.int32)  # (B, M)
        given = self._asking(packed, is_mask, columns, known, labels)
        given |= {"labels": labels, "known": known}
        scores = [np.zeros(0, "float32")]
        for batch in tf.data.Dataset.from_tensor_slices(given).batch(batch_size):
            labels, known = batch.pop("labels"), batch.pop("known")
            logits = self(batch, training=False)  # (B, M, V)
            log_likelihoods = tf.gather(tf.nn.log_softmax(logits), labels, batch_dims=2)
            scores.append(tf.reduce_sum(tf.where(known, log_likelihoods, 0.0), axis=1).numpy())
        return np.concatenate(scores)

    def _asking(self, packed, is_mask, columns, known, fills=None):
        """Return the inputs by which the network predicts the masks, see `_masks`.

        For one with a second stream, XLNet, a mask is a target that no token sees, since its texts
        never had the mask token; with fills (B, M), later targets see the earlier fills.
        """
        if "target_mapping" not in self.backbone.fields_of({"target_mapping": None}):
            return {**packed, "mask_positions": columns}
        # (New axes by `expand_dims`: those of slices are not all in LiteRT.)
        one = tf.expand_dims(tf.cast(known, tf.float32), 2)
        places = tf.one_hot(columns, tf.shape(is_mask)[1]) * one
        ids = packed["token_ids"]
        unseen = tf.expand_dims(is_mask, 1) & tf.expand_dims(tf.ones_like(is_mask), 2)
        if fills is not None:
            filled = tf.einsum("bms,bm->bs", places, tf.cast(fills, tf.float32))
            ids = tf.where(is_mask, tf.cast(filled, tf.int32), ids)
            order = tf.cumsum(tf.cast(is_mask, tf.int32), axis=1) * tf.cast(is_mask, tf.int32)
            unseen &= order[:, :, None] <= order[:, None, :]  # the order of all others is 0
        return {
            **packed,
            "token_ids": ids,
            "permutation_mask": tf.cast(unseen, tf.int32),
            "target_mapping": places,
        }

    def _masks(self, packed, least=0):
        """Return which tokens are masks (B, S), their columns (B, M), and which of these exist."""
        is_mask = tf.equal(packed["token_ids"], self.tokenizer.special_id("mask"))  # (B, S)
        numbers = tf.reduce_sum(tf.cast(is_mask, tf.int32), axis=1)
        order = tf.range(tf.reduce_max(tf.concat([numbers, [least]], 0)))
        known = order < numbers[:, None]  # (B, M)
        # The columns of all masks, and one more for those that are not there.
        columns = tf.concat([tf.cast(tf.where(is_mask)[:, 1], tf.int32), [0]], 0)
        first = tf.cumsum(numbers, exclusive=True)[:, None]
        return (
            is_mask,
            tf.gather(columns, tf.where(known, first + order, tf.size(columns) - 1)),
            known,
        )
