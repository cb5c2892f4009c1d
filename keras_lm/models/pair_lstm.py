"""The baseline of GLUE: a bidirectional LSTM with attention between the two texts of a pair.

Shapes: B batch, S words of both texts, E width of a word, D both directions of a layer.
"""

import keras
from keras import ops

from keras_lm.layers import LSTM, Dense, Frozen, PooledClassifier, ScalarMix
from keras_lm.layers.backend import softmax
from keras_lm.layers.masks import MASKED
from keras_lm.models.backbone import Backbone, Input
from keras_lm.packers import CharacterPacker, PackedInput, Packer, Template
from keras_lm.tokenizers.words import WordTokenizer


class PairCharacterPacker(CharacterPacker):
    """A `CharacterPacker` that adds `segment_ids` (B, S): 0 in the first text, 1 in the second."""

    @property
    def inputs(self):
        return super().inputs | {"segment_ids": PackedInput()}


@keras.saving.register_keras_serializable("keras_lm")
class PairLSTMBackbone(Backbone):
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

    def __init__(
        self,
        vocabulary_size=None,
        embedding_dim=300,
        hidden_dim=3000,
        num_layers=2,
        language_model=None,
        pooled_dim=512,
        dropout=0.2,
        dtype=None,
        name="pair_lstm_backbone",
    ):
        if hidden_dim % 2:
            raise ValueError(f"hidden_dim={hidden_dim} is odd: each direction has half of it.")
        if (vocabulary_size is None) == (language_model is None):
            raise ValueError(
                f"vocabulary_size={vocabulary_size} and language_model={language_model!r}: pass "
                "one of them."
            )
        if isinstance(language_model, dict):
            language_model = keras.saving.deserialize_keras_object(language_model)

        words = {"token_ids": Input(), "padding_mask": Input(default=1, like="token_ids")}
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
            self.frozen = Frozen(keras.Model(language_model.input, states), name="frozen")
            is_even = len({state.shape[-1] for state in states}) == 1
            join = ScalarMix if is_even else keras.layers.Concatenate
            self.join = join(dtype=dtype, name="pair_words")
        self.masks = [TextMask(segment) for segment in (0, 1)]
        self.lstms = [
            TwoWayLSTM(hidden_dim, dropout, dtype=dtype, name=f"pair_lstm_{i}")
            for i in range(num_layers + 1)
        ]
        self.attend = AttendAcross(dtype=dtype)
        self.compare = ComparePair(dtype=dtype)
        self.pooler = Dense(pooled_dim, activation="tanh", dtype=dtype, name="pooler")
        serialized = language_model and keras.saving.serialize_keras_object(language_model)
        self.arguments = {
            "vocabulary_size": vocabulary_size,
            "embedding_dim": embedding_dim,
            "hidden_dim": hidden_dim,
            "num_layers": num_layers,
            "language_model": serialized,
            "pooled_dim": pooled_dim,
            "dropout": dropout,
        }
        if language_model is not None:  # what a task asks for
            vocabulary_size = language_model.config["vocabulary_size"]
        self.finish(self.arguments | {"vocabulary_size": vocabulary_size})

    def forward(self, segment_ids, padding_mask, training=None, **words):
        if self.language_model is None:
            x = self.embedding(words["token_ids"])  # (B, S, E)
        else:
            x = self.join(self.frozen(words | {"padding_mask": padding_mask}))
        first, second = (mask(segment_ids, padding_mask) for mask in self.masks)
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

    @property
    def max_sequence_length(self):
        return self.language_model.max_sequence_length if self.language_model else None

    @property
    def TEMPLATE(self):
        """The two texts, with the language model's separator between them."""
        between = ""
        if self.language_model is not None:
            pair = [text for text, _ in self.language_model.TEMPLATE.pieces("pair")]
            special = pair[pair.index("$A") + 1 : pair.index("$B")]
            between = "".join(f"{piece}:0 " for piece in special)
        return Template(single="$A:0", pair=f"$A:0 {between}$B:1")

    @property
    def packer_class(self):
        return PairCharacterPacker if "character_ids" in self.input_names else Packer

    @property
    def tokenizer_class(self):
        return self.language_model.tokenizer_class if self.language_model else WordTokenizer

    def get_config(self):
        return super().get_config() | self.arguments

    def make_head(self, kind, **options):
        options = {"dropout": self.config["dropout"], "dtype": self.dtype_policy} | options
        if kind == "classification":
            return PooledClassifier(name="classifier", **options)
        return super().make_head(kind, **options)


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
        super().__init__(**kwargs)
        dtype = self.dtype_policy
        self.hidden_dim = hidden_dim
        self.dropout = keras.layers.Dropout(dropout, dtype=dtype)
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
        scores = ops.matmul(own, ops.transpose(other, (0, 2, 1)))  # (B, S, S)
        bias = (1.0 - ops.cast(ops.expand_dims(mask, 1), "float32")) * MASKED
        weights = ops.cast(softmax(ops.cast(scores, "float32") + bias), own.dtype)
        return ops.concatenate([own, ops.matmul(weights, other)], axis=-1)

    def compute_output_spec(self, own, other, mask):
        return keras.KerasTensor((*own.shape[:-1], 2 * own.shape[-1]), self.compute_dtype)


@keras.saving.register_keras_serializable("keras_lm")
class ComparePair(keras.layers.Layer):
    """Max-pool both texts to u and v, and combine them as [u; v; |u - v|; u · v], (B, 4D)."""

    def call(self, first, second, first_mask, second_mask):
        u, v = self._largest(first, first_mask), self._largest(second, second_mask)
        return ops.concatenate([u, v, ops.abs(u - v), u * v], axis=-1)

    def _largest(self, x, mask):
        mask = ops.expand_dims(mask, -1) > 0  # (B, S, 1)
        largest = ops.max(ops.where(mask, x, MASKED), axis=1)
        return ops.where(ops.any(mask, axis=1), largest, ops.zeros_like(largest))

    def compute_output_spec(self, first, *_):
        return keras.KerasTensor((first.shape[0], 4 * first.shape[-1]), self.compute_dtype)
