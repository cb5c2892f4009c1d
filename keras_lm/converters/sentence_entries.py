"""What the entries mean of each file in a folder of sentence-transformers, up to version 6."""

import re

from keras_lm.converters.entries import Entries

# Poolings, their names → ours, and the older flags, in the order in which several are joined.
POOLINGS = {
    "cls": "first",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}
FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "linear",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.activation.SiLU": "silu",
    "torch.nn.modules.activation.Mish": "mish",
    "torch.nn.modules.activation.ELU": "elu",
    "torch.nn.modules.activation.SELU": "selu",
    "torch.nn.modules.activation.ReLU6": "relu6",
    "torch.nn.modules.activation.Softplus": "softplus",
    "torch.nn.modules.activation.Softsign": "softsign",
    "torch.nn.modules.activation.Hardsigmoid": "hard_sigmoid",
    "torch.nn.modules.activation.Hardswish": "hard_silu",
    "torch.nn.modules.activation.Hardtanh": "hard_tanh",
    "torch.nn.modules.activation.CELU": "celu",
    "torch.nn.modules.activation.LogSigmoid": "log_sigmoid",
    "torch.nn.modules.activation.Hardshrink": "hard_shrink",
    "torch.nn.modules.activation.Softshrink": "soft_shrink",
    "torch.nn.modules.activation.Tanhshrink": "tanh_shrink",
}
# PyTorch has each of its classes in several modules.
_PLACE = re.compile(r"torch\.nn\.(modules\.)?((activation|linear)\.)?(?=\w+$)")
_OWN_ACTIVATIONS = {_PLACE.sub("", theirs): ours for theirs, ours in ACTIVATIONS.items()}


def own_activation(name):
    """Return our name of an activation, a class of PyTorch's by its whole name; None for none."""
    is_known = isinstance(name, str) and _PLACE.match(name)
    return _OWN_ACTIVATIONS.get(_PLACE.sub("", name)) if is_known else None


# modules.json, of each module.
MODULE = Entries(read={"type", "path"}, implied={"idx", "name"}, harmless={"kwargs"})
# config_sentence_transformers.json.
SETTINGS = Entries(
    read={"activation_fn", "default_prompt_name", "model_type", "prompts", "truncate_dim"},
    harmless={"__version__", "keep_in_fp32_modules", "requirements", "similarity_fn_name"},
)
# `sentence_transformers` in the config.json of a CrossEncoder.
CROSS_ENCODER = Entries(read={"activation_fn"}, harmless={"version"})
# router_config.json, and its `parameters`.
ROUTER = Entries(read={"types", "structure", "parameters"})
ROUTES = Entries(read={"default_route", "allow_empty_key"}, refused={"route_mappings": ({},)})

_OF_VECTORS = {
    "module_input_name": ("sentence_embedding",),
    "module_output_name": ("sentence_embedding",),
}
_TEXT = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
_NOTHING = ({},)
# Each module that is followed → its file's entries.
KNOWN = {
    "Transformer": Entries(
        read={"do_lower_case", "max_seq_length"},
        # Of the time that it takes, or of texts that are encoded as queries or documents.
        harmless={"document_length", "query_expansion", "query_length", "unpad_inputs"},
        refused={
            "transformer_task": ("feature-extraction",),
            "module_output_name": ("token_embeddings",),
            "modality_config": (_TEXT,),
            "processing_kwargs": _NOTHING,
            "model_args": _NOTHING,
            "model_kwargs": _NOTHING,
            "config_args": _NOTHING,
            "config_kwargs": _NOTHING,
            "tokenizer_args": _NOTHING,
            "processor_kwargs": _NOTHING,
            "tokenizer_name_or_path": (),
            "backend": ("torch",),
        },
    ),
    "WeightedLayerPooling": Entries(  # which does nothing unless `output_hidden_states` is stated
        harmless={"embedding_dimension", "word_embedding_dimension"}
        | {"layer_start", "num_hidden_layers"}
    ),
    "Pooling": Entries(
        read={"include_prompt", "pooling_mode", *FLAGS},
        implied={"embedding_dimension", "word_embedding_dimension"},
    ),
    "Dense": Entries(
        read={"activation_function", "bias", "in_features", "out_features", "use_residual"},
        refused=_OF_VECTORS,
    ),
    "LayerNorm": Entries(implied={"dimension"}),
    "Dropout": Entries(harmless={"dropout"}),
    "Normalize": Entries(refused=_OF_VECTORS),
}
# Entries of `model_args` and the like that change no output.
LOADING = {
    "attn_implementation",
    "device_map",
    "dtype",
    "low_cpu_mem_usage",
    "torch_dtype",
    "trust_remote_code",
    "use_fast",
    "use_safetensors",
}
