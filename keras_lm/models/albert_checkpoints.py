"""What published files of ALBERT call its weights, and what their configurations say."""

import functools

import numpy as np

from keras_lm.converters.bert_family import (
    ENCODER_RULES,
    GOOGLE_PROGRAMS,
    GOOGLE_RULES,
    WITHOUT_POOLER,
)
from keras_lm.converters.checked_files import PLAIN_ENCODER, Entries
from keras_lm.converters.converter import (
    GOOGLE_LEAVES,
    Activation,
    ConfigTable,
    Converter,
    Derived,
    Fixed,
    Key,
    NameTable,
    PyTorchNames,
    architectures,
    counts,
    dropout_rules,
    has_pooler,
    match_score,
    transpose_logits,
)
from keras_lm.converters.published_labels import google_labels, huggingface_labels
from keras_lm.models.albert import AlbertBackbone

_PARTS = ("query", "key", "value")
_BLOCK = "group_{i}/inner_{j}/block_{k}"
_HUGGINGFACE_BLOCK = "encoder.albert_layer_groups.{i}.albert_layers.{j}"
_HUGGINGFACE = {
    "token_embedding": "embeddings.word_embeddings",
    "position_embedding": "embeddings.position_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "embedding_projection": "encoder.embedding_hidden_mapping_in",
    f"{_BLOCK}/attention/query_key_value": tuple(
        f"{_HUGGINGFACE_BLOCK}.attention.{part}" for part in _PARTS
    ),
    f"{_BLOCK}/attention/output": f"{_HUGGINGFACE_BLOCK}.attention.dense",
    f"{_BLOCK}/attention_norm": f"{_HUGGINGFACE_BLOCK}.attention.LayerNorm",
    f"{_BLOCK}/feedforward/intermediate": f"{_HUGGINGFACE_BLOCK}.ffn",
    f"{_BLOCK}/feedforward/output": f"{_HUGGINGFACE_BLOCK}.ffn_output",
    f"{_BLOCK}/feedforward_norm": f"{_HUGGINGFACE_BLOCK}.full_layer_layer_norm",
    "pooler": WITHOUT_POOLER | {None: "pooler"},
    "classifier/pooler": "pooler",
    "classifier/logits": "classifier",
    "span_head/logits": "qa_outputs",
    "token_head/dense": "predictions.dense",
    "token_head/norm": "predictions.LayerNorm",
    "token_head/bias": "predictions.bias",
    "sentence_order_head/logits": "sop_classifier.classifier",
}
_GOOGLE_BLOCK = "encoder/transformer/group_{i}/inner_group_{j}"
_GOOGLE = {
    "token_embedding": "embeddings/word_embeddings",
    "position_embedding": "embeddings/position_embeddings",
    "segment_embedding": "embeddings/token_type_embeddings",
    "embedding_norm": "embeddings/LayerNorm",
    "embedding_projection": "encoder/embedding_hidden_mapping_in",
    f"{_BLOCK}/attention/query_key_value": tuple(
        f"{_GOOGLE_BLOCK}/attention_1/self/{part}" for part in _PARTS
    ),
    f"{_BLOCK}/attention/output": f"{_GOOGLE_BLOCK}/attention_1/output/dense",
    f"{_BLOCK}/attention_norm": f"{_GOOGLE_BLOCK}/LayerNorm",
    f"{_BLOCK}/feedforward/intermediate": f"{_GOOGLE_BLOCK}/ffn_1/intermediate/dense",
    f"{_BLOCK}/feedforward/output": f"{_GOOGLE_BLOCK}/ffn_1/intermediate/output/dense",
    f"{_BLOCK}/feedforward_norm": f"{_GOOGLE_BLOCK}/LayerNorm_1",
    "pooler": "pooler/dense",
    "classifier/logits/kernel": "output_weights",
    "classifier/logits/bias": "output_bias",
    "span_head/logits/kernel": "cls/squad/output_weights",
    "span_head/logits/bias": "cls/squad/output_bias",
    "token_head/dense": "cls/predictions/transform/dense",
    "token_head/norm": "cls/predictions/transform/LayerNorm",
    "token_head/bias": "cls/predictions/output_bias",
    "sentence_order_head/logits/kernel": "cls/seq_relationship/output_weights",
    "sentence_order_head/logits/bias": "cls/seq_relationship/output_bias",
}


def _no_projection(make, arguments):
    is_there = arguments["always_project"] or arguments["embedding_dim"] != arguments["hidden_dim"]
    return None if is_there else make(arguments["hidden_dim"])


HUGGINGFACE_NAMES = PyTorchNames(
    _HUGGINGFACE,
    prefix=r"albert\.",
    buffers={"embeddings.position_ids": counts},
    copies={
        "predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    constants={
        f"encoder.embedding_hidden_mapping_in.{part}": functools.partial(_no_projection, make)
        for part, make in (("weight", np.eye), ("bias", np.zeros))
    },
)
GOOGLE_NAMES = NameTable(
    _GOOGLE,
    leaves=GOOGLE_LEAVES,
    layout=transpose_logits,
    prefix="bert/",
    begin="bert/",
)


# Entries of the authors' code, where they have no effect.
_AUTHORS = Entries(
    harmless={"down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks"}
)
# What is missing is as in the authors' code.
HUGGINGFACE_CONFIG = ConfigTable(
    AlbertBackbone,
    "albert",
    ENCODER_RULES
    | dropout_rules("hidden_dropout_prob", "attention_probs_dropout_prob", 0.0, 0.0)
    | {
        "activation": Activation("hidden_act", "gelu_new"),
        "embedding_dim": Key("embedding_size", 128),
        "num_groups": Key("num_hidden_groups", 1),
        "num_inner_repetitions": Key("inner_group_num", 1),
        "sharing": Fixed("all"),
        "classifier_dropout": Key("classifier_dropout_prob", 0.1),
        "use_pooler": Derived(has_pooler),
        # Without one, the identity is written.
        "always_project": Derived(lambda config, tensors: True),
    },
    PLAIN_ENCODER | _AUTHORS,
)
# ("gelu" comes first, and so is what is written.)
_GOOGLE_ACTIVATIONS = {"gelu": "gelu_tanh", "gelu_new": "gelu_tanh"}
_GOOGLE_CONFIG = ConfigTable(
    AlbertBackbone,
    None,
    HUGGINGFACE_CONFIG.rules
    | {name: GOOGLE_RULES[name] for name in ("layer_norm_epsilon", "use_pooler")}
    | {
        "activation": Activation("hidden_act", "gelu_new", _GOOGLE_ACTIVATIONS),
        "always_project": Fixed(False, lambda given: given["embedding_dim"] != given["hidden_dim"]),
    },
    _AUTHORS | Entries(harmless={"initializer_range"}, refused={"ln_type": ("postln",)}),
)


AlbertBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(
            match_score,
            model_type="albert",
            tensors=["encoder.embedding_hidden_mapping_in.weight"],
            prefix="albert.",
        ),
        HUGGINGFACE_CONFIG,
        HUGGINGFACE_NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "classifier.weight"),
        vocabulary={"usual_family": "albert"},
        architectures=architectures("Albert", sentence_order_and_token="ForPreTraining"),
    ),
    "google": Converter(
        lambda checkpoint: (
            "bert/encoder/transformer/group_0/inner_group_0/LayerNorm/gamma" in checkpoint.tensors
        ),
        _GOOGLE_CONFIG,
        GOOGLE_NAMES,
        google_labels,
        vocabulary={"usual_family": "albert"},
        architectures=GOOGLE_PROGRAMS | {"sentence_order token": "run_pretraining.py"},
        files={"config": "albert_config.json", "checkpoint": "model.ckpt-best"},
    ),
}
