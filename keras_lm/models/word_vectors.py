"""Word vectors: one vector per word, whatever its context (word2vec, GloVe, fastText, model2vec).

Shapes: B batch, S words or tokens, V vocabulary, E width of a vector.
"""

import functools
from typing import Any, Self

import keras

from keras_lm.converters import static_vectors
from keras_lm.converters.converter import (
    ConfigTable,
    Converter,
    Derived,
    Fixed,
    NameTable,
    match_score,
)
from keras_lm.models.backbone import TOKENS
from keras_lm.models.word_backbone import WordBackbone
from keras_lm.tokenizers.words import WordTokenizer
from keras_lm.utils.argument_types import DType, Tensor


@keras.saving.register_keras_serializable("keras_lm")
class WordVectorBackbone(WordBackbone):
    """A table of word vectors: the baseline without context.

    `from_preset` reads a folder with one file of word2vec (text or binary), GloVe or fastText
    (`.vec`), gzipped or not. The tokenizer is then the file's word list; if that is lower-case, as
    that of `glove.6B`, load it with `Tokenizer.from_preset(folder, lowercase=True)`. To load part
    of a large file, read it with `keras_lm.converters.read_word_vectors` and pass the vectors to
    `from_vectors`. It also reads folders of sentence-transformers' `StaticEmbedding` and of
    model2vec, whose vectors are those of a tokenizer's pieces of words; these are read without
    special tokens around a text. The heads are a linear layer on the mean of a text's words, or on
    each word. `backbone.trainable = False` freezes the vectors.

    Args:
        vocabulary_size, embedding_dim: int. V and E.
        dropout: float. Fraction of a head's input dropped in training.
        dtype: a dtype policy or its name.

    Call: `backbone({"token_ids": …, "padding_mask": …})`, (B, S) int32 each; the mask is optional.
    Returns `sequence_output` (B, S, E).

    Example:

        words, vectors = keras_lm.converters.read_word_vectors("glove.6B.100d.txt", limit=50_000)
        backbone = keras_lm.models.WordVectorBackbone.from_vectors(vectors)
        tokenizer = keras_lm.tokenizers.WordTokenizer(
            words, unknown_token="<unk>", pad_token="<pad>", lowercase=True
        )
        task = keras_lm.tasks.TextClassifier(backbone, tokenizer=tokenizer, num_classes=2)

    Source: Mikolov et al. 2013, https://arxiv.org/abs/1310.4546; Pennington et al. 2014,
    https://aclanthology.org/D14-1162; Bojanowski et al. 2017, https://arxiv.org/abs/1607.04606.
    """

    tokenizer_class = WordTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        embedding_dim: int,
        dropout: float = 0.0,
        dtype: DType = None,
        name: str = "word_vector_backbone",
    ):
        super().__init__(TOKENS, dtype, name)
        self.word_embedding = keras.layers.Embedding(
            vocabulary_size, embedding_dim, dtype=dtype, name="word_embedding"
        )
        self.finish()

    def forward(
        self, token_ids: Tensor, padding_mask: Tensor, training: bool | None = None
    ) -> dict[str, Any]:
        x = self.word_embedding(token_ids)
        return {"sequence_output": x, "hidden_states": [x]}

    def template_for(self, tokenizer: Any) -> Any:
        return self.TEMPLATE  # a tokenizer may state that of another model

    @classmethod
    def from_vectors(cls, vectors: Tensor, **options: Any) -> Self:
        """Return a backbone with `vectors` (V, E), one row per word of the tokenizer.

        Raises:
            ValueError: if the array is not two-dimensional.
        """
        if vectors.ndim != 2:
            raise ValueError(
                f"vectors has the shape {vectors.shape}: pass two axes, a row for each word."
            )
        backbone = cls(*vectors.shape, **options)
        backbone.word_embedding.embeddings.assign(vectors)
        return backbone


# A file's word vectors, under the name that PyTorch's models give to such a table.
TABLE = "vectors"
NAMES = NameTable({"word_embedding": TABLE}, leaves={"embeddings": ".weight"})
STATIC_NAMES = NameTable({"word_embedding": static_vectors.TABLE}, leaves={"embeddings": ".weight"})


def _config(checkpoint):
    vocabulary_size, embedding_dim = checkpoint.tensors.shape(f"{TABLE}.weight")
    return {"vocabulary_size": vocabulary_size, "embedding_dim": embedding_dim}


def _axis(number):
    """Return the rule of an argument that is the length of one axis of the table."""
    return Derived(lambda config, tensors: tensors.shape(static_vectors.TENSOR)[number])


def _is_alone(checkpoint, score):
    return static_vectors.are_all(checkpoint.tensors) and score


WordVectorBackbone.CONVERTERS = {
    "word_vectors": Converter(lambda checkpoint: True, _config, NAMES),
    "huggingface": Converter(
        functools.partial(
            match_score, model_type=None, tensors=[static_vectors.TENSOR], refine=_is_alone
        ),
        ConfigTable(
            WordVectorBackbone,
            None,  # such folders need no config.json
            {"vocabulary_size": _axis(0), "embedding_dim": _axis(1), "dropout": Fixed(0.0)},
        ),
        STATIC_NAMES,
        architectures={"": "StaticEmbedding"},
    ),
}
