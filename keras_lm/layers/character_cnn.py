"""Word vectors from the characters of each word.

Shapes: W words, C characters of a word, E width of a character, F filters, D width of a word.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_lm.layers.basic import Dense
from keras_lm.utils.argument_types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_lm")
class CharacterCNN(keras.layers.Layer):
    """Convolutions over a word's characters, max pooling, highway layers and a projection.

    Args:
        vocabulary_size, embedding_dim: int. The number of characters, and E.
        filters: list of `(width, number)`, not empty. A filter reads `width` neighbouring
            characters.
        num_highways: int. The number of layers `g · relu(A x) + (1 - g) · x`, `g = sigmoid(B x)`.
        hidden_dim: int. D, or None for no projection; D is then F.
        activation: str, `"relu"` or `"tanh"`, of the filters.

    Call: `cnn(character_ids)` with (…, C) int32 returns (…, D).

    Raises:
        ValueError: if `filters` is empty.

    Example:

        cnn = CharacterCNN(262, 16, [(1, 32), (2, 32), (3, 64)], hidden_dim=128)
        cnn(np.ones((2, 7, 50), "int32")).shape  # (2, 7, 128)

    Source: "Character-Aware Neural Language Models", https://arxiv.org/abs/1508.06615, section 2;
    ELMo, https://arxiv.org/abs/1802.05365, section 3.4.
    """

    def __init__(
        self,
        vocabulary_size: int,
        embedding_dim: int,
        filters: Sequence[Sequence[int]],
        num_highways: int = 2,
        hidden_dim: int | None = None,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if not filters:
            raise ValueError(f"filters={filters!r}: pass at least one (width, number).")
        self.vocabulary_size = vocabulary_size
        self.embedding_dim = embedding_dim
        self.filters: list[tuple[int, ...]] = [tuple(pair) for pair in filters]
        self.num_highways = num_highways
        self.hidden_dim = hidden_dim
        self.activation = activation

        dtype = self.dtype_policy
        self.embedding = keras.layers.Embedding(
            vocabulary_size, embedding_dim, dtype=dtype, name="embedding"
        )
        # The activation is monotonic, so it can come after the pooling, on fewer numbers.
        self.convolutions = [
            keras.layers.Conv1D(number, width, dtype=dtype, name=f"convolution_{i}")
            for i, (width, number) in enumerate(self.filters)
        ]
        self.activate = keras.activations.get(activation)
        num_filters = sum(number for _, number in self.filters)
        self.highways = [
            Highway(num_filters, dtype=dtype, name=f"highway_{i}") for i in range(num_highways)
        ]
        self.projection = None
        if hidden_dim is not None:
            self.projection = Dense(hidden_dim, dtype=dtype, name="projection")
        self.output_dim: int = num_filters if hidden_dim is None else hidden_dim
        self.cache = None

    def build(self, input_shape: Shape) -> None:
        num_filters = sum(number for _, number in self.filters)
        self.embedding.build((None, input_shape[-1]))
        for convolution in self.convolutions:
            convolution.build((None, None, self.embedding_dim))
        for layer in [*self.highways, *([self.projection] if self.projection else [])]:
            layer.build((None, num_filters))

    def call(self, character_ids: Tensor, training: bool | None = None) -> Tensor:
        shape = ops.shape(character_ids)
        words = ops.reshape(character_ids, (-1, shape[-1]))
        x = self._compute(words) if training or not self.cache else self.cache(words, self._compute)
        return ops.reshape(x, (*shape[:-1], self.output_dim))

    def _compute(self, words):
        x = self.embedding(words)  # (W, C, E)
        x = [self.activate(ops.max(layer(x), axis=1)) for layer in self.convolutions]
        x = ops.concatenate(x, axis=-1)  # (W, F)
        for highway in self.highways:
            x = highway(x)
        if self.projection is not None:
            x = self.projection(x)
        return x

    def cache_words(self, character_ids: Tensor) -> None:
        """Compute the vectors of words (V, C) now, so that calls look them up; None removes them.

        In training they are still computed. Call this again after the weights have changed. It
        works on TensorFlow only; the cache is part of an export, but not of a preset.
        """
        self.cache = None
        if character_ids is not None:
            from keras_lm.layers.tensorflow import WordCache

            ids = ops.convert_to_tensor(character_ids, "int32")
            parts = [self(ids[i : i + 1024]) for i in range(0, len(ids), 1024)]
            self.cache = WordCache(ids, ops.concatenate(parts))

    def compute_output_spec(self, character_ids: Tensor, training: bool | None = None) -> Any:
        shape = (*character_ids.shape[:-1], self.output_dim)
        return keras.KerasTensor(shape, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "vocabulary_size": self.vocabulary_size,
            "embedding_dim": self.embedding_dim,
            "filters": self.filters,
            "num_highways": self.num_highways,
            "hidden_dim": self.hidden_dim,
            "activation": self.activation,
        }


@keras.saving.register_keras_serializable("keras_lm")
class Highway(keras.layers.Layer):
    """`g · relu(A x) + (1 - g) · x`, where `g = sigmoid(B x)`: https://arxiv.org/abs/1505.00387."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.transform = Dense(units, activation="relu", dtype=self.dtype_policy, name="transform")
        # Initially the gate passes most of the input unchanged, as the paper advises.
        self.gate = Dense(
            units, bias_initializer=keras.initializers.Constant(-2.0), dtype=self.dtype_policy,
            name="gate",
        )  # fmt: skip

    def build(self, input_shape):
        self.transform.build(input_shape)
        self.gate.build(input_shape)

    def call(self, x):
        gate = ops.sigmoid(self.gate(x))
        return x + gate * (self.transform(x) - x)

    def get_config(self):
        return super().get_config() | {"units": self.units}
