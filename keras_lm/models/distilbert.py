"""DistilBERT: half of BERT's blocks, distilled from the whole model.

Differs from BERT: no segments and no pooler, so a classifier has its own dense layer with ReLU on
the first token; positions may be sines, which are not trained.

Shapes: B batch, S sequence, D hidden.
"""

from collections.abc import Callable, Sequence
from typing import Self

import keras
import numpy as np

from keras_lm.layers import (
    AttentionContext,
    EachTokenClassifier,
    MaskedLMHead,
    PaddingBias,
    PooledClassifier,
    PositionEmbedding,
    PostNormBlock,
    SpanHead,
)
from keras_lm.layers.attention import block_options, through_blocks
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import make_norm, make_token_embedding
from keras_lm.models.backbone import TOKENS, Backbone, Head, from_backbone
from keras_lm.models.bert import BertBackbone
from keras_lm.models.sizes import transformer_size
from keras_lm.models.students import chosen_layers, copy_layers
from keras_lm.packers import Template
from keras_lm.tokenizers.wordpiece import WordPieceTokenizer
from keras_lm.utils.argument_types import DType, Tensor

# Arguments that a BERT has besides.
_ONLY_BERTS = ("num_segments", "layer_norm_epsilon", "use_pooler")


@keras.saving.register_keras_serializable("keras_lm")
class SinusoidalPositionEmbedding(PositionEmbedding):
    """Alternating sines and cosines, not trained: https://arxiv.org/abs/1706.03762, section 3.5."""

    def build(self, input_shape):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.max_sequence_length, self.hidden_dim),
            initializer=_sinusoids,
            trainable=False,
        )


def _sinusoids(shape, dtype=None):
    positions, columns = np.arange(shape[0])[:, None], np.arange(shape[1])
    angles = positions / 10000 ** (columns // 2 * 2 / shape[1])
    table = np.where(columns % 2 == 0, np.sin(angles), np.cos(angles))
    return keras.ops.convert_to_tensor(table, dtype)


@keras.saving.register_keras_serializable("keras_lm")
class ReluPooledClassifier(PooledClassifier):
    """Dense, ReLU, dropout and logits: Hugging Face's `DistilBertForSequenceClassification`."""

    def build(self, outputs_shape, inputs_shape=None):
        super().build(outputs_shape)
        self.pooler.activation = keras.activations.relu


@keras.saving.register_keras_serializable("keras_lm")
class DistilBertBackbone(Backbone):
    """The encoder of DistilBERT.

    Args:
        classifier_dropout: float, or None for `dropout`. Fraction dropped of a text classifier's
            input; the published sizes have 0.2.
        sinusoidal: bool. Whether positions are sines, which are not trained.
        Other arguments: as `BertBackbone`.

    Call: `backbone({"token_ids": …, "padding_mask": …})`, each (B, S) int32; the second is
    optional. Returns `sequence_output` (B, S, D).

    Example:

        backbone = keras_lm.models.DistilBertBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        backbone({"token_ids": [[2, 7, 3]]})["sequence_output"].shape  # (1, 3, 16)

    Source: Sanh et al. 2019, https://arxiv.org/abs/1910.01108, section 3.
    """

    TEMPLATE = Template(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0")
    LAYER_NORM_EPSILON = 1e-12
    HEADS = {
        "classification": Head(
            ReluPooledClassifier,
            "classifier",
            dropout=from_backbone("classifier_dropout", "dropout"),
        ),
        "multiple_choice": Head(
            ReluPooledClassifier,
            "classifier",
            num_classes=1,
            dropout=from_backbone("classifier_dropout", "dropout"),
        ),
        "token_classification": Head(
            EachTokenClassifier, "classifier", dropout=from_backbone("dropout")
        ),
        "question_answering": Head(SpanHead, "span_head"),
        "token": Head(
            MaskedLMHead,
            "token_head",
            token_embedding=from_backbone("token_embedding"),
            activation=from_backbone("activation"),
            layer_norm_epsilon=LAYER_NORM_EPSILON,
        ),
    }
    PRETRAINING_HEADS = {"token_logits": "token"}
    tokenizer_class = WordPieceTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        dropout: float = 0.1,
        attention_dropout: float | None = None,
        classifier_dropout: float | None = None,
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        max_sequence_length: int = 512,
        sinusoidal: bool = False,
        dtype: DType = None,
        name: str = "distil_bert_backbone",
    ):
        super().__init__(TOKENS, dtype, name)
        self.token_embedding = make_token_embedding(vocabulary_size, hidden_dim, dtype)
        positions = SinusoidalPositionEmbedding if sinusoidal else PositionEmbedding
        self.position_embedding = positions(
            max_sequence_length, hidden_dim, dtype=dtype, name="position_embedding"
        )
        self.embedding_norm = make_norm("embedding_norm", self.LAYER_NORM_EPSILON, dtype)
        self.embedding_dropout = Dropout(dropout, dtype=dtype)
        self.attention_bias = PaddingBias()
        epsilon = {"layer_norm_epsilon": self.LAYER_NORM_EPSILON}
        options = block_options(self.config | epsilon, dtype)
        self.blocks = [PostNormBlock(**options, name=f"block_{i}") for i in range(num_layers)]
        self.finish()

    def forward(self, token_ids, padding_mask, training=None, first_only=False):
        x = self.token_embedding(token_ids) + self.position_embedding(padding_mask)
        embedded = self.embedding_norm(x)
        x = self.embedding_dropout(embedded, training=training)  # (B, S, D)
        context = AttentionContext(bias=self.attention_bias(padding_mask))
        states = through_blocks(self.blocks, x, context, training, first_only)
        return self.outputs_of([embedded, *states], [context] * len(states))

    @classmethod
    def from_teacher(cls, teacher: BertBackbone, layers: Sequence[int] | None = None) -> Self:
        """Return a student for distillation, which starts from some layers of a BERT.

        The teacher's embedding of segment 0 becomes part of the positions, so that with all its
        layers the student would compute for single texts what the teacher does. DistilRoBERTa is a
        RoBERTa with fewer layers: of another model take `teacher.with_layers(layers)`.

        Args:
            teacher: `BertBackbone`.
            layers: as in `Backbone.with_layers`; by default half of them.

        Raises:
            ValueError: if the teacher is another model, has another `layer_norm_epsilon`, or
                `layers` are not there.

        Example:

            student = keras_lm.models.DistilBertBackbone.from_teacher(teacher)

        Source: https://arxiv.org/abs/1910.01108, section 3.
        """
        name = type(teacher).__name__
        if name != "BertBackbone":
            raise ValueError(
                f"teacher is a {name}, and a DistilBERT starts from a BertBackbone: make a student "
                "of the same kind, teacher.with_layers(…)."
            )
        config = teacher.config
        if config["layer_norm_epsilon"] != cls.LAYER_NORM_EPSILON:
            raise ValueError(
                f"teacher has layer_norm_epsilon={config['layer_norm_epsilon']}, and a DistilBERT "
                f"{cls.LAYER_NORM_EPSILON}: make a student of the same kind, "
                "teacher.with_layers(…)."
            )
        if layers is None:
            layers = max(config["num_layers"] // 2, 1)
        layers = chosen_layers(teacher, layers)
        shared = {key: value for key, value in config.items() if key not in _ONLY_BERTS}
        student = cls(**shared | {"num_layers": len(layers)}, dtype=teacher.dtype_policy)
        copy_layers(teacher, student, layers)
        student.position_embedding.embeddings.assign_add(
            keras.ops.cast(teacher.segment_embedding.embeddings[:1], "float32")
        )
        return student


DistilBertBackbone.SIZES = {
    "distil_bert_base_en_uncased": transformer_size(30522, 6, 768, classifier_dropout=0.2),
    "distil_bert_base_en": transformer_size(28996, 6, 768, classifier_dropout=0.2),
    "distil_bert_base_multi": transformer_size(119547, 6, 768, classifier_dropout=0.2),
}
DistilBertBackbone.PUBLISHED = {
    "distil_bert_base_en_uncased": "hf://distilbert/distilbert-base-uncased",
    "distil_bert_base_en": "hf://distilbert/distilbert-base-cased",
    "distil_bert_base_multi": "hf://distilbert/distilbert-base-multilingual-cased",
}
