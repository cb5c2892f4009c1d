"""TagLM: a recurrent tagger that also reads what a language model says of each word.

Peters et al. 2017, "Semi-supervised sequence tagging with bidirectional language models",
https://arxiv.org/abs/1705.00108.

Shapes: B batch, S words, C characters of a word, E width of a word, D both directions of a layer.
"""

import keras

from keras_lm.layers import (
    LSTM,
    CharacterCNN,
    EachTokenClassifier,
    Frozen,
    MeanPooledClassifier,
)
from keras_lm.models.backbone import Backbone


@keras.saving.register_keras_serializable("keras_lm")
class TagLMBackbone(Backbone):
    """Two bidirectional LSTMs; the second reads the first beside the language model's vectors.

    The language model stays as it is: it is frozen, and runs without dropout. It decides what the
    tagger is fed. With one that reads characters (ELMo's), words are made by a network over their
    characters; with one that reads word ids, by a table, which `with_word_vectors` fills. The paper
    has both at once, and recurrent units of another kind (GRU); the chain over labels is
    `TokenClassifier(…, crf=True)`.

    Args:
        language_model: `keras_lm.models.Backbone` with a vector for each word, such as
            `ElmoBackbone`; or its configuration.
        embedding_dim: int. E.
        hidden_dim: int. D, of each layer; each direction has half of it.
        num_layers: int. Layers; the language model's vectors join behind the first.
        filters: list of `(width, number)`, of the network over characters.
        dropout: float. Share of the layers' inputs, and of a head's, dropped in training.
        dtype: a dtype policy or its name.
        name: str.

    Call: `backbone(inputs)` with the inputs of the language model. Returns `sequence_output`
    (B, S, D), zero in padding. `hidden_states` are the words (B, S, E) and each layer.

    Raises:
        ValueError: if `hidden_dim` is odd, or `num_layers` is less than 2.

    Example:

        elmo = keras_lm.models.ElmoBackbone.from_preset("elmo_small")
        backbone = keras_lm.models.TagLMBackbone(elmo)
        task = keras_lm.tasks.TokenClassifier(
            backbone,
            tokenizer=keras_lm.tokenizers.Tokenizer.from_preset("elmo_small"),
            class_names=["O", "B-PER", "I-PER"],
            crf="bio",
        )

    Source: sections 2.1 to 2.3 of the paper.
    """

    LEARNING_RATE = 1e-3
    # What rows look like, is the language model's business.
    TEMPLATE = property(lambda self: self.language_model.TEMPLATE)
    DEFAULTS = property(lambda self: self.language_model.DEFAULTS)
    packer_class = property(lambda self: self.language_model.packer_class)
    tokenizer_class = property(lambda self: self.language_model.tokenizer_class)

    def __init__(
        self,
        language_model,
        embedding_dim=100,
        hidden_dim=400,
        num_layers=2,
        filters=((1, 16), (2, 16), (3, 32), (4, 32)),
        dropout=0.25,
        dtype=None,
        name="taglm_backbone",
    ):
        if hidden_dim % 2:
            raise ValueError(f"hidden_dim={hidden_dim} is odd: each direction has half of it.")
        if num_layers < 2:
            raise ValueError(
                f"num_layers={num_layers}: the language model joins behind the first, so pass 2 or "
                "more."
            )
        if isinstance(language_model, dict):
            language_model = keras.saving.deserialize_keras_object(language_model)

        # === Layers ===
        vocabulary_size = language_model.config["vocabulary_size"]
        reads_characters = "character_ids" in language_model.input_names
        if reads_characters:
            embed_words = CharacterCNN(
                vocabulary_size,
                embedding_dim=16,
                filters=filters,
                num_highways=1,
                hidden_dim=embedding_dim,
                dtype=dtype,
                name="tagger_characters",
            )
        else:
            embed_words = keras.layers.Embedding(
                vocabulary_size, embedding_dim, dtype=dtype, name="tagger_embedding"
            )
        ahead, back = (
            [
                LSTM(hidden_dim // 2, reverse=reverse, dtype=dtype, name=f"tagger_{direction}_{i}")
                for i in range(num_layers)
            ]
            for direction, reverse in (("forward", False), ("backward", True))
        )

        # === Functional model ===
        inputs = {
            tensor.name: keras.Input(tensor.shape[1:], dtype=tensor.dtype, name=tensor.name)
            for tensor in language_model.inputs
        }
        mask = inputs["padding_mask"]
        read = Frozen(language_model, name="frozen")(inputs)["sequence_output"]
        x = embed_words(inputs["character_ids" if reads_characters else "token_ids"])
        hidden_states = [x]
        for i in range(num_layers):
            x = keras.layers.Dropout(dropout, dtype=dtype, name=f"tagger_dropout_{i}")(x)
            x, reverse = ahead[i](x, padding_mask=mask)[0], back[i](x, padding_mask=mask)[0]
            x = keras.layers.Concatenate(dtype=dtype, name=f"tagger_layer_{i}")([x, reverse])
            hidden_states.append(x)  # (B, S, D)
            if i == 0:
                join = keras.layers.Concatenate(dtype=dtype, name="tagger_join")
                x = join([x, read])
        super().__init__(
            inputs, {"sequence_output": x}, hidden_states, [], [], dtype=dtype, name=name
        )

        # === Config ===
        self.language_model = language_model
        self.embed_words = embed_words
        self.config = {
            "language_model": keras.saving.serialize_keras_object(language_model),
            "embedding_dim": embedding_dim,
            "hidden_dim": hidden_dim,
            "num_layers": num_layers,
            "filters": [list(pair) for pair in filters],
            "dropout": dropout,
            "vocabulary_size": vocabulary_size,  # no argument, but what a task asks for
        }

    @property
    def max_sequence_length(self):
        """The language model's."""
        return self.language_model.max_sequence_length

    def get_config(self):
        return {k: v for k, v in super().get_config().items() if k != "vocabulary_size"}

    def with_word_vectors(self, word_vectors):
        """Start the table of words from published vectors; they go on learning.

        Args:
            word_vectors: `keras_lm.models.WordVectorBackbone` of the same vocabulary and width.

        Returns:
            The backbone itself.

        Raises:
            ValueError: if words are made of their characters, or the table has another shape.
        """
        own = getattr(self.embed_words, "embeddings", None)
        table = word_vectors.word_embedding.embeddings
        if own is None or own.shape != table.shape:
            raise ValueError(
                f"word_vectors have the shape {tuple(table.shape)}, but the tagger's table "
                + (f"{tuple(own.shape)}." if own is not None else "is one of characters.")
                + " Pass those of the language model's vocabulary, embedding_dim wide."
            )
        own.assign(table)
        return self

    def attention_probabilities(self, inputs):
        """Raise ValueError: the model has no attention."""
        raise ValueError(f"{type(self).__name__} has no attention to look at.")

    def make_head(self, kind, **options):
        options = {"dropout": self.config["dropout"], "dtype": self.dtype_policy} | options
        if kind == "classification":
            return MeanPooledClassifier(name="classifier", **options)
        if kind == "token_classification":
            return EachTokenClassifier(name="classifier", **options)
        return super().make_head(kind, **options)
