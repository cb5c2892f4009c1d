"""GLUE's baselines: CBoW, and a BiLSTM with attention between the two texts of a pair.

What readers of pairs share is here, too: words, masks, an LSTM for each text, attention.

Shapes: B batch, S words of both texts, E width of a word, D both directions of a layer.
"""

from typing import Any

import keras
from keras import ops

from keras_lm.layers import LSTM, Dense, Frozen, PooledClassifier, ScalarMix
from keras_lm.layers.backend import Dropout, matmul_transposed, softmax
from keras_lm.layers.masks import MASKED
from keras_lm.models.backbone import TOKENS, Backbone, Head, Input, from_backbone
from keras_lm.packers import CharacterPacker, PackedInput, Packer, Template
from keras_lm.presets.argument_ranges import Axis
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.tokenizers.words import WordTokenizer
from keras_lm.utils.argument_types import DType, Tensor


class PairCharacterPacker(CharacterPacker):
    """A `CharacterPacker` that adds `segment_ids` (B, S): 0 in the first text, 1 in the second."""

    @property
    def inputs(self):
        return super().inputs | {"segment_ids": PackedInput()}


class PairBackbone(Backbone):
    """A reader of pairs: a subclass makes its layers, its `forward`, and calls `finish`.

    Words come from an embedding, or from a frozen language model: the learned mix of its hidden
    states if these are equally wide (ELMo), else all of them concatenated (word vectors and CoVe);
    of word vectors alone, these.

    Args:
        vocabulary_size: int. Words in the embedding; None with a language model.
        language_model: `Backbone` with a vector per word, or its configuration, or None.
        Other arguments: see the subclasses.

    Raises:
        ValueError: if not exactly one of `vocabulary_size` and `language_model` is given.
    """

    forward_flops = None
    HEADS = {
        "classification": Head(PooledClassifier, "classifier", dropout=from_backbone("dropout"))
    }

    def __init__(
        self, vocabulary_size: int, embedding_dim: int, language_model: Any, dtype: DType, name: str
    ):
        if (vocabulary_size is None) == (language_model is None):
            raise ValueError(
                f"vocabulary_size={vocabulary_size} and language_model={language_model!r}: pass "
                "one of them."
            )
        if isinstance(language_model, dict):
            language_model = keras.saving.deserialize_keras_object(language_model)

        words = TOKENS
        if language_model is not None:
            words = {name: language_model.input_fields[name] for name in language_model.input_names}
        segments = Input(default=0, like=next(iter(words)))
        super().__init__(words | {"segment_ids": segments}, dtype=dtype, name=name)
        self.language_model = language_model
        if language_model is None:
            self.embedding = keras.layers.Embedding(
                vocabulary_size, embedding_dim, dtype=dtype, name="pair_embedding"
            )
        else:
            states = language_model.hidden_states
            if len(states) == 1:
                states, join = states[0], keras.layers.Identity
            else:
                is_even = len({state.shape[-1] for state in states}) == 1
                join = ScalarMix if is_even else keras.layers.Concatenate
            self.frozen = Frozen(keras.Model(language_model.input, states), name="frozen")
            self.join = join(dtype=dtype, name="pair_words")
        self.masks = [TextMask(segment) for segment in (0, 1)]

    def read(
        self, segment_ids: Tensor, padding_mask: Tensor, **words: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the words of both texts (B, S, E), and the mask of each text (B, S)."""
        if self.language_model is None:
            x = self.embedding(words["token_ids"])
        else:
            x = self.join(self.frozen(words | {"padding_mask": padding_mask}))
        return x, *(mask(segment_ids, padding_mask) for mask in self.masks)

    def get_config(self) -> dict[str, Any]:
        model = self.language_model
        return super().get_config() | {
            "language_model": model and keras.saving.serialize_keras_object(model)
        }

    @property
    def vocabulary_size(self) -> int:
        return (self.language_model or super()).vocabulary_size

    @property
    def max_sequence_length(self) -> int | None:
        return self.language_model.max_sequence_length if self.language_model else None

    @property
    def TEMPLATE(self) -> Template:
        """The two texts, with the language model's separator between them."""
        between = ""
        if self.language_model is not None:
            pair = [text for text, _ in self.language_model.TEMPLATE.pieces("pair")]
            special = pair[pair.index("$A") + 1 : pair.index("$B")]
            between = "".join(f"{piece}:0 " for piece in special)
        return Template(single="$A:0", pair=f"$A:0 {between}$B:1")

    def template_for(self, tokenizer: Tokenizer | None) -> Template:
        return self.TEMPLATE  # which tells the texts apart by their segments

    @property
    def packer_class(self) -> type[Packer]:
        return PairCharacterPacker if "character_ids" in self.input_names else Packer

    @property
    def tokenizer_class(self) -> type[Tokenizer]:
        return self.language_model.tokenizer_class if self.language_model else WordTokenizer


@keras.saving.register_keras_serializable("keras_lm")
class TextMask(keras.layers.Layer):
    """Mask the words of one text: `layer(segment_ids, padding_mask)`, (B, S) int32 each."""

    def __init__(self, segment, **kwargs):
        super().__init__(**kwargs)
        self.segment = segment

    def call(self, segment_ids, padding_mask):
        return ops.cast(ops.equal(segment_ids, self.segment), "int32") * padding_mask

    def compute_output_spec(self, segment_ids, padding_mask):
        return keras.KerasTensor(padding_mask.shape, "int32")


@keras.saving.register_keras_serializable("keras_lm")
class TwoWayLSTM(keras.layers.Layer):
    """A bidirectional LSTM: `layer(x, padding_mask)` returns (B, S, D), zero in padding."""

    def __init__(self, hidden_dim, dropout=0.0, **kwargs):
        if hidden_dim % 2:
            raise ValueError(f"hidden_dim={hidden_dim} is odd: each direction has half of it.")
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        self.hidden_dim = hidden_dim
        self.dropout = Dropout(dropout, dtype=dtype)
        self.ahead = LSTM(hidden_dim // 2, dtype=dtype, name="forward")
        self.back = LSTM(hidden_dim // 2, reverse=True, dtype=dtype, name="backward")

    def build(self, x_shape, *_):
        self.ahead.build(x_shape)
        self.back.build(x_shape)

    def call(self, x, padding_mask, training=None):
        x = self.dropout(x, training=training)
        outputs = [lstm(x, padding_mask=padding_mask)[0] for lstm in (self.ahead, self.back)]
        return ops.concatenate(outputs, axis=-1)

    def compute_output_spec(self, x, padding_mask, training=None):
        return keras.KerasTensor((*x.shape[:-1], self.hidden_dim), self.compute_dtype)


@keras.saving.register_keras_serializable("keras_lm")
class AttendAcross(keras.layers.Layer):
    """Concatenate a text's words with what they attend to in the other text: (B, S, 2D)."""

    def call(self, own, other, mask):
        return ops.concatenate([own, self.attended(own, other, mask)], axis=-1)

    def attended(self, own, other, mask):
        """Return what each word attends to in the other text (B, S, D); `mask` is the other's."""
        scores = matmul_transposed(own, other)  # (B, S, S)
        bias = (1.0 - ops.cast(ops.expand_dims(mask, 1), "float32")) * MASKED
        weights = ops.cast(softmax(ops.cast(scores, "float32") + bias), own.dtype)
        return ops.matmul(weights, other)

    def compute_output_spec(self, own, other, mask):
        return keras.KerasTensor((*own.shape[:-1], 2 * own.shape[-1]), self.compute_dtype)


def largest(x, mask):
    """Return the largest (B, D) over the words of a text, zero if there are none."""
    mask = ops.expand_dims(mask, -1) > 0  # (B, S, 1)
    maxima = ops.max(ops.where(mask, x, MASKED), axis=1)
    return ops.where(ops.any(mask, axis=1), maxima, ops.zeros_like(maxima))


def mean(x, mask):
    """Return the mean (B, D) over the words of a text, zero if there are none."""
    mask = ops.expand_dims(ops.cast(mask, x.dtype), -1)  # (B, S, 1)
    return ops.sum(x * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1)


@keras.saving.register_keras_serializable("keras_lm")
class PairCBOWBackbone(PairBackbone):
    """The mean of the word vectors of each text, which a layer compares; word order is ignored.

    Words come from an embedding, which is trained, or from a frozen model, such as a
    `WordVectorBackbone` with GloVe's vectors. A single text is compared with zeros.

    Args:
        vocabulary_size: int. Words in the embedding; None with a language model.
        embedding_dim: int, E. Of the embedding.
        language_model: `Backbone` with a vector per word, or its configuration, or None.
        pooled_dim: int. Width of `pooled_output`.
        dropout: float. Fraction of what is compared, and of the head's input, that is dropped.
        dtype: a dtype policy or its name.

    Call: `backbone({"token_ids": …, "segment_ids": …, "padding_mask": …})`, (B, S) int32 each, with
    1 in `segment_ids` at the second text. Returns `sequence_output` (B, S, E), the words, zero in
    padding, and `pooled_output`.

    Example:

        backbone = PairCBOWBackbone(vocabulary_size=5000, embedding_dim=24, pooled_dim=16)
        outputs = backbone({"token_ids": [[4, 7, 5, 7]], "segment_ids": [[0, 0, 1, 1]]})
        outputs["pooled_output"].shape  # (1, 16)

    Source: Wang et al. 2018, https://arxiv.org/abs/1804.07461, section 5.
    """

    learning_rate = 1e-3
    RANGES = {"pooled_dim": Axis()}

    def __init__(
        self,
        vocabulary_size: int | None = None,
        embedding_dim: int = 300,
        language_model: Any = None,
        pooled_dim: int = 512,
        dropout: float = 0.2,
        dtype: DType = None,
        name: str = "pair_cbow_backbone",
    ):
        super().__init__(vocabulary_size, embedding_dim, language_model, dtype, name)
        self.dropout = Dropout(dropout, dtype=dtype)
        self.pooler = Dense(pooled_dim, activation="tanh", dtype=dtype, name="pooler")
        self.finish()

    def forward(
        self, segment_ids: Tensor, padding_mask: Tensor, training: bool | None = None, **words: Any
    ) -> dict[str, Any]:
        x, first, second = self.read(segment_ids, padding_mask, **words)
        u, v = mean(x, first), mean(x, second)  # (B, E)
        compared = ops.concatenate([u, v, ops.abs(u - v), u * v], axis=-1)
        return {
            "sequence_output": x * ops.expand_dims(ops.cast(padding_mask, x.dtype), -1),
            "pooled_output": self.pooler(self.dropout(compared, training=training)),
            "hidden_states": [x],
        }


@keras.saving.register_keras_serializable("keras_lm")
class PairLSTMBackbone(PairBackbone):
    """A BiLSTM over each text, attention between them, a second BiLSTM and max pooling.

    Words come from an embedding, or from a frozen language model: the learned mix of its hidden
    states if these are equally wide (ELMo), else all of them concatenated (word vectors and CoVe).
    A single text has nothing to attend to, and is compared with zeros.

    Args:
        vocabulary_size: int. Words in the embedding; None with a language model.
        num_layers: int. Layers of the first LSTM; the second, after the attention, has one.
        language_model: `Backbone` with a vector per word, or its configuration, or None.
        pooled_dim: int. Width of `pooled_output`.
        Other arguments: as `CoveBackbone`.

    Call: `backbone({"token_ids": …, "segment_ids": …, "padding_mask": …})`, (B, S) int32 each, with
    1 in `segment_ids` at the second text; over ELMo with `character_ids` in place of the first.
    Returns `sequence_output` (B, S, D), zero in padding, and `pooled_output`.

    Raises:
        ValueError: if `hidden_dim` is odd, or not exactly one of `vocabulary_size` and
            `language_model` is given.

    Example:

        elmo = keras_lm.models.ElmoBackbone.from_preset("elmo_small")
        tokenizer = keras_lm.tokenizers.Tokenizer.from_preset("elmo_small")
        task = keras_lm.tasks.TextClassifier(
            keras_lm.models.PairLSTMBackbone(language_model=elmo, hidden_dim=600),
            tokenizer=tokenizer,
            class_names=["entailment", "neutral", "contradiction"],
        )

    Source: Wang et al. 2018, https://arxiv.org/abs/1804.07461, section 5; the attention is that of
    Seo et al. 2016, https://arxiv.org/abs/1611.01603, without its trainable similarity.
    """

    learning_rate = 1e-3
    RANGES = {"pooled_dim": Axis()}

    def __init__(
        self,
        vocabulary_size: int | None = None,
        embedding_dim: int = 300,
        hidden_dim: int = 3000,
        num_layers: int = 2,
        language_model: Any = None,
        pooled_dim: int = 512,
        dropout: float = 0.2,
        dtype: DType = None,
        name: str = "pair_lstm_backbone",
    ):
        super().__init__(vocabulary_size, embedding_dim, language_model, dtype, name)
        self.lstms = [
            TwoWayLSTM(hidden_dim, dropout, dtype=dtype, name=f"pair_lstm_{i}")
            for i in range(num_layers + 1)
        ]
        self.attend = AttendAcross(dtype=dtype)
        self.compare = ComparePair(dtype=dtype)
        self.pooler = Dense(pooled_dim, activation="tanh", dtype=dtype, name="pooler")
        self.finish()

    def forward(
        self, segment_ids: Tensor, padding_mask: Tensor, training: bool | None = None, **words: Any
    ) -> dict[str, Any]:
        x, first, second = self.read(segment_ids, padding_mask, **words)
        u, v, hidden_states = x, x, [x]
        for lstm in self.lstms[:-1]:
            u, v = lstm(u, first, training=training), lstm(v, second, training=training)
            hidden_states.append(u + v)  # each is zero where the other is not
        u, v = self.attend(u, v, second), self.attend(v, u, first)
        last = self.lstms[-1]
        u, v = last(u, first, training=training), last(v, second, training=training)
        hidden_states.append(u + v)
        return {
            "sequence_output": hidden_states[-1],
            "pooled_output": self.pooler(self.compare(u, v, first, second)),
            "hidden_states": hidden_states,
        }


@keras.saving.register_keras_serializable("keras_lm")
class ComparePair(keras.layers.Layer):
    """Max-pool both texts to u and v, and combine them as [u; v; |u - v|; u · v], (B, 4D)."""

    def call(self, first, second, first_mask, second_mask):
        u, v = largest(first, first_mask), largest(second, second_mask)
        return ops.concatenate([u, v, ops.abs(u - v), u * v], axis=-1)

    def compute_output_spec(self, first, *_):
        return keras.KerasTensor((first.shape[0], 4 * first.shape[-1]), self.compute_dtype)
