"""The layers of the RNN encoder-decoder: attention to a source, the decoder, and its head.

Shapes: B batch, S source, T target, D hidden, E width of an embedding, L layers, V vocabulary.
"""

import keras
from keras import ops

from keras_lm.layers import CausalLMHead, Dense
from keras_lm.layers.backend import matmul_transposed, scan, softmax
from keras_lm.layers.recurrent import GRU, LSTM

CELLS = {"lstm": LSTM, "gru": GRU}
ADDITIVE = ("additive", "concat")  # two names of one score, at two places in a step
PRODUCTS = ("dot", "general")
ATTENTIONS = (*ADDITIVE, *PRODUCTS)


@keras.saving.register_keras_serializable("keras_lm")
class SourceAttention(keras.layers.Layer):
    """One head of attention from a decoder's states to what an encoder made of a source.

    Args:
        score: str, how a query q scores a source token h: `"additive"`, v · tanh(W q + U h), which
            Luong et al. write v · tanh(W [q; h]) and call `"concat"`; `"general"`, q · W h; or
            `"dot"`, q · h. The products U h or W h, once per source, are made outside: the keys.
        hidden_dim: int. D.

    Call: `attention(queries, keys, values, bias)` with (B, T, D), (B, S, D), (B, S, D) and the
    additive bias (B, 1, S) of padding, float32; returns the context (B, T, D).

    Source: Bahdanau et al. 2015, https://arxiv.org/abs/1409.0473, appendix A.1.2; Luong et al.
    2015, https://arxiv.org/abs/1508.04025, section 3.1.
    """

    def __init__(self, score, hidden_dim, **kwargs):
        super().__init__(**kwargs)
        self.score = score
        self.hidden_dim = hidden_dim

    def build(self, input_shape):
        if self.score in ADDITIVE:
            self.query = Dense(
                self.hidden_dim, use_bias=False, dtype=self.dtype_policy, name="query"
            )
            self.query.build((None, None, self.hidden_dim))
            self.vector = self.add_weight(name="vector", shape=(self.hidden_dim, 1))

    def probabilities(self, queries, keys, bias):
        """Return what each target token reads of each source token, (B, T, S) float32."""
        if self.score in ADDITIVE:
            both = ops.expand_dims(self.query(queries), 2) + ops.expand_dims(keys, 1)
            vector = ops.cast(self.vector, both.dtype)
            # A product of four axes with fewer, the second axis being 1 as T in each step, writes
            # beyond its memory in oneDNN: https://github.com/tensorflow/tensorflow/issues/117700.
            rows = ops.reshape(ops.tanh(both), (-1, self.hidden_dim))
            scores = ops.reshape(ops.matmul(rows, vector), ops.shape(both)[:3])  # (B, T, S)
        else:
            scores = matmul_transposed(queries, keys)
        return softmax(ops.cast(scores, "float32") + ops.cast(bias, "float32"))

    def call(self, queries, keys, values, bias):
        probabilities = self.probabilities(queries, keys, bias)
        return ops.matmul(ops.cast(probabilities, self.compute_dtype), values)

    def get_config(self):
        return super().get_config() | {"score": self.score, "hidden_dim": self.hidden_dim}


@keras.saving.register_keras_serializable("keras_lm")
class RNNDecoder(keras.layers.Layer):
    """A stack of recurrent layers that attends to a source at each step.

    With `"additive"` attention, the state before a step scores the source, and the first layer
    reads the context beside the token; the output is the maximum of pairs of a linear layer over
    state, token and context. (The paper's appendix takes the state before the step there; this is
    its equation 4.) With another, the state after a step scores the source, and the output is
    tanh(W [context; state]), which with `input_feeding` the first layer reads in the next step.
    Without attention the output is the state.

    Args:
        cell: str, `"lstm"` or `"gru"`.
        num_layers, hidden_dim: int. L and D.
        attention: str, see `SourceAttention`, or None.
        input_feeding: bool.
        dropout: float. Fraction dropped in training between the layers, the same features for all
            tokens of a text.

    Call: `decoder(x, padding_mask, state, source)` with tokens (B, T, E), their mask (B, T) int32,
    the state `{"hidden": (B, L, D), "cell": (B, L, D), "fed": (B, D)}` (only LSTMs have a cell;
    `"fed"` is the last output, with `input_feeding`), and for attention `source`, a dict of `keys`,
    `values` and `bias`. Returns the output (B, T, D), the layers' states (B, T, L, D), those that
    scored the source (B, T, D), and the state after the tokens. Padding changes no state.

    Source: as `SourceAttention`: sections 3.1 and A.2.2 of the first, 3 and 3.3 of the second.
    """

    def __init__(
        self,
        cell,
        num_layers,
        hidden_dim,
        attention=None,
        input_feeding=False,
        dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.arguments = {
            "cell": cell,
            "num_layers": num_layers,
            "hidden_dim": hidden_dim,
            "attention": attention,
            "input_feeding": input_feeding,
            "dropout": dropout,
        }
        self.hidden_dim = hidden_dim
        self.reads_before = attention == "additive"
        self.input_feeding = input_feeding
        self.cells = [
            CELLS[cell](hidden_dim, dtype=self.dtype_policy, name=f"layer_{i}")
            for i in range(num_layers)
        ]
        self.dropout = keras.layers.SpatialDropout1D(dropout, dtype=self.dtype_policy)
        self.attention = self.feed = self.readout = None
        if attention is not None:
            self.attention = SourceAttention(
                attention, hidden_dim, dtype=self.dtype_policy, name="attention"
            )
            self.readout = Dense(
                2 * hidden_dim if self.reads_before else hidden_dim,
                activation=None if self.reads_before else "tanh",
                use_bias=self.reads_before,
                dtype=self.dtype_policy,
                name="readout",
            )
        if self.reads_before or input_feeding:
            self.feed = Dense(
                self.cells[0].gates * hidden_dim,
                use_bias=False,
                dtype=self.dtype_policy,
                name="feed",
            )

    def build(self, input_shape):
        width = self.hidden_dim
        for i, cell in enumerate(self.cells):
            cell.build((None, None, width if i else input_shape[-1]))
        if self.attention is not None:
            self.attention.build((None, None, width))
            read = 2 * width + (input_shape[-1] if self.reads_before else 0)
            self.readout.build((None, None, read))
        if self.feed is not None:
            self.feed.build((None, None, width))

    def call(self, x, padding_mask, state, source=None, training=None):
        number = len(self.cells)
        ones = ops.ones((ops.shape(x)[0], 1, self.hidden_dim), self.compute_dtype)
        kept = [self.dropout(ones, training=training)[:, 0] for _ in self.cells[1:]]
        gates = ops.transpose(self.cells[0].input_gates(x), (1, 0, 2))
        is_real = ops.reshape(ops.transpose(padding_mask) > 0, (*ops.shape(gates)[:2], 1, 1))

        def step(carry, xs):
            gates, is_real = xs
            new = self.advance(carry, gates, source, kept)
            carry = tuple(ops.where(is_real, *both) for both in zip(new, carry, strict=True))
            return carry, carry[0]

        start = self._pack(state)
        carry, states = scan(step, start, (gates, is_real))
        states = ops.transpose(states, (1, 0, 2, 3))  # (B, T, L or L + 1, D)
        queries = states[:, :, number - 1]
        output = queries
        if self.reads_before:
            before = ops.expand_dims(start[0][:, number - 1], 1)
            output = self.maxout(queries, x, states[:, :, number])
            queries = ops.concatenate([before, queries], axis=1)[:, :-1]
        elif self.input_feeding:
            output = states[:, :, number]
        elif self.attention is not None:
            output = self.read_after(queries, source)
        return output, states[:, :, :number], queries, self._unpack(carry)

    def advance(self, carry, gates, source, kept):
        """Return the carry of a step after another; `gates` are those of the token (B, G · D)."""
        number = len(self.cells)
        fed = None
        if self.reads_before:
            fed = self.attention(carry[0][:, number - 1 : number], **source)[:, 0]
        elif self.input_feeding:
            fed = carry[0][:, number]
        if fed is not None:
            gates = gates + self.feed(fed)
        made = []
        for i, cell in enumerate(self.cells):
            if i > 0:
                gates = cell.input_gates(made[-1][0] * kept[i - 1])
            kernel = ops.cast(cell.recurrent_kernel, self.compute_dtype)
            made.append(cell.advance(gates, tuple(part[:, i] for part in carry), kernel))
        hidden, *others = map(list, zip(*made, strict=True))
        if self.reads_before:
            hidden.append(fed)
        elif self.input_feeding:
            hidden.append(self.read_after(ops.expand_dims(hidden[-1], 1), source)[:, 0])
        return tuple(ops.stack(part, axis=1) for part in (hidden, *others))

    def read_after(self, states, source):
        """Return Luong et al.'s output, equation 5, for states (B, T, D)."""
        context = self.attention(states, **source)
        return self.readout(ops.concatenate([context, states], axis=-1))

    def maxout(self, states, x, contexts):
        """Return Bahdanau et al.'s output before the softmax, for states (B, T, D)."""
        pairs = self.readout(ops.concatenate([states, x, contexts], axis=-1))
        return ops.max(ops.reshape(pairs, (*ops.shape(states)[:-1], self.hidden_dim, 2)), axis=-1)

    def _pack(self, state):
        """The loop's carry: what each step makes (B, L or L + 1, D), and the cells."""
        hidden = ops.cast(state["hidden"], self.compute_dtype)
        if self.feed is not None:
            # What is read before a step is made anew in each.
            fed = ops.zeros_like(hidden[:, 0]) if self.reads_before else state["fed"]
            fed = ops.expand_dims(ops.cast(fed, hidden.dtype), 1)
            hidden = ops.concatenate([hidden, fed], axis=1)
        return (hidden, *(ops.cast(state[name], "float32") for name in self._others))

    def _unpack(self, carry):
        number = len(self.cells)
        state = {"hidden": carry[0][:, :number]}
        for name, part in zip(self._others, carry[1:], strict=True):
            state[name] = ops.cast(part, self.compute_dtype)
        if self.input_feeding:
            state["fed"] = carry[0][:, number]
        return state

    @property
    def _others(self):
        return self.cells[0].parts[1:]

    def compute_output_spec(self, x, padding_mask, state, source=None, training=None):
        def spec(*sizes):
            return keras.KerasTensor((*x.shape[:2], *sizes), self.compute_dtype)

        width, number = self.hidden_dim, len(self.cells)
        after = {
            name: keras.KerasTensor(part.shape, self.compute_dtype) for name, part in state.items()
        }
        return spec(width), spec(number, width), spec(width), after

    def get_config(self):
        return super().get_config() | self.arguments


class RNNLMHead(CausalLMHead):
    """`CausalLMHead`, and a bias."""

    def build(self, outputs_shape, inputs_shape=None):
        super().build(outputs_shape)
        rows = self.token_embedding.input_dim
        self.bias = self.add_weight(name="bias", shape=(rows,), initializer="zeros")

    def call(self, outputs, inputs=None, training=None):
        return super().call(outputs) + ops.cast(self.bias, "float32")
