"""What published files of GPT-2 call its weights, and what their configurations say."""

import functools

from keras_lm.converters.checked_files import Entries
from keras_lm.converters.converter import (
    Activation,
    ConfigTable,
    Converter,
    Derived,
    Fixed,
    KerasHubNames,
    Key,
    NameTable,
    PyTorchNames,
    keras_hub_blocks,
    keras_hub_table,
    match_score,
)
from keras_lm.models.gpt2 import GPT2Backbone
from keras_lm.models.gpt_checkpoints import (
    GPT_ALIASES,
    GPT_ENTRIES,
    GPT_RATES,
    GPT_RULES,
    HUGGINGFACE_BLOCK,
    HUGGINGFACE_HEADS,
    HUGGINGFACE_IGNORED,
    OPENAI_BLOCK,
    OPENAI_LEAVES,
    as_wide,
    check_summary,
    convolution_to_matrix,
    huggingface_head,
    transpose_heads,
)

NAMES = PyTorchNames(
    {
        "token_embedding": "wte",
        "position_embedding": "wpe",
        **HUGGINGFACE_BLOCK,
        "final_norm": "ln_f",
        **HUGGINGFACE_HEADS,
    },
    layout=transpose_heads,
    prefix=r"transformer\.",
    ignored=HUGGINGFACE_IGNORED,
    copies={"lm_head.weight": "wte.weight"},
)
OPENAI_NAMES = NameTable(
    {
        "token_embedding": "wte",
        "position_embedding": "wpe",
        **OPENAI_BLOCK,
        "final_norm": "ln_f",
    },
    leaves=OPENAI_LEAVES,
    layout=convolution_to_matrix,
    stored_layout=lambda path, array, _: array[None] if path.endswith("/kernel") else array,
    prefix="model/",
    begin="model/",
)
KERAS_HUB_NAMES = KerasHubNames(
    {
        "token_embedding": "reversible_embedding",
        "position_embedding": "position_embedding",
        **keras_hub_blocks("transformer_decoder"),
        "final_norm": "layer_normalization",
    },
    spellings={"transformer_decoder/": "transformer_decoder_0/"},
)


HUGGINGFACE_CONFIG = ConfigTable(
    GPT2Backbone,
    "gpt2",
    GPT_RULES | {"activation": Activation("activation_function", "gelu_new")},
    GPT_ENTRIES
    | Entries(
        harmless={"reorder_and_upcast_attn"},
        refused={"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,)},
    ),
    check_summary,
    rates=GPT_RATES,
    aliases=GPT_ALIASES,
)
HUGGINGFACE_CLASSES = {
    "": "GPT2Model",
    "causal_lm": "GPT2LMHeadModel",
    "classification": "GPT2ForSequenceClassification",
    "multiple_choice": "GPT2DoubleHeadsModel",
}


# What OpenAI's hparams.json says; its code has no dropout.
_OPENAI_CONFIG = ConfigTable(
    GPT2Backbone,
    None,
    {
        "vocabulary_size": Key("n_vocab"),
        "num_layers": Key("n_layer"),
        "num_heads": Key("n_head"),
        "hidden_dim": Key("n_embd"),
        "intermediate_dim": Derived(lambda config, tensors: 4 * config["n_embd"], as_wide),
        "dropout": Derived(lambda config, tensors: 0.1),
        "attention_dropout": Derived(lambda config, tensors: None),
        "activation": Fixed("gelu_tanh"),
        "max_sequence_length": Key("n_ctx"),
        "layer_norm_epsilon": Fixed(1e-5),
    },
)
_KERAS_HUB_CONFIG = keras_hub_table(
    GPT2Backbone,
    activation="gelu_tanh",
    layer_norm_epsilon=1e-5,
)


GPT2Backbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(match_score, model_type="gpt2"),
        HUGGINGFACE_CONFIG,
        NAMES,
        huggingface_head,
        architectures=HUGGINGFACE_CLASSES,
        tokenizer="GPT2Tokenizer",
    ),
    "google": Converter(
        lambda checkpoint: "model/wte" in checkpoint.tensors,
        _OPENAI_CONFIG,
        OPENAI_NAMES,
        architectures={"": "model.py", "causal_lm": "model.py"},
        files={
            "config": "hparams.json",
            "checkpoint": "model.ckpt",
            "vocab.json": "encoder.json",
            "merges.txt": "vocab.bpe",
        },
    ),
    "keras_hub": Converter(
        lambda checkpoint: checkpoint.config.get("class_name") == "GPT2Backbone",
        _KERAS_HUB_CONFIG,
        KERAS_HUB_NAMES,
        architectures={"": "GPT2Backbone", "causal_lm": "GPT2CausalLM"},
        tokenizer="GPT2Tokenizer",
    ),
}
