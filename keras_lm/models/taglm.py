"""TagLM: a recurrent tagger that also reads a language model's vector of each word.

Shapes: B batch, S words, V words of a list, E width of a word, D both directions of a layer.
"""

from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_lm.layers import LSTM, CharacterCNN, Frozen
from keras_lm.layers.backend import Dropout
from keras_lm.layers.tensorflow import is_for_lite
from keras_lm.models.backbone import Input
from keras_lm.models.elmo_layers import Filters
from keras_lm.models.word_backbone import WordBackbone
from keras_lm.models.word_vectors import WordVectorBackbone
from keras_lm.packers import CharacterPacker, PackedInput, Packer
from keras_lm.tokenizers.words import WordTokenizer
from keras_lm.utils.argument_types import DType

UNKNOWN = "<unk>"  # as in word vectors


class SpelledWordPacker(CharacterPacker):
    """A `CharacterPacker` that adds `token_ids` (B, S): ids in `words`, which a subclass sets."""

    words = (UNKNOWN,)
    lowercase = False

    @property
    def inputs(self):
        return super().inputs | {"token_ids": PackedInput()}

    def read_vocabulary(self, tokenizer):
        super().read_vocabulary(tokenizer)
        self._numbers = WordTokenizer(self.words, UNKNOWN, lowercase=self.lowercase)
        self.lookups = (self._numbers,)

    def pack(self, **texts):
        packed = super().pack(**texts)
        characters = packed["character_ids"]
        if is_for_lite():  # which has no strings to look up
            ids = self._numbers.find_lite(self.tokenizer.letters(characters))
        else:
            ids = self._numbers.tokenize_words(self.tokenizer.words(characters))
        return packed | {"token_ids": ids}


@keras.saving.register_keras_serializable("keras_lm")
class TagLMBackbone(WordBackbone):
    """Two bidirectional LSTMs; the second also reads the language model's vectors.

    The language model is frozen, runs without dropout and determines the inputs. Over one that
    reads characters (ELMo's), words are embedded by a character convolution, and with `words` also
    by a table, as in the paper; over one that reads word ids, by a table alone. `with_word_vectors`
    fills the table, which stays trainable. The CRF over labels is `TokenClassifier(…, crf=True)`.
    The paper's layers are LSTMs or GRUs, depending on the task; these are LSTMs.

    Args:
        language_model: `Backbone` with a vector per word, such as ELMo's, or its configuration.
        words: list of V str, including `<unk>`, for the table beside the characters; None for
            characters alone, or for a language model with its own list of words.
        lowercase: bool. Look words up in lower case, as for `glove.6B`; characters keep their case.
            In a `.tflite`, ASCII's letters alone are lower-cased.
        embedding_dim: int. E, of the characters' word embedding, and of the table.
        num_layers: int, 2 or more. The language model's vectors join the first layer's output.
        filters: list of `(width, number)`, of the character convolution.
        Other arguments: as `CoveBackbone`.

    Call: `backbone(inputs)` with the inputs of the language model, and with `words` `token_ids`
    (B, S) int32 beside its `character_ids`. Returns `sequence_output` (B, S, D), zero in padding.
    `hidden_states` are the words, E wide (2E with characters and a table), and each layer.

    Raises:
        ValueError: if `hidden_dim` is odd, `num_layers` is less than 2, `words` lacks `<unk>`, or
            the language model has its own list of words.

    Example:

        elmo = keras_lm.models.ElmoBackbone.from_preset("elmo_small")
        words, vectors = keras_lm.converters.read_word_vectors("glove.6B.100d.txt", limit=50_000)
        backbone = keras_lm.models.TagLMBackbone(elmo, words, lowercase=True, embedding_dim=100)
        backbone.with_word_vectors(keras_lm.models.WordVectorBackbone.from_vectors(vectors))
        task = keras_lm.tasks.TokenClassifier(
            backbone,
            tokenizer=keras_lm.tokenizers.Tokenizer.from_preset("elmo_small"),
            class_names=["O", "B-PER", "I-PER"],
            crf="bio",
        )

    Source: Peters et al. 2017, https://arxiv.org/abs/1705.00108, sections 2.1 to 2.3.
    """

    RANGES = {"filters": Filters()}
    # The language model decides the format of its inputs.
    TEMPLATE = property(lambda self: self.language_model.TEMPLATE)
    tokenizer_class = property(lambda self: self.language_model.tokenizer_class)

    def __init__(
        self,
        language_model: Any,
        words: Sequence[str] | None = None,
        lowercase: bool = False,
        embedding_dim: int = 100,
        hidden_dim: int = 400,
        num_layers: int = 2,
        filters: Sequence[Sequence[int]] = ((1, 16), (2, 16), (3, 32), (4, 32)),
        dropout: float = 0.25,
        dtype: DType = None,
        name: str = "taglm_backbone",
    ):
        if hidden_dim % 2:
            raise ValueError(f"hidden_dim={hidden_dim} is odd: each direction has half of it.")
        if num_layers < 2:
            raise ValueError(
                f"num_layers={num_layers}: the language model joins after the first, so pass 2 or "
                "more."
            )
        if isinstance(language_model, dict):
            language_model = keras.saving.deserialize_keras_object(language_model)

        vocabulary_size = language_model.vocabulary_size
        reads_characters = "character_ids" in language_model.input_names
        _check_words(words, reads_characters)
        inputs = {name: language_model.input_fields[name] for name in language_model.input_names}
        super().__init__(
            inputs | ({} if words is None else {"token_ids": Input()}), dtype=dtype, name=name
        )
        self.language_model = language_model
        self.frozen = Frozen(language_model, name="frozen")
        self.embed_words, self.embed_characters = None, None
        if reads_characters:
            self.embed_characters = CharacterCNN(
                vocabulary_size,
                embedding_dim=16,
                filters=filters,
                num_highways=1,
                hidden_dim=embedding_dim,
                dtype=dtype,
                name="tagger_characters",
            )
        if words is not None or not reads_characters:
            self.embed_words = keras.layers.Embedding(
                vocabulary_size if words is None else len(words),
                embedding_dim,
                dtype=dtype,
                name="tagger_embedding",
            )
        self.dropout = Dropout(dropout, dtype=dtype)
        self.forwards, self.backwards = (
            [
                LSTM(hidden_dim // 2, reverse=reverse, dtype=dtype, name=f"tagger_{direction}_{i}")
                for i in range(num_layers)
            ]
            for direction, reverse in (("forward", False), ("backward", True))
        )
        self.finish()

    def forward(self, training: bool | None = None, **inputs: Any) -> dict[str, Any]:
        mask = inputs["padding_mask"]
        read = {name: inputs[name] for name in self.language_model.input_names}
        read = self.frozen(read)["sequence_output"]
        parts = []
        if self.embed_characters is not None:
            parts.append(self.embed_characters(inputs["character_ids"], training=training))
        if self.embed_words is not None:
            parts.append(self.embed_words(inputs["token_ids"]))
        x = ops.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]  # (B, S, E or 2E)
        hidden_states = [x]
        for i, (ahead, back) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            x = self.dropout(x, training=training)
            both = [lstm(x, padding_mask=mask)[0] for lstm in (ahead, back)]
            x = ops.concatenate(both, axis=-1)  # (B, S, D)
            hidden_states.append(x)
            if i == 0:
                x = ops.concatenate([x, read], axis=-1)
        return {"sequence_output": x, "hidden_states": hidden_states}

    def get_config(self) -> dict[str, Any]:
        language_model = keras.saving.serialize_keras_object(self.language_model)
        return super().get_config() | {"language_model": language_model}

    @property
    def vocabulary_size(self) -> int:
        return self.language_model.vocabulary_size

    @property
    def max_sequence_length(self) -> int | None:
        return self.language_model.max_sequence_length

    @property
    def packer_class(self) -> type[Packer]:
        if self.config["words"] is None:
            return self.language_model.packer_class
        attributes = {name: self.config[name] for name in ("words", "lowercase")}
        return type("TagLMPacker", (SpelledWordPacker,), attributes)

    def with_word_vectors(self, word_vectors: WordVectorBackbone) -> Self:
        """Fill the table from a `WordVectorBackbone` of its words; return the backbone itself.

        Raises:
            ValueError: if there is no table, or it has another shape.
        """
        own = self.embed_words and self.embed_words.embeddings
        table = word_vectors.word_embedding.embeddings
        if own is None or own.shape != table.shape:
            raise ValueError(
                f"word_vectors have the shape {tuple(table.shape)}, but the tagger has "
                + ("none: pass words." if own is None else f"{tuple(own.shape)}.")
                + " Pass those of its vocabulary, embedding_dim wide."
            )
        own.assign(table)
        return self


def _check_words(words, reads_characters):
    if words is None:
        return
    if not reads_characters:
        raise ValueError(
            f"words has {len(words)} entries, but the language model reads words from its own "
            "list, which the tagger uses, too: pass None."
        )
    if UNKNOWN not in words:
        raise ValueError(f"words lacks {UNKNOWN!r}, the entry for all words that are not in it.")
