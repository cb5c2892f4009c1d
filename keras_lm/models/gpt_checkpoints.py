"""What published files of GPT call its weights, and what their configurations say."""

import functools

from keras_lm.converters.checked_files import Entries
from keras_lm.converters.converter import (
    Activation,
    ConfigTable,
    Converter,
    Derived,
    Key,
    NameTable,
    PyTorchNames,
    Refused,
    counts,
    dropout_rules,
    match_score,
    require_only,
)
from keras_lm.converters.published_labels import Labels, huggingface_labels
from keras_lm.models.gpt import GPTBackbone

HUGGINGFACE_BLOCK = {
    "block_{i}/attention/query_key_value": "h.{i}.attn.c_attn",
    "block_{i}/attention/output": "h.{i}.attn.c_proj",
    "block_{i}/attention_norm": "h.{i}.ln_1",
    "block_{i}/feedforward/intermediate": "h.{i}.mlp.c_fc",
    "block_{i}/feedforward/output": "h.{i}.mlp.c_proj",
    "block_{i}/feedforward_norm": "h.{i}.ln_2",
}
HUGGINGFACE_HEADS = {
    "classifier/logits": "score",
    "multiple_choice_head/logits": "multiple_choice_head.summary",
}
# The causal mask, a buffer.
HUGGINGFACE_IGNORED = r"h\.\d+\.attn\.(attention\.)?(masked_)?bias"
OPENAI_BLOCK = {
    ours: theirs.replace("h.{i}", "h{i}").replace(".", "/")
    for ours, theirs in HUGGINGFACE_BLOCK.items()
}
OPENAI_LEAVES = {"kernel": "/w", "bias": "/b", "gamma": "/g", "beta": "/b", "embeddings": ""}


def transpose_heads(path, array):
    """Kernels of Hugging Face's GPTs are (in, out) in the blocks, and (out, in) in heads."""
    return array.T if path.endswith("/logits/kernel") else array


def convolution_to_matrix(path, array):
    """OpenAI's kernels belong to convolutions of width 1."""
    return array[0] if path.endswith("/kernel") else array


NAMES = PyTorchNames(
    {
        "token_embedding": "tokens_embed",
        "position_embedding": "positions_embed",
        **HUGGINGFACE_BLOCK,
        **HUGGINGFACE_HEADS,
    },
    layout=transpose_heads,
    prefix=r"transformer\.",
    ignored=HUGGINGFACE_IGNORED,
    buffers={"position_ids": counts},
    copies={"lm_head.weight": "tokens_embed.weight"},
)
OPENAI_NAMES = NameTable(
    {"token_embedding": "tokens", "position_embedding": "positions", **OPENAI_BLOCK},
    leaves=OPENAI_LEAVES,
    layout=convolution_to_matrix,
)


def inner_width(arguments):
    """Return the width inside feed-forward networks as Hugging Face says it: None for the usual."""
    width = arguments["intermediate_dim"]
    return None if width == 4 * arguments["hidden_dim"] else width


# The arguments that Hugging Face's GPT and GPT-2 share, except the activation.
GPT_RULES = {
    "vocabulary_size": Key("vocab_size"),
    "num_layers": Key("n_layer"),
    "num_heads": Key("n_head"),
    "hidden_dim": Key("n_embd"),
    "intermediate_dim": Derived(
        lambda config, tensors: config.get("n_inner") or 4 * config["n_embd"],
        lambda arguments: {"n_inner": inner_width(arguments)},
        ("n_inner",),
    ),
    **dropout_rules("resid_pdrop", "attn_pdrop", attention_default=0.1),
    "max_sequence_length": Key("n_positions"),
    "layer_norm_epsilon": Key("layer_norm_epsilon", 1e-5),
}

GPT_ENTRIES = Entries(
    read={
        "summary_activation",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
    },
    implied={"n_ctx"},  # n_positions
)
GPT_ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
GPT_RATES = {"embd_pdrop": ("resid_pdrop",), "summary_first_dropout": (0.1, "resid_pdrop")}


def check_summary(checkpoint):
    """Raise a CheckpointError if a head of choices sums texts up in another way."""
    if "multiple_choice_head.summary.weight" in checkpoint.tensors:
        known = {
            "summary_type": "cls_index",
            "summary_use_proj": True,
            "summary_activation": None,
            "summary_proj_to_labels": True,
        }
        require_only(checkpoint, GPTBackbone, known)


def openai_config(hparams):
    """Return the arguments for OpenAI's `hparams.json`, as a dict."""
    return {
        "vocabulary_size": hparams["n_vocab"],
        "num_layers": hparams["n_layer"],
        "num_heads": hparams["n_head"],
        "hidden_dim": hparams["n_embd"],
        "intermediate_dim": 4 * hparams["n_embd"],
        "max_sequence_length": hparams["n_ctx"],
    }


def huggingface_head(checkpoint):
    """Return the `Labels` of the head that a checkpoint of Hugging Face's GPTs has, or None."""
    if "multiple_choice_head.summary.weight" in checkpoint.tensors:
        return Labels(1, problem_type="multiple_choice")
    return huggingface_labels(checkpoint, "score.weight")


def as_wide(arguments):
    """Write nothing: the other code of GPT has no other width there, and does not say so."""
    if inner_width(arguments) is not None:
        known = f"four times hidden_dim, {4 * arguments['hidden_dim']}"
        raise Refused("intermediate_dim", arguments["intermediate_dim"], known)
    return {}


_CONFIG = ConfigTable(
    GPTBackbone,
    "openai-gpt",
    GPT_RULES
    | {
        "intermediate_dim": Derived(GPT_RULES["intermediate_dim"].read, as_wide, ("n_inner",)),
        "activation": Activation("afn", names={"gelu": "gelu_tanh", "swish": "silu"}),
    },
    GPT_ENTRIES | Entries(harmless={"n_special", "predict_special_tokens"}),
    check_summary,
    rates=GPT_RATES,
    aliases=GPT_ALIASES,
)


GPTBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(match_score, model_type="openai-gpt"),
        _CONFIG,
        NAMES,
        huggingface_head,
        architectures={
            "": "OpenAIGPTModel",
            "causal_lm": "OpenAIGPTLMHeadModel",
            "classification": "OpenAIGPTForSequenceClassification",
            "multiple_choice": "OpenAIGPTDoubleHeadsModel",
        },
        tokenizer="OpenAIGPTTokenizer",
    ),
    "openai": Converter(
        lambda checkpoint: True,
        lambda checkpoint: openai_config(checkpoint.config),
        OPENAI_NAMES,
    ),
}
