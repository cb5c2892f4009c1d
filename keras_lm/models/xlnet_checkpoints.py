"""What published files of XLNet call its weights, and what their configurations say."""

import functools
import re

import numpy as np

from keras_lm.converters.checked_files import Entries
from keras_lm.converters.converter import (
    GOOGLE_LEAVES,
    INDEX,
    Activation,
    ConfigTable,
    Converter,
    Derived,
    Key,
    NameTable,
    PyTorchNames,
    Refused,
    architectures,
    match_score,
    own_activation,
    read,
    require_only,
    transpose_kernels,
)
from keras_lm.converters.published_labels import CONDITIONAL_ENDS, Labels, huggingface_labels
from keras_lm.models.xlnet import XLNetBackbone

# Ours → Hugging Face's, and google's, which has those of all blocks in one tensor.
_OF_LAYERS = {"segments": "seg_embed", "segment_bias": "r_s_bias"}
_OF_LAYERS |= {"biases/content": "r_w_bias", "biases/position": "r_r_bias"}


def _layout(path, array):
    """Kernels of attention are (D, N, H), that of its output too."""
    if path == "target_embedding/embeddings":
        return array.reshape(1, -1)
    if "/attention/" in path and path.endswith("/kernel"):
        array = array.reshape(array.shape[0], -1)
        return array.T if path.endswith("/output/kernel") else array
    return array


def _huggingface_layout(path, array):
    return transpose_kernels(path, array) if array.ndim == 2 else _layout(path, array)


def _stored_layout(path, array, arguments):
    if path == "target_embedding/embeddings":
        return array[:, np.newaxis]
    if "/attention/" in path and path.endswith("/kernel"):
        array = array.T if path.endswith("/output/kernel") else array
        return array.reshape(array.shape[0], arguments["num_heads"], -1)
    return transpose_kernels(path, array)


def _google_layout(path, array):
    names = [f"/attention/{name}" for name in _OF_LAYERS]
    if path.endswith(tuple(names)):
        is_shared = array.ndim == (3 if path.endswith("/segments") else 2)  # `untie_r` is False
        return array if is_shared else array[int(INDEX.search(path)[1])]
    return _layout(path, array)


_LAYER = "layer.{i}.rel_attn"
HUGGINGFACE_NAMES = PyTorchNames(
    {
        "token_embedding": "word_embedding",
        "target_embedding/embeddings": "mask_emb",
        "block_{i}/attention/query_key_value/kernel": tuple(f"{_LAYER}.{part}" for part in "qkv"),
        "block_{i}/attention/position/kernel": f"{_LAYER}.r",
        "block_{i}/attention/output/kernel": f"{_LAYER}.o",
        **{f"block_{{i}}/attention/{n}": f"{_LAYER}.{their}" for n, their in _OF_LAYERS.items()},
        "block_{i}/attention_norm": f"{_LAYER}.layer_norm",
        "block_{i}/feedforward/intermediate": "layer.{i}.ff.layer_1",
        "block_{i}/feedforward/output": "layer.{i}.ff.layer_2",
        "block_{i}/feedforward_norm": "layer.{i}.ff.layer_norm",
        "token_head/bias": "lm_loss.bias",
        "classifier/pooler": "sequence_summary.summary",
        "classifier/logits": "logits_proj",
        "token_classifier/logits": "classifier",
        "span_head/logits": "qa_outputs",
        "conditional_span_head/start": "start_logits.dense",
        "conditional_span_head/end_inner": "end_logits.dense_0",
        "conditional_span_head/end_norm": "end_logits.LayerNorm",
        "conditional_span_head/end": "end_logits.dense_1",
        "conditional_span_head/null_inner": "answer_class.dense_0",
        "conditional_span_head/null": "answer_class.dense_1",
    },
    layout=_huggingface_layout,
    stored_layout=_stored_layout,
    prefix=r"transformer\.",
    copies={"lm_loss.weight": "word_embedding.weight"},
)
GOOGLE_NAMES = NameTable(
    {
        "token_embedding": "transformer/word_embedding/lookup_table",
        "target_embedding/embeddings": "transformer/mask_emb/mask_emb",
        "block_{i}/attention/query_key_value": tuple(
            f"transformer/layer_{{i}}/rel_attn/{part}" for part in "qkv"
        ),
        "block_{i}/attention/position": "transformer/layer_{i}/rel_attn/r",
        "block_{i}/attention/output": "transformer/layer_{i}/rel_attn/o",
        **{f"block_{{i}}/attention/{n}": f"transformer/{their}" for n, their in _OF_LAYERS.items()},
        "block_{i}/attention_norm": "transformer/layer_{i}/rel_attn/LayerNorm",
        "block_{i}/feedforward/intermediate": "transformer/layer_{i}/ff/layer_1",
        "block_{i}/feedforward/output": "transformer/layer_{i}/ff/layer_2",
        "block_{i}/feedforward_norm": "transformer/layer_{i}/ff/LayerNorm",
        "token_head/bias": "lm_loss/bias",
        "classifier/pooler": "sequnece_summary/summary",  # their spelling
        "classifier/logits": "logits",
        "conditional_span_head/start": "start_logits",
        "conditional_span_head/end_inner": "end_logits/dense_0",
        "conditional_span_head/end_norm": "end_logits/LayerNorm",
        "conditional_span_head/end": "end_logits/dense_1",
        "conditional_span_head/null_inner": "answer_class/dense_0",
        "conditional_span_head/null": "answer_class/dense_1",
    },
    leaves=GOOGLE_LEAVES,
    layout=_google_layout,
    # A classifier's scope has the name of its task, such as `regression_sts-b`.
    prefix=r"model/(?:(?:classification|regression)_[^/]+/)?",
    spellings={"/logit/": "/logits/", "logits/dense/": "logits/"},  # the second for RACE
)


def _check_huggingface(checkpoint):
    known = {"bi_data": False}  # see the input `is_reversed`
    if checkpoint.config.get("attn_type", "bi") == "uni":
        known |= {"same_length": False}  # which has no effect in both directions
    else:
        known |= {"attn_type": "bi"}
    if "logits_proj.weight" in checkpoint.tensors:
        known |= {"summary_type": "last", "summary_use_proj": True, "summary_activation": "tanh"}
    require_only(checkpoint, XLNetBackbone, known)


def _head_dim(arguments):
    usual = arguments["hidden_dim"] // arguments["num_heads"]
    if arguments["head_dim"] not in (None, usual):
        raise Refused("head_dim", arguments["head_dim"], f"hidden_dim / num_heads, {usual}")
    return {"d_head": usual}


def _one_dropout(arguments):
    if arguments["attention_dropout"] != arguments["dropout"]:
        known = f"that of dropout, {arguments['dropout']}"
        raise Refused("attention_dropout", arguments["attention_dropout"], known)
    return {}


def _clamp_length(config, tensors=None):
    length = config.get("clamp_len", -1)
    return length if length > 0 else None


_CONFIG = ConfigTable(
    XLNetBackbone,
    "xlnet",
    {
        "vocabulary_size": Key("vocab_size"),
        "num_layers": Key("n_layer"),
        "num_heads": Key("n_head"),
        "hidden_dim": Key("d_model"),
        "intermediate_dim": Key("d_inner"),
        "head_dim": Derived(lambda config, _: config.get("d_head"), _head_dim),
        "memory_length": Derived(
            lambda config, _: config.get("mem_len") or 0,
            lambda arguments: {"mem_len": arguments["memory_length"] or None},
        ),
        "reuse_length": Derived(
            lambda config, _: config.get("reuse_len") or None,
            lambda arguments: {"reuse_len": arguments["reuse_length"]},
        ),
        "causal": Derived(
            lambda config, _: config.get("attn_type", "bi") == "uni",
            lambda arguments: {"attn_type": "uni" if arguments["causal"] else "bi"},
        ),
        "clamp_length": Derived(
            _clamp_length, lambda arguments: {"clamp_len": arguments["clamp_length"] or -1}
        ),
        "dropout": Key("dropout", 0.1),
        "attention_dropout": Derived(lambda config, _: config.get("dropout", 0.1), _one_dropout),
        "activation": Activation("ff_activation"),
        "layer_norm_epsilon": Key("layer_norm_eps", 1e-12),
    },
    Entries(
        read={
            "attn_type",
            "bi_data",
            "clamp_len",
            "d_head",
            "end_n_top",
            "mem_len",
            "reuse_len",
            "same_length",
            "start_n_top",
            "summary_activation",
            "summary_type",
            "summary_use_proj",
        },
        harmless={"init", "init_range", "init_std", "untie_r", "use_mems_eval", "use_mems_train"},
    ),
    _check_huggingface,
    rates={"summary_last_dropout": (0.1, "dropout")},
    aliases={
        "hidden_size": "d_model",
        "n_token": "vocab_size",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
)


def _google_config(checkpoint):
    config = checkpoint.config
    # "gelu" is the tanh form in this code.
    activation = own_activation(config["ff_activation"], {"gelu": "gelu_tanh"})
    sizes = {"num_layers", "num_heads", "hidden_dim", "intermediate_dim", "head_dim"}
    arguments = read({name: rule for name, rule in _CONFIG.rules.items() if name in sizes}, config)
    return arguments | {"vocabulary_size": config["n_token"], "activation": activation}


def _labels(checkpoint):
    if "start_logits.dense.weight" in checkpoint.tensors:
        arguments = {name: checkpoint.config.get(key, 5) for name, key in CONDITIONAL_ENDS.items()}
        arguments |= {"conditional_ends": True}
        return Labels(2, problem_type="question_answering", arguments=arguments)
    return huggingface_labels(checkpoint, "logits_proj.weight", "classifier.weight")


def _google_labels(checkpoint):
    tensors = checkpoint.tensors
    if "start_logits/dense/kernel" in tensors:
        arguments = {"conditional_ends": True}
        return Labels(2, problem_type="question_answering", arguments=arguments)
    if "logits/dense/kernel" in tensors:
        return Labels(1, problem_type="multiple_choice")
    for name in tensors:
        if is_of_texts := re.search(r"(classification|regression)_[^/]+/logit/kernel$", name):
            kinds = {"classification": "single_label_classification"}
            kind = kinds.get(is_of_texts[1], "regression")
            return Labels(tensors.shape(name)[1], problem_type=kind)
    return None


XLNetBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(
            match_score,
            model_type="xlnet",
            tensors=["mask_emb", "layer.0.rel_attn.r_s_bias"],
            prefix="transformer.",
        ),
        _CONFIG,
        HUGGINGFACE_NAMES,
        _labels,
        architectures=architectures(
            "XLNet",
            token="LMHeadModel",
            question_answering="ForQuestionAnsweringSimple",
            conditional_question_answering="ForQuestionAnswering",
        ),
    ),
    "google": Converter(
        lambda checkpoint: "model/transformer/mask_emb/mask_emb" in checkpoint.tensors,
        _google_config,
        GOOGLE_NAMES,
        _google_labels,
    ),
}
