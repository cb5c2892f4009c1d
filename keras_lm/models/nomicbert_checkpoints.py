"""What published files of NomicBERT call its weights, and what their configurations say.

The names of tensors are the authors', which transformers writes, too, under another prefix. Of the
configuration there are two forms: the authors', with names of GPT-2's, and that of transformers; a
file may have the entries of both.
"""

import functools

from keras_lm.converters import rotary_entries
from keras_lm.converters.bert_family import BERT_COPIES, ENCODER_RULES
from keras_lm.converters.checked_files import CLASSIFIER_RATE, CheckpointError, Entries
from keras_lm.converters.converter import (
    ACTIVATIONS,
    Activation,
    ConfigTable,
    Converter,
    Derived,
    Key,
    PyTorchNames,
    architectures,
    dropout_rules,
    has_pooler,
    match_score,
)
from keras_lm.converters.published_labels import huggingface_labels
from keras_lm.models.nomicbert import NomicBertBackbone

_BLOCK = "encoder.layers.{i}"
NAMES = PyTorchNames(
    {
        "token_embedding": "embeddings.word_embeddings",
        "segment_embedding": "embeddings.token_type_embeddings",
        "embedding_norm": "emb_ln",
        "block_{i}/attention/query_key_value": f"{_BLOCK}.attn.Wqkv",
        "block_{i}/attention/output": f"{_BLOCK}.attn.out_proj",
        "block_{i}/attention_norm": f"{_BLOCK}.norm1",
        "block_{i}/feedforward/intermediate": (f"{_BLOCK}.mlp.fc12", f"{_BLOCK}.mlp.fc11"),
        "block_{i}/feedforward/output": f"{_BLOCK}.mlp.fc2",
        "block_{i}/feedforward_norm": f"{_BLOCK}.norm2",
        "pooler": {"token_classification": (), "token": (), None: "pooler.dense"},
        "classifier/pooler": "pooler.dense",
        "classifier/logits": "classifier",
        "token_head/dense": "cls.predictions.transform.dense",
        "token_head/norm": "cls.predictions.transform.layer_norm",
        "token_head/bias": "cls.predictions.bias",
    },
    prefix=r"nomic_bert\.",
    spellings={"nomic_bert.": "", "bert.": ""},
    copies=BERT_COPIES,
)

# The authors' names of gates.
_GATES = {"swiglu": "silu", "geglu": "gelu", "glu": "sigmoid"}
TRAINED_LENGTH = 2048


def _activation(config, tensors):
    if "hidden_act" in config or "activation_function" not in config:
        return _ACTIVATION.read(config)
    return _GATES[config["activation_function"]]


_ACTIVATION = Activation("hidden_act", "silu", {"silu": "silu"} | ACTIVATIONS)


def _length(config, tensors):
    """Return the longest text whose positions the authors do not scale, if they scale any."""
    trained = config.get("max_trained_positions") or TRAINED_LENGTH
    stated = config.get("max_position_embeddings")
    if config.get("rotary_scaling_factor") is not None:
        return min(stated or trained, trained)
    return max(config.get("n_positions") or 0, stated or 0) or trained


def _check(checkpoint):
    """Raise a CheckpointError for another network, or other positions."""
    config = checkpoint.config
    stated = config.get("activation_function")
    if "hidden_act" not in config and stated is not None and stated not in _GATES:
        raise CheckpointError(
            f"{checkpoint.source}: its configuration has activation_function={stated!r}, and "
            f"{NomicBertBackbone.__name__} supports only {', '.join(_GATES)}, which have a gate."
        )
    rotary_entries.require_unscaled(checkpoint, NomicBertBackbone)


def _head_dim(config, tensors):
    own, usual = config.get("head_dim"), config["hidden_size"] // config["num_attention_heads"]
    return None if own == usual else own


_CONFIG = ConfigTable(
    NomicBertBackbone,
    "nomic_bert",
    ENCODER_RULES
    | dropout_rules("hidden_dropout_prob", "attention_probs_dropout_prob", 0.0)
    | {
        "head_dim": Derived(
            _head_dim,
            lambda arguments: {
                "head_dim": arguments["head_dim"]
                or arguments["hidden_dim"] // arguments["num_heads"]
            },
            ("head_dim",),
        ),
        "rope_max_wavelength": Derived(
            lambda config, _: rotary_entries.stated(config).get(
                "rope_theta", config.get("rotary_emb_base") or 1000.0
            ),
            rotary_entries.wavelength(1000.0).writes,
            (*rotary_entries.ENTRIES, "rotary_emb_base"),
        ),
        "activation": Derived(
            _activation,
            lambda arguments: _ACTIVATION.write("activation", arguments),
            ("hidden_act", "activation_function"),
        ),
        "max_sequence_length": Derived(
            _length,
            lambda arguments: {"max_position_embeddings": arguments["max_sequence_length"]},
            (
                "max_position_embeddings",
                "max_trained_positions",
                "n_positions",
                "rotary_scaling_factor",
            ),
        ),
        "layer_norm_epsilon": Key("layer_norm_eps", 1e-12),
        "use_pooler": Derived(has_pooler),
    },
    Entries(
        harmless={
            "dense_seq_output",  # ways to the same numbers, as the next six
            "fused_bias_fc",
            "fused_dropout_add_ln",
            "last_layer_subset",
            "pad_vocab_size_multiple",
            "reorder_and_upcast_attn",
            "use_flash_attn",
            "use_xentropy",
            "add_pooling_layer",  # the tensors say it
            "vocab_pad",
            "summary_activation",  # of GPT-2's configuration, as the next four
            "summary_first_dropout",
            "summary_proj_to_labels",
            "summary_type",
            "summary_use_proj",
            "expert_choice_router",  # of experts, which there are none of
            "moe_impl",
            "moe_normalize_expert_weights",
            "moe_resid_pdrop",
            "moe_top_k",
            "router_aux_loss_coef",
        },
        refused={
            "causal": (False,),
            "ffn_div": (1,),
            "mlp_fc1_bias": (False,),
            "mlp_fc2_bias": (False,),
            "moe_every_n_layers": (0,),
            "num_experts": (0,),
            "num_shared_experts": (0,),
            "parallel_block": (False,),
            "prenorm": (False,),
            "qkv_proj_bias": (False,),
            "rotary_emb_fraction": (1.0,),
            "rotary_emb_interleaved": (False,),
            "rotary_emb_scale_base": (),
            "scale_attn_by_inverse_layer_idx": (False,),
            "scale_attn_weights": (True,),
            "use_rms_norm": (False,),
        },
    ),
    _check,
    rates=CLASSIFIER_RATE | {"embd_pdrop": ("hidden_dropout_prob", 0.0)},
    aliases={
        "attn_pdrop": "attention_probs_dropout_prob",
        "layer_norm_epsilon": "layer_norm_eps",
        "n_embd": "hidden_size",
        "n_head": "num_attention_heads",
        "n_inner": "intermediate_size",
        "n_layer": "num_hidden_layers",
        "resid_pdrop": "hidden_dropout_prob",
    },
)

NomicBertBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(
            match_score,
            model_type="nomic_bert",
            tensors=["encoder.layers.0.attn.Wqkv.weight", "encoder.layers.0.mlp.fc11.weight"],
            prefix="bert.",
        ),
        _CONFIG,
        NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "classifier.weight"),
        architectures=architectures("NomicBert", multiple_choice=None, question_answering=None),
        tokenizer="BertTokenizer",
        versions="5.24 and later",
    ),
}
