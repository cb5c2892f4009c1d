"""XLNet's head for questions. Shapes: B batch, S sequence, D hidden, K starts."""

import keras
from keras import ops

from keras_lm.layers import Dense, LayerNormalization, float32_or_wider, truncated_normal
from keras_lm.layers.backend import Dropout
from keras_lm.layers.last_token import last_real_token

UNSEEN = -1e30  # the logit of a token with which no answer begins or ends


class ConditionalSpanHead(keras.layers.Layer):
    """The start of an answer, its end for a given start, and whether there is no answer.

    Answers are in the first segment, the context, or are the last token, `<cls>`, if there is none;
    logits of other tokens are −1e30.

    Args:
        hidden_dim: int, D.
        num_starts: int, K. For how many of the likeliest starts ends are predicted.
        dropout: float. Fraction dropped before the logit of no answer.
        layer_norm_epsilon: float.

    Call: `head(outputs, inputs)` returns a dict of float32: `start_logits` (B, S); `starts` (B, K)
    int32, the likeliest starts, and `end_logits` (B, K, S) for each of them; `null_logits` (B,), of
    no answer. With `start_positions` (B,) in the inputs, as in training, `end_logits` are those for
    this start, (B, S), and there are no `starts`.

    Source: zihangdai/xlnet, `function_builder.py`, `get_qa_outputs`. Hugging Face's
    `XLNetForQuestionAnswering` is the same, but takes the true start for `null_logits` in training,
    where this is the mean of all tokens by their probability as start.
    """

    uses_pooler = False

    def __init__(self, hidden_dim, num_starts=5, dropout=0.1, layer_norm_epsilon=1e-12, **kwargs):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.num_starts = num_starts
        self.dropout_rate = dropout
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, outputs_shape, inputs_shape=None):
        width = self.hidden_dim

        def dense(units, input_dim, name, dtype=self.dtype_policy, **options):
            layer = Dense(
                units, kernel_initializer=truncated_normal(), dtype=dtype, name=name, **options
            )
            layer.build((None, None, input_dim))
            return layer

        wide = float32_or_wider(self.dtype_policy)
        self.start = dense(1, width, "start", wide)
        self.end_inner = dense(width, 2 * width, "end_inner", activation="tanh")
        self.end_norm = LayerNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name="end_norm"
        )
        self.end_norm.build((None, None, width))
        self.end = dense(1, width, "end", wide)
        self.null_inner = dense(width, 2 * width, "null_inner", activation="tanh")
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy)
        self.null = dense(1, width, "null", wide, use_bias=False)

    def call(self, outputs, inputs=None, training=None):
        x, inputs = outputs["sequence_output"], inputs or {}
        mask = inputs.get("padding_mask", ops.ones_like(x[:, :, 0], dtype="int32"))
        segments = inputs.get("segment_ids", ops.zeros_like(mask))
        last = last_real_token(mask)  # (B,)
        barred = _barred(mask, segments, last)  # (B, S)
        start_logits = self.start(x)[:, :, 0] * (1 - barred) + UNSEEN * barred
        found = {"start_logits": start_logits}
        if "start_positions" in inputs:
            starts = ops.expand_dims(ops.cast(inputs["start_positions"], "int32"), 1)
            found["end_logits"] = self._ends(x, starts, barred)[:, 0]
        else:
            # Also of a text with fewer tokens than there are starts.
            spare = ops.repeat(start_logits[:, :1] * 0 + 2 * UNSEEN, self.num_starts, axis=1)
            _, starts = ops.top_k(ops.concatenate([start_logits, spare], axis=1), self.num_starts)
            starts = ops.minimum(ops.cast(starts, "int32"), ops.shape(x)[1] - 1)  # (B, K)
            found |= {"starts": starts, "end_logits": self._ends(x, starts, barred)}
        likely = ops.cast(ops.softmax(start_logits), x.dtype)
        start = ops.einsum("bs,bsd->bd", likely, x)
        null = ops.take_along_axis(x, ops.reshape(last, (-1, 1, 1)), axis=1)[:, 0]  # (B, D)
        null = self.null_inner(ops.concatenate([start, null], axis=1))
        return found | {"null_logits": self.null(self.dropout(null, training=training))[:, 0]}

    def _ends(self, x, starts, barred):
        """Return the logits (B, K, S) of ends for starts (B, K)."""
        of_starts = ops.take_along_axis(x, ops.expand_dims(starts, 2), axis=1)  # (B, K, D)
        of_starts = ops.expand_dims(of_starts, 2)
        x = ops.expand_dims(x, 1)
        x, of_starts = x + of_starts * 0, of_starts + x * 0  # (B, K, S, D) each
        y = self.end_norm(self.end_inner(ops.concatenate([x, of_starts], axis=3)))
        barred = ops.expand_dims(barred, 1)
        return self.end(y)[..., 0] * (1 - barred) + UNSEEN * barred


def _barred(mask, segments, last):
    """Return 1 for tokens (B, S) with which no answer begins or ends, float32.

    The last token of the context's segment is a separator.
    """
    inside = ops.cast(ops.equal(segments, 0), "int32") * mask
    inside = inside * ops.concatenate([inside[:, 1:], ops.zeros_like(inside[:, :1])], axis=1)
    columns = ops.expand_dims(ops.arange(ops.shape(mask)[1], dtype="int32"), 0)
    is_last = ops.cast(ops.equal(columns, ops.expand_dims(last, 1)), "int32")
    return 1.0 - ops.cast(ops.maximum(inside, is_last), "float32")
