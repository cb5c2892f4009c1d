"""How likely a language model finds texts. Shapes: B batch, N continuations, S sequence."""

from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_lm.generation import scoring
from keras_lm.generation.texts import tensors_of
from keras_lm.layers.chunks import losses_in_chunks
from keras_lm.layers.tensorflow.tracing import require
from keras_lm.objectives import MeanOfKnown
from keras_lm.tasks.runtime import jax_decoding, require_tensorflow
from keras_lm.tensorflow import tf

UNLIMITED = 2**31 - 1  # the window of a model without one


class TextScores:
    """The methods of a `CausalLM` that score texts, or continuations of them, and its losses."""

    def score(
        self,
        texts: str | Sequence[str],
        stride: int | None = None,
        batch_size: int = 32,
        verbose: int | str = "auto",
    ) -> dict[str, np.ndarray]:
        """Return how likely texts are, token by token.

        Each text is read after the bos token, if the tokenizer has one; otherwise its first token
        has no score. A text longer than the window is read in overlapping windows: each begins
        `stride` tokens (by default half of the window) after the previous one, and scores the
        tokens after that one's end. A smaller stride is slower, and gives each token more context.
        The perplexity of several texts is exp(-(the sum of their `scores`) / (that of
        `num_tokens`)). `verbose`: see `Task.answer_all`.

        Returns:
            dict of numpy arrays: `scores` (B,), the natural logarithm of each text's probability;
            `perplexity` (B,), 1 for an empty text; `num_tokens` (B,); `tokens` and `token_scores`,
            (B, longest), empty and 0 after the end of a text.

        Raises:
            ValueError: if `stride` is out of range or there is no text.
        """
        window = self.backbone.max_sequence_length or UNLIMITED
        stride = max(window // 2, 1) if stride is None else stride
        if not isinstance(stride, (int, np.integer)) or not 1 <= stride <= window:
            raise ValueError(f"stride={stride!r} is not an int from 1 to {window}.")
        texts = [texts] if isinstance(texts, (str, bytes)) else texts
        stride = np.int32(stride)

        def score(batch):
            if jax_decoding:
                return jax_decoding.score_texts(self, batch["text"], window, stride)
            return self.in_graph("score_columns", batch | {"stride": tf.constant(stride)})

        return self.answer_all(texts, batch_size, score, verbose)

    def score_continuations(self, contexts, choices, batch_size=8, verbose="auto"):
        """Return how likely each of several continuations of a text is.

        A context starts with the bos token, if the tokenizer has one: a score is that of the whole
        text minus that of the context. Context and choice are tokenized together: a token across
        their border counts as part of the choice, for all choices of the context. If a context is
        too long for the window, its first tokens are dropped. Each context is read once.

        Args:
            contexts: list or array of B strings.
            choices: list of B lists of strings, appended to the contexts as they are: a word needs
                its space, as in `" yes"`.
            batch_size: int, contexts at a time.
            verbose: see `Task.answer_all`.

        Returns:
            dict of numpy arrays: `scores` (B, C), the natural logarithm of each choice's
            probability, and `num_tokens` (B, C). Rows with fewer choices end in -inf and 0.

        Raises:
            ValueError: if a choice adds no token or is longer than the window, or a context is
                empty and the tokenizer has no bos token.
        """

        def compute(packed):
            if jax_decoding:
                return jax_decoding.score_continuations(self, packed)
            return self.in_graph("score_packed", tensors_of(packed))

        return scoring.score_all(self, contexts, choices, compute, batch_size, verbose)

    def score_columns(self, columns):
        """Call `score_texts` with its arguments in one dict."""
        return self.score_texts(**columns)

    def score_packed(self, columns):
        """Call `continuations.scores` with its arguments in one dict."""
        return scoring.scores(self, **columns)

    def score_texts(self, text, stride=None, tokenize=None):
        """Return tensors of how likely texts (B,) are, with an int32 `stride`; see `score`."""
        require_tensorflow("Scoring")
        ids = (tokenize or self.tokenize)(text)
        rows = ids.nrows()
        bos = tf.RaggedTensor.from_tensor(tf.tile(self._ids_of("bos")[tf.newaxis], [rows, 1]))
        ids = tf.concat([bos, ids], axis=1)
        window = self.backbone.max_sequence_length or UNLIMITED
        stride = max(window // 2, 1) if stride is None else stride
        require(
            (stride > 0) & (stride <= window), f"stride must be from 1 to {window}, but is", stride
        )
        scored = scoring.token_scores(self._log_likelihood, ids, window, stride)
        total = tf.reduce_sum(scored, axis=1)
        number = tf.cast(scored.row_lengths(), tf.int32)
        mean = tf.math.divide_no_nan(total, tf.cast(number, tf.float32))
        return {
            "scores": total,
            "perplexity": tf.exp(-mean),
            "num_tokens": number,
            "tokens": self.tokenizer.tokens(ids[:, 1:]).to_tensor(""),
            "token_scores": scored.to_tensor(0.0),
        }

    def _log_likelihood(self, token_ids, padding_mask, targets):
        inputs = {"token_ids": token_ids, "padding_mask": padding_mask}
        outputs = self._encode(inputs, training=False)
        return -self.target_losses(outputs["sequence_output"], targets)

    def read_head(self, head, outputs, rows, training, terms):
        labels = rows.get("labels")
        if labels is None or getattr(head, "computes_losses", False):
            return super().read_head(head, outputs, rows, training, terms)
        return losses_in_chunks(head, outputs["sequence_output"], labels)

    def compute_batch(self, batch, training):
        _, loss = self.compiled_losses.by_output.get(None, (1.0, None))
        if isinstance(loss, MeanOfKnown):  # without the logits of all tokens
            if training and getattr(self.head, "has_terms", False):
                raise ValueError(
                    f"{type(self.head).__name__} adds to the loss of whole texts, so it cannot "
                    "be computed in parts: compile with loss=MaskedCrossentropy()."
                )
            batch = batch._replace(inputs=batch.inputs | {"labels": batch.labels})
        return super().compute_batch(batch, training)

    def target_losses(self, states, targets):
        """Return the cross-entropies (B, S) float32 of targets (B, S) after states (B, S, D)."""
        outputs = {"sequence_output": states}
        if getattr(self.head, "computes_losses", False):
            return self.head(outputs, {"labels": targets})
        logits = ops.cast(self.head(outputs), "float32")
        return ops.sparse_categorical_crossentropy(targets, logits, from_logits=True)
