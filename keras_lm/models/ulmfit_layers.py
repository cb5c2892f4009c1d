"""The layers around ULMFiT's LSTMs: a dropout of words, and heads for both of its stages.

Heads are called as `head(outputs, inputs)` with the backbone's outputs and the packed inputs.

Shapes: B batch, S sequence, E width of the embedding and of the output, V vocabulary.
"""

import keras
from keras import ops

from keras_lm.layers.backend import Dropout, num_replicas, sum_over_replicas
from keras_lm.layers.basic import Dense, float32_or_wider
from keras_lm.layers.last_token import last_real_token
from keras_lm.layers.left_to_right import CausalLMHead

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
