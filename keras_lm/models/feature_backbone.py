"""Features: a backbone's hidden states, chosen, mixed and pooled into vectors.

Shapes: B batch, S sequence, D width of a vector.
"""

import keras
from keras import ops

from keras_lm.layers import (
    Dense,
    EachTokenClassifier,
    LayerNormalization,
    PooledClassifier,
    ResidualDense,
    ScalarMix,
    SpanHead,
    get_activation,
)
from keras_lm.layers.backend import Dropout
from keras_lm.layers.recurrent import BidirectionalLSTM
from keras_lm.models.backbone import Backbone, Head
from keras_lm.presets.argument_ranges import RATE, Axis, Count

# The rows of BERT's table 7 by name, CoVe's [GloVe; CoVe] and ELMo's mix: the hidden states that
# each one takes, as a slice or a list.
LAYERS = {
    "embedding": slice(0, 1),
    "first": slice(1, 2),
    "second_to_last": slice(-2, -1),
    "last": slice(-1, None),
    "sum_all": slice(1, None),
    "sum_last_four": slice(-4, None),
    "concat_last_four": slice(-4, None),
    "concat_embedding_last": [0, -1],
    "scalar_mix": slice(None),
    "all": slice(None),
}
POOLINGS = ("first", "last", "mean", "mean_sqrt_len", "weighted_mean", "max", "none")


@keras.saving.register_keras_serializable("keras_lm")
class FeatureBackbone(Backbone):
    """Vectors made of another backbone's hidden states, for a linear layer on top.

    Blocks after the last chosen state do not run. Arguments and errors: see
    `keras_lm.tasks.FeatureExtractor`. A call returns a dict of float32: `pooled_output` (B, D), or
    with pooling `"none"` `sequence_output` (B, S, D); several vectors have an axis before the last.
    """

    forward_flops = None
    RANGES = {
        "feature_dropout": RATE,
        "lstm_dim": Axis(),
        "num_lstm_layers": Count(),
        "num_mixes": Count(),
        "truncate_dim": Axis(),
    }

    def __init__(
        self,
        backbone,
        layers="last",
        pooling="mean",
        normalize=False,
        regularization=0.0,
        layer_norm=False,
        num_mixes=1,
        feature_dropout=0.0,
        num_lstm_layers=0,
        lstm_dim=768,
        projections=None,
        truncate_dim=None,
        skipped_tokens=0,
        name="feature_backbone",
    ):
        chosen = _choose(backbone.hidden_states, layers)
        _check_pooling(pooling, projections, skipped_tokens)
        _check_sizes(layers, pooling, truncate_dim, num_mixes, num_lstm_layers, lstm_dim)
        if "padding_mask" not in backbone.input_fields:
            raise ValueError(
                f"{type(backbone).__name__} has no head for features, as it reads two texts: pass "
                "backbone.encoder_backbone(), or a source to FeatureExtractor.from_preset."
            )
        fields = backbone.input_fields.items()
        super().__init__(
            inputs={key: field for key, field in fields if not field.is_state},
            dtype=backbone.dtype_policy,
            name=name,
        )
        self.backbone = backbone
        self.layer_choice = layers
        self.pooling = pooling
        self.normalize = normalize
        self.truncate_dim = truncate_dim
        self.skipped_tokens = skipped_tokens
        self.gives_several = layers == "all" or isinstance(layers, list) or num_mixes > 1
        # A model of the chosen states alone: the blocks after them are neither run nor exported.
        self._states = keras.Model(backbone.input, chosen)
        self.mixes = [
            ScalarMix(
                regularization,
                layer_norm,
                dtype=backbone.dtype_policy,
                name=f"scalar_mix_{i}" if i else "scalar_mix",
            )
            for i in range(num_mixes if layers == "scalar_mix" else 0)
        ]
        for mix in self.mixes:
            mix.build([state.shape for state in chosen])
        self.dropout = Dropout(feature_dropout, dtype="float32")
        self.lstms = [
            BidirectionalLSTM(lstm_dim // 2, dtype=backbone.dtype_policy, name=f"feature_lstm_{i}")
            for i in range(num_lstm_layers)
        ]
        self.projections = [
            make_projection(i, **settings) for i, settings in enumerate(projections or [])
        ]
        self.finish()

    def forward(self, training=None, **inputs):
        states = keras.tree.flatten(self._states(inputs, training=training))
        mask = inputs["padding_mask"]
        if self.mixes:
            vectors = [mix(states, mask) for mix in self.mixes]
        elif str(self.layer_choice).startswith("concat_"):
            vectors = [ops.concatenate(states, axis=-1)]
        elif self.gives_several:
            vectors = states
        else:
            vectors = [sum(states[1:], start=states[0])]
        real = ops.expand_dims(ops.cast(mask, "float32"), -1)
        vectors = [
            self._pool(self.dropout(ops.cast(x, "float32"), training=training), real)
            for x in vectors
        ]
        for lstm in self.lstms:
            x, _ = lstm(vectors[0], padding_mask=mask)
            vectors = [self.dropout(ops.cast(x, "float32"), training=training)]
        for projection in self.projections:
            vectors = [projection(x) for x in vectors]
        x = ops.stack(vectors, axis=-2) if self.gives_several else vectors[0]
        x = unit_length(x) if self.normalize else x
        x = x if self.truncate_dim is None else x[..., : self.truncate_dim]
        return {"sequence_output" if self.pooling == "none" else "pooled_output": x}

    def _pool(self, x, mask):
        """(B, S, D) and (B, S, 1) → (B, D), or (B, S, D) without padding."""
        names = self.pooling if isinstance(self.pooling, list) else [self.pooling]
        places = None
        if self.skipped_tokens or "weighted_mean" in names:
            places = ops.cumsum(mask, axis=1)  # from 1
        if self.skipped_tokens:
            mask = mask * ops.cast(places > self.skipped_tokens, mask.dtype)
        pooled = [_pooled(name, x, mask, places) for name in names]
        return ops.concatenate(pooled, axis=-1) if len(pooled) > 1 else pooled[0]

    @property
    def HEADS(self):
        """A linear layer on the vectors, if there is one per text, or one per token."""
        if self.gives_several:
            return {}
        if self.pooling != "none":
            return {"classification": Head(PooledClassifier, "classifier")}
        return {
            "token_classification": Head(EachTokenClassifier, "classifier"),
            "question_answering": Head(SpanHead, "span_head"),
        }

    def without_head(self, kind):
        return (
            f"FeatureExtractor with layers={self.layer_choice!r}, pooling={self.pooling!r} and "
            f"num_mixes={max(len(self.mixes), 1)} has no head for kind={kind!r}."
        )

    # === Delegated to the other backbone ===

    config = property(lambda self: self.backbone.config)
    TEMPLATE = property(lambda self: self.backbone.TEMPLATE)
    learning_rate = property(lambda self: self.backbone.learning_rate)
    tokenizer_class = property(lambda self: self.backbone.tokenizer_class)
    packer_class = property(lambda self: self.backbone.packer_class)
    check_tokenizer = property(lambda self: self.backbone.check_tokenizer)
    vocabulary_size = property(lambda self: self.backbone.vocabulary_size)
    max_sequence_length = property(lambda self: self.backbone.max_sequence_length)

    def get_arguments(self):
        return dict(self._arguments)

    def get_config(self):
        backbone = keras.saving.serialize_keras_object(self.backbone)
        return {"backbone": backbone, "name": self.name, **self._arguments}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        backbone = keras.saving.deserialize_keras_object(config["backbone"], custom_objects)
        return cls(**(config | {"backbone": backbone}))


def _check_sizes(layers, pooling, truncate_dim, num_mixes, num_lstm_layers, lstm_dim):
    if truncate_dim is not None and (type(truncate_dim) is not int or truncate_dim < 1):
        raise ValueError(f"truncate_dim={truncate_dim!r}: pass an int of 1 or more, or None.")
    if num_mixes < 1 or (num_mixes > 1 and layers != "scalar_mix"):
        raise ValueError(
            f"num_mixes={num_mixes} with layers={layers!r}: pass 1, or layers='scalar_mix' and "
            "a larger number."
        )
    if num_lstm_layers < 0 or lstm_dim < 2 or lstm_dim % 2:
        raise ValueError(
            f"num_lstm_layers={num_lstm_layers}, lstm_dim={lstm_dim}: pass 0 or more layers "
            "of an even width, half of it for each direction."
        )
    if num_lstm_layers and (pooling != "none" or num_mixes > 1):
        raise ValueError(
            f"num_lstm_layers={num_lstm_layers} with pooling={pooling!r} and num_mixes="
            f"{num_mixes}: an LSTM reads one vector a token, so pass pooling='none'."
        )


def _check_pooling(pooling, projections, skipped_tokens):
    several = [name for name in POOLINGS if name != "none"]
    is_list = isinstance(pooling, list)
    names, known = (pooling, several) if is_list else ([pooling], POOLINGS)
    if not names or any(name not in known for name in names):
        raise ValueError(f"pooling={pooling!r}: use one of {POOLINGS}, or a list of {several}.")
    if skipped_tokens and pooling == "none":
        raise ValueError(
            f"skipped_tokens={skipped_tokens} with pooling='none': pass another pooling, or 0."
        )
    if projections and pooling == "none":
        raise ValueError(
            f"projections={projections!r} with pooling='none': they read one vector a text, so "
            "pass another pooling, or projections=None."
        )


def unit_length(x):
    """Return vectors (…, D) of length 1; those of length 0 stay, as of texts without a token."""
    # (Keras's ops.normalize makes NaN of these in LiteRT.)
    squares = ops.sum(ops.square(x), axis=-1, keepdims=True)
    return x * ops.rsqrt(ops.maximum(squares, 1e-24))


class UnitLength(keras.layers.Layer):
    """Scales vectors to length 1."""

    def call(self, x):
        return unit_length(x)


def make_projection(
    number,
    output_dim=None,
    activation="linear",
    use_bias=True,
    use_residual=False,
    layer="dense",
    **unknown,
):
    """Return the layer that one of `projections` describes, see `FeatureExtractor`."""
    name = f"projection_{number}"
    if layer == "normalize":
        return UnitLength(dtype="float32", name=name)
    if layer == "layer_norm":
        return LayerNormalization(epsilon=1e-5, dtype="float32", name=name)
    unknown |= {} if layer == "dense" else {"layer": layer}
    if unknown or type(output_dim) is not int or output_dim < 1 or type(activation) is not str:
        raise ValueError(
            f"projections[{number}] has output_dim={output_dim!r}, activation={activation!r} and "
            f"the unknown keys {[*unknown]}: pass a dict of output_dim, an int of 1 or more, and "
            "perhaps activation, such as 'tanh', use_bias and use_residual; or of layer, "
            "'normalize' or 'layer_norm'."
        )
    return (ResidualDense if use_residual else Dense)(
        output_dim,
        activation=get_activation(activation),
        use_bias=use_bias,
        dtype="float32",
        name=name,
    )


def _pooled(name, x, mask, places):
    """(B, S, D) and (B, S, 1) → (B, D) by the pooling of this name; see `FeatureBackbone._pool`.

    `places` (B, S, 1) are those of the tokens in their text, from 1, for `"weighted_mean"`.
    """
    if name == "none":
        return x * mask
    # A row that is all padding becomes zeros: the vectors of padding depend on the other rows.
    is_text = ops.any(mask > 0, axis=1)
    if name == "max":
        return ops.where(is_text, ops.max(x + (mask - 1) * 1e4, axis=1), 0.0)
    if name in ("first", "last"):
        # Padding may be on the left. LiteRT has argmax of integers only, of equal ones the first.
        real = ops.cast(mask, "int32")
        counts = real if name == "first" else ops.cumsum(real, axis=1)
        place = ops.argmax(counts, axis=1, keepdims=True)  # (B, 1, 1)
        return ops.where(is_text, ops.take_along_axis(x, place, axis=1)[:, 0], 0.0)
    if name == "weighted_mean":
        mask = mask * places  # the first token weighs 1, the second 2
    total, count = ops.sum(x * mask, axis=1), ops.maximum(ops.sum(mask, axis=1), 1.0)
    return total / (ops.sqrt(count) if name == "mean_sqrt_len" else count)


def _choose(states, layers):
    """Return the hidden states that `layers` names; see `FeatureExtractor`."""
    number = len(states)
    if isinstance(layers, str) and layers in LAYERS:
        if "four" in layers and number < 5:
            raise ValueError(f"layers={layers!r} needs four blocks, the backbone has {number - 1}.")
        places = LAYERS[layers]
        chosen = [states[i] for i in places] if isinstance(places, list) else states[places]
    else:
        indices = layers if isinstance(layers, list) and layers else [layers]
        for index in indices:
            if not isinstance(index, int) or isinstance(index, bool):
                raise ValueError(
                    f"layers={layers!r}: use an int, a list of them, or one of {list(LAYERS)}."
                )
            if not -number <= index < number:
                raise ValueError(f"layers={layers}, but the backbone has {number} hidden states.")
        chosen = [states[index] for index in indices]
    widths = [state.shape[-1] for state in chosen]
    if len(set(widths)) > 1 and not str(layers).startswith("concat_"):
        raise ValueError(
            f"layers={layers!r} asks for hidden states that are {widths} wide: choose those of one "
            "width, or one at a time."
        )
    return chosen
