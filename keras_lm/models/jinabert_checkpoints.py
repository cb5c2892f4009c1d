"""What published files of JinaBERT call its weights, and what their configurations say.

Their `model_type` is BERT's: the kind of positions tells them from it, and the tensors one form
of the network from the other.
"""

import functools

from keras_lm.converters.bert_family import (
    BERT_COPIES,
    BERT_HEADS,
    ENCODER_RULES,
    HUGGINGFACE_ENCODER,
)
from keras_lm.converters.checked_files import CLASSIFIER_RATE, CheckpointError, Entries
from keras_lm.converters.converter import (
    ConfigTable,
    Converter,
    Derived,
    Key,
    PyTorchNames,
    dropout_rules,
    has_pooler,
    match_score,
    score_with,
)
from keras_lm.converters.published_labels import huggingface_labels
from keras_lm.models.jinabert import JinaBertBackbone

_BLOCK = "encoder.layer.{i}"
_ATTENTION = f"{_BLOCK}.attention"
_NORMED = "query_key_norm"  # the argument of a network whose names are the second ones
_EMBEDDINGS = ("token_embedding", "segment_embedding", "embedding_norm")
NAMES = PyTorchNames(
    {name: HUGGINGFACE_ENCODER[name] for name in _EMBEDDINGS}
    | {
        "block_{i}/attention/query_key_value": HUGGINGFACE_ENCODER[
            "block_{i}/attention/query_key_value"
        ],
        "block_{i}/attention/query_norm": f"{_ATTENTION}.self.layer_norm_q",
        "block_{i}/attention/key_norm": f"{_ATTENTION}.self.layer_norm_k",
        "block_{i}/attention/output": f"{_ATTENTION}.output.dense",
        "block_{i}/output_norm": f"{_ATTENTION}.output.LayerNorm",
        "block_{i}/attention_norm": {
            _NORMED: f"{_BLOCK}.layer_norm_1",
            None: f"{_ATTENTION}.output.LayerNorm",
        },
        "block_{i}/feedforward/intermediate": {
            _NORMED: f"{_BLOCK}.mlp.up_gated_layer",
            None: f"{_BLOCK}.mlp.gated_layers",
        },
        "block_{i}/feedforward/output": {
            _NORMED: f"{_BLOCK}.mlp.down_layer",
            None: f"{_BLOCK}.mlp.wo",
        },
        "block_{i}/feedforward_norm": {
            _NORMED: f"{_BLOCK}.layer_norm_2",
            None: f"{_BLOCK}.mlp.layernorm",
        },
        **BERT_HEADS,
    },
    prefix=r"bert\.",
    copies=BERT_COPIES,
)

_GATES = {"geglu": "gelu", "reglu": "relu"}


def _check(checkpoint):
    """Raise a CheckpointError for feed-forward networks of another kind."""
    stated = checkpoint.config.get("feed_forward_type", "geglu")
    if stated not in _GATES:
        raise CheckpointError(
            f"{checkpoint.source}: its configuration has feed_forward_type={stated!r}, and "
            f"{JinaBertBackbone.__name__} supports only {' and '.join(_GATES)}."
        )


def _is_normed(config, tensors):
    return any(name.endswith(".layer_norm_q.weight") for name in tensors)


_CONFIG = ConfigTable(
    JinaBertBackbone,
    "bert",
    ENCODER_RULES
    | dropout_rules("hidden_dropout_prob", "attention_probs_dropout_prob", 0.1, 0.1)
    | {
        "activation": Derived(
            lambda config, _: _GATES[config.get("feed_forward_type", "geglu")],
            keys=("feed_forward_type",),
        ),
        "query_key_norm": Derived(_is_normed),
        "max_sequence_length": Key("max_position_embeddings", 512),
        "use_pooler": Derived(has_pooler),
    },
    Entries(
        read={"position_embedding_type"},
        harmless={
            "alibi_starting_size",
            "emb_pooler",  # of the authors' own way to make a vector; modules.json has the pooling
            "model_max_length",
        },
        refused={"hidden_act": ("gelu",)},  # of the masked LM alone
    ),
    _check,
    rates=CLASSIFIER_RATE,
)


_REFINED = functools.partial(
    score_with, config={"position_embedding_type": "alibi"}, tensor=r"\.mlp\."
)

JinaBertBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(match_score, model_type="bert", refine=_REFINED),
        _CONFIG,
        NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "classifier.weight"),
    ),
}
