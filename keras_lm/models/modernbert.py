"""ModernBERT: BERT with newer building blocks, for texts of up to 8,192 tokens.

Differs from BERT: norms come before each part of a block; nothing has a bias but the logits of
heads; instead of learned positions, queries and keys are rotated by theirs; two of three blocks
attend to near tokens only, and rotate faster; feed-forward networks have a gate; the first block
has no norm before attention, as the embedding has one; what BERT has before the logits of its
masked LM is here before those of all tasks; there are no segments and no pooler.

Shapes: B batch, S sequence, T what is attended to, D hidden, N heads, H per head.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

import keras

from keras_lm.layers import AttentionContext, LayerNormalization, PaddingBias
from keras_lm.layers.attention import block_options
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import make_token_embedding
from keras_lm.layers.rotary import RotaryPositions, check_halves
from keras_lm.models.backbone import TOKENS, Backbone, Head, from_backbone
from keras_lm.models.modernbert_layers import (
    FirstModernBertBlock,
    ModernBertBlock,
    ModernBertClassifier,
    ModernBertHead,
    ModernBertSpanHead,
    ModernBertTokenHead,
    NearBias,
)
from keras_lm.models.sizes import transformer_size
from keras_lm.models.students import chosen_layers
from keras_lm.packers import Template
from keras_lm.presets.argument_ranges import Whole
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
    check_halves(num_heads, hidden_dim)


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
    RANGES = {"max_sequence_length": Whole()}  # which no tensor is: positions are rotations
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
        super().__init__(TOKENS, dtype, name)
        _check_arguments(classifier_pooling, num_heads, hidden_dim)
        self.token_embedding = make_token_embedding(vocabulary_size, hidden_dim, dtype)
        self.embedding_norm = LayerNormalization(
            epsilon=layer_norm_epsilon, center=False, dtype=dtype, name="embedding_norm"
        )
        self.embedding_dropout = Dropout(
            dropout if embedding_dropout is None else embedding_dropout, dtype=dtype
        )
        # The window of each block, and what attention has by its window.
        self.windows: list[int | None] = [
            attention_windows[i % len(attention_windows)] for i in range(num_layers)
        ]
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
                f"layers={layers}: block 0, which alone has no norm before attention, must come "
                "first, and only once."
            )
        return super().with_layers(layers)

    def attended_tokens(self) -> int:
        limit = self.max_sequence_length
        reach = [limit if window is None else window // 2 + 1 for window in self.windows]
        return sum(min(limit, number) for number in reach)

    def forward(
        self, token_ids: Tensor, padding_mask: Tensor, training: bool | None = None
    ) -> dict[str, Any]:
        x = self.embedding_norm(self.token_embedding(token_ids))
        hidden_states = [x]  # (B, S, D)
        x = self.embedding_dropout(x, training=training)
        distinct = [
            AttentionContext(bias=bias(padding_mask), positions=positions(padding_mask))
            for bias, positions in zip(self.attention_biases, self.positions, strict=True)
        ]
        by_window = dict(zip(dict.fromkeys(self.windows), distinct, strict=True))
        contexts = [by_window[window] for window in self.windows]
        for block, context in zip(self.blocks, contexts, strict=True):
            x, _ = block(x, context, training=training)
            hidden_states.append(x)
        hidden_states[-1] = self.final_norm(x)
        return self.outputs_of(hidden_states, contexts)


_ONE_WAVELENGTH = {"local_rope_max_wavelength": 160000.0}
ModernBertBackbone.SIZES = {
    "modernbert_base_en": transformer_size(50368, 22, 768, 12, 1152),
    "modernbert_large_en": transformer_size(50368, 28, 1024, 16, 2624),
    "mmbert_small_multi": transformer_size(256000, 22, 384, 6, 1152, **_ONE_WAVELENGTH),
    "mmbert_base_multi": transformer_size(256000, 22, 768, 12, 1152, **_ONE_WAVELENGTH),
}
ModernBertBackbone.PUBLISHED = {
    "modernbert_base_en": "hf://answerdotai/ModernBERT-base",
    "modernbert_large_en": "hf://answerdotai/ModernBERT-large",
    "mmbert_small_multi": "hf://jhu-clsp/mmBERT-small",
    "mmbert_base_multi": "hf://jhu-clsp/mmBERT-base",
}
