"""What published files of BERT call its weights, and what their configurations say."""

import functools

from keras_lm.converters.bert_family import (
    BERT_COPIES,
    BERT_HEADS,
    ENCODER_RULES,
    GOOGLE_PROGRAMS,
    GOOGLE_RULES,
    HUGGINGFACE_ENCODER,
    OLD_SPELLINGS,
    PARTS,
    google_names,
)
from keras_lm.converters.checked_files import CLASSIFIER_RATE, PLAIN_ENCODER, Entries
from keras_lm.converters.converter import (
    GOOGLE_LEAVES,
    ConfigTable,
    Converter,
    Derived,
    KerasHubNames,
    NameTable,
    PyTorchNames,
    architectures,
    counts,
    has_pooler,
    join_heads,
    keras_hub_blocks,
    keras_hub_table,
    match_score,
    transpose_logits,
)
from keras_lm.converters.published_labels import Labels, google_labels, huggingface_labels
from keras_lm.models.bert import BertBackbone

_HUGGINGFACE = (
    HUGGINGFACE_ENCODER | BERT_HEADS | {"next_sentence_head/logits": "cls.seq_relationship"}
)
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
    **keras_hub_blocks("transformer_encoder"),
    "pooler": "dense",
    "classifier/logits": "task/layers/dense",
    # Its masked-LM head differs from its backbone in GELU and epsilon, so it is not loaded.
}


HUGGINGFACE_NAMES = PyTorchNames(
    _HUGGINGFACE,
    prefix=r"bert\.",
    spellings=OLD_SPELLINGS,
    buffers={"embeddings.position_ids": counts},
    copies=BERT_COPIES,
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
KERAS_HUB_NAMES = KerasHubNames(
    _KERAS_HUB,
    spellings={"transformer_encoder/": "transformer_encoder_0/"},
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
