"""What published files of DeBERTa call its weights, and what their configurations say."""

import functools

from keras_lm.converters.checked_files import PLAIN_ENCODER, CheckpointError, Entries
from keras_lm.converters.converter import (
    Activation,
    ConfigTable,
    Converter,
    Derived,
    Fixed,
    KerasHubNames,
    Key,
    PyTorchNames,
    architectures,
    counts,
    dropout_rules,
    keras_hub_blocks,
    keras_hub_table,
    match_score,
    require_only,
    split_heads,
    transpose_kernels,
)
from keras_lm.converters.published_labels import huggingface_labels, keras_hub_labels
from keras_lm.models.deberta import TERMS, DebertaV3Backbone

_LAYER = "encoder.layer.{i}"
# Of the two heads that Hugging Face has for masked tokens, the second is the authors'. Only their
# names differ, so the first, which is Hugging Face's usual one, is written.
_LEGACY, _AUTHORS = "cls.predictions", "lm_predictions.lm_head"


def _convolution_layout(path, array):
    if path == "convolution/dense/kernel":  # (D, D, tokens), outputs first
        return array.transpose(2, 1, 0).reshape(-1, array.shape[0])
    return transpose_kernels(path, array)


def _stored_convolution(path, array, arguments):
    if path == "convolution/dense/kernel":
        return array.reshape(arguments["conv_kernel_size"], -1, array.shape[1]).transpose(2, 1, 0)
    return transpose_kernels(path, array)


HUGGINGFACE_NAMES = PyTorchNames(
    {
        "token_embedding": "embeddings.word_embeddings",
        "position_embedding": "embeddings.position_embeddings",
        "segment_embedding": "embeddings.token_type_embeddings",
        "projection": "embeddings.embed_proj",
        "embedding_norm": "embeddings.LayerNorm",
        "distances": "encoder.rel_embeddings",
        "distances/norm": "encoder.LayerNorm",
        "convolution/dense": "encoder.conv.conv",
        "convolution/norm": "encoder.conv.LayerNorm",
        "block_{i}/attention/query_key_value": tuple(
            f"{_LAYER}.attention.self.{part}_proj" for part in ("query", "key", "value")
        ),
        "block_{i}/attention/position_key": f"{_LAYER}.attention.self.pos_key_proj",
        "block_{i}/attention/position_query": f"{_LAYER}.attention.self.pos_query_proj",
        "block_{i}/attention/output": f"{_LAYER}.attention.output.dense",
        "block_{i}/attention_norm": f"{_LAYER}.attention.output.LayerNorm",
        "block_{i}/feedforward/intermediate": f"{_LAYER}.intermediate.dense",
        "block_{i}/feedforward/output": f"{_LAYER}.output.dense",
        "block_{i}/feedforward_norm": f"{_LAYER}.output.LayerNorm",
        "classifier/pooler": "pooler.dense",
        "classifier/logits": "classifier",
        "span_head/logits": "qa_outputs",
        "replaced_head/norm": "mask_predictions.LayerNorm",
        "replaced_head/dense": "mask_predictions.dense",
        "replaced_head/logits": "mask_predictions.classifier",
        "token_head/dense": {None: f"{_LEGACY}.transform.dense", "authors": f"{_AUTHORS}.dense"},
        "token_head/norm": {
            None: f"{_LEGACY}.transform.LayerNorm",
            "authors": f"{_AUTHORS}.LayerNorm",
        },
        "token_head/bias": {None: f"{_LEGACY}.bias", "authors": f"{_AUTHORS}.bias"},
    },
    layout=_convolution_layout,
    stored_layout=_stored_convolution,
    prefix=r"deberta\.",
    spellings={
        "LayerNorm.gamma": "LayerNorm.weight",
        "LayerNorm.beta": "LayerNorm.bias",
        "mask_predictions.classifer": "mask_predictions.classifier",  # in the authors' code
    },
    buffers={"embeddings.position_ids": counts},
    copies={
        f"{_LEGACY}.decoder.weight": "embeddings.word_embeddings.weight",
        f"{_LEGACY}.decoder.bias": f"{_LEGACY}.bias",
    },
)


def _keras_hub_stored_layout(path, array, arguments):
    is_output = path.endswith("attention/output/kernel")  # (D, D) in this attention
    return array if is_output else split_heads(path, array, arguments)


KERAS_HUB_NAMES = KerasHubNames(
    {
        "token_embedding": "reversible_embedding",
        "embedding_norm": "layer_normalization",
        "distances": "relative_embedding",
        "distances/norm": "relative_embedding/layer_norm",
        **keras_hub_blocks("disentangled_attention_encoder", mark="_"),
        "classifier/pooler": "task/layers/dense",
        "classifier/logits": "task/layers/dense_1",
        # Its masked-LM head differs from its backbone in epsilon, so it is not loaded.
    },
    stored_layout=_keras_hub_stored_layout,
    ignored="task/optimizer/.*",
    spellings={"disentangled_attention_encoder/": "disentangled_attention_encoder_0/"},
)


def _terms(config, tensors=None):
    stated = config.get("pos_att_type") or []
    stated = stated.split("|") if isinstance(stated, str) else stated
    return [term.strip().lower() for term in stated if term.strip().lower() != "none"]


def _write_terms(arguments):
    terms = arguments["position_attention"]
    return {"relative_attention": bool(terms), "pos_att_type": list(terms)}


def _has_norm(config, tensors=None):
    return "layer_norm" in map(str.strip, config.get("norm_rel_ebd", "none").lower().split("|"))


def _write_norm(arguments):
    has_norm = arguments["normalize_distances"] and arguments["position_attention"]
    return {"norm_rel_ebd": "layer_norm" if has_norm else "none"}


def _buckets(config, tensors=None):
    size = config.get("position_buckets", -1)
    return size if size > 0 else None


def _max_distance(config, tensors=None):
    most = config.get("max_relative_positions", -1)
    return most if most > 0 else config.get("max_position_embeddings", 512)


def _write_max_distance(arguments):
    is_usual = arguments["max_distance"] == arguments["max_sequence_length"]
    return {"max_relative_positions": -1 if is_usual else arguments["max_distance"]}


def _if_set(name, key):
    """Return what writes an argument that is None, or 0, where there is no such entry."""
    return lambda arguments: {key: arguments[name]} if arguments[name] else {}


def _check_huggingface(checkpoint):
    config, terms = checkpoint.config, _terms(checkpoint.config)
    unknown = [term for term in terms if term not in TERMS]
    if unknown or (terms and not config.get("relative_attention", False)):
        raise CheckpointError(
            f"{checkpoint.source}: its configuration has pos_att_type={config['pos_att_type']!r} "
            f"and relative_attention={config.get('relative_attention', False)!r}, and "
            f"DebertaV3Backbone supports only {' and '.join(TERMS)}, with relative_attention."
        )
    width = config["hidden_size"]
    known = {
        "conv_groups": 1,
        "pooler_hidden_size": width,
        "attention_head_size": width // config["num_attention_heads"],
    }
    require_only(checkpoint, DebertaV3Backbone, known)
    rows = 2 * (_buckets(config) or _max_distance(config))
    for name in checkpoint.tensors:
        if terms and name.endswith("encoder.rel_embeddings.weight"):
            stored_rows = checkpoint.tensors.shape(name)[0]
            if stored_rows != rows:
                raise CheckpointError(
                    f"{checkpoint.source}: {name} has {stored_rows} rows, and its configuration "
                    f"asks for {rows}, so it is another checkpoint's. Copy or download it again."
                )


HUGGINGFACE_CONFIG = ConfigTable(
    DebertaV3Backbone,
    "deberta-v2",
    {
        "vocabulary_size": Key("vocab_size"),
        "num_layers": Key("num_hidden_layers"),
        "num_heads": Key("num_attention_heads"),
        "hidden_dim": Key("hidden_size"),
        "intermediate_dim": Key("intermediate_size"),
        "embedding_dim": Derived(
            lambda config, _: config.get("embedding_size", config["hidden_size"]),
            _if_set("embedding_dim", "embedding_size"),
        ),
        "position_attention": Derived(_terms, _write_terms),
        "bucket_size": Derived(
            _buckets, lambda arguments: {"position_buckets": arguments["bucket_size"] or -1}
        ),
        "max_distance": Derived(_max_distance, _write_max_distance),
        "share_projections": Key("share_att_key", False),
        "normalize_distances": Derived(_has_norm, _write_norm),
        "use_position_embedding": Key("position_biased_input", True),
        "num_segments": Key("type_vocab_size", 0),
        "conv_kernel_size": Derived(
            lambda config, _: max(config.get("conv_kernel_size", 0), 0),
            _if_set("conv_kernel_size", "conv_kernel_size"),
        ),
        "conv_activation": Activation("conv_act", "tanh"),
        **dropout_rules("hidden_dropout_prob", "attention_probs_dropout_prob"),
        "classifier_dropout": Derived(
            lambda config, _: config.get("cls_dropout"),
            _if_set("classifier_dropout", "cls_dropout"),
        ),
        "pooler_dropout": Key("pooler_dropout", 0.0),
        "pooler_activation": Activation("pooler_hidden_act"),
        "activation": Activation("hidden_act"),
        "max_sequence_length": Key("max_position_embeddings", 512),
        "layer_norm_epsilon": Key("layer_norm_eps", 1e-7),
    },
    PLAIN_ENCODER
    | Entries(
        read={
            "attention_head_size",
            "cls_dropout",
            "conv_groups",
            "conv_kernel_size",
            "embedding_size",
            "max_relative_positions",
            "norm_rel_ebd",
            "pooler_hidden_size",
            "pos_att_type",
            "position_buckets",
            "relative_attention",
        },
        implied={"legacy"},  # the names of its head's tensors
    ),
    _check_huggingface,
)


_KERAS_HUB_CONFIG = keras_hub_table(
    DebertaV3Backbone,
    "bucket_size",
    embedding_dim=Fixed(None, lambda given: given["embedding_dim"] == given["hidden_dim"]),
    position_attention=Fixed(TERMS, lambda given: set(given["position_attention"]) == set(TERMS)),
    max_distance=Fixed(None, lambda given: given["max_distance"] == given["max_sequence_length"]),
    share_projections=True,
    normalize_distances=True,
    use_position_embedding=False,
    num_segments=0,
    conv_kernel_size=0,
    conv_activation=Fixed("tanh", lambda given: not given["conv_kernel_size"]),
    classifier_dropout=Derived(lambda config, tensors: None),  # its task has it
    pooler_dropout=Derived(lambda config, tensors: 0.0),
    pooler_activation="gelu",
    activation="gelu",
    layer_norm_epsilon=1e-7,
)


DebertaV3Backbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(
            match_score,
            model_type="deberta-v2",
            tensors=["encoder.rel_embeddings.weight"],
            prefix="deberta.",
            own=r"attention\.self\.query_proj\.weight$",
        ),
        HUGGINGFACE_CONFIG,
        HUGGINGFACE_NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "classifier.weight"),
        vocabulary={"usual_family": "deberta"},
        architectures=architectures("DebertaV2"),
        # Transformers 5's own class leaves out the model's table of characters.
    ),
    "keras_hub": Converter(
        lambda checkpoint: checkpoint.config.get("class_name") == "DebertaV3Backbone",
        _KERAS_HUB_CONFIG,
        KERAS_HUB_NAMES,
        keras_hub_labels,
        vocabulary={"usual_family": "deberta"},
        architectures={"": "DebertaV3Backbone", "classification": "DebertaV3TextClassifier"},
        tokenizer="DebertaV3Tokenizer",
    ),
}
