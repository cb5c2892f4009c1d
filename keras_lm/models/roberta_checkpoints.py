"""What published files of RoBERTa and XLM-R call its weights, and what their configurations say."""

import functools
import re

import numpy as np

from keras_lm.converters.bert_family import (
    ENCODER_RULES,
    HUGGINGFACE_ENCODER,
    ROBERTA_HEADS,
    ROBERTA_SPELLINGS,
)
from keras_lm.converters.checked_files import CLASSIFIER_RATE, PLAIN_ENCODER, Entries
from keras_lm.converters.converter import (
    ConfigTable,
    Converter,
    Derived,
    KerasHubNames,
    PyTorchNames,
    architectures,
    counts,
    dropouts,
    has_pooler,
    join_heads,
    keras_hub_blocks,
    keras_hub_table,
    match_score,
    require_only,
    split_heads,
)
from keras_lm.converters.published_labels import Labels, huggingface_labels, keras_hub_labels
from keras_lm.models.roberta import RobertaBackbone

_FAIRSEQ = {
    "token_embedding": "embed_tokens",
    "position_embedding": "embed_positions",
    "embedding_norm": "emb_layer_norm",
    "block_{i}/attention/query_key_value": tuple(
        f"layers.{{i}}.self_attn.{part}_proj" for part in ("q", "k", "v")
    ),
    "block_{i}/attention/output": "layers.{i}.self_attn.out_proj",
    "block_{i}/attention_norm": "layers.{i}.self_attn_layer_norm",
    "block_{i}/feedforward/intermediate": "layers.{i}.fc1",
    "block_{i}/feedforward/output": "layers.{i}.fc2",
    "block_{i}/feedforward_norm": "layers.{i}.final_layer_norm",
    "classifier/pooler": "dense",
    "classifier/logits": "out_proj",
    "token_head/dense": "lm_head.dense",
    "token_head/norm": "lm_head.layer_norm",
    "token_head/bias": "lm_head.bias",
}
_KERAS_HUB = {
    "token_embedding": "token_and_position_embedding/token_embedding",
    "position_embedding": "token_and_position_embedding/position_embedding",
    "embedding_norm": "layer_normalization",
    **keras_hub_blocks("transformer_encoder"),
    "classifier/pooler": "task/layers/dense",
    "classifier/logits": "task/layers/dense_1",
    "token_head/dense": "task/layers/masked_lm_head/_intermediate_dense",
    "token_head/norm": "task/layers/masked_lm_head/_intermediate_layer_norm",
    "token_head/bias": "task/layers/masked_lm_head/vars/0",
}


def _keras_hub_layout(path, array):
    if path == "position_embedding/embeddings":  # which begins with the first real token's
        return np.pad(array, [(2, 0), (0, 0)])
    return join_heads(path, array)


def _keras_hub_stored_layout(path, array, arguments):
    if path == "position_embedding/embeddings":
        return array[arguments["first_position"] :]
    return split_heads(path, array, arguments)


def _no_segments(arguments):
    return None if arguments["num_segments"] else np.zeros((1, arguments["hidden_dim"]))


HUGGINGFACE_NAMES = PyTorchNames(
    HUGGINGFACE_ENCODER | ROBERTA_HEADS,
    prefix=r"roberta\.",
    spellings=ROBERTA_SPELLINGS,
    buffers={"embeddings.position_ids": counts},
    copies={"lm_head.decoder.weight": "embeddings.word_embeddings.weight"},
    constants={"embeddings.token_type_embeddings.weight": _no_segments},
)
FAIRSEQ_NAMES = PyTorchNames(
    _FAIRSEQ,
    prefix=r"(?:decoder|encoder)\.(?:sentence_encoder\.)?|classification_heads\.[^.]+\.",
    spellings={"layernorm_embedding": "emb_layer_norm"},
    ignored="version",  # of the format
    copies={"lm_head.weight": "embed_tokens.weight"},
)
KERAS_HUB_NAMES = KerasHubNames(
    _KERAS_HUB,
    layout=_keras_hub_layout,
    stored_layout=_keras_hub_stored_layout,
    spellings={"transformer_encoder/": "transformer_encoder_0/"},
    ignored="task/optimizer/.*",
)


def _first_position(config, tensors=None):
    return config.get("pad_token_id", 1) + 1


HUGGINGFACE_CONFIG = ConfigTable(
    RobertaBackbone,
    "roberta",
    ENCODER_RULES
    | {
        # The table's rows: those before the first position, too.
        "max_sequence_length": Derived(
            lambda config, tensors: (
                config.get("max_position_embeddings", 512) - _first_position(config)
            ),
            lambda arguments: {
                "max_position_embeddings": arguments["max_sequence_length"]
                + arguments["first_position"]
            },
        ),
        "first_position": Derived(
            _first_position, lambda arguments: {"pad_token_id": arguments["first_position"] - 1}
        ),
        # Without any, a row of zeros is written.
        "num_segments": Derived(
            ENCODER_RULES["num_segments"].read,
            lambda arguments: {"type_vocab_size": max(arguments["num_segments"], 1)},
        ),
        "use_pooler": Derived(has_pooler),
    },
    PLAIN_ENCODER | Entries(read={"max_position_embeddings", "type_vocab_size"}),
    rates=CLASSIFIER_RATE,
)


def _fairseq_config(checkpoint):
    require_only(
        checkpoint,
        RobertaBackbone,
        {
            "activation_fn": "gelu",
            "untie_weights_roberta": False,
            "encoder_normalize_before": False,
        },
    )
    # Older files leave most of it to the name of an architecture; the shapes always have it.
    config, tensors = checkpoint.config, checkpoint.tensors
    names = FAIRSEQ_NAMES.resolve(tensors)
    rows, hidden_dim = tensors.shape(names["embed_tokens.weight"])
    blocks = [name for name in names if re.fullmatch(r"layers\.\d+\.fc1\.weight", name)]
    dropout = config.get("dropout", 0.1)
    return {
        "vocabulary_size": rows,
        "num_layers": len(blocks),
        "num_heads": config.get("encoder_attention_heads", hidden_dim // 64),
        "hidden_dim": hidden_dim,
        "intermediate_dim": tensors.shape(names[blocks[0]])[0],
        **dropouts(dropout, config.get("attention_dropout", dropout)),
        "max_sequence_length": tensors.shape(names["embed_positions.weight"])[0] - 2,
        "num_segments": 0,
    }


_KERAS_HUB_CONFIG = keras_hub_table(
    RobertaBackbone,
    activation="gelu",
    first_position=2,
    num_segments=0,
    layer_norm_epsilon=1e-5,
    use_pooler=False,
)


def _is_fairseq(checkpoint):
    tail = "sentence_encoder.layers.0.self_attn.q_proj.weight"
    return any(f"{part}.{tail}" in checkpoint.tensors for part in ("decoder", "encoder"))


def _fairseq_labels(checkpoint):
    pattern, tensors = r"classification_heads\.[^.]+\.out_proj\.weight", checkpoint.tensors
    names = [name for name in tensors if re.fullmatch(pattern, name)]
    return Labels(tensors.shape(names[0])[0]) if len(names) == 1 else None


RobertaBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(
            match_score,
            model_type=("roberta", "xlm-roberta"),
            tensors=["roberta.encoder.layer.0.attention.self.query.weight"],
        ),
        HUGGINGFACE_CONFIG,
        HUGGINGFACE_NAMES,
        lambda checkpoint: huggingface_labels(
            checkpoint, "classifier.out_proj.weight", "classifier.weight"
        ),
        architectures=architectures("Roberta"),
        tokenizer="RobertaTokenizer",
    ),
    "fairseq": Converter(
        _is_fairseq,
        _fairseq_config,
        FAIRSEQ_NAMES,
        _fairseq_labels,
    ),
    "keras_hub": Converter(
        lambda checkpoint: (
            checkpoint.config.get("class_name") in ("RobertaBackbone", "XLMRobertaBackbone")
        ),
        _KERAS_HUB_CONFIG,
        KERAS_HUB_NAMES,
        keras_hub_labels,
        architectures={
            "": "RobertaBackbone",
            "classification": "RobertaTextClassifier",
            "token": "RobertaMaskedLM",
        },
        tokenizer="RobertaTokenizer",
    ),
}
