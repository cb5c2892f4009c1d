"""Features: a backbone's hidden states, chosen, mixed and pooled into vectors."""

import keras
from keras import ops

from keras_lm.layers import EachTokenClassifier, PooledClassifier, ScalarMix
from keras_lm.tasks.task import Task
from keras_lm.tasks.word_lists import TakesWords

# The rows of BERT's table 7, by name, CoVe's [GloVe; CoVe] and ELMo's mix: which hidden states each
# one takes, as a slice or one by one.
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
POOLINGS = ("first", "mean", "max", "none")


@keras.saving.register_keras_serializable("keras_lm")
class FeatureExtractor(TakesWords, Task):
    """Turn texts into vectors.

    Args:
        backbone: see `Task`.
        layers: which hidden states: `"embedding"`, `"first"`, `"second_to_last"`, `"last"`,
            `"sum_all"` (of all blocks), `"sum_last_four"`, `"concat_last_four"` (BERT's table 7);
            `"concat_embedding_last"` (CoVe's: a word's vector, then that of its context);
            `"scalar_mix"` (ELMo's learned weighting of all, the embedding too); an int, the index
            of a hidden state; or `"all"` or a list of int, each as a vector of its own.
        pooling: over the tokens of a text: `"first"`, `"mean"`, `"max"`, or `"none"` for a vector a
            token. Padding has no part in it; its own vectors are zero with `"none"`.
        normalize: bool. Scale each vector to length 1, as sentence embeddings want.
        regularization: float. λ of `"scalar_mix"`, see `keras_lm.layers.ScalarMix`.
        layer_norm: bool. Whether `"scalar_mix"` normalises the layers, see there. The statistics
            are those of the tokens; AllenNLP's take in the sentences' boundaries as well.
        num_mixes: int. How many weightings of its own `"scalar_mix"` learns.
        feature_dropout: float. Share of the vectors' numbers dropped in training, before pooling.
        **arguments: see `Task`.

    Call: `task(inputs)` takes packed inputs and returns (B, D), or (B, S, D) with pooling `"none"`,
    float32. Where there are several vectors, by `"all"`, a list or more than one mix, they stand on
    an axis before the last.

    Where the tokenizer has words and no pieces of them (ELMo's), texts may also be lists of words,
    and an export has the signatures `default`, for strings, and `tokens`, for words.

    A `FeatureExtractor` also stands where a task takes a backbone: the task then learns a linear
    layer on its vectors, and the scalar mix with it. `extractor.backbone.trainable = False` keeps
    the backbone as it is (BERT's feature-based approach).

    Raises:
        ValueError: if `layers` or `pooling` has no such value, the backbone has too few layers, or
            they differ in width and cannot be mixed or stacked.

    Example:

        extractor = keras_lm.tasks.FeatureExtractor.from_preset(SOURCE, pooling="mean")
        extractor.embed(["a sentence"])["embedding"].shape  # (1, 384)

    Source: BERT, https://arxiv.org/abs/1810.04805, section 5.3, table 7; ELMo,
    https://arxiv.org/abs/1802.05365, equation 1; CoVe, https://arxiv.org/abs/1708.00107, section 4.
    """

    PRETRAINING_HEADS = {}

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
        **arguments,
    ):
        chosen = _choose(backbone.hidden_states, layers)
        if pooling not in POOLINGS:
            raise ValueError(f"pooling={pooling!r}: use one of {POOLINGS}.")
        if num_mixes < 1 or (num_mixes > 1 and layers != "scalar_mix"):
            raise ValueError(
                f"num_mixes={num_mixes} with layers={layers!r}: pass 1, or layers='scalar_mix' and "
                "a larger number."
            )
        super().__init__(backbone, **arguments)
        self.layer_choice = layers
        self.pooling = pooling
        self.normalize = normalize
        self.regularization = regularization
        self.layer_norm = layer_norm
        self.feature_dropout = feature_dropout
        self.gives_several = layers == "all" or isinstance(layers, list) or num_mixes > 1
        self.predicts_sequences = pooling == "none"
        # A model of the chosen states alone: the blocks behind them are neither run nor exported.
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
        self.dropout = keras.layers.Dropout(feature_dropout, dtype="float32")
        self(backbone.input)  # gives `output`, which a task on top asks for
        self._finish()

    def get_arguments(self):
        return super().get_arguments() | {
            "layers": self.layer_choice,
            "pooling": self.pooling,
            "normalize": self.normalize,
            "regularization": self.regularization,
            "layer_norm": self.layer_norm,
            "num_mixes": max(len(self.mixes), 1),
            "feature_dropout": self.feature_dropout,
        }

    def call(self, inputs, training=None):
        inputs = self.backbone.complete(self._backbone_inputs(inputs))
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
        mask = ops.expand_dims(ops.cast(mask, "float32"), -1)
        vectors = [
            self._pool(self.dropout(ops.cast(x, "float32"), training=training), mask)
            for x in vectors
        ]
        x = ops.stack(vectors, axis=-2) if self.gives_several else vectors[0]
        return ops.normalize(x, axis=-1, order=2) if self.normalize else x

    def _pool(self, x, mask):
        """(B, S, D) and (B, S, 1) → (B, D), or (B, S, D) without padding."""
        if self.pooling == "none":
            return x * mask
        if self.pooling == "max":
            # A row that is all padding has no maximum: it gives zeros.
            return ops.where(ops.any(mask > 0, axis=1), ops.max(x + (mask - 1) * 1e4, axis=1), 0.0)
        if self.pooling == "first":
            # (B, 1, 1): padding may be on the left. LiteRT has argmax of integers only.
            first = ops.argmax(ops.cast(mask, "int32"), axis=1, keepdims=True)
            return ops.take_along_axis(x, first, axis=1)[:, 0]
        return ops.sum(x * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1.0)

    def decode(self, outputs, packed):
        """Return `embedding`, what calling returns."""
        return {"embedding": outputs}

    def embed(self, x, batch_size=32):
        """Return `embedding` for raw texts, as the exported model does.

        Args:
            x: raw strings in any form that `predict` takes.
            batch_size: int.
        """
        return self.answer_all(x, batch_size)

    def other_signatures(self):
        if not self.list_names:
            return {}
        return {"default": self.text_specs([None]), "tokens": self.text_specs([None, None])}

    # === What a task on top asks of a backbone ===

    TEMPLATE = property(lambda self: self.backbone.TEMPLATE)
    packer_class = property(lambda self: self.backbone.packer_class)
    config = property(lambda self: self.backbone.config)
    LEARNING_RATE = property(lambda self: self.backbone.LEARNING_RATE)
    input_names = property(lambda self: self.backbone.input_names)
    max_sequence_length = property(lambda self: self.backbone.max_sequence_length)

    def make_head(self, kind, **options):
        """Return a linear layer on the vectors.

        Args:
            kind: `"classification"`, or with pooling `"none"` `"token_classification"`.
            **options: see `keras_lm.layers.PooledClassifier`.

        Raises:
            ValueError: if the vectors are not one a text, or one a token.
        """
        heads = {"classification": VectorClassifier, "token_classification": VectorsClassifier}
        suits = {"classification"} if self.pooling != "none" else {"token_classification"}
        if kind not in suits or self.gives_several:
            raise ValueError(
                f"FeatureExtractor with layers={self.layer_choice!r}, pooling={self.pooling!r} and "
                f"num_mixes={max(len(self.mixes), 1)} has no head for kind={kind!r}."
            )
        return heads[kind](name="classifier", dtype=self.dtype_policy, **options)


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


class VectorClassifier(PooledClassifier):
    """The same head on one vector a text, rather than on a backbone's dict of outputs."""

    def build(self, outputs_shape, inputs_shape=None):
        super().build({"pooled_output": outputs_shape})

    def call(self, outputs, inputs=None, training=None):
        return super().call({"pooled_output": outputs}, training=training)


class VectorsClassifier(EachTokenClassifier):
    """The same for one vector a token."""

    def build(self, outputs_shape, inputs_shape=None):
        super().build({"sequence_output": outputs_shape})

    def call(self, outputs, inputs=None, training=None):
        return super().call({"sequence_output": outputs}, training=training)
