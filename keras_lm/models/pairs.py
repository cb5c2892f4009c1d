"""What readers of pairs share: their words, each text's mask and LSTM, attention between the texts.

Shapes: B batch, S words of both texts, E width of a word, D both directions of a layer.
"""

from typing import Any

import keras
from keras import ops

from keras_lm.layers import LSTM, Frozen, PooledClassifier, ScalarMix
from keras_lm.layers.backend import Dropout, matmul_transposed, softmax
from keras_lm.layers.masks import MASKED
from keras_lm.models.backbone import Backbone, Head, Input, from_backbone
from keras_lm.packers import CharacterPacker, PackedInput, Packer, Template
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
            if len(states) == 1:
                states, join = states[0], keras.layers.Identity
            else:
                is_even = len({state.shape[-1] for state in states}) == 1
                join = ScalarMix if is_even else keras.layers.Concatenate
            self.frozen = Frozen(keras.Model(language_model.input, states), name="frozen")
            self.join = join(dtype=dtype, name="pair_words")
        self.masks = [TextMask(segment) for segment in (0, 1)]

    def read(self, segment_ids: Tensor, padding_mask: Tensor, **words: Any) -> Any:
        """Return the words of both texts (B, S, E), and the mask of each text (B, S)."""
        if self.language_model is None:
            x = self.embedding(words["token_ids"])
        else:
            x = self.join(self.frozen(words | {"padding_mask": padding_mask}))
        return x, *(mask(segment_ids, padding_mask) for mask in self.masks)

    def get_config(self):
        model = self.language_model
        return super().get_config() | {
            "language_model": model and keras.saving.serialize_keras_object(model)
        }

    @property
    def vocabulary_size(self):
        return (self.language_model or super()).vocabulary_size

    @property
    def max_sequence_length(self):
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

    def template_for(self, tokenizer):
        return self.TEMPLATE  # which tells the texts apart by their segments

    @property
    def packer_class(self):
        return PairCharacterPacker if "character_ids" in self.input_names else Packer

    @property
    def tokenizer_class(self):
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
    found = ops.max(ops.where(mask, x, MASKED), axis=1)
    return ops.where(ops.any(mask, axis=1), found, ops.zeros_like(found))


def mean(x, mask):
    """Return the mean (B, D) over the words of a text, zero if there are none."""
    mask = ops.expand_dims(ops.cast(mask, x.dtype), -1)  # (B, S, 1)
    return ops.sum(x * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1)
