"""CoVe: the encoder of a translation model, which gives words vectors in context.

Shapes: B batch, S words, V vocabulary, E width of a word vector, D both directions of a layer.
"""

import re
from typing import Self

import keras
from keras import ops

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.converter import (
    Converter,
    NameTable,
    join_torch_lstm,
    torch_lstm,
    transpose_torch_lstm,
)
from keras_lm.layers import LSTM
from keras_lm.layers.backend import Dropout
from keras_lm.models.backbone import Input
from keras_lm.models.rnn_encoder_decoder import RNNEncoderDecoderBackbone
from keras_lm.models.word_backbone import WordBackbone
from keras_lm.models.word_vectors import TABLE, WordVectorBackbone
from keras_lm.tokenizers.words import WordTokenizer
from keras_lm.utils.argument_types import DType


@keras.saving.register_keras_serializable("keras_lm")
class CoveBackbone(WordBackbone):
    """The two-layer bidirectional LSTM of CoVe, over word vectors.

    Its checkpoint holds no word vectors; it was trained on GloVe's (`glove.840B.300d`), with words
    split by Moses. Without a table (`vocabulary_size=0`) the model takes `word_vectors`. With a
    table it takes `token_ids`, so that a task over it takes strings: `from_preset` makes this form
    if a file of word vectors lies beside the checkpoint, and `with_word_vectors` otherwise. The
    paper's features, the word vector concatenated with the top layer, are those of
    `FeatureExtractor` with `layers="concat_embedding_last"`.

    Args:
        num_layers, embedding_dim: int. The number of layers, and E.
        hidden_dim: int. D, an even number: each direction has half of it.
        vocabulary_size: int. V, or 0 for a model that takes word vectors.
        dropout: float. Fraction of the layers' inputs, and of a head's, dropped in training.
        dtype: a dtype policy or its name.

    Call: `backbone({"word_vectors": …, "padding_mask": …})`, (B, S, E) float and (B, S) int32; or
    with `token_ids` (B, S) int32 in place of the first. The mask is optional. Returns
    `sequence_output` (B, S, D), the top layer, zero in padding. `hidden_states` are the word
    vectors and each layer.

    Raises:
        ValueError: if `hidden_dim` is odd.

    Example:

        vectors = keras_lm.models.WordVectorBackbone.from_preset("glove")
        tokenizer = keras_lm.tokenizers.Tokenizer.from_preset("glove")
        cove = keras_lm.models.CoveBackbone.from_preset("cove").with_word_vectors(vectors)
        task = keras_lm.tasks.FeatureExtractor(
            cove, layers="concat_embedding_last", tokenizer=tokenizer
        )
        task.export("exported")  # strings in, features out

    Source: McCann et al. 2017, https://arxiv.org/abs/1708.00107, sections 3 and 4; salesforce/cove.
    """

    tokenizer_class = WordTokenizer

    def __init__(
        self,
        num_layers: int = 2,
        embedding_dim: int = 300,
        hidden_dim: int = 600,
        vocabulary_size: int = 0,
        dropout: float = 0.0,
        dtype: DType = None,
        name: str = "cove_backbone",
    ):
        if hidden_dim % 2:
            raise ValueError(f"hidden_dim={hidden_dim} is odd: each direction has half of it.")

        words = {"word_vectors": Input((None, embedding_dim), dtype="float32")}
        if vocabulary_size:
            words = {"token_ids": Input()}
        mask = {"padding_mask": Input(default=1, like=next(iter(words)))}
        super().__init__(words | mask, dtype=dtype, name=name)
        self.word_embedding = None
        if vocabulary_size:
            self.word_embedding = keras.layers.Embedding(
                vocabulary_size, embedding_dim, dtype=dtype, name="word_embedding"
            )
        self.dropout = Dropout(dropout, dtype=dtype)
        self.forwards, self.backwards = (
            [
                LSTM(hidden_dim // 2, reverse=reverse, dtype=dtype, name=f"{direction}_{i}")
                for i in range(num_layers)
            ]
            for direction, reverse in (("forward", False), ("backward", True))
        )
        self.finish()

    def forward(self, padding_mask, token_ids=None, word_vectors=None, training=None):
        x = word_vectors if self.word_embedding is None else self.word_embedding(token_ids)
        hidden_states = [x]
        for ahead, back in zip(self.forwards, self.backwards, strict=True):
            x = self.dropout(x, training=training)
            both = [lstm(x, padding_mask=padding_mask)[0] for lstm in (ahead, back)]
            x = ops.concatenate(both, axis=-1)  # (B, S, D)
            hidden_states.append(x)
        return {"sequence_output": x, "hidden_states": hidden_states}

    @classmethod
    def from_translator(cls, translator: RNNEncoderDecoderBackbone) -> Self:
        """Return the encoder of a translation model, with its word vectors: how CoVe was made.

        The paper's translator is `RNNEncoderDecoderBackbone(…, num_layers=2, hidden_dim=600,
        embedding_dim=300, attention="general", input_feeding=True)`, which read GloVe's vectors by
        `with_word_vectors`, trained as a `Seq2SeqLM`; `docs/recurrent.md` shows it.

        Args:
            translator: `keras_lm.models.RNNEncoderDecoderBackbone`, of LSTMs that read both ways.

        Raises:
            ValueError: if its encoder is another network.

        Source: McCann et al. 2017, https://arxiv.org/abs/1708.00107, section 3.
        """
        config = translator.config
        if not (config.get("cell") == "lstm" and config["bidirectional"]):
            raise ValueError(
                f"translator is {translator.name!r}, but CoVe's encoder is an "
                "RNNEncoderDecoderBackbone's with cell='lstm' and bidirectional=True."
            )
        cove = cls(
            num_layers=config["num_layers"],
            embedding_dim=translator.token_embedding.output_dim,
            hidden_dim=config["hidden_dim"],
            vocabulary_size=config["vocabulary_size"],
        )
        cove.word_embedding.set_weights(translator.token_embedding.get_weights())
        for i, layer in enumerate(translator.encoder_layers):
            for own, other in zip(
                (cove.forwards[i], cove.backwards[i]), layer.directions, strict=True
            ):
                own.set_weights(other.get_weights())
        return cove

    def with_word_vectors(self, word_vectors: WordVectorBackbone) -> Self:
        """Return a copy that takes `token_ids`, with the table of a `WordVectorBackbone`.

        Raises:
            ValueError: if the vectors have another width.
        """
        width, table_width = self.config["embedding_dim"], word_vectors.config["embedding_dim"]
        if table_width != width:
            raise ValueError(
                f"word_vectors are {table_width} wide, but the model reads embedding_dim={width}: "
                "pass those that it was trained with."
            )
        table = word_vectors.word_embedding.embeddings
        copy = self.from_config(self.get_config() | {"vocabulary_size": table.shape[0]})
        own = {variable.path: variable for variable in self.weights}
        for variable in copy.weights:
            is_table = variable.path.startswith("word_embedding/")
            variable.assign(table if is_table else own[variable.path])
        return copy


NAMES = NameTable(
    {
        "word_embedding/embeddings": f"{TABLE}.weight",
        **torch_lstm("forward_{i}", "", "l{i}"),
        **torch_lstm("backward_{i}", "", "l{i}_reverse"),
    },
    leaves={},
    layout=transpose_torch_lstm,
    join=join_torch_lstm,
    prefix=r"rnn\.",  # of a whole MTLSTM
)


def _config(checkpoint):
    shapes = {name: checkpoint.tensors.shape(name) for name in checkpoint.tensors}
    names = NAMES.resolve(shapes)
    layers = [name for name in names if re.fullmatch(r"weight_ih_l\d+", name)]
    if any(f"{name}_reverse" not in names for name in layers):
        raise CheckpointError(
            f"{checkpoint.source} holds an LSTM of one direction, but CoVe's has two: load it as "
            "another model."
        )
    embedding_dim = shapes[names["weight_ih_l0"]][1]
    table = shapes.get(f"{TABLE}.weight", (0, embedding_dim))
    if table[1] != embedding_dim:
        raise CheckpointError(
            f"{checkpoint.source}: the word vectors are {table[1]} wide, but the model reads "
            f"{embedding_dim}: put those beside it that it was trained with."
        )
    return {
        "num_layers": len(layers),
        "embedding_dim": embedding_dim,
        "hidden_dim": 2 * shapes[names["weight_hh_l0"]][1],
        "vocabulary_size": table[0],
    }


CoveBackbone.CONVERTERS = {"cove": Converter(lambda checkpoint: True, _config, NAMES)}
