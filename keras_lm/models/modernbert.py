"""ModernBERT: an encoder of today's parts, for texts of up to 8,192 tokens.

Differs from BERT: norms come before each part of a block; nothing has a bias but the logits of
heads; instead of learned positions, queries and keys are rotated by theirs; two of three blocks
attend to near tokens only, and rotate faster; feed-forward networks have a gate; the first block
has no norm before attention, as the embedding has one; what BERT has before the logits of its
masked LM is here before those of all tasks; there are no segments and no pooler.

Shapes: B batch, S sequence, T what is attended to, D hidden, N heads, H per head.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Self

import keras

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.converter import (
    Activation,
    ConfigTable,
    Converter,
    Derived,
    Key,
    Refused,
    architectures,
    match_score,
)
from keras_lm.converters.entries import Entries
from keras_lm.converters.names import PYTORCH_LEAVES, NameTable, transpose_kernels
from keras_lm.converters.published_labels import huggingface_labels
from keras_lm.layers import AttentionContext, LayerNormalization, PaddingBias
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import make_token_embedding
from keras_lm.layers.transformer import block_options
from keras_lm.models.backbone import Backbone, Head, Input, from_backbone
from keras_lm.models.checked_arguments import Whole
from keras_lm.models.modernbert_layers import (
    FirstModernBertBlock,
    ModernBertBlock,
    ModernBertClassifier,
    ModernBertHead,
    ModernBertSpanHead,
    ModernBertTokenHead,
    NearBias,
    RotaryPositions,
)
from keras_lm.models.sizes import transformer_size
from keras_lm.models.students import chosen_layers
from keras_lm.packers import Template
from keras_lm.tokenizers.byte_pair import BytePairTokenizer
from keras_lm.utils.argument_types import DType, Tensor

POOLINGS = {"cls": "first", "mean": "mean"}  # Hugging Face's names → ours
_TRANSFORMATION = {
    "activation": from_backbone("classifier_activation"),
    "layer_norm_epsilon": from_backbone("layer_norm_epsilon"),
}
_OPTIONS = {"dropout": from_backbone("classifier_dropout", "dropout"), **_TRANSFORMATION}


def _check_arguments(classifier_pooling, num_heads, hidden_dim):
    if classifier_pooling not in POOLINGS.values():
        known = " or ".join(map(repr, POOLINGS.values()))
        raise ValueError(f"classifier_pooling={classifier_pooling!r}: pass {known}.")
    if hidden_dim % (2 * num_heads):
        raise ValueError(
            f"num_heads={num_heads} does not divide hidden_dim={hidden_dim} into even parts, "
            "whose halves are rotated: choose a num_heads that does."
        )


@keras.saving.register_keras_serializable("keras_lm")
class ModernBertBackbone(Backbone):
    """The encoder of ModernBERT. It is called like `BertBackbone`, without segments or a pooler.

    Its masked LM was trained with 30 % of the tokens masked, see the `rate` of
    `keras_lm.objectives.MaskedLanguageModel`.

    Args:
        vocabulary_size, num_layers, hidden_dim: int. V, the number of blocks, and D.
        num_heads: int. Attention heads per block; `hidden_dim / num_heads` must be even.
        intermediate_dim: int. Width of a feed-forward network after its gate.
        attention_windows: sequence of ints and Nones, repeated over the blocks: a token attends to
            those at most half of it away, on either side; None for all.
        rope_max_wavelength, local_rope_max_wavelength: float. The base of the angles of positions,
            in blocks without a window and in blocks with one; None for the second is the first.
        dropout: float. Fraction dropped in training inside feed-forward networks.
        attention_dropout, embedding_dropout, classifier_dropout: float, or None for `dropout`. The
            same for attention probabilities and what attention adds, for embeddings, and before the
            logits of heads.
        activation, classifier_activation: str. See `keras_lm.layers.get_activation`; the second is
            that of heads.
        classifier_pooling: str. Whether classifiers of texts and of choices read the `"first"`
            token, or the `"mean"`.
        max_sequence_length: int.
        layer_norm_epsilon: float.
        dtype: a dtype policy or its name, such as `"mixed_bfloat16"`.

    Raises:
        ValueError: if `num_heads` does not divide `hidden_dim` into even parts, a window is less
            than 2, or `classifier_pooling` is unknown.

    Example:

        backbone = keras_lm.models.ModernBertBackbone(
            vocabulary_size=100, num_layers=3, num_heads=2, hidden_dim=16, intermediate_dim=24
        )
        backbone({"token_ids": [[2, 7, 3]]})["sequence_output"].shape  # (1, 3, 16)

    Source: Warner et al. 2024, https://arxiv.org/abs/2412.13663, section 2 and appendix A; the
    network is Hugging Face's `modeling_modernbert.py`.
    """

    TEMPLATE = Template(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0")
    HEADS = {
        "classification": Head(
            ModernBertClassifier,
            "classifier",
            pooling=from_backbone("classifier_pooling"),
            **_OPTIONS,
        ),
        "multiple_choice": Head(
            ModernBertClassifier,
            "classifier",
            num_classes=1,
            pooling=from_backbone("classifier_pooling"),
            **_OPTIONS,
        ),
        "token_classification": Head(ModernBertHead, "classifier", **_OPTIONS),
        "question_answering": Head(ModernBertSpanHead, "span_head", **_OPTIONS),
        "token": Head(
            ModernBertTokenHead,
            "token_head",
            token_embedding=from_backbone("token_embedding"),
            **_TRANSFORMATION,
        ),
    }
    # No tensor has an axis of positions.
    RANGES = {"max_sequence_length": Whole(is_axis=False)}
    PRETRAINING_HEADS = {"token_logits": "token"}
    tokenizer_class = BytePairTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        attention_windows: Sequence[int | None] = (None, 128, 128),
        rope_max_wavelength: float = 160000.0,
        local_rope_max_wavelength: float | None = 10000.0,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        embedding_dropout: float | None = None,
        classifier_dropout: float | None = None,
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        classifier_activation: str | Callable[[Tensor], Tensor] = "gelu",
        classifier_pooling: str = "first",
        max_sequence_length: int = 8192,
        layer_norm_epsilon: float = 1e-5,
        dtype: DType = None,
        name: str = "modernbert_backbone",
    ):
        super().__init__(
            inputs={
                "token_ids": Input(),
                "padding_mask": Input(default=1, like="token_ids"),
            },
            dtype=dtype,
            name=name,
        )
        _check_arguments(classifier_pooling, num_heads, hidden_dim)
        self.token_embedding = make_token_embedding(vocabulary_size, hidden_dim, dtype)
        self.embedding_norm = LayerNormalization(
            epsilon=layer_norm_epsilon, center=False, dtype=dtype, name="embedding_norm"
        )
        self.embedding_dropout = Dropout(
            dropout if embedding_dropout is None else embedding_dropout, dtype=dtype
        )
        # The window of each block, and what attention has by its window.
        self.windows = [attention_windows[i % len(attention_windows)] for i in range(num_layers)]
        kinds = list(dict.fromkeys(self.windows))
        self.attention_biases = [
            PaddingBias() if window is None else NearBias(window) for window in kinds
        ]
        wavelengths = {None: rope_max_wavelength}
        near = local_rope_max_wavelength or rope_max_wavelength
        self.positions = [
            RotaryPositions(hidden_dim // num_heads, wavelengths.get(window, near))
            for window in kinds
        ]
        self.blocks = [
            (ModernBertBlock if i else FirstModernBertBlock)(
                **block_options(self.config, dtype),
                output_stddev=0.02 / (2 * num_layers) ** 0.5,
                name=f"block_{i}",
            )
            for i in range(num_layers)
        ]
        self.final_norm = LayerNormalization(
            epsilon=layer_norm_epsilon, center=False, dtype=dtype, name="final_norm"
        )
        self.finish()

    def with_layers(self, layers: Sequence[int]) -> Self:
        """Return a copy as `Backbone.with_layers`; its first block has to be the first one.

        Raises:
            ValueError: as there, or if the first block is not the copy's first, or is in it twice.
        """
        layers = chosen_layers(self, layers)
        if layers[0] != 0 or 0 in layers[1:]:
            raise ValueError(
                f"layers={layers}: block 0, which alone has no norm before attention, must be the "
                "first of them, and there once."
            )
        return super().with_layers(layers)

    def attended_tokens(self):
        limit = self.max_sequence_length
        reach = [limit if window is None else window // 2 + 1 for window in self.windows]
        return sum(min(limit, number) for number in reach)

    def forward(self, token_ids, padding_mask, training=None):
        x = self.embedding_norm(self.token_embedding(token_ids))
        hidden_states = [x]  # (B, S, D)
        x = self.embedding_dropout(x, training=training)
        found = [
            AttentionContext(bias=bias(padding_mask), positions=positions(padding_mask))
            for bias, positions in zip(self.attention_biases, self.positions, strict=True)
        ]
        by_window = dict(zip(dict.fromkeys(self.windows), found, strict=True))
        contexts = [by_window[window] for window in self.windows]
        for block, context in zip(self.blocks, contexts, strict=True):
            x, _ = block(x, context, training=training)
            hidden_states.append(x)
        x = hidden_states[-1] = self.final_norm(x)
        return {
            "sequence_output": x,
            "hidden_states": hidden_states,
            "attention_contexts": contexts,
        }


ModernBertBackbone.SIZES = {
    "modernbert_base_en": transformer_size(50368, 22, 768, 12, 1152),
    "modernbert_large_en": transformer_size(50368, 28, 1024, 16, 2624),
}
ModernBertBackbone.PUBLISHED = {
    "modernbert_base_en": "hf://answerdotai/ModernBERT-base",
    "modernbert_large_en": "hf://answerdotai/ModernBERT-large",
}

# === Checkpoints ===

NAMES = NameTable(
    {
        "token_embedding": "embeddings.tok_embeddings",
        "embedding_norm": "embeddings.norm",
        "block_{i}/attention/query_key_value": "layers.{i}.attn.Wqkv",
        "block_{i}/attention/output": "layers.{i}.attn.Wo",
        "block_{i}/attention_norm": "layers.{i}.attn_norm",
        "block_{i}/feedforward/intermediate": "layers.{i}.mlp.Wi",
        "block_{i}/feedforward/output": "layers.{i}.mlp.Wo",
        "block_{i}/feedforward_norm": "layers.{i}.mlp_norm",
        "final_norm": "final_norm",
        "classifier/transformation/dense": "head.dense",
        "classifier/transformation/norm": "head.norm",
        "classifier/logits": "classifier",
        "span_head/transformation/dense": "head.dense",
        "span_head/transformation/norm": "head.norm",
        "span_head/logits": "classifier",
        "token_head/transformation/dense": "head.dense",
        "token_head/transformation/norm": "head.norm",
        "token_head/bias": "decoder.bias",
    },
    leaves=PYTORCH_LEAVES,
    layout=transpose_kernels,
    prefix=r"model\.",
    copies={"decoder.weight": "embeddings.tok_embeddings.weight"},
)

_KINDS = ("full_attention", "sliding_attention")


def _rope(config, kind):
    """Return what a configuration in the newer form states of positions in one kind of block."""
    found = (config.get("rope_parameters") or {}).get(kind)
    return found if isinstance(found, dict) else {}


def _check(checkpoint):
    """Raise a CheckpointError for other kinds of blocks or of positions."""
    config = checkpoint.config
    kinds = config.get("layer_types")
    if kinds is not None and (
        len(kinds) != config["num_hidden_layers"] or not set(kinds) <= {*_KINDS}
    ):
        raise CheckpointError(
            f"{checkpoint.source}: its configuration has layer_types={kinds!r}, and known is a "
            f"list of num_hidden_layers={config['num_hidden_layers']} entries, each "
            f"{' or '.join(_KINDS)}."
        )
    # Version 5 of transformers takes half of the window from here, version 4 does not.
    half, width = config.get("sliding_window"), config.get("local_attention", 128)
    if half is not None and half != width // 2:
        raise CheckpointError(
            f"{checkpoint.source}: its configuration has sliding_window={half!r}, and "
            f"local_attention={width!r} asks for {width // 2}: delete the one that is wrong."
        )
    for kind in config.get("rope_parameters") or {}:
        if kind not in _KINDS:
            raise CheckpointError(
                f"{checkpoint.source}: its configuration has rope_parameters of {kind!r}, and "
                f"known are those of {' and '.join(_KINDS)}."
            )
    for kind in _KINDS:
        rope_type = _rope(config, kind).get("rope_type", "default")
        if rope_type != "default":
            raise CheckpointError(
                f"{checkpoint.source}: its configuration has rope_type={rope_type!r}, and "
                f"{ModernBertBackbone.__name__} knows only 'default'."
            )


def _read_windows(config, tensors):
    width, kinds = config.get("local_attention", 128), config.get("layer_types")
    if kinds is None:
        turn = min(config.get("global_attn_every_n_layers", 3), len(tensors))
        return [None, *[width] * (turn - 1)]
    return [None if kind == "full_attention" else width for kind in kinds]


def _write_windows(arguments):
    windows, number = arguments["attention_windows"], arguments["num_layers"]
    windows = [windows[i % len(windows)] for i in range(number)]
    widths = sorted({width for width in windows if width is not None})
    if len(widths) > 1:
        raise Refused("attention_windows", windows, "one width in all blocks that have a window")
    config = {"layer_types": [_KINDS[width is not None] for width in windows]}
    config |= {"local_attention": widths[0]} if widths else {}
    # Version 4 of transformers reads this alone.
    turn = next((i for i in range(1, number) if windows[i] is None), number)
    is_regular = all((width is None) == (i % turn == 0) for i, width in enumerate(windows))
    return config | ({"global_attn_every_n_layers": turn} if is_regular else {})


def _write_wavelengths(arguments):
    wavelength = arguments["rope_max_wavelength"]
    bases = (wavelength, arguments["local_rope_max_wavelength"] or wavelength)
    parameters = {
        kind: {"rope_type": "default", "rope_theta": base}
        for kind, base in zip(_KINDS, bases, strict=True)
    }
    older = {"global_rope_theta": bases[0], "local_rope_theta": bases[1]}
    return {"rope_parameters": parameters, **older}


def _rate(key):
    """Return the rule of a fraction to drop, None if it is `dropout`."""

    def read(config, tensors):
        found = config.get(key, 0.0)
        return None if found == config.get("mlp_dropout", 0.0) else found

    return Derived(
        read,
        lambda arguments: {key: arguments["dropout"] if arguments[key] is None else arguments[key]},
    )


_CONFIG = ConfigTable(
    ModernBertBackbone,
    "modernbert",
    {
        # The ids that transformers takes for granted may be more than there are.
        "vocabulary_size": Derived(
            lambda config, _: config["vocab_size"],
            lambda arguments: (
                {"vocab_size": arguments["vocabulary_size"]}
                | dict.fromkeys(f"{role}_token_id" for role in ("pad", "bos", "eos", "cls", "sep"))
            ),
        ),
        "num_layers": Key("num_hidden_layers"),
        "num_heads": Key("num_attention_heads"),
        "hidden_dim": Key("hidden_size"),
        "intermediate_dim": Key("intermediate_size"),
        "attention_windows": Derived(_read_windows, _write_windows),
        "rope_max_wavelength": Derived(
            lambda config, _: _rope(config, _KINDS[0]).get(
                "rope_theta", config.get("global_rope_theta", 160000.0)
            ),
            _write_wavelengths,
        ),
        "local_rope_max_wavelength": Derived(
            lambda config, _: _rope(config, _KINDS[1]).get(
                "rope_theta", config.get("local_rope_theta", 10000.0)
            )
        ),
        "dropout": Key("mlp_dropout", 0.0),
        "attention_dropout": _rate("attention_dropout"),
        "embedding_dropout": _rate("embedding_dropout"),
        "classifier_dropout": _rate("classifier_dropout"),
        "activation": Activation("hidden_activation"),
        "classifier_activation": Activation("classifier_activation"),
        "classifier_pooling": Derived(
            lambda config, _: POOLINGS.get(name := config.get("classifier_pooling", "cls"), name),
            lambda arguments: {
                "classifier_pooling": {ours: theirs for theirs, ours in POOLINGS.items()}[
                    arguments["classifier_pooling"]
                ]
            },
        ),
        "max_sequence_length": Key("max_position_embeddings", 8192),
        "layer_norm_epsilon": Key("norm_eps", 1e-5),
    },
    Entries(
        read={
            "attention_dropout",
            "classifier_dropout",
            "classifier_pooling",
            "embedding_dropout",
            "global_attn_every_n_layers",
            "global_rope_theta",
            "layer_types",
            "local_attention",
            "local_rope_theta",
            "rope_parameters",
            "sliding_window",
            "vocab_size",
        },
        harmless={
            "deterministic_flash_attn",
            "initializer_cutoff_factor",
            "layer_norm_eps",  # published beside norm_eps, which is read, as the next but two
            "position_embedding_type",
            "reference_compile",
            "repad_logits_with_grad",
            "sparse_pred_ignore_index",
            "sparse_prediction",
        },
        refused={
            "norm_bias": (False,),
            "attention_bias": (False,),
            "mlp_bias": (False,),
            "classifier_bias": (False,),
            "decoder_bias": (True,),
            "rope_scaling": (),
        },
    ),
    _check,
)

ModernBertBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(
            match_score,
            model_type="modernbert",
            tensors=["layers.0.attn.Wqkv.weight"],
            prefix="model.",
        ),
        _CONFIG,
        NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "classifier.weight"),
        architectures=architectures("ModernBert"),
    ),
}
