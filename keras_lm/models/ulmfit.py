"""ULMFiT: a stack of LSTMs as a language model, AWD-LSTM, fine-tuned into a classifier.

Shapes: B batch, S sequence, E width of the embedding and of the output, V vocabulary.
"""

import math
from collections.abc import Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_lm.layers.attention import CausalLMHead
from keras_lm.layers.backend import Dropout, num_replicas, sum_over_replicas
from keras_lm.layers.basic import Dense, float32_or_wider, last_real_token
from keras_lm.layers.recurrent import LSTM, BidirectionalLSTM
from keras_lm.models.backbone import TOKENS, Backbone, Head, Input, from_backbone
from keras_lm.models.sizes import kernels
from keras_lm.packers import Template
from keras_lm.presets.argument_ranges import RATE, Real, Whole, Wholes
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.tokenizers.words import WordTokenizer
from keras_lm.utils.argument_types import DType, Tensor

LONGEST = 2**30  # tokens, more than any text has


@keras.saving.register_keras_serializable("keras_lm")
class BatchNormalization(keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization` over the batch of all replicas.

    Keras's own, `synchronized=True`, takes the variance as the difference of two means, which loses
    its digits where a feature hardly varies: replicas would learn something else than one does.
    """

    def _moments(self, inputs, mask):
        if num_replicas() == 1:
            return super()._moments(inputs, mask)
        rows = sum_over_replicas(ops.cast(ops.shape(inputs)[0], inputs.dtype))
        mean = sum_over_replicas(ops.sum(inputs, axis=0)) / rows
        return mean, sum_over_replicas(ops.sum(ops.square(inputs - mean), axis=0)) / rows


@keras.saving.register_keras_serializable("keras_lm")
class WordDropout(keras.layers.Layer):
    """Drop words, each in all of its places in a batch or none: AWD-LSTM, section 4.3."""

    def __init__(self, vocabulary_size, rate, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator() if rate else None

    def call(self, x, token_ids, training=None):
        if not training or not self.rate:
            return x
        words = ops.ones((self.vocabulary_size,), x.dtype)
        words = keras.random.dropout(words, self.rate, seed=self.seed_generator)
        return x * ops.expand_dims(ops.take(words, token_ids), -1)

    def compute_output_shape(self, x_shape, *_):
        return x_shape

    def get_config(self):
        return super().get_config() | {"vocabulary_size": self.vocabulary_size, "rate": self.rate}


class ActivationPenalty(keras.layers.Layer):
    """Dropout before a head, and training penalties for large or quickly changing outputs.

    They are `activation_penalty` times the mean square of the outputs after the dropout, and
    `slowness_penalty` times that of the difference between neighbouring tokens' outputs before it:
    AWD-LSTM, section 4.6 (AR and TAR). Dropout drops the same features for all tokens of a text;
    padding adds nothing.
    """

    def __init__(self, rate, activation_penalty, slowness_penalty, **kwargs):
        super().__init__(**kwargs)
        self.activation_penalty = activation_penalty
        self.slowness_penalty = slowness_penalty
        self.dropout = keras.layers.SpatialDropout1D(rate, dtype=self.dtype_policy)

    def call(self, x, padding_mask=None, training=None):
        """Return the outputs after dropout, and for each penalty a sum, a count and a weight."""
        dropped, terms = self.dropout(x, training=training), []
        if not training:
            return dropped, terms
        mask = ops.ones(ops.shape(x)[:2]) if padding_mask is None else padding_mask
        mask = ops.expand_dims(ops.cast(mask, "float32"), -1)  # (B, S, 1)
        raw = ops.cast(x, "float32")
        if self.activation_penalty:
            square = ops.square(ops.cast(dropped, "float32"))
            terms.append((*_sum_and_count(square, mask), self.activation_penalty))
        if self.slowness_penalty:
            square = ops.square(raw[:, 1:] - raw[:, :-1])
            both = mask[:, 1:] * mask[:, :-1]
            terms.append((*_sum_and_count(square, both), self.slowness_penalty))
        return dropped, terms


class AWDLSTMHead(CausalLMHead):
    """The next token's logits, (B, S, V) float32: product with the token embedding, and bias.

    Called with `with_terms`, it also returns its penalties, which training adds to the loss.
    """

    has_terms = True

    def __init__(
        self,
        token_embedding,
        output_dropout=0.1,
        activation_penalty=2.0,
        slowness_penalty=1.0,
        **kwargs,
    ):
        super().__init__(token_embedding, **kwargs)
        self.penalty = ActivationPenalty(
            output_dropout, activation_penalty, slowness_penalty, dtype=self.dtype_policy
        )

    def build(self, outputs_shape, inputs_shape=None):
        self.bias = self.add_weight(
            name="bias", shape=(self.token_embedding.input_dim,), initializer="zeros"
        )

    def call(self, outputs, inputs=None, training=None, with_terms=False):
        mask = None if inputs is None else inputs.get("padding_mask")
        x, terms = self.penalty(outputs["sequence_output"], mask, training=training)
        logits = super().call({"sequence_output": x}) + ops.cast(self.bias, "float32")
        return (logits, terms) if with_terms else logits


@keras.saving.register_keras_serializable("keras_lm")
class ConcatPoolingClassifier(keras.layers.Layer):
    """The last token's output concatenated with max and mean pooling, then small dense layers.

    Long texts are read whole, but only their last outputs are pooled: of a text of n tokens, those
    from the first multiple of `pooled_chunk` that is n - `pooled_length` or more. So an answer does
    not depend on the batch. fastai's does in one case: if a text has tokens in a chunk in which an
    earlier row of the batch has padding only, fastai does not pool that text's last token.
    `dropout` is that of the layers in between; other arguments: see `AWDLSTMBackbone`. Returns
    (B, classes) float32.

    Source: ULMFiT, section 3.3; fastai 2.7, `fastai/text/models/core.py`.
    """

    has_terms = True

    def __init__(
        self,
        num_classes,
        classifier_dims=(50,),
        pooled_length=1440,
        pooled_chunk=72,
        output_dropout=0.4,
        activation_penalty=2.0,
        slowness_penalty=1.0,
        dropout=0.1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.arguments = {
            "num_classes": num_classes,
            "classifier_dims": list(classifier_dims),
            "pooled_length": pooled_length,
            "pooled_chunk": pooled_chunk,
            "output_dropout": output_dropout,
            "activation_penalty": activation_penalty,
            "slowness_penalty": slowness_penalty,
            "dropout": dropout,
        }
        dims = [*classifier_dims, num_classes]
        dtype = float32_or_wider(self.dtype_policy)
        rates = [output_dropout] + [dropout] * len(classifier_dims)
        self.penalty = ActivationPenalty(
            0.0, activation_penalty, slowness_penalty, dtype=self.dtype_policy
        )
        self.norms = [
            BatchNormalization(momentum=0.9, epsilon=1e-5, dtype=dtype, name=f"norm_{i}")
            for i in range(len(dims))
        ]
        self.dropouts = [Dropout(rate, dtype=dtype) for rate in rates]
        self.denses = [
            Dense(
                width,
                activation="relu" if i < len(classifier_dims) else None,
                use_bias=False,
                dtype=dtype,
                name=f"dense_{i}",
            )
            for i, width in enumerate(dims)
        ]

    def build(self, outputs_shape, inputs_shape=None):
        widths = [3 * outputs_shape["sequence_output"][-1], *self.arguments["classifier_dims"]]
        for width, norm, dense in zip(widths, self.norms, self.denses, strict=True):
            norm.build((None, width))
            dense.build((None, width))

    def call(self, outputs, inputs, training=None, with_terms=False):
        x = outputs["sequence_output"]
        mask = inputs.get("padding_mask")
        mask = ops.ones(ops.shape(x)[:2], "int32") if mask is None else mask
        x, terms = self.penalty(x, mask, training=training)
        x = self.pool(x, mask)
        for norm, dropout, dense in zip(self.norms, self.dropouts, self.denses, strict=True):
            x = dense(dropout(norm(x, training=training), training=training))
        return (x, terms) if with_terms else x

    def pool(self, x, padding_mask):
        """Return the last output, the maximum and the mean: (B, S, E) and (B, S) → (B, 3E)."""
        x = ops.cast(x, float32_or_wider(self.dtype_policy))
        mask = ops.cast(padding_mask, "int32")
        last, skipped = self._places(mask)
        last = ops.take_along_axis(x, ops.expand_dims(last, -1), axis=1)[:, 0]
        is_pooled = (ops.cumsum(mask, axis=1) > skipped) & (mask > 0)
        is_pooled = ops.expand_dims(is_pooled, -1)  # (B, S, 1)
        largest = ops.max(ops.where(is_pooled, x, -1.0), axis=1)  # no LSTM gives less than -1
        weight = ops.cast(is_pooled, x.dtype)
        mean = ops.sum(x * weight, axis=1) / ops.maximum(ops.sum(weight, axis=1), 1.0)
        return ops.concatenate([last, largest, mean], axis=-1)

    def _places(self, mask):
        """Return the column of the last token, and how many of the first ones are not pooled.

        fastai pads a batch with whole chunks at the start and less than a chunk at the end. It then
        counts the padding after a text as part of its length, and looks for its last token too
        early, by the padding before the text within the last chunk's width. In such a layout the
        same is done here; in any other, padding makes no difference.
        """
        length, chunk = self.arguments["pooled_length"], self.arguments["pooled_chunk"]
        length = LONGEST if length is None else length
        columns = ops.shape(mask)[1]
        first = ops.argmax(mask, axis=1, keepdims=True)  # all of these (B, 1)
        last = ops.expand_dims(last_real_token(mask), -1)
        is_fastai = (ops.mod(first, chunk) == 0) & (columns - 1 - last < chunk)

        def skipped(number):
            """How many of the first of `number` tokens are not pooled."""
            return ops.floor_divide(ops.maximum(number - length, 0) + chunk - 1, chunk) * chunk

        counted = ops.maximum(columns - chunk, skipped(columns))
        early = ops.maximum(first - counted, 0)
        last = ops.maximum(last - ops.where(is_fastai, early, 0), 0)
        number = ops.where(is_fastai, columns - first, ops.sum(mask, axis=1, keepdims=True))
        return last, skipped(number)

    def compute_output_shape(self, outputs_shape, inputs_shape=None):
        return (outputs_shape["sequence_output"][0], self.arguments["num_classes"])

    def get_config(self):
        return super().get_config() | self.arguments


def _sum_and_count(x, weight):
    """The sum of (B, S, E) over the tokens whose weight (B, S, 1) is 1, and of how many numbers."""
    return ops.sum(x * weight), ops.sum(weight) * x.shape[-1]


class StackedLSTMs:
    """A mixin before `Backbone`, of a model whose layers are `lstms`, in one direction or both."""

    @property
    def is_causal(self) -> bool:
        return not self.config["bidirectional"]

    def initial_state(self, batch_size: int | Tensor, length: int | Tensor = 0) -> Any:
        widths = [lstm.compute_output_shape((None, None, 1))[0][-1] for lstm in self.lstms]
        zeros = [ops.zeros((batch_size, width), self.compute_dtype) for width in widths]
        return [{"hidden": zero, "cell": zero} for zero in zeros]


@keras.saving.register_keras_serializable("keras_lm")
class AWDLSTMBackbone(StackedLSTMs, Backbone):
    """The AWD-LSTM that ULMFiT pretrains and fine-tunes.

    Args:
        vocabulary_size, num_layers: int. V, and the number of stacked LSTMs.
        hidden_dim: int. Width of all layers except the last.
        embedding_dim: int. E, width of the embedding and of the last layer.
        bidirectional: bool. Whether one half of each layer reads backwards; widths are even then.
        dropout: float. Fraction dropped in training between the layers. All dropouts except those
            of weights and of words drop the same features of all tokens of a text.
        embedding_dropout: float. Fraction of the vocabulary's words whose embedding is zero.
        input_dropout: float. Fraction of the embedding dropped.
        weight_drop: float. Fraction of the recurrent weights dropped; see `keras_lm.layers.LSTM`.
        output_dropout: float. Fraction of the last layer's output dropped before a head.
        activation_penalty: float α. In training, heads add α times the mean square of the last
            layer's output to the loss.
        slowness_penalty: float β. The same of the difference between neighbouring tokens.
        classifier_dims: list of int. Widths of the hidden layers of the classification head.
        pooled_length: int. How many of a text's last tokens that head pools, None for all.
        pooled_chunk: int. The tokens skipped before them are a multiple of this.
        dtype: a dtype policy or its name.

    Call: `backbone({"token_ids": …, "padding_mask": …, "states": …})`, the first two (B, S) int32;
    all but the first are optional. Returns `sequence_output` (B, S, E), which is zero at padding,
    and the `states` after the last token: for each layer
    `{"hidden": (B, width), "cell": (B, width)}`, zero by default. Padding, on either side, does not
    change them.

    Raises:
        ValueError: if widths cannot be halved for two directions.

    Example:

        backbone = keras_lm.models.AWDLSTMBackbone(
            vocabulary_size=100, num_layers=2, hidden_dim=24, embedding_dim=16
        )
        first = backbone({"token_ids": [[5, 7, 3]]})
        backbone({"token_ids": [[4, 8]], "states": first["states"]})["sequence_output"]

    Source: ULMFiT: Howard and Ruder 2018, https://arxiv.org/abs/1801.06146, section 3.1 and
    appendix; AWD-LSTM: Merity et al. 2017, https://arxiv.org/abs/1708.02182, sections 2 to 4;
    fastai 2.7, `fastai/text/models/awdlstm.py`.
    """

    TEMPLATE = Template(single="xxbos:0 $A:0", pair="xxbos:0 $A:0 xxfld:0 $B:0")
    _OUTPUT = {
        name: from_backbone(name)
        for name in ("output_dropout", "activation_penalty", "slowness_penalty")
    }
    HEADS = {
        "causal_lm": Head(
            AWDLSTMHead, "token_head", token_embedding=from_backbone("token_embedding"), **_OUTPUT
        ),
        "classification": Head(
            ConcatPoolingClassifier,
            "classifier",
            classifier_dims=from_backbone("classifier_dims"),
            pooled_length=from_backbone("pooled_length"),
            pooled_chunk=from_backbone("pooled_chunk"),
            **_OUTPUT,
        ),
    }
    RANGES = {
        "input_dropout": RATE,
        "output_dropout": RATE,
        "weight_drop": RATE,
        "activation_penalty": Real(),
        "slowness_penalty": Real(),
        "classifier_dims": Wholes(is_axis=True, may_be_empty=True),
        "pooled_length": Whole(is_optional=True),
        "pooled_chunk": Whole(),
    }
    tokenizer_class = WordTokenizer
    learning_rate = 1e-3

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int = 3,
        hidden_dim: int = 1152,
        embedding_dim: int = 400,
        bidirectional: bool = False,
        dropout: float = 0.15,
        embedding_dropout: float = 0.02,
        input_dropout: float = 0.25,
        weight_drop: float = 0.2,
        output_dropout: float = 0.1,
        activation_penalty: float = 2.0,
        slowness_penalty: float = 1.0,
        classifier_dims: Sequence[int] = (50,),
        pooled_length: int = 1440,
        pooled_chunk: int = 72,
        dtype: DType = None,
        name: str = "awd_lstm_backbone",
    ):
        if bidirectional and (hidden_dim % 2 or embedding_dim % 2):
            raise ValueError(
                f"bidirectional=True halves hidden_dim={hidden_dim} and "
                f"embedding_dim={embedding_dim}: pass even numbers."
            )

        super().__init__(TOKENS | {"states": Input(is_state=True)}, dtype, name)
        self.token_embedding = keras.layers.ReversibleEmbedding(
            vocabulary_size,
            embedding_dim,
            embeddings_initializer=keras.initializers.RandomUniform(-0.1, 0.1),
            dtype=dtype,
            name="token_embedding",
        )
        self.word_dropout = WordDropout(
            vocabulary_size, embedding_dropout, dtype=dtype, name="word_dropout"
        )
        # `SpatialDropout1D` drops the same features of all tokens: "locked", "variational".
        self.input_dropout = keras.layers.SpatialDropout1D(
            input_dropout, dtype=dtype, name="input_dropout"
        )
        widths = [hidden_dim] * (num_layers - 1) + [embedding_dim]
        self.lstms = [
            BidirectionalLSTM(width // 2, weight_drop=weight_drop, dtype=dtype, name=f"lstm_{i}")
            if bidirectional
            else LSTM(width, weight_drop=weight_drop, dtype=dtype, name=f"lstm_{i}")
            for i, width in enumerate(widths)
        ]
        self.dropouts = [
            keras.layers.SpatialDropout1D(dropout, dtype=dtype, name=f"dropout_{i}")
            for i in range(num_layers - 1)
        ]
        self.finish()

    def forward(self, token_ids, padding_mask, states=None, training=None):
        states = [None] * len(self.lstms) if states is None else states
        x = self.token_embedding(token_ids)
        hidden_states, new_states = [x], []  # (B, S, width)
        x = self.word_dropout(x, token_ids, training=training)
        x = self.input_dropout(x, training=training)
        for i, (lstm, state) in enumerate(zip(self.lstms, states, strict=True)):
            if i > 0:
                x = self.dropouts[i - 1](x, training=training)
            x, state = lstm(x, padding_mask=padding_mask, state=state, training=training)
            hidden_states.append(x)
            new_states.append(state)
        return {"sequence_output": x, "states": new_states, "hidden_states": hidden_states}

    def forward_flops(self) -> float:
        # The tied embedding multiplies too, for the logits.
        return 2 * (kernels(self.lstms) + math.prod(self.token_embedding.embeddings.shape))

    def with_vocabulary(self, old: Tokenizer, new: Tokenizer) -> Self:
        """Return a copy for another vocabulary, such as that of a target task's texts.

        A word in both `old` and `new`, lists of words by id, keeps its embedding; a new one starts
        from the mean of all (ULMFiT, section 3.2; fastai 2.7, `match_embeds`).

        Raises:
            ValueError: if `old` has more words than the embedding has rows.

        Example:

            backbone = backbone.with_vocabulary(tokenizer.vocabulary, target_tokenizer.vocabulary)
        """
        table = ops.convert_to_numpy(self.token_embedding.embeddings)
        if len(old) > len(table):
            raise ValueError(f"old has {len(old)} words, but the embedding {len(table)} rows.")
        rows = dict(zip(old, table, strict=False))
        mean = table[: len(old)].mean(axis=0)
        copy = self.from_config(self.get_config() | {"vocabulary_size": len(new)})
        for variable, trained in zip(copy.weights, self.weights, strict=True):
            if trained is self.token_embedding.embeddings:
                variable.assign(np.stack([rows.get(word, mean) for word in new]))
            else:
                variable.assign(trained)
        return copy


AWDLSTMBackbone.SIZES = {
    "awd_lstm_base_en": {
        "vocabulary_size": 60000,
        "num_layers": 3,
        "hidden_dim": 1152,
        "embedding_dim": 400,
    },
}
AWDLSTMBackbone.PUBLISHED = {
    "awd_lstm_base_en": "https://s3.amazonaws.com/fast-ai-modelzoo/wt103-fwd.tgz (unpacked)",
}
