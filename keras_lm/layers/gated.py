"""Feed-forward networks with a gate, and blocks with them.

Shapes: B batch, S sequence, D hidden.
"""

from keras import ops

from keras_lm.layers.attention import FeedForward
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import Dense, get_activation, make_dense, truncated_normal


class GatedFeedForward(FeedForward):
    """A feed-forward network whose activated half is multiplied by a linear one.

    Args:
        intermediate_dim, activation, output_stddev: see `keras_lm.layers.FeedForward`.
        dropout: float. Fraction dropped between the two matrices.

    A variant sets `has_output_bias` to True, or `activates_first` to False if the activated half is
    the second.

    Source: Shazeer 2020, https://arxiv.org/abs/2002.05202, equation 6.
    """

    has_output_bias = False
    activates_first = True

    def __init__(self, *args, dropout=0.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.dropout_rate = dropout

    def build(self, input_shape):
        self.intermediate = make_dense(
            "intermediate", 2 * self.intermediate_dim, self.dtype_policy, use_bias=False
        )
        self.intermediate.build(input_shape)
        self.activate = get_activation(self.activation)
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy)
        self.output_dense = Dense(
            input_shape[-1],
            use_bias=self.has_output_bias,
            kernel_initializer=truncated_normal(self.output_stddev),
            dtype=self.dtype_policy,
            name="output",
        )
        self.output_dense.build((*input_shape[:-1], self.intermediate_dim))

    def call(self, x, training=None):
        inner, gate = ops.split(self.intermediate(x), 2, axis=-1)
        if not self.activates_first:
            inner, gate = gate, inner
        inner = self.dropout(self.activate(inner) * gate, training=training)
        return self.output_dense(inner)


class GatedBlock:
    """A mixin before `PostNormBlock` or `PreNormBlock`: its feed-forward network has a gate.

    A variant sets `feedforward_class`, or overrides `dropout_inside`.
    """

    feedforward_class = GatedFeedForward

    @property
    def dropout_inside(self):
        """The fraction dropped inside the feed-forward network."""
        return self.dropout_rate

    def make_feedforward(self):
        return self.feedforward_class(
            self.intermediate_dim,
            self.activation,
            self.output_stddev,
            dropout=self.dropout_inside,
            name="feedforward",
            dtype=self.dtype_policy,
        )

    def add_feedforward(self, x, training=None):
        added = self.feedforward(self.read(x, self.feedforward_norm), training=training)
        return self.residual(x, self.feedforward_norm, added, training)
