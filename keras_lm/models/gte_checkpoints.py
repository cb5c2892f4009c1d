"""What published files of GTE call its weights, and what their configurations say.

The authors' `model_type` is `new`, and that of transformers `gte`; names of tensors differ in their
prefix alone.
"""

import functools

from keras_lm.converters import rotary_entries
from keras_lm.converters.bert_family import ENCODER_RULES
from keras_lm.converters.checked_files import CLASSIFIER_RATE, CheckpointError, Entries
from keras_lm.converters.converter import (
    ConfigTable,
    Converter,
    Derived,
    Key,
    PyTorchNames,
    Refused,
    architectures,
    dropout_rules,
    has_pooler,
    match_score,
)
from keras_lm.converters.published_labels import huggingface_labels
from keras_lm.models.gte import GteBackbone

_BLOCK = "encoder.layer.{i}"
NAMES = PyTorchNames(
    {
        "token_embedding": "embeddings.word_embeddings",
        "segment_embedding": "embeddings.token_type_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
        "block_{i}/attention/query_key_value": {
            None: f"{_BLOCK}.attention.qkv_proj",
            "apart": tuple(f"{_BLOCK}.attention.{part}_proj" for part in "qkv"),
        },
        "block_{i}/attention/output": f"{_BLOCK}.attention.o_proj",
        "block_{i}/attention_norm": f"{_BLOCK}.attn_ln",
        "block_{i}/feedforward/intermediate": f"{_BLOCK}.mlp.up_gate_proj",
        "block_{i}/feedforward/output": f"{_BLOCK}.mlp.down_proj",
        "block_{i}/feedforward_norm": f"{_BLOCK}.mlp_ln",
        "pooler": {"token_classification": (), "token": (), None: "pooler.dense"},
        "classifier/pooler": "pooler.dense",
        "classifier/logits": "classifier",
        "token_head/dense": "lm_head.dense",
        "token_head/norm": "lm_head.norm",
        "token_head/bias": "lm_head.decoder.bias",
    },
    prefix=r"gte\.",
    spellings={"gte.": "", "new.": ""},
    copies={"lm_head.decoder.weight": "embeddings.word_embeddings.weight"},
)

# What the authors' code and that of transformers take if nothing is stated.
_DEFAULTS = {"new": (10000.0, 2048), "gte": (160000.0, 8192)}


def _defaults(config):
    """Return the base of the angles and the longest text that a configuration leaves out."""
    return _DEFAULTS.get(config.get("model_type"), _DEFAULTS["new"])


def _factor(config, tensors=None):
    parameters = rotary_entries.stated(config)
    return parameters.get("factor", 1.0) if rotary_entries.kind(parameters) == "ntk" else 1.0


def _write_positions(arguments):
    if arguments["rope_scaling_factor"] != 1:
        raise Refused("rope_scaling_factor", arguments["rope_scaling_factor"], "1.0")
    return rotary_entries.wavelength(160000.0).writes(arguments)


def _check(checkpoint):
    """Raise a CheckpointError for positions of another kind."""
    parameters = rotary_entries.stated(checkpoint.config)
    if rotary_entries.kind(parameters) != "ntk":
        rotary_entries.require_unscaled(checkpoint, GteBackbone)
        return
    factor, mixed = parameters.get("factor"), parameters.get("mixed_b")
    is_number = isinstance(factor, (int, float)) and not isinstance(factor, bool) and factor >= 1
    if mixed is not None or not is_number:
        raise CheckpointError(
            f"{checkpoint.source}: its configuration has rope_scaling with factor={factor!r} and "
            f"mixed_b={mixed!r}, and {GteBackbone.__name__} supports only a factor of 1 or more "
            "without mixed_b."
        )


_CONFIG = ConfigTable(
    GteBackbone,
    "gte",
    ENCODER_RULES
    | dropout_rules("hidden_dropout_prob", "attention_probs_dropout_prob", 0.1, 0.0)
    | {
        "rope_max_wavelength": Derived(
            lambda config, _: rotary_entries.stated(config).get("rope_theta", _defaults(config)[0]),
            _write_positions,
            rotary_entries.ENTRIES,
        ),
        "rope_scaling_factor": Derived(_factor),
        "max_sequence_length": Derived(
            lambda config, _: config.get("max_position_embeddings", _defaults(config)[1]),
            lambda arguments: {"max_position_embeddings": arguments["max_sequence_length"]},
            ("max_position_embeddings",),
        ),
        "num_segments": Key("type_vocab_size", 1),
        "use_pooler": Derived(has_pooler),
    },
    Entries(
        harmless={
            "pack_qkv",  # the tensors say it
            "unpad_inputs",  # ways to the same numbers, as the next
            "use_memory_efficient_attention",
            "logn_attention_clip1",  # of what is refused below
        },
        refused={
            "layer_norm_type": ("layer_norm",),
            "logn_attention_scale": (False,),
            "position_embedding_type": ("rope",),
        },
    ),
    _check,
    rates=CLASSIFIER_RATE,
)

GteBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(
            match_score,
            model_type=("gte", "new"),
            tensors=["encoder.layer.0.attention.qkv_proj.weight"],
            prefix="new.",
        ),
        _CONFIG,
        NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "classifier.weight"),
        architectures=architectures("Gte", multiple_choice=None, question_answering=None),
        versions="5.24 and later",
    ),
}
