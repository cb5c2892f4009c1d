"""Heads on a text, `head(outputs, inputs)`: a backbone's outputs and inputs → a task's logits.

Shapes: B batch, S sequence, D hidden, M masked positions, V tokens.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_lm.layers.backend import Dropout, word_scores
from keras_lm.layers.basic import (
    Dense,
    LayerNormalization,
    float32_or_wider,
    get_activation,
    make_pooler,
    truncated_normal,
)
from keras_lm.utils.argument_types import Tensor


@keras.saving.register_keras_serializable("keras_lm")
class PooledClassifier(keras.layers.Layer):
    """Dropout and a linear layer on the pooled output: logits (B, classes) float32.

    If the backbone has no `pooled_output`, because its checkpoint has no weights for it, the head
    has a pooler of its own, of the same form.

    Args:
        num_classes: int.
        dropout: float. Fraction of the pooled output dropped in training.

    Source: BERT, https://arxiv.org/abs/1810.04805, section 4.1.
    """

    def __init__(self, num_classes: int, dropout: float = 0.1, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.dropout_rate = dropout

    def build(self, outputs_shape: Any, inputs_shape: Any = None) -> None:
        pooled_shape = outputs_shape.get("pooled_output")
        self.pooler = None
        if pooled_shape is None:
            batch, _, hidden_dim = outputs_shape["sequence_output"]
            pooled_shape = (batch, hidden_dim)
            self.pooler = make_pooler(hidden_dim, self.dtype_policy)
            self.pooler.build(pooled_shape)
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy)
        self.logits = Dense(
            self.num_classes,
            kernel_initializer=truncated_normal(),
            dtype=float32_or_wider(self.dtype_policy),
            name="logits",
        )
        self.logits.build(pooled_shape)

    def call(
        self, outputs: Any, inputs: dict[str, Tensor] | None = None, training: bool | None = None
    ) -> Tensor:
        if self.pooler is None:
            pooled = outputs["pooled_output"]
        else:
            pooled = self.pooler(outputs["sequence_output"][:, 0])
        return self.logits(self.dropout(pooled, training=training))

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "num_classes": self.num_classes,
            "dropout": self.dropout_rate,
        }


@keras.saving.register_keras_serializable("keras_lm")
class FirstTokenClassifier(PooledClassifier):
    """Dropout, dense, tanh, dropout and logits on `<s>`: fairseq's `RobertaClassificationHead`."""

    uses_pooler = False

    def build(self, outputs_shape: Any, inputs_shape: Any = None) -> None:
        super().build({"sequence_output": outputs_shape["sequence_output"]})

    def call(
        self, outputs: Any, inputs: dict[str, Tensor] | None = None, training: bool | None = None
    ) -> Tensor:
        first = self.dropout(outputs["sequence_output"][:, :1], training=training)
        return super().call({"sequence_output": first}, training=training)


@keras.saving.register_keras_serializable("keras_lm")
class MeanPooledClassifier(PooledClassifier):
    """`PooledClassifier` on the mean of a text's real tokens, or zeros if it has none."""

    def build(self, outputs_shape: Any, inputs_shape: Any = None) -> None:
        batch, _, hidden_dim = outputs_shape["sequence_output"]
        super().build({"pooled_output": (batch, hidden_dim)})

    def call(
        self, outputs: Any, inputs: dict[str, Tensor] | None = None, training: bool | None = None
    ) -> Tensor:
        x = outputs["sequence_output"]
        mask = (inputs or {}).get("padding_mask")
        mask = ops.ones_like(x[:, :, :1]) if mask is None else ops.expand_dims(mask, -1)
        mask = ops.cast(mask, x.dtype)  # (B, S, 1)
        mean = ops.sum(x * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1)
        return super().call({"pooled_output": mean}, training=training)


@keras.saving.register_keras_serializable("keras_lm")
class LastTokenClassifier(keras.layers.Layer):
    """Dropout and a linear layer on the last real token, the only one that attends to all others.

    Args:
        num_classes, use_bias: int and bool, of the linear layer.
        dropout: float. Fraction of the token's vector dropped in training.

    Call: `head(outputs, inputs)` → (B, classes) float32. Without `padding_mask` (B, S) in `inputs`,
    all tokens are real.

    Source: GPT, "Improving Language Understanding by Generative Pre-Training", section 3.2.
    """

    def __init__(
        self, num_classes: int, dropout: float = 0.1, use_bias: bool = True, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.dropout_rate = dropout
        self.use_bias = use_bias

    def build(self, outputs_shape: Any, inputs_shape: Any = None) -> None:
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy)
        self.logits = Dense(
            self.num_classes,
            use_bias=self.use_bias,
            kernel_initializer=truncated_normal(),
            dtype=float32_or_wider(self.dtype_policy),
            name="logits",
        )
        batch, _, hidden_dim = outputs_shape["sequence_output"]
        self.logits.build((batch, hidden_dim))

    def call(
        self, outputs: Any, inputs: dict[str, Tensor] | None = None, training: bool | None = None
    ) -> Tensor:
        x = outputs["sequence_output"]
        if inputs is None or "padding_mask" not in inputs:
            x = x[:, -1]
        else:
            last = last_real_token(inputs["padding_mask"])  # (B,)
            x = ops.take_along_axis(x, ops.reshape(last, (-1, 1, 1)), axis=1)[:, 0]
            # A text without tokens has padding alone, which depends on the rest of its batch.
            is_text = ops.max(inputs["padding_mask"], axis=1, keepdims=True)
            x = x * ops.cast(is_text, x.dtype)
        return self.logits(self.dropout(x, training=training))

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "num_classes": self.num_classes,
            "dropout": self.dropout_rate,
            "use_bias": self.use_bias,
        }


def last_real_token(padding_mask):
    """Return the column (B,) of the last real token in a mask (B, S); 0 if all is padding."""
    columns = ops.expand_dims(ops.arange(ops.shape(padding_mask)[1], dtype="int32"), 0)
    return ops.max(ops.cast(padding_mask, "int32") * columns, axis=1)


@keras.saving.register_keras_serializable("keras_lm")
class EachTokenClassifier(keras.layers.Layer):
    """Dropout and a linear layer on every token: logits (B, S, classes) float32.

    Args:
        num_classes: int.
        dropout: float. Fraction of the sequence output dropped in training.

    Source: BERT, https://arxiv.org/abs/1810.04805, section 5.3, and its figure 4 (d).
    """

    def __init__(self, num_classes: int, dropout: float = 0.1, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.dropout_rate = dropout

    def build(self, outputs_shape: Any, inputs_shape: Any = None) -> None:
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy)
        self.logits = Dense(
            self.num_classes,
            kernel_initializer=truncated_normal(),
            dtype=float32_or_wider(self.dtype_policy),
            name="logits",
        )
        self.logits.build(outputs_shape["sequence_output"])

    def call(
        self, outputs: Any, inputs: dict[str, Tensor] | None = None, training: bool | None = None
    ) -> Tensor:
        return self.logits(self.dropout(outputs["sequence_output"], training=training))

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "num_classes": self.num_classes,
            "dropout": self.dropout_rate,
        }


class SpanHead(keras.layers.Layer):
    """A linear layer on every token: `start_logits` and `end_logits`, (B, S) float32 each.

    Source: BERT, https://arxiv.org/abs/1810.04805, section 4.2; google-research/bert,
    `run_squad.py`, `create_model`.
    """

    uses_pooler = False

    def build(self, outputs_shape: Any, inputs_shape: Any = None) -> None:
        self.logits: Dense = Dense(
            2,
            kernel_initializer=truncated_normal(),
            dtype=float32_or_wider(self.dtype_policy),
            name="logits",
        )
        self.logits.build(outputs_shape["sequence_output"])

    def call(
        self,
        outputs: dict[str, Tensor],
        inputs: dict[str, Tensor] | None = None,
        training: bool | None = None,
    ) -> dict[str, Tensor]:
        logits = self.logits(outputs["sequence_output"])
        return {"start_logits": logits[:, :, 0], "end_logits": logits[:, :, 1]}


@keras.saving.register_keras_serializable("keras_lm")
class MaskedLMHead(keras.layers.Layer):
    """BERT's masked LM head: dense, activation, norm, then the tied token embedding and a bias.

    Args:
        token_embedding: the backbone's `ReversibleEmbedding`; its transpose is the output matrix.
        activation, layer_norm_epsilon: see `PostNormBlock`.

    Call: `head(outputs, inputs)` → (B, S, V) float32, or (B, M, V) if `inputs` has `mask_positions`
    (B, M).

    Source: https://arxiv.org/abs/1810.04805, section 3.1, task 1, and google-research/bert,
    `run_pretraining.py`, `get_masked_lm_output`.
    """

    # Of each text, those that are masked at the published rate; see `keras_lm.models.sizes`.
    share_of_tokens: float = 0.15

    def __init__(
        self,
        token_embedding: keras.Layer,
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        layer_norm_epsilon: float = 1e-12,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.token_embedding = token_embedding
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, outputs_shape: Any, inputs_shape: Any = None) -> None:
        embedding = self.token_embedding
        self.dense = Dense(
            embedding.output_dim,
            activation=get_activation(self.activation),
            kernel_initializer=truncated_normal(),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.dense.build(outputs_shape["sequence_output"])
        self.norm = LayerNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name="norm"
        )
        self.norm.build((*outputs_shape["sequence_output"][:-1], embedding.output_dim))
        self.bias: keras.Variable = self.add_weight(
            name="bias", shape=(embedding.input_dim,), initializer="zeros"
        )

    def call(
        self, outputs: Any, inputs: dict[str, Tensor] | None = None, training: bool | None = None
    ) -> Tensor:
        x = outputs["sequence_output"]
        if inputs is not None and "mask_positions" in inputs:
            x = ops.take_along_axis(x, inputs["mask_positions"][:, :, None], axis=1)  # (B, M, D)
        x = word_scores(self.transform(x), self.token_embedding.embeddings)
        return x + ops.cast(self.bias, "float32")

    def transform(self, x: Tensor) -> Tensor:
        """Return the vectors (…, D) that the embedding's are compared with."""
        return self.norm(self.dense(x))
