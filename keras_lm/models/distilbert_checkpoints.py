"""What published files of DistilBERT call its weights, and what their configurations say."""

import functools

from keras_lm.converters.checked_files import Entries
from keras_lm.converters.converter import (
    Activation,
    ConfigTable,
    Converter,
    Derived,
    KerasHubNames,
    Key,
    PyTorchNames,
    architectures,
    counts,
    dropout_rules,
    keras_hub_blocks,
    keras_hub_table,
    match_score,
)
from keras_lm.converters.published_labels import huggingface_labels, keras_hub_labels
from keras_lm.models.distilbert import DistilBertBackbone

_HUGGINGFACE = {
    "token_embedding": "embeddings.word_embeddings",
    "position_embedding": "embeddings.position_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "block_{i}/attention/query_key_value": tuple(
        f"transformer.layer.{{i}}.attention.{part}_lin" for part in ("q", "k", "v")
    ),
    "block_{i}/attention/output": "transformer.layer.{i}.attention.out_lin",
    "block_{i}/attention_norm": "transformer.layer.{i}.sa_layer_norm",
    "block_{i}/feedforward/intermediate": "transformer.layer.{i}.ffn.lin1",
    "block_{i}/feedforward/output": "transformer.layer.{i}.ffn.lin2",
    "block_{i}/feedforward_norm": "transformer.layer.{i}.output_layer_norm",
    "classifier/pooler": "pre_classifier",
    "classifier/logits": "classifier",
    "span_head/logits": "qa_outputs",
    "token_head/dense": "vocab_transform",
    "token_head/norm": "vocab_layer_norm",
    "token_head/bias": "vocab_projector.bias",
}
_KERAS_HUB = {
    "token_embedding": "token_and_position_embedding/token_embedding",
    "position_embedding": "token_and_position_embedding/position_embedding",
    "embedding_norm": "layer_normalization",
    **keras_hub_blocks("transformer_encoder"),
    "classifier/pooler": "task/layers/dense",
    "classifier/logits": "task/layers/dense_1",
    # Its masked-LM head differs from its backbone in epsilon, so it is not loaded.
}
HUGGINGFACE_NAMES = PyTorchNames(
    _HUGGINGFACE,
    prefix=r"distilbert\.",
    spellings={".gamma": ".weight", ".beta": ".bias"},
    buffers={"embeddings.position_ids": counts},
    copies={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
)
KERAS_HUB_NAMES = KerasHubNames(
    _KERAS_HUB,
    spellings={"transformer_encoder/": "transformer_encoder_0/"},
    ignored="task/optimizer/.*",
)


def _classifier_dropout(arguments):
    own = arguments["classifier_dropout"]
    return {"seq_classif_dropout": arguments["dropout"] if own is None else own}


HUGGINGFACE_CONFIG = ConfigTable(
    DistilBertBackbone,
    "distilbert",
    {
        "vocabulary_size": Key("vocab_size"),
        "num_layers": Key("n_layers"),
        "num_heads": Key("n_heads"),
        "hidden_dim": Key("dim"),
        "intermediate_dim": Key("hidden_dim"),
        **dropout_rules("dropout", "attention_dropout"),
        "classifier_dropout": Derived(
            Key("seq_classif_dropout", 0.2).read, _classifier_dropout, ("seq_classif_dropout",)
        ),
        "activation": Activation("activation"),
        "max_sequence_length": Key("max_position_embeddings", 512),
        "sinusoidal": Key("sinusoidal_pos_embds", False),
    },
    Entries(harmless={"tie_weights_"}),
    rates={"qa_dropout": (0.1, 0.0)},
    aliases={
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    },
)


_KERAS_HUB_CONFIG = keras_hub_table(
    DistilBertBackbone,
    classifier_dropout=Derived(lambda config, tensors: 0.2),  # its task has it
    activation="gelu",
    sinusoidal=False,
)


DistilBertBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(
            match_score,
            model_type="distilbert",
            tensors=["transformer.layer.0.attention.q_lin.weight"],
            prefix="distilbert.",
        ),
        HUGGINGFACE_CONFIG,
        HUGGINGFACE_NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "classifier.weight"),
        architectures=architectures("DistilBert"),
        tokenizer="DistilBertTokenizer",
    ),
    "keras_hub": Converter(
        lambda checkpoint: checkpoint.config.get("class_name") == "DistilBertBackbone",
        _KERAS_HUB_CONFIG,
        KERAS_HUB_NAMES,
        keras_hub_labels,
        architectures={"": "DistilBertBackbone", "classification": "DistilBertTextClassifier"},
        tokenizer="DistilBertTokenizer",
    ),
}
