"""The layers of XLNet.

Shapes: B batch, S sequence, M memory, T = M + S, P distances, R targets, D hidden, N heads, H per
head, V vocabulary, K starts.
"""

import keras
from keras import ops

from keras_lm.layers import (
    CausalLMHead,
    LayerNormalization,
    PooledClassifier,
    float32_or_wider,
    truncated_normal,
)
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import at_masks, last_real_token, make_dense
from keras_lm.models.transformer_xl_layers import (
    RelativeAttention,
    RelativePostNormBlock,
    SegmentPositions,
    column_order,
)

# Far below `layers.masks.MASKED`: a target that sees nothing attends to all tokens alike.
UNSEEN = -1e30


class XLNetPositions(SegmentPositions):
    """Where the columns of a memory and a text are, and which of them a token sees.

    The dict has what that of `SegmentPositions` has, except `slots`, and
    - `distances` (1, P, D): from M + S, one more than the last token is from the first column, down
      to −S + 1; with an `is_reversed`, which is there too, (2, P, D), the second with other signs;
    - `content_bias`, `query_bias` (B, 1, S, T) float32: what is added to the scores, for tokens
      that see themselves and for those that do not;
    - `other_segment` (B, 1, S, T) int32: 1 where two tokens are in different segments.

    Args:
        is_causal: bool. Whether a token sees none after it.
        reuse_length: int. How many tokens of a text the memory takes in, or None for all.
        hidden_dim, clamp_length: see `SegmentPositions`.

    Call: `layer(padding_mask, segment_ids, memory_mask, permutation_mask=None, is_reversed=None)`,
    (B, S), (B, S), (B, M), (B, S, S) and (B,) int32; in the fourth, 1 is for a column that a row
    does not see, in the last for texts from right to left.

    Source: XLNet, https://arxiv.org/abs/1906.08237, sections 2.3 to 2.5; zihangdai/xlnet.
    """

    def __init__(self, hidden_dim, is_causal=False, clamp_length=None, reuse_length=None, **kwargs):
        super().__init__(hidden_dim, clamp_length, **kwargs)
        self.is_causal = is_causal
        self.reuse_length = reuse_length

    def call(self, padding_mask, segment_ids, memory_mask, permutation_mask=None, is_reversed=None):
        before, new = ops.shape(memory_mask)[1], ops.shape(padding_mask)[1]
        order, last = column_order(padding_mask, before, self.reuse_length)

        def ordered(of_memory, of_text):  # (B, T)
            return ops.take_along_axis(ops.concatenate([of_memory, of_text], axis=1), order, axis=1)

        mask = ordered(memory_mask, padding_mask)
        segments = ordered(ops.zeros_like(memory_mask), segment_ids)  # the memory's is 0
        other_segment = ops.not_equal(ops.expand_dims(segment_ids, 2), ops.expand_dims(segments, 1))
        columns = ops.arange(before + new, dtype="int32")
        rows = ops.expand_dims(columns[before:], 1)  # (S, 1)
        unseen = ops.expand_dims(ops.less(mask, 1), 1)  # (B, 1, T)
        unseen = ops.logical_or(unseen, ops.zeros_like(other_segment))  # (B, S, T)
        if self.is_causal:
            unseen = ops.logical_or(unseen, ops.greater(columns, rows))
        if permutation_mask is not None:
            memory = ops.repeat(ops.zeros_like(permutation_mask[:, :, :1]), before, axis=2)
            hidden = ops.concatenate([memory, permutation_mask], axis=2)  # (B, S, T)
            places = ops.expand_dims(order, 1) + ops.zeros_like(hidden)
            hidden = ops.take_along_axis(hidden, places, axis=2)
            unseen = ops.logical_or(unseen, ops.greater(hidden, 0))
        is_other = ops.not_equal(columns, rows)
        distance = before + new - ops.arange(before + 2 * new, dtype="int32")
        distances, more = [self.vectors(distance)], {}
        if is_reversed is not None:
            distances, more = [*distances, self.vectors(-distance)], {"is_reversed": is_reversed}
        return more | {
            "order": order,
            "padding_mask": mask,
            "distances": ops.stack(distances),
            "content_bias": _bias(ops.logical_and(unseen, is_other)),
            "query_bias": _bias(unseen),
            "other_segment": ops.expand_dims(ops.cast(other_segment, "int32"), 1),
            "kept": ops.take_along_axis(order, last, axis=1),
            "kept_mask": ops.take_along_axis(mask, last, axis=1),
        }

    def compute_output_spec(
        self, padding_mask, segment_ids, memory_mask, permutation_mask=None, is_reversed=None
    ):
        spec = super().compute_output_spec(padding_mask, ops.expand_dims(memory_mask, 2))
        slots, (batch, total) = spec.pop("slots"), spec["order"].shape

        def square(dtype):
            return keras.KerasTensor((batch, 1, slots.shape[1], total), dtype)

        return spec | {
            "distances": keras.KerasTensor((1, None, self.hidden_dim), self.compute_dtype),
            "content_bias": square("float32"),
            "query_bias": square("float32"),
            "other_segment": square("int32"),
            "kept_mask": spec["kept"],
        }


def _bias(unseen):
    return ops.expand_dims(ops.cast(unseen, "float32") * UNSEEN, 1)


class XLNetAttention(RelativeAttention):
    """Attention whose scores depend on content, distance to either side, and segments.

    Its context has as `positions` what `XLNetPositions` returns, and as `segments` its
    `other_segment`. With a `past`, tokens attend to these keys and values, which another call has
    kept, as the query stream does to the content stream's. With a `source`, which targets are where
    (B, R, S), `x` (B, R, D) are the targets.

    Source: XLNet, https://arxiv.org/abs/1906.08237, section 2.5; zihangdai/xlnet, `modeling.py`.
    """

    def build(self, input_shape):
        super().build(input_shape)
        heads = self.num_heads, self.head_dim

        def weight(name, *shape):
            return self.add_weight(name=name, shape=shape, initializer=truncated_normal())

        self.segment_bias = weight("segment_bias", *heads)
        self.segments = weight("segments", 2, *heads)

    def project(self, x, context):
        if context.past is None:
            query, (key, distances), value = super().project(x, context)
            if "is_reversed" in context.positions:  # a text's own, (B, N, P, H)
                distances = ops.take(distances, context.positions["is_reversed"], axis=0)
            return query, (key, distances), value
        query = self.queries_alone(x)
        if context.source is not None:  # to the targets' places
            query = ops.matmul(ops.transpose(context.source, (0, 2, 1)), query)  # (B, S, N·H)
        (query,) = self.split_heads(query, 1)
        return self.queries(query, context), *context.past

    def output_rows(self, x, context):
        return x if context.source is None else ops.matmul(context.source, x)

    def queries(self, query, context):
        content, position, after = super().queries(query, context)
        query = query + ops.expand_dims(ops.cast(self.segment_bias, query.dtype), 1)
        of_segments = ops.einsum("bnsh,znh->bnsz", query, ops.cast(self.segments, query.dtype))
        return content, position, of_segments, context.segments, after

    def raw_scores(self, query, key):
        (content, position, of_segments, other_segment, after), (key, distances) = query, key
        batch, heads, rows = ops.shape(content)[:3]
        columns = ops.shape(key)[2]
        width = columns + rows - 1
        # The last of these queries begins at the distance `after + 1`; each other one place later.
        places = after[0, 0, 0, 0] - rows + 2 + ops.arange(width, dtype="int32")
        scores = self.products(position, ops.take(distances, places, axis=2))  # (B, N, S, width)
        # Each row goes one place less to the left than the row before: rows of one more run on.
        # (The gradient of `ops.slice` is much quicker on TensorFlow than that of indexing.)
        scores = ops.pad(scores, [(0, 0), (0, 0), (0, 0), (0, 1)])
        scores = ops.reshape(scores, (batch, heads, rows * (width + 1)))
        scores = ops.slice(scores, (0, 0, rows - 1), (batch, heads, rows * width))
        scores = ops.reshape(scores, (batch, heads, rows, width))
        scores = ops.slice(scores, (0, 0, 0, 0), (batch, heads, rows, columns))
        same, other = ops.split(of_segments, 2, axis=-1)
        other_segment = ops.cast(other_segment, same.dtype)
        segments = same + other_segment * (other - same)  # (B, N, S, T)
        return self.products(content, key) + scores + segments * self.scale

    def kept_spec(self, x, context):
        key, value = super().kept_spec(x, context)
        distances = keras.KerasTensor((1, self.num_heads, None, key.shape[-1]), key.dtype)
        return (key, distances), value


class XLNetBlock(RelativePostNormBlock):
    """A block of XLNet."""

    attention_class = XLNetAttention


# === Heads ===


class XLNetLMHead(CausalLMHead):
    """The logits (B, S, V) of the tokens, (B, R, V) of targets: the token embedding and a bias.

    With `mask_positions` (B, R) in the inputs, those of these positions.
    """

    def build(self, outputs_shape, inputs_shape=None):
        super().build(outputs_shape, inputs_shape)
        self.bias = self.add_weight(
            name="bias", shape=(self.token_embedding.input_dim,), initializer="zeros"
        )

    def call(self, outputs, inputs=None, training=None):
        x = at_masks(outputs, inputs)
        return super().call({"sequence_output": x}) + ops.cast(self.bias, "float32")


class LastTokenPooledClassifier(PooledClassifier):
    """Dense, tanh, dropout and logits on the last real token, where XLNet has `<cls>`."""

    uses_pooler = False

    def build(self, outputs_shape, inputs_shape=None):
        super().build({"sequence_output": outputs_shape["sequence_output"]})

    def call(self, outputs, inputs=None, training=None):
        x = outputs["sequence_output"]
        mask = (inputs or {}).get("padding_mask", ops.ones_like(x[:, :, 0], dtype="int32"))
        last = ops.reshape(last_real_token(mask), (-1, 1, 1))
        x = ops.take_along_axis(x, last, axis=1)  # (B, 1, D)
        return super().call({"sequence_output": x}, training=training)


NO_ANSWER = -1e30  # the logit of a token with which no answer begins or ends


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
            layer = make_dense(name, units, dtype, **options)
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
        start_logits = self.start(x)[:, :, 0] * (1 - barred) + NO_ANSWER * barred
        logits = {"start_logits": start_logits}
        if "start_positions" in inputs:
            starts = ops.expand_dims(ops.cast(inputs["start_positions"], "int32"), 1)
            logits["end_logits"] = self._ends(x, starts, barred)[:, 0]
        else:
            # Also of a text with fewer tokens than there are starts.
            spare = ops.repeat(start_logits[:, :1] * 0 + 2 * NO_ANSWER, self.num_starts, axis=1)
            _, starts = ops.top_k(ops.concatenate([start_logits, spare], axis=1), self.num_starts)
            starts = ops.minimum(ops.cast(starts, "int32"), ops.shape(x)[1] - 1)  # (B, K)
            logits |= {"starts": starts, "end_logits": self._ends(x, starts, barred)}
        likely = ops.cast(ops.softmax(start_logits), x.dtype)
        start = ops.einsum("bs,bsd->bd", likely, x)
        null = ops.take_along_axis(x, ops.reshape(last, (-1, 1, 1)), axis=1)[:, 0]  # (B, D)
        null = self.null_inner(ops.concatenate([start, null], axis=1))
        return logits | {"null_logits": self.null(self.dropout(null, training=training))[:, 0]}

    def _ends(self, x, starts, barred):
        """Return the logits (B, K, S) of ends for starts (B, K)."""
        of_starts = ops.take_along_axis(x, ops.expand_dims(starts, 2), axis=1)  # (B, K, D)
        of_starts = ops.expand_dims(of_starts, 2)
        x = ops.expand_dims(x, 1)
        x, of_starts = x + of_starts * 0, of_starts + x * 0  # (B, K, S, D) each
        y = self.end_norm(self.end_inner(ops.concatenate([x, of_starts], axis=3)))
        barred = ops.expand_dims(barred, 1)
        return self.end(y)[..., 0] * (1 - barred) + NO_ANSWER * barred


def _barred(mask, segments, last):
    """Return 1 for tokens (B, S) with which no answer begins or ends, float32.

    The last token of the context's segment is a separator.
    """
    inside = ops.cast(ops.equal(segments, 0), "int32") * mask
    inside = inside * ops.concatenate([inside[:, 1:], ops.zeros_like(inside[:, :1])], axis=1)
    columns = ops.expand_dims(ops.arange(ops.shape(mask)[1], dtype="int32"), 0)
    is_last = ops.cast(ops.equal(columns, ops.expand_dims(last, 1)), "int32")
    return 1.0 - ops.cast(ops.maximum(inside, is_last), "float32")
