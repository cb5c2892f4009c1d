"""Basic layers in the forms that TensorFlow runs fastest, and the heads that many models share.

A head is called as `head(outputs, inputs)`: a backbone's outputs and inputs → a task's logits.

Shapes: B batch, S sequence, D hidden, M masked positions, V tokens.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import keras
from keras import ops

from keras_lm.converters.checkpoint import are_replaced
from keras_lm.layers.backend import (
    Dropout,
    gelu,
    gelu_in_training,
    keeps_axes,
    layer_norm_in_training,
    matmul,
    products_for,
    sizes,
    word_scores,
)
from keras_lm.utils.argument_types import DType, Shape, Tensor
from keras_lm.utils.processes import zeros


def truncated_normal(stddev: float = 0.02) -> keras.initializers.Initializer:
    """Return a new initialiser, truncated to two `stddev` (google-research/bert, `modeling.py`).

    Args:
        stddev: float.
    """
    return TruncatedNormal(stddev=stddev)


class _UnlessReplaced:
    """Zeros for weights that a checkpoint replaces; see `replaced_weights`."""

    def __call__(self, shape: Shape, dtype: DType = None) -> Tensor:
        return zeros(shape, dtype) if are_replaced() else super().__call__(shape, dtype)


@keras.saving.register_keras_serializable("keras_lm")
class TruncatedNormal(_UnlessReplaced, keras.initializers.TruncatedNormal):
    """Keras's, but zeros for weights that a checkpoint replaces; see `replaced_weights`."""


@keras.saving.register_keras_serializable("keras_lm")
class RandomNormal(_UnlessReplaced, keras.initializers.RandomNormal):
    """Keras's, but zeros for weights that a checkpoint replaces; see `replaced_weights`."""


@keras.saving.register_keras_serializable("keras_lm")
def gelu_tanh(x: Tensor) -> Tensor:
    """GELU in the tanh approximation, as in google-research's BERT, ALBERT, XLNet and in GPT.

    Keras's own `"gelu"` is the exact (erf) form; the two differ by up to 5e-4.

    Args:
        x: tensor of floats.

    Source: https://arxiv.org/abs/1606.08415, section 2.
    """
    return gelu(x, approximate=True)


# An activation → the form of it whose gradient is faster.
_IN_TRAINING = {gelu: gelu_in_training, gelu_tanh: partial(gelu_in_training, approximate=True)}


def leading_shape(x: Tensor) -> tuple[Any, ...]:
    """Return the sizes of all axes but the last, for `ops.reshape`.

    A size that is unknown while a graph is traced is -1 if it is the only one: LiteRT runs reshapes
    to a constant shape in one piece with what is around them.

    Args:
        x: tensor.
    """
    known = tuple(x.shape[:-1])
    if known.count(None) == 1 and 0 not in known:
        return tuple(-1 if size is None else size for size in known)
    return sizes(x)[:-1]


def float32_or_wider(policy: keras.DTypePolicy) -> str:
    """Return the dtype of logits and statistics: float32, or that of a float64 policy.

    Args:
        policy: `keras.DTypePolicy` of a layer.
    """
    return keras.backend.result_type(policy.compute_dtype, "float32")


def get_activation(name: str) -> Callable[[Tensor], Tensor]:
    """Return an activation function by its name.

    Args:
        name: str, `"gelu_tanh"` or the name of one of Keras's activations.

    Raises:
        ValueError: if the name is unknown.
    """
    own = {"gelu": gelu, "gelu_tanh": gelu_tanh}
    return own.get(name) or keras.activations.get(name)


@keras.saving.register_keras_serializable("keras_lm")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` that multiplies [B·S, D] by [D, units] instead of contracting (B, S, D).

    For matrices, TensorFlow fuses product, bias and activation (ReLU and both forms of GELU) into
    one kernel; after the reshape of a contraction, it cannot. Arguments and results are the same.
    """

    adapter = None

    def add_adapter(self, adapter_dim: int) -> None:
        """Apply a new `Adapter` to the output of a built layer from now on."""
        self._tracker.unlock()
        self.adapter = Adapter(adapter_dim, name="adapter", dtype=self.dtype_policy)
        self._tracker.lock()
        with self._open_name_scope():
            self.adapter.build((None, self.units))

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        products = products_for(self)
        if products is None:
            return self._transform(x, training=training)
        return ops.cast(self._transform(products.narrowed(x), products), self.compute_dtype)

    def _transform(self, x, products=None, training=False):
        if len(x.shape) > 2 and (self.adapter is not None or not keeps_axes(x)):
            matrix = ops.reshape(x, (-1, x.shape[-1]))
            rows = self._transform(matrix, products, training)
            return ops.reshape(rows, (*leading_shape(x), self.units))
        x = self._affine(x) if products is None else products.affine(x, self)
        activation = self.activation
        if training:
            activation = _IN_TRAINING.get(activation, activation)
        x = x if activation is None else activation(x)
        return x if self.adapter is None else self.adapter(x)

    def columns(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Return some of the columns of a layer's output, without computing the others.

        Args:
            x: (…, D), of the layer's compute dtype.
            start, stop: int. From which of the units on, and before which.

        Returns a tensor (…, stop − start).
        """
        # Where the product is not that of the kernel alone, parts of it would save little.
        if products_for(self) or self.lora_enabled or self.adapter is not None:
            return self(x)[..., start:stop]
        width = x.shape[-1]
        # Keras casts weights within `__call__` alone, and JAX slices tensors alone.
        kernel = ops.convert_to_tensor(self.kernel)
        kernel = ops.slice(kernel, (0, start), (width, stop - start))
        kernel = ops.cast(kernel, self.compute_dtype)
        columns = ops.matmul(ops.reshape(x, (-1, width)), kernel)
        if self.bias is not None:
            columns = ops.add(columns, ops.cast(self.bias[start:stop], self.compute_dtype))
        columns = columns if self.activation is None else self.activation(columns)
        return ops.reshape(columns, (*leading_shape(x), stop - start))

    def _affine(self, x):
        product = self._product(x, self._kernel if self.lora_enabled else self.kernel)
        product = product if self.bias is None else ops.add(product, self.bias)
        if not self.lora_enabled:
            return product
        # Keras adds A · B to W first, and so computes a gradient for the whole kernel.
        low_rank = self.lora_alpha / self.lora_rank * self._product(x, self.lora_kernel_a)
        low_rank = self._product(low_rank, self.lora_kernel_b)
        return product + ops.cast(low_rank, self.compute_dtype)  # Keras keeps A and B in float32

    def _product(self, x, matrix):
        if len(x.shape) == 2:
            return ops.matmul(x, matrix)
        return matmul(x, ops.convert_to_tensor(matrix))  # Keras's own would be a contraction


@keras.saving.register_keras_serializable("keras_lm")
class ResidualDense(Dense):
    """A `Dense` that adds its input to its output, by a matrix if it is of another width.

    Arguments: see `Dense`.
    """

    residual = None

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        if input_shape[-1] != self.units:
            self.residual = Dense(
                self.units, use_bias=False, dtype=self.dtype_policy, name="residual"
            )
            self.residual.build(input_shape)

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        return super().call(x) + (x if self.residual is None else self.residual(x))


@keras.saving.register_keras_serializable("keras_lm")
class LayerNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` of the last axis, in fewer passes over (B, S, D).

    Keras's own broadcasts scale and offset to (B, S, D) before applying them. Arguments and results
    are the same; statistics are float32 under a mixed policy.

    Source: https://arxiv.org/abs/1607.06450, equation 4.
    """

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        x = ops.cast(x, float32_or_wider(self.dtype_policy))
        has_both = self.gamma is not None and self.beta is not None
        if training and has_both and layer_norm_in_training is not None:
            gamma, beta = (ops.cast(weight, x.dtype) for weight in (self.gamma, self.beta))
            x = layer_norm_in_training(x, gamma, beta, self.epsilon)
            return ops.cast(x, self.compute_dtype)
        x = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(x), axis=-1, keepdims=True)
        x = x * ops.rsqrt(variance + self.epsilon)
        # If the weights are bfloat16, so are scale and offset.
        x = x if self.gamma is None else x * ops.cast(self.gamma, x.dtype)
        x = x if self.beta is None else x + ops.cast(self.beta, x.dtype)
        return ops.cast(x, self.compute_dtype)


@keras.saving.register_keras_serializable("keras_lm")
class RMSNorm(keras.layers.Layer):
    """Division by the root of the mean square over the last axis, and a scale.

    Args:
        epsilon: float, added to the mean square.

    Source: Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467, equation 4.
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape: Shape) -> None:
        self.gamma: keras.Variable = self.add_weight(
            name="gamma", shape=input_shape[-1:], initializer="ones"
        )

    def call(self, x: Tensor) -> Tensor:
        x = ops.cast(x, float32_or_wider(self.dtype_policy))
        x = x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + self.epsilon)
        return ops.cast(x * ops.cast(self.gamma, x.dtype), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"epsilon": self.epsilon}


@keras.saving.register_keras_serializable("keras_lm")
class PositionEmbedding(keras.layers.Layer):
    """Learned absolute positions, counted from the first real token of each row.

    Without padding, or with padding on the right, the position is the column. With padding on the
    left, positions start after it, so the side of the padding makes no difference.

    Args:
        max_sequence_length, hidden_dim: int. The number of positions, and the width D of a vector.

    Call: `layer(padding_mask, start=None)` with (B, S) int32, 1 = real; returns (B, S, D). `start`
    (B,) int32 is the number of earlier tokens if a sequence continues; columns beyond the last
    position, which must be padding, then get the last position.

    Example:

        positions = PositionEmbedding(max_sequence_length=512, hidden_dim=64)
        positions(np.ones((2, 7), "int32")).shape  # (2, 7, 64)

    Source: BERT, https://arxiv.org/abs/1810.04805, section 3 ("Input/Output Representations").
    """

    def __init__(self, max_sequence_length: int, hidden_dim: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.max_sequence_length = max_sequence_length
        self.hidden_dim = hidden_dim

    def build(self, input_shape: Shape) -> None:
        self.embeddings: keras.Variable = self.add_weight(
            name="embeddings",
            shape=(self.max_sequence_length, self.hidden_dim),
            initializer=truncated_normal(),
        )

    def call(self, padding_mask: Tensor, start: Tensor | None = None) -> Tensor:
        left_padding = ops.argmax(padding_mask, axis=-1, keepdims=True)  # (B, 1)
        columns = ops.arange(ops.shape(padding_mask)[1], dtype="int32")  # (S,)
        positions = ops.maximum(columns - ops.cast(left_padding, "int32"), 0)  # (B, S)
        if start is not None:
            positions = positions + ops.expand_dims(start, 1)
            positions = ops.minimum(positions, self.max_sequence_length - 1)
        return ops.take(ops.cast(self.embeddings, self.compute_dtype), positions, axis=0)

    def compute_output_spec(self, padding_mask: Tensor, start: Tensor | None = None) -> Any:
        # Not compute_output_shape, because Keras 3.13 does not pass arguments named `…_mask` to it.
        return keras.KerasTensor((*padding_mask.shape, self.hidden_dim), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "max_sequence_length": self.max_sequence_length,
            "hidden_dim": self.hidden_dim,
        }


def make_dense(name: str, units: int, dtype: Any, **options: Any) -> Dense:
    """Return a dense layer whose kernel begins as BERT's do.

    Args:
        name, units, dtype, **options: arguments of `Dense`.
    """
    return Dense(units, kernel_initializer=truncated_normal(), dtype=dtype, name=name, **options)


def make_token_embedding(vocabulary_size: int, embedding_dim: int, dtype: DType) -> Any:
    """Return the layer of BERT's token embedding, whose table may be an output matrix, too."""
    return keras.layers.ReversibleEmbedding(
        vocabulary_size,
        embedding_dim,
        embeddings_initializer=truncated_normal(),
        dtype=dtype,
        name="token_embedding",
    )


def make_segment_embedding(num_segments: int, embedding_dim: int, dtype: DType) -> Any:
    """Return the layer of BERT's segment embedding, None if a model tells no segments apart."""
    if not num_segments:
        return None
    return keras.layers.Embedding(
        num_segments,
        embedding_dim,
        embeddings_initializer=truncated_normal(),
        dtype=dtype,
        name="segment_embedding",
    )


def make_norm(name: str, epsilon: float, dtype: DType) -> LayerNormalization:
    """Return a norm of a backbone."""
    return LayerNormalization(epsilon=epsilon, dtype=dtype, name=name)


def make_pooler(hidden_dim: int, dtype: DType) -> Any:
    """Return BERT's pooler, a dense layer for the state of the first token."""
    return make_dense("pooler", hidden_dim, dtype, activation="tanh")


def make_logits(num_classes: int, policy: keras.DTypePolicy, **options: Any) -> Dense:
    """Return a head's last layer, which computes in float32 or wider.

    Args:
        num_classes: int, the number of logits.
        policy: `keras.DTypePolicy` of the head.
        **options: other arguments of `Dense`.
    """
    return make_dense("logits", num_classes, float32_or_wider(policy), **options)


def as_tensor(value, dtype):
    """Return a caller's array or tensor as a tensor of a type; a symbolic one stays symbolic."""
    if isinstance(value, keras.KerasTensor):
        return value if value.dtype == dtype else ops.cast(value, dtype)
    return ops.convert_to_tensor(value, dtype)  # casts int64, and what Keras makes of a first batch


INITIAL_STDDEV = 1e-3  # of google-research/adapter-bert


@keras.saving.register_keras_serializable("keras_lm")
class Adapter(keras.layers.Layer):
    """Dense to a few units, GELU, Dense back, added to the input; initially nearly the identity.

    Args:
        adapter_dim: int. Units of the bottleneck.

    Call: `layer(x)` with (…, D) returns the same shape.

    Example:

        Adapter(adapter_dim=8)(np.ones((2, 64), "float32"))  # close to ones

    Source: Houlsby et al. 2019, https://arxiv.org/abs/1902.00751, section 2.1; activation and
    initial values: google-research/adapter-bert, `modeling.py`.
    """

    def __init__(self, adapter_dim: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.adapter_dim = adapter_dim

    def build(self, input_shape: Shape) -> None:
        self.down = self._dense(self.adapter_dim, "down", activation="gelu")
        self.down.build(input_shape)
        self.up = self._dense(input_shape[-1], "up")
        self.up.build((*input_shape[:-1], self.adapter_dim))

    def _dense(self, units, name, **options):
        initializer = keras.initializers.TruncatedNormal(stddev=INITIAL_STDDEV)
        return keras.layers.Dense(
            units, kernel_initializer=initializer, dtype=self.dtype_policy, name=name, **options
        )

    def call(self, x: Tensor) -> Tensor:
        return ops.add(x, self.up(self.down(x)))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"adapter_dim": self.adapter_dim}


@keras.saving.register_keras_serializable("keras_lm")
class Frozen(keras.layers.Layer):
    """Runs a model with frozen weights and without dropout, also in training.

    `model(inputs, training=False)` in a functional graph is not enough: Keras passes the `training`
    of the outer model down to every layer.

    Args:
        model: `keras.Model`.
    """

    def __init__(self, model: keras.Model, **kwargs: Any):
        super().__init__(**kwargs)
        self.model = model
        self.trainable = False

    def call(self, inputs: Any) -> Any:
        return self.model(inputs, training=False)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"model": keras.saving.serialize_keras_object(self.model)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config | {"model": keras.saving.deserialize_keras_object(config["model"])})


# === Heads ===


def at_masks(outputs, inputs):
    """Return the vectors of tokens (B, S, D), or (B, M, D) if inputs hold `mask_positions`."""
    x = outputs["sequence_output"]
    if inputs is None or "mask_positions" not in inputs:
        return x
    # (A new axis by a slice of two others is not in LiteRT.)
    return ops.take_along_axis(x, ops.expand_dims(inputs["mask_positions"], -1), axis=1)


def first_real_token(x, padding_mask=None):
    """Return the vector (B, D) of the first real token in `x` (B, S, D), given a mask or None."""
    mask = ops.ones_like(x[:, :, 0]) if padding_mask is None else padding_mask
    column = ops.cast(ops.argmax(mask, axis=1), "int32")
    column = ops.expand_dims(ops.expand_dims(column, 1), 2)  # (B, 1, 1)
    return ops.squeeze(ops.take_along_axis(x, column, axis=1), 1)


def mean_of_real_tokens(x, padding_mask=None):
    """Return the mean (B, D) of the real tokens in `x` (B, S, D), zeros for a text without any."""
    mask = ops.ones_like(x[:, :, 0]) if padding_mask is None else padding_mask
    mask = ops.cast(ops.expand_dims(mask, -1), x.dtype)  # (B, S, 1)
    return ops.sum(x * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1)


def reads_first_only(head: Any) -> bool:
    """Return whether a head reads no more of a text than the vector of its first token.

    The class that defines its `call` says so by an attribute of this name; without one, it is read
    as a head that needs all tokens.
    """
    for cls in type(head).__mro__:
        if "reads_first_only" in vars(cls):
            return cls.reads_first_only
        if "call" in vars(cls):
            return False
    return False


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

    reads_first_only: bool = True  # as `reads_first_only` says

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
        self.logits = make_logits(self.num_classes, self.dtype_policy)
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

    uses_pooler, reads_first_only = False, True

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
        mask = (inputs or {}).get("padding_mask")
        mean = mean_of_real_tokens(outputs["sequence_output"], mask)
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
        self.logits = make_logits(self.num_classes, self.dtype_policy, use_bias=self.use_bias)
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
        self.logits = make_logits(self.num_classes, self.dtype_policy)
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
        self.logits: Dense = make_logits(2, self.dtype_policy)
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
        self.dense = make_dense(
            "dense",
            embedding.output_dim,
            self.dtype_policy,
            activation=get_activation(self.activation),
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
        x = at_masks(outputs, inputs)
        x = word_scores(self.transform(x), self.token_embedding.embeddings)
        return x + ops.cast(self.bias, "float32")

    def transform(self, x: Tensor) -> Tensor:
        """Return the vectors (…, D) that the embedding's are compared with."""
        return self.norm(self.dense(x))
