"""What published files of EuroBERT call its weights, and what their configurations say."""

import functools

from keras_lm.converters import rotary_entries
from keras_lm.converters.checked_files import Entries
from keras_lm.converters.converter import (
    ACTIVATIONS,
    Activation,
    ConfigTable,
    Converter,
    Derived,
    Key,
    PyTorchNames,
    architectures,
    match_score,
)
from keras_lm.converters.published_labels import huggingface_labels
from keras_lm.models.eurobert import POOLINGS, EuroBertBackbone

_BLOCK = "layers.{i}"
NAMES = PyTorchNames(
    {
        "token_embedding": "embed_tokens",
        "block_{i}/attention/query": f"{_BLOCK}.self_attn.q_proj",
        "block_{i}/attention/key_value": (
            f"{_BLOCK}.self_attn.k_proj",
            f"{_BLOCK}.self_attn.v_proj",
        ),
        "block_{i}/attention/output": f"{_BLOCK}.self_attn.o_proj",
        "block_{i}/attention_norm": f"{_BLOCK}.input_layernorm",
        "block_{i}/feedforward/intermediate": (
            f"{_BLOCK}.mlp.gate_proj",
            f"{_BLOCK}.mlp.up_proj",
        ),
        "block_{i}/feedforward/output": f"{_BLOCK}.mlp.down_proj",
        "block_{i}/feedforward_norm": f"{_BLOCK}.post_attention_layernorm",
        "final_norm": "norm",
        "classifier/dense": "dense",
        "classifier/logits": "classifier",
        "span_head/logits": "qa_outputs",
        "token_head": "lm_head",
    },
    prefix=r"model\.",
    copies={"lm_head.weight": "embed_tokens.weight"},
)


def _is_tied(config, tensors):
    """Whether the masked LM's matrix is the token embedding."""
    names = NAMES.resolve(tensors)
    matrix, table = names.get("lm_head.weight"), names.get("embed_tokens.weight")
    has_one_for_both = matrix is not None and matrix == table
    return has_one_for_both or bool(config.get("tie_word_embeddings"))


def _unless_usual(key, usual):
    """Return the rule of an argument that is None if it is what follows from the others."""

    def read(config, tensors):
        value = config.get(key)
        sizes = (config["hidden_size"], config["num_attention_heads"])
        return None if value == usual(*sizes) else value

    def write(arguments):
        own = {"num_key_value_heads": "num_key_value_heads", "head_dim": "head_dim"}[key]
        sizes = (arguments["hidden_dim"], arguments["num_heads"])
        return {key: arguments[own] or usual(*sizes)}

    return Derived(read, write, (key,))


# (The ids that transformers takes for granted may be more than there are.)
_ROLES = ("pad", "bos", "eos")
_CONFIG = ConfigTable(
    EuroBertBackbone,
    "eurobert",
    {
        "vocabulary_size": Derived(
            lambda config, _: config["vocab_size"],
            lambda arguments: (
                {"vocab_size": arguments["vocabulary_size"]}
                | dict.fromkeys(f"{role}_token_id" for role in _ROLES)
            ),
            ("vocab_size",),
        ),
        "num_layers": Key("num_hidden_layers"),
        "num_heads": Key("num_attention_heads"),
        "hidden_dim": Key("hidden_size"),
        "intermediate_dim": Key("intermediate_size"),
        "num_key_value_heads": _unless_usual("num_key_value_heads", lambda width, heads: heads),
        "head_dim": _unless_usual("head_dim", lambda width, heads: width // heads),
        "rope_max_wavelength": rotary_entries.wavelength(10000.0),
        "dropout": Key("attention_dropout", 0.0),
        "activation": Activation("hidden_act", "silu", {"silu": "silu"} | ACTIVATIONS),
        "classifier_pooling": Derived(
            lambda config, _: POOLINGS.get(name := config.get("classifier_pooling", "late"), name),
            lambda arguments: {
                "classifier_pooling": {ours: theirs for theirs, ours in POOLINGS.items()}[
                    arguments["classifier_pooling"]
                ]
            },
            ("classifier_pooling",),
        ),
        "tie_embeddings": Derived(
            _is_tied,
            lambda arguments: {"tie_word_embeddings": arguments["tie_embeddings"]},
            ("tie_word_embeddings",),
        ),
        "max_sequence_length": Key("max_position_embeddings", 8192),
        "layer_norm_epsilon": Key("rms_norm_eps", 1e-5),
    },
    Entries(
        harmless={"pretraining_tp", "bos_token", "eos_token", "mask_token", "pad_token"},
        refused={"attention_bias": (False,), "mlp_bias": (False,), "hidden_dropout": (0.0,)},
    ),
    lambda checkpoint: rotary_entries.require_unscaled(checkpoint, EuroBertBackbone),
)

EuroBertBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(
            match_score,
            model_type="eurobert",
            tensors=["layers.0.self_attn.q_proj.weight", "layers.0.input_layernorm.weight"],
            prefix="model.",
        ),
        _CONFIG,
        NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "classifier.weight"),
        architectures=architectures("EuroBert", multiple_choice=None, question_answering=None),
        versions="5.24 and later",
    ),
}
