"""Word vectors: one vector a word, whatever stands around it (word2vec, GloVe, fastText).

Mikolov et al. 2013, https://arxiv.org/abs/1310.4546; Pennington et al. 2014,
https://aclanthology.org/D14-1162; Bojanowski et al. 2017, https://arxiv.org/abs/1607.04606.

Shapes: B batch, S words, V vocabulary, E width of a vector.
"""

import keras

from keras_lm.converters.names import NameTable
from keras_lm.layers import EachTokenClassifier, MeanPooledClassifier
from keras_lm.models.backbone import Backbone, Converter
from keras_lm.packers import Template
from keras_lm.tokenizers.words import WordTokenizer


@keras.saving.register_keras_serializable("keras_lm")
class WordVectorBackbone(Backbone):
    """A table of word vectors: the baseline that knows no context.

    `from_preset` reads a folder with one file of word2vec (text or binary), GloVe or fastText
    (`.vec`), gzipped or not. The tokenizer is then the file's word list; where that is of lower
    case, as that of `glove.6B`, load it with `Tokenizer.from_preset(folder, lowercase=True)`. For a
    part of a large file, read it with `keras_lm.converters.read_word_vectors` and pass the vectors
    to `from_vectors`.

    The heads are the usual baselines: a linear layer on the mean of the words for a text, and on
    each word for a tagger. `backbone.trainable = False` leaves the vectors as they were published.

    Args:
        vocabulary_size: int. V.
        embedding_dim: int. E.
        dropout: float. Share of a head's input dropped in training.
        dtype: a dtype policy or its name.
        name: str.

    Call: `backbone({"token_ids": …, "padding_mask": …})`, (B, S) int32 each; the mask may be left
    out. Returns `sequence_output` (B, S, E).

    Example:

        words, vectors = keras_lm.converters.read_word_vectors("glove.6B.100d.txt", limit=50_000)
        backbone = keras_lm.models.WordVectorBackbone.from_vectors(vectors)
        tokenizer = keras_lm.tokenizers.WordTokenizer(
            words, unknown_token="<unk>", pad_token="<pad>", lowercase=True
        )
        task = keras_lm.tasks.TextClassifier(backbone, tokenizer=tokenizer, num_classes=2)

    Source: the references above.
    """

    TEMPLATE = Template(single="$A:0", pair="$A:0 $B:0")
    LEARNING_RATE = 1e-3
    tokenizer_class = WordTokenizer

    def __init__(
        self, vocabulary_size, embedding_dim, dropout=0.0, dtype=None, name="word_vector_backbone"
    ):
        word_embedding = keras.layers.Embedding(
            vocabulary_size, embedding_dim, dtype=dtype, name="word_embedding"
        )
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name)
            for name in ("token_ids", "padding_mask")
        }
        x = word_embedding(inputs["token_ids"])
        super().__init__(inputs, {"sequence_output": x}, [x], [], [], dtype=dtype, name=name)
        self.word_embedding = word_embedding
        self.config = {
            "vocabulary_size": vocabulary_size,
            "embedding_dim": embedding_dim,
            "dropout": dropout,
        }

    @classmethod
    def from_vectors(cls, vectors, **options):
        """Return a backbone with the vectors of an array.

        Args:
            vectors: (V, E) float, row by row those of the tokenizer's words.
            **options: further arguments of the class.

        Raises:
            ValueError: if the array has another number of axes.
        """
        if vectors.ndim != 2:
            raise ValueError(
                f"vectors has the shape {vectors.shape}: pass one of two axes, a row for each word."
            )
        backbone = cls(*vectors.shape, **options)
        backbone.word_embedding.embeddings.assign(vectors)
        return backbone

    def attention_probabilities(self, inputs):
        """Raise ValueError: there is no attention."""
        raise ValueError(f"{type(self).__name__} has no attention to look at.")

    def make_head(self, kind, **options):
        options = {"dropout": self.config["dropout"], "dtype": self.dtype_policy} | options
        if kind == "classification":
            return MeanPooledClassifier(name="classifier", **options)
        if kind == "token_classification":
            return EachTokenClassifier(name="classifier", **options)
        return super().make_head(kind, **options)


# === Checkpoints ===

# What a file of word vectors holds, under the name that PyTorch's models give to such a table.
TABLE = "vectors"
NAMES = NameTable({"word_embedding": TABLE}, leaves={"embeddings": ".weight"})


def _config(checkpoint):
    vocabulary_size, embedding_dim = checkpoint.tensors.shape(f"{TABLE}.weight")
    return {"vocabulary_size": vocabulary_size, "embedding_dim": embedding_dim}


WordVectorBackbone.CONVERTERS = {
    "word_vectors": Converter(lambda checkpoint: True, _config, NAMES),
}
