"""BERT: a bidirectional Transformer encoder over token, position and segment embeddings.

Shapes: B batch, S sequence, D hidden, V vocabulary.
"""

import functools
from collections.abc import Callable

import keras

from keras_lm.converters.bert_family import (
    ENCODER_RULES,
    GOOGLE_PROGRAMS,
    GOOGLE_RULES,
    HUGGINGFACE_ENCODER,
    PARTS,
    WITHOUT_POOLER,
    google_names,
)
from keras_lm.converters.converter import (
    ConfigTable,
    Converter,
    Derived,
    architectures,
    has_pooler,
    match_score,
)
from keras_lm.converters.entries import Entries
from keras_lm.converters.huggingface_entries import CLASSIFIER_RATE, PLAIN_ENCODER
from keras_lm.converters.keras_tables import (
    KERAS_HUB_LEAVES,
    join_heads,
    keras_hub_table,
    split_heads,
)
from keras_lm.converters.names import (
    GOOGLE_LEAVES,
    PYTORCH_LEAVES,
    NameTable,
    counts,
    transpose_kernels,
    transpose_logits,
)
from keras_lm.converters.published_labels import Labels, google_labels, huggingface_labels
from keras_lm.layers import (
    AttentionContext,
    EachTokenClassifier,
    MaskedLMHead,
    PaddingBias,
    PooledClassifier,
    PostNormBlock,
    SpanHead,
    embedding_layers,
)
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import make_pooler
from keras_lm.layers.transformer import block_options
from keras_lm.models.backbone import Backbone, Head, Input, from_backbone
from keras_lm.models.sizes import transformer_size
from keras_lm.packers import Template
from keras_lm.tokenizers.wordpiece import WordPieceTokenizer
from keras_lm.utils.argument_types import DType, Tensor


@keras.saving.register_keras_serializable("keras_lm")
class BertBackbone(Backbone):
    """The encoder of BERT.

    Args:
        vocabulary_size, num_layers, hidden_dim: int. V, the number of blocks, and D.
        num_heads: int. Attention heads per block; must divide `hidden_dim`.
        intermediate_dim: int. Width inside a block's feed-forward network.
        dropout: float. Fraction dropped in training of the embeddings and of what each part of a
            block adds.
        attention_dropout: float, or None for `dropout`. The same for attention probabilities.
        activation: str. `"gelu"` (erf) or `"gelu_tanh"` (google-research's own code), or another
            activation of Keras.
        max_sequence_length, num_segments: int. Positions and segments that have an embedding.
        layer_norm_epsilon: float.
        use_pooler: bool. False for a checkpoint that has no weights for `pooled_output`.
        dtype: a dtype policy or its name, such as `"mixed_bfloat16"`.

    Call: `backbone({"token_ids": …, "segment_ids": …, "padding_mask": …})`, each (B, S) int32; the
    last two are optional. Returns `sequence_output` (B, S, D) and, with a pooler, `pooled_output`
    (B, D): dense and tanh on the first token.

    Raises:
        ValueError: if `num_heads` does not divide `hidden_dim`.

    Example:

        backbone = keras_lm.models.BertBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        backbone({"token_ids": [[2, 7, 3]]})["pooled_output"].shape  # (1, 16)

    Source: Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3.
    """

    TEMPLATE = Template(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
    HEADS = {
        "classification": Head(PooledClassifier, "classifier", dropout=from_backbone("dropout")),
        "multiple_choice": Head(
            PooledClassifier, "classifier", num_classes=1, dropout=from_backbone("dropout")
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
            layer_norm_epsilon=from_backbone("layer_norm_epsilon"),
        ),
        # 0 = the second text follows the first, 1 = it does not
        "next_sentence": Head(PooledClassifier, "next_sentence_head", num_classes=2, dropout=0.0),
    }
    PRETRAINING_HEADS = {"token_logits": "token", "next_sentence_logits": "next_sentence"}
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
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        max_sequence_length: int = 512,
        num_segments: int = 2,
        layer_norm_epsilon: float = 1e-12,
        use_pooler: bool = True,
        dtype: DType = None,
        name: str = "bert_backbone",
    ):
        super().__init__(
            inputs={
                "token_ids": Input(),
                "segment_ids": Input(default=0, like="token_ids"),
                "padding_mask": Input(default=1, like="token_ids"),
            },
            dtype=dtype,
            name=name,
        )
        (
            self.token_embedding,
            self.position_embedding,
            self.segment_embedding,
            self.embedding_norm,
        ) = embedding_layers(
            vocabulary_size,
            hidden_dim,
            max_sequence_length,
            num_segments,
            layer_norm_epsilon,
            dtype,
        )
        self.embedding_dropout = Dropout(dropout, dtype=dtype)
        self.attention_bias = PaddingBias()
        self.blocks = [
            PostNormBlock(**block_options(self.config, dtype), name=f"block_{i}")
            for i in range(num_layers)
        ]
        self.pooler = make_pooler(hidden_dim, dtype) if use_pooler else None
        self.finish()

    def forward(self, token_ids, segment_ids, padding_mask, training=None):
        x = self.token_embedding(token_ids) + self.position_embedding(padding_mask)
        x = self.embedding_norm(x + self.segment_embedding(segment_ids))
        hidden_states = [x]  # (B, S, D)
        x = self.embedding_dropout(x, training=training)
        context = AttentionContext(bias=self.attention_bias(padding_mask))
        for block in self.blocks:
            x, _ = block(x, context, training=training)
            hidden_states.append(x)
        outputs = {"sequence_output": x}
        if self.pooler is not None:
            outputs["pooled_output"] = self.pooler(x[:, 0])
        return outputs | {
            "hidden_states": hidden_states,
            "attention_contexts": [context] * len(self.blocks),
        }


BertBackbone.SIZES = {
    "bert_tiny_en_uncased": transformer_size(30522, 2, 128),
    "bert_mini_en_uncased": transformer_size(30522, 4, 256),
    "bert_small_en_uncased": transformer_size(30522, 4, 512),
    "bert_medium_en_uncased": transformer_size(30522, 8, 512),
    "bert_base_en_uncased": transformer_size(30522, 12, 768),
    "bert_base_en": transformer_size(28996, 12, 768),
    "bert_base_zh": transformer_size(21128, 12, 768),
    "bert_base_multi": transformer_size(119547, 12, 768),
    "bert_large_en_uncased": transformer_size(30522, 24, 1024),
    "bert_large_en": transformer_size(28996, 24, 1024),
}
BertBackbone.PUBLISHED = {
    "bert_tiny_en_uncased": "hf://google/bert_uncased_L-2_H-128_A-2",
    "bert_mini_en_uncased": "hf://google/bert_uncased_L-4_H-256_A-4",
    "bert_small_en_uncased": "hf://google/bert_uncased_L-4_H-512_A-8",
    "bert_medium_en_uncased": "hf://google/bert_uncased_L-8_H-512_A-8",
    "bert_base_en_uncased": "hf://google-bert/bert-base-uncased",
    "bert_base_en": "hf://google-bert/bert-base-cased",
    "bert_base_zh": "hf://google-bert/bert-base-chinese",
    "bert_base_multi": "hf://google-bert/bert-base-multilingual-cased",
    "bert_large_en_uncased": "hf://google-bert/bert-large-uncased",
    "bert_large_en": "hf://google-bert/bert-large-cased",
}

# === Checkpoints ===

_HUGGINGFACE = HUGGINGFACE_ENCODER | {
    "pooler": WITHOUT_POOLER | {None: "pooler.dense"},
    "classifier/pooler": "pooler.dense",
    "classifier/logits": "classifier",
    "span_head/logits": "qa_outputs",
    "token_head/dense": "cls.predictions.transform.dense",
    "token_head/norm": "cls.predictions.transform.LayerNorm",
    "token_head/bias": "cls.predictions.bias",
    "next_sentence_head/logits": "cls.seq_relationship",
}
_MODEL_GARDEN = {
    "token_embedding": "word_embeddings",
    "position_embedding": "position_embedding",
    "segment_embedding": "type_embeddings",
    "embedding_norm": "embeddings/layer_norm",
    "block_{i}/attention/query_key_value": tuple(
        f"transformer/layer_{{i}}/self_attention/{part}" for part in PARTS
    ),
    "block_{i}/attention/output": "transformer/layer_{i}/self_attention/attention_output",
    "block_{i}/attention_norm": "transformer/layer_{i}/self_attention_layer_norm",
    "block_{i}/feedforward/intermediate": "transformer/layer_{i}/intermediate",
    "block_{i}/feedforward/output": "transformer/layer_{i}/output",
    "block_{i}/feedforward_norm": "transformer/layer_{i}/output_layer_norm",
    "pooler": "pooler_transform",
    "classifier/logits": "sentence_prediction/logits",
    "token_head/dense": "cls/predictions/transform/dense",
    "token_head/norm": "cls/predictions/transform/LayerNorm",
    "token_head/bias": "cls/predictions/output_bias/bias",
    # Its next-sentence head has its own pooler, so it is not loaded.
}
_KERAS_HUB = {
    "token_embedding": "reversible_embedding",
    "position_embedding": "position_embedding",
    "segment_embedding": "embedding",
    "embedding_norm": "layer_normalization",
    "block_{i}/attention/query_key_value": tuple(
        f"transformer_encoder_{{i}}/_self_attention_layer/{part}_dense" for part in PARTS
    ),
    "block_{i}/attention/output": "transformer_encoder_{i}/_self_attention_layer/output_dense",
    "block_{i}/attention_norm": "transformer_encoder_{i}/_self_attention_layer_norm",
    "block_{i}/feedforward/intermediate": "transformer_encoder_{i}/_feedforward_intermediate_dense",
    "block_{i}/feedforward/output": "transformer_encoder_{i}/_feedforward_output_dense",
    "block_{i}/feedforward_norm": "transformer_encoder_{i}/_feedforward_layer_norm",
    "pooler": "dense",
    "classifier/logits": "task/layers/dense",
    # Its masked-LM head differs from its backbone in GELU and epsilon, so it is not loaded.
}


HUGGINGFACE_NAMES = NameTable(
    _HUGGINGFACE,
    leaves=PYTORCH_LEAVES,
    layout=transpose_kernels,
    prefix=r"bert\.",
    spellings={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
    buffers={"embeddings.position_ids": counts},
    copies={
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
)
GOOGLE_NAMES = NameTable(
    google_names(_HUGGINGFACE)
    | {
        "pooler": "pooler/dense",
        "classifier/logits/kernel": "output_weights",
        "classifier/logits/bias": "output_bias",
        "span_head/logits/kernel": "cls/squad/output_weights",
        "span_head/logits/bias": "cls/squad/output_bias",
        "token_head/bias": "cls/predictions/output_bias",
        "next_sentence_head/logits/kernel": "cls/seq_relationship/output_weights",
        "next_sentence_head/logits/bias": "cls/seq_relationship/output_bias",
    },
    leaves=GOOGLE_LEAVES,
    layout=transpose_logits,
    prefix="bert/",
    begin="bert/",
)
MODEL_GARDEN_NAMES = NameTable(
    _MODEL_GARDEN,
    leaves=GOOGLE_LEAVES | {"embeddings": "/embeddings"},
    layout=join_heads,
    prefix=r"bert_encoder(_v2)?(_\d+)?/|bert/",
)
KERAS_HUB_NAMES = NameTable(
    _KERAS_HUB,
    leaves=KERAS_HUB_LEAVES,
    layout=join_heads,
    stored_layout=split_heads,
    prefix="layers/",
    spellings={"transformer_encoder/": "transformer_encoder_0/"},
    begin="layers/",
)


# Entries of the authors' code of BERT and of TinyBERT, where they have no effect.
_AUTHORS = {
    "cell",
    "directionality",
    "emb_size",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
    "pre_trained",
    "structure",
    "training",
}
HUGGINGFACE_CONFIG = ConfigTable(
    BertBackbone,
    "bert",
    ENCODER_RULES | {"use_pooler": Derived(has_pooler)},
    PLAIN_ENCODER | Entries(harmless=_AUTHORS),
    rates=CLASSIFIER_RATE,
)
_GOOGLE_CONFIG = ConfigTable(
    BertBackbone,
    None,
    GOOGLE_RULES,
    Entries(
        harmless=_AUTHORS | {"initializer_range"},
        refused={"trigram_input": (False,)},  # MobileBERT has the names
    ),
)
_KERAS_HUB_CONFIG = keras_hub_table(
    BertBackbone,
    "num_segments",
    activation="gelu_tanh",
    layer_norm_epsilon=1e-12,
    use_pooler=True,
)


def _is_model_garden(checkpoint):
    names = MODEL_GARDEN_NAMES.resolve(checkpoint.weights)
    projects = "embedding_projection/kernel" in names  # ALBERT's and MobileBERT's
    return "transformer/layer_0/self_attention/query/kernel" in names and not projects


def _labels_by(name, axis):
    """Return how to read the number of classes from the shape of the logits' tensor."""

    def labels(checkpoint):
        weights = checkpoint.weights
        return Labels(weights.shape(name)[axis]) if name in weights else None

    return labels


BertBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(  # the oldest folders do not state their model type: their tensors do
            match_score,
            model_type="bert",
            tensors=["encoder.layer.0.attention.self.query.weight"],
            prefix="bert.",
        ),
        HUGGINGFACE_CONFIG,
        HUGGINGFACE_NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "classifier.weight"),
        architectures=architectures("Bert", next_sentence_and_token="ForPreTraining"),
        tokenizer="BertTokenizer",
    ),
    "google": Converter(
        lambda checkpoint: "bert/encoder/layer_0/output/dense/kernel" in checkpoint.tensors,
        _GOOGLE_CONFIG,
        GOOGLE_NAMES,
        google_labels,
        architectures=GOOGLE_PROGRAMS | {"next_sentence token": "run_pretraining.py"},
        files={"config": "bert_config.json", "checkpoint": "bert_model.ckpt"},
    ),
    "model_garden": Converter(
        _is_model_garden,
        _GOOGLE_CONFIG,
        MODEL_GARDEN_NAMES,
        _labels_by("sentence_prediction/logits/kernel", axis=1),
    ),
    "keras_hub": Converter(
        lambda checkpoint: checkpoint.config.get("class_name") == "BertBackbone",
        _KERAS_HUB_CONFIG,
        KERAS_HUB_NAMES,
        _labels_by("task/layers/dense/vars/0", axis=1),
        architectures={"": "BertBackbone", "classification": "BertTextClassifier"},
        tokenizer="BertTokenizer",
    ),
}
