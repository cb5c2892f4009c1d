"""What attention reads beside the vectors of the tokens."""

from typing import Any, NamedTuple

import keras

# Shapes: B batch, S sequence, T what is attended to, D hidden, N heads, H per head.


class AttentionContext(NamedTuple):
    """What blocks read beside `x` (B, S, D), made once for a forward pass. None is nothing.

    `bias`, broadcastable to (B, N, S, T), is added to the scores: padding, what is still to come,
    positions. It may be a `keras_lm.layers.masks.Visible`.

    `past` has the keys and the values of the tokens before, (B, N, T, H) each, with free slots:
    `write_at` (B·N·S, 3) int32 says where the new ones go, by row, head and slot.

    `memory` (B, M, D) is what the layer read before; it is attended to, and comes before `x`.

    `positions` and `segments` are for attention whose scores depend on them: tensors, as the
    model's own class of attention takes them.

    `source` is what a decoder attends to: an encoder's output (B, T, its width), or the keys and
    the values of it; `source_bias` is added to the scores of that.

    `head_mask` (N,) or (B, N) is a factor of each head's output.

    Example:

        context = AttentionContext(bias=PaddingBias()(padding_mask))
        for block in blocks:
            x, _ = block(x, context)
    """

    bias: Any = None
    past: Any = None
    write_at: Any = None
    memory: Any = None
    positions: Any = None
    segments: Any = None
    source: Any = None
    source_bias: Any = None
    head_mask: Any = None


class ContextLayer(keras.layers.Layer):
    """A layer that computes (B, S, D) from `x` (B, S, D) and an `AttentionContext`.

    A subclass defines

        def forward(self, x, context, training=None):
            …
            return x, kept

    where `kept` is what a later call may go on from, as nested tensors, and its `kept_spec`.

    Call: `layer(x, context)` returns `x` and what it keeps. `layer(x)`, or with fields of a context
    by name, such as `layer(x, bias=bias)`, returns `x` alone.
    """

    # The field that a tensor in the place of the context is.
    first_field = "bias"

    def forward(self, x, context, training=None):
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes.")

    def kept_spec(self, x, context):
        """Return what `forward` keeps as `keras.KerasTensor`s, for those of its arguments."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it keeps.")

    def as_context(self, context, fields):
        """Return the `AttentionContext` that a call means."""
        if context is None:
            return AttentionContext(**fields)
        if isinstance(context, (list, tuple)):  # from a `.keras` file, it is a list
            return AttentionContext(*context)._replace(**fields)
        return AttentionContext(**{self.first_field: context}, **fields)

    def call(self, x, context=None, training=None, **fields):
        output, kept = self.forward(x, self.as_context(context, fields), training)
        return (output, kept) if isinstance(context, (list, tuple)) else output

    def compute_output_shape(self, x_shape, *args, **kwargs):
        return x_shape

    def compute_output_spec(self, x, context=None, training=None, **fields):
        output = keras.KerasTensor(x.shape, self.compute_dtype)
        if not isinstance(context, (list, tuple)):
            return output
        return output, self.kept_spec(x, self.as_context(context, fields))
