"""The layers of ModernBERT.

Shapes: B batch, S sequence, T what is attended to, D hidden, N heads, H per head.
"""

import keras
from keras import ops

from keras_lm.layers import LayerNormalization, MaskedLMHead, PreNormBlock, get_activation
from keras_lm.layers.attention import Visible
from keras_lm.layers.backend import Dropout, takes_rules
from keras_lm.layers.basic import first_real_token, make_dense, make_logits, mean_of_real_tokens
from keras_lm.layers.gated import GatedBlock
from keras_lm.layers.rotary import RotarySelfAttention


class NearBias(keras.layers.Layer):
    """Turn a padding mask (B, S) into the additive bias of attention to near tokens.

    Args:
        window: int, 2 or more. A token attends to those at most half as far away, on either side.

    Call: `layer(padding_mask)` returns (B, 1, S, S) float32, or a `Visible` for long texts. A token
    that may attend to nothing, which is padding, attends uniformly to everything.

    Raises:
        ValueError: if `window` is less than 2.
    """

    def __init__(self, window, **kwargs):
        super().__init__(**kwargs)
        if type(window) is not int or window < 2:
            raise ValueError(
                f"attention_windows has {window!r}: pass whole numbers of 2 or more, half of which "
                "is on either side of a token, or None."
            )
        self.reach = window // 2

    def call(self, padding_mask):
        columns = ops.arange(ops.shape(padding_mask)[1], dtype="int32")
        columns = ops.expand_dims(columns, 0)
        queries = ops.expand_dims(columns, 2)  # (1, S, 1)
        visible = Visible(
            ops.expand_dims(padding_mask, 1),
            queries + self.reach,
            (ops.expand_dims(columns, 1), queries - self.reach - 1),
        )
        length = padding_mask.shape[1]
        return visible if takes_rules(length, length) else visible.bias()

    def compute_output_spec(self, padding_mask):
        batch, length = padding_mask.shape
        return keras.KerasTensor((batch, 1, length, length), dtype="float32")


class ModernBertAttention(RotarySelfAttention):
    """Self-attention with rotary positions and without biases."""

    has_biases = has_output_bias = False


class ModernBertBlock(GatedBlock, PreNormBlock):
    """A block of ModernBERT.

    Args:
        dropout: float. Fraction dropped inside the feed-forward network, and nowhere else.
        attention_dropout: float. The same for attention probabilities, and what attention adds.
        Other arguments: as `PreNormBlock`.
    """

    attention_class = ModernBertAttention

    def make_norm(self, name):
        return LayerNormalization(
            epsilon=self.layer_norm_epsilon, center=False, name=name, dtype=self.dtype_policy
        )

    def build(self, input_shape):
        super().build(input_shape)
        self.dropout = Dropout(self.attention_dropout, dtype=self.dtype_policy)

    def add_feedforward(self, x, training=None):
        return x + self.feedforward(self.read(x, self.feedforward_norm), training=training)


class FirstModernBertBlock(ModernBertBlock):
    """The first block, which has no norm before attention: the embedding has one."""

    def make_norm(self, name):
        if name == "attention_norm":
            return keras.layers.Identity(name=name, dtype=self.dtype_policy)
        return super().make_norm(name)


class Transformation(keras.layers.Layer):
    """What all heads begin with: dense, activation and norm.

    Args:
        activation, layer_norm_epsilon: see `ModernBertBackbone`.
    """

    def __init__(self, activation, layer_norm_epsilon, **kwargs):
        super().__init__(**kwargs)
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, input_shape):
        self.dense = make_dense(
            "dense",
            input_shape[-1],
            self.dtype_policy,
            use_bias=False,
            activation=get_activation(self.activation),
        )
        self.dense.build(input_shape)
        self.norm = LayerNormalization(
            epsilon=self.layer_norm_epsilon, center=False, dtype=self.dtype_policy, name="norm"
        )
        self.norm.build(input_shape)

    def call(self, x):
        return self.norm(self.dense(x))


class ModernBertHead(keras.layers.Layer):
    """A transformation, dropout and logits, float32; a subclass says of what, by `select`.

    Args:
        num_classes: int.
        dropout: float. Fraction dropped before the logits.
        activation, layer_norm_epsilon: see `ModernBertBackbone`.
    """

    uses_pooler = False

    def __init__(
        self, num_classes, dropout=0.0, activation="gelu", layer_norm_epsilon=1e-5, **kwargs
    ):
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.dropout_rate = dropout
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, outputs_shape, inputs_shape=None):
        shape = outputs_shape["sequence_output"]
        self.transformation = Transformation(
            self.activation,
            self.layer_norm_epsilon,
            dtype=self.dtype_policy,
            name="transformation",
        )
        self.transformation.build(shape)
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy)
        self.logits = make_logits(self.num_classes, self.dtype_policy)
        self.logits.build(shape)

    def select(self, x, mask):
        """Return what is transformed of `x` (B, S, D), given the padding mask (B, S) or None."""
        return x

    def call(self, outputs, inputs=None, training=None):
        x = self.select(outputs["sequence_output"], (inputs or {}).get("padding_mask"))
        return self.logits(self.dropout(self.transformation(x), training=training))


class ModernBertSpanHead(ModernBertHead):
    """A `ModernBertHead` on every token: `start_logits` and `end_logits`, (B, S) float32 each."""

    def __init__(self, num_classes=2, **kwargs):
        super().__init__(num_classes, **kwargs)

    def call(self, outputs, inputs=None, training=None):
        logits = super().call(outputs, inputs, training)
        return {"start_logits": logits[:, :, 0], "end_logits": logits[:, :, 1]}


class ModernBertClassifier(ModernBertHead):
    """A `ModernBertHead` on the first real token, or on the mean of a text's real tokens.

    With padding on the left, Hugging Face's classifier of texts reads the padding in the first
    column; that of choices finds the token, as this does.

    Args:
        pooling: str, `"first"` or `"mean"`.
        Other arguments: as `ModernBertHead`.
    """

    def __init__(self, num_classes, pooling="first", **kwargs):
        super().__init__(num_classes, **kwargs)
        self.pooling = pooling

    def select(self, x, mask):
        read = first_real_token if self.pooling == "first" else mean_of_real_tokens
        return read(x, mask)


class ModernBertTokenHead(MaskedLMHead):
    """`MaskedLMHead` with ModernBERT's transformation, and the share of tokens that it masked."""

    share_of_tokens = 0.3

    def build(self, outputs_shape, inputs_shape=None):
        self.transformation = Transformation(
            self.activation,
            self.layer_norm_epsilon,
            dtype=self.dtype_policy,
            name="transformation",
        )
        self.transformation.build(outputs_shape["sequence_output"])
        rows = self.token_embedding.input_dim
        self.bias = self.add_weight(name="bias", shape=(rows,), initializer="zeros")

    def transform(self, x):
        return self.transformation(x)
