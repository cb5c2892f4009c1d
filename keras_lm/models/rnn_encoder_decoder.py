"""The RNN encoder-decoder: sequence to sequence with recurrent networks, with attention or without.

Differs from the Transformer: both halves are stacks of LSTMs or GRUs, and the decoder's state is
that of its layers, of one size for any length. Between 2014 and 2017 it was machine translation.

Shapes: B batch, S source, T target, D hidden, E width of an embedding, L layers, V vocabulary.
"""

import functools
from typing import Any, Self

import keras
from keras import ops

from keras_lm.layers import Dense, PaddingBias
from keras_lm.layers.recurrent import GRU, LSTM, BidirectionalGRU, BidirectionalLSTM
from keras_lm.layers.state import FIXED
from keras_lm.models.backbone import Head, from_backbone
from keras_lm.models.encoder_decoder import (
    EncoderDecoderBackbone,
    EncoderHalf,
    make_token_embeddings,
)
from keras_lm.models.rnn_layers import ATTENTIONS, CELLS, RNNDecoder, RNNLMHead
from keras_lm.models.sizes import kernels
from keras_lm.models.word_backbone import WordBackbone
from keras_lm.models.word_vectors import WordVectorBackbone
from keras_lm.tokenizers.words import WordTokenizer
from keras_lm.utils.argument_types import DType, Tensor

LAYERS = {
    ("lstm", False): LSTM,
    ("lstm", True): BidirectionalLSTM,
    ("gru", False): GRU,
    ("gru", True): BidirectionalGRU,
}


@keras.saving.register_keras_serializable("keras_lm")
class RNNEncoderDecoderBackbone(EncoderDecoderBackbone):
    """An encoder and a decoder of LSTMs or GRUs, with attention to the source or without.

    Bahdanau et al.'s model has `cell="gru"`, `bidirectional=True` and `attention="additive"`, and
    one layer; Luong et al.'s `attention="dot"`, `"general"` or `"concat"`, `input_feeding=True` and
    four LSTMs; Sutskever et al.'s `attention=None`, `reverse_source=True` and four LSTMs; the one
    that CoVe was trained in two LSTMs, `bidirectional=True`, `attention="general"` and
    `input_feeding=True`.

    Args:
        vocabulary_size, num_layers: int. V, and the recurrent layers of the encoder.
        hidden_dim: int. D, of each layer's output; in both directions together if there are two.
        embedding_dim: int, or None for D. E.
        num_decoder_layers: int, or None for as many as the encoder has.
        decoder_vocabulary_size: int, or None for one embedding of source and target. With a number,
            the target has an embedding of its own.
        cell: str, `"lstm"` or `"gru"`.
        bidirectional: bool. Whether one half of the encoder reads the source backwards.
        attention: str, `"additive"`, `"dot"`, `"general"` or `"concat"`, or None for a decoder that
            knows of the source only what it starts from; see `RNNDecoder`.
        input_feeding: bool. Whether the decoder reads its last attentional output beside a token.
        reverse_source: bool. Whether an encoder of one direction reads the source backwards.
        tie_embeddings: bool. Whether the softmax has the target's embedding, not its own matrix.
        dropout: float. Fraction dropped in training before each layer and the softmax; the same
            features for all tokens of a text.
        dtype: a dtype policy or its name.

    Call: like `EncoderDecoderBackbone`, with `states`, and texts may have any length. The decoder's
    layers start from the last states of the encoder's, those beyond its number from the top one's;
    with `"additive"` from tanh(W ·) of the backward half, and cells of zeros. The states are
    `{"hidden": (B, L, D), "cell": (B, L, D), "fed": (B, D), "fixed": {"keys": (B, S, D),
    "values": (B, S, D), "padding_mask": (B, S) int32}}`: the cell of LSTMs only, what is fed with
    `input_feeding`, and what is fixed with attention.

    Raises:
        ValueError: if `cell` or `attention` is unknown, or an argument has no sense beside others.

    Example:

        backbone = keras_lm.models.RNNEncoderDecoderBackbone(100, num_layers=2, hidden_dim=16)
        outputs = backbone({"encoder_token_ids": [[8, 6, 1]], "decoder_token_ids": [[0, 5]]})
        more = backbone({"decoder_token_ids": [[7]], "states": outputs["states"]})
        more["sequence_output"].shape  # (1, 1, 16)

    Source: Sutskever et al. 2014, https://arxiv.org/abs/1409.3215; Bahdanau et al. 2015,
    https://arxiv.org/abs/1409.0473, section 3 and appendix A; Luong et al. 2015,
    https://arxiv.org/abs/1508.04025, section 3; Cho et al. 2014, https://arxiv.org/abs/1406.1078.
    """

    HEADS = {
        "seq2seq_lm": Head(
            RNNLMHead,
            "token_head",
            token_embedding=from_backbone("decoder_token_embedding"),
            tied=from_backbone("tie_embeddings"),
        ),
    }
    INNER = (*EncoderDecoderBackbone.INNER, "encoder_states", "queries", "source_bias")
    tokenizer_class = WordTokenizer
    learning_rate = 1e-3

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int = 2,
        hidden_dim: int = 500,
        embedding_dim: int | None = None,
        num_decoder_layers: int | None = None,
        decoder_vocabulary_size: int | None = None,
        cell: str = "lstm",
        bidirectional: bool = True,
        attention: str | None = "general",
        input_feeding: bool = False,
        reverse_source: bool = False,
        tie_embeddings: bool = False,
        dropout: float = 0.2,
        dtype: DType = None,
        name: str = "rnn_encoder_decoder_backbone",
    ):
        _check(**self.config)
        super().__init__(state_name="states", dtype=dtype, name=name)
        embedding_dim = embedding_dim or hidden_dim
        num_decoder_layers = num_decoder_layers or num_layers
        initializer = functools.partial(keras.initializers.RandomUniform, -0.1, 0.1)
        self.token_embedding, self.decoder_token_embedding = make_token_embeddings(
            vocabulary_size, decoder_vocabulary_size, embedding_dim, initializer, dtype
        )
        self.dropout = keras.layers.SpatialDropout1D(dropout, dtype=dtype)
        self.padding_bias = PaddingBias()
        one_way = {} if bidirectional else {"reverse": reverse_source}
        units = hidden_dim // 2 if bidirectional else hidden_dim
        self.encoder_layers = [
            LAYERS[cell, bidirectional](units, dtype=dtype, name=f"encoder_{i}", **one_way)
            for i in range(num_layers)
        ]
        self.starts, self.source_keys = [], None
        if attention == "additive":
            self.starts = [
                Dense(hidden_dim, activation="tanh", dtype=dtype, name=f"decoder_start_{i}")
                for i in range(num_decoder_layers)
            ]
        if attention not in (None, "dot"):
            self.source_keys = Dense(
                hidden_dim, use_bias=False, dtype=dtype, name="decoder_source_keys"
            )
        self.decoder = RNNDecoder(
            cell,
            num_decoder_layers,
            hidden_dim,
            attention,
            input_feeding,
            dropout,
            dtype=dtype,
            name="decoder",
        )
        self.finish()

    def forward(
        self,
        decoder_token_ids: Tensor,
        decoder_padding_mask: Tensor,
        encoder_token_ids: Tensor | None = None,
        encoder_padding_mask: Tensor | None = None,
        states: Any = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        encoded = {}
        if states is None:
            encoded = self.encode(encoder_token_ids, encoder_padding_mask, training)
            states = self.start(encoded, encoder_padding_mask)
        return encoded | self.decode(decoder_token_ids, decoder_padding_mask, states, training)

    def encode(
        self, token_ids: Tensor, padding_mask: Tensor, training: bool | None = None
    ) -> dict[str, Any]:
        x = self.token_embedding(token_ids)
        hidden_states, last = [x], []  # (B, S, D)
        for layer in self.encoder_layers:
            x = self.dropout(x, training=training)
            x, state = layer(x, padding_mask=padding_mask, training=training)
            hidden_states.append(x)
            last.append(state)
        return {
            "encoder_sequence_output": x,
            "encoder_hidden_states": hidden_states,
            "encoder_states": last,
        }

    def start(self, encoded: Any, padding_mask: Tensor) -> Any:
        """Return the decoder's state before any token: after what `encode` returns of a source."""
        last, number = encoded["encoder_states"], len(self.decoder.cells)
        # As many as the decoder has layers, the top one's again if the encoder has fewer.
        last = [last[min(i, len(last) - 1)] for i in range(number)]
        states = {name: ops.stack([state[name] for state in last], axis=1) for name in last[0]}
        if self.starts:
            read = self.config["hidden_dim"] // (2 if self.config["bidirectional"] else 1)
            hidden = [
                dense(state["hidden"][:, -read:])
                for dense, state in zip(self.starts, last, strict=True)
            ]
            states = {name: ops.zeros_like(part) for name, part in states.items()}
            states["hidden"] = ops.stack(hidden, axis=1)
        values = encoded["encoder_sequence_output"]
        if self.config["input_feeding"]:
            states["fed"] = ops.zeros_like(values[:, 0])
        fixed = {}
        if self.decoder.attention is not None:
            keys = values if self.source_keys is None else self.source_keys(values)
            fixed = {"keys": keys, "values": values, "padding_mask": padding_mask}
        return states | {FIXED: fixed}

    def decode(
        self, token_ids: Tensor, padding_mask: Tensor, states: Any, training: bool | None = None
    ) -> Any:
        """Return what the decoder makes of tokens (B, T) after `states`."""
        x = self.decoder_token_embedding(token_ids)
        hidden_states = [x]  # (B, T, D)
        x = self.dropout(x, training=training)
        fixed, source, bias = states[FIXED], None, None
        if fixed:
            bias = self.padding_bias(fixed["padding_mask"])[:, 0]  # (B, 1, S)
            source = {"keys": fixed["keys"], "values": fixed["values"], "bias": bias}
        own = {name: part for name, part in states.items() if name != FIXED}
        x, layers, queries, own = self.decoder(x, padding_mask, own, source, training=training)
        return {
            "sequence_output": self.dropout(x, training=training),
            "states": own | {FIXED: fixed},
            "hidden_states": hidden_states + ops.unstack(layers, len(self.decoder.cells), axis=2),
            "queries": queries,
            "source_bias": bias,
        }

    @property
    def has_cross_attention(self) -> bool:
        return self.decoder.attention is not None

    def cross_attention_probabilities(self, inputs: dict[str, Tensor]) -> list[Tensor]:
        """Return what target tokens read of the source: a list of one (B, 1, T, S) float32.

        Raises:
            ValueError: if the model has no attention.
        """
        attention = self.decoder.attention
        if not self.has_cross_attention:
            raise ValueError("attention=None: this model has no attention to look at.")
        computed = self.compute(inputs)
        keys = computed["states"][FIXED]["keys"]
        probabilities = attention.probabilities(computed["queries"], keys, computed["source_bias"])
        return [ops.expand_dims(probabilities, 1)]

    def with_word_vectors(self, word_vectors: WordVectorBackbone) -> Self:
        """Return a copy whose encoder reads word vectors, as CoVe's does: they are not trained.

        `copy.token_embedding.trainable` says so, which is True again in a copy that is loaded.

        Args:
            word_vectors: `keras_lm.models.WordVectorBackbone`, whose rows are those of the source's
                vocabulary.

        Raises:
            ValueError: if the vectors have another width, or the target shares the embedding.
        """
        table = word_vectors.word_embedding.embeddings
        width = self.token_embedding.output_dim
        if table.shape[1] != width:
            raise ValueError(
                f"word_vectors are {table.shape[1]} wide, but the model reads "
                f"embedding_dim={width}: make it with that of the vectors."
            )
        if self.config["decoder_vocabulary_size"] is None:
            raise ValueError(
                "decoder_vocabulary_size=None has the target share the source's embedding: make "
                "the model with the number of the target's words."
            )
        copy = self.from_config(self.get_config() | {"vocabulary_size": table.shape[0]})
        for variable, old in zip(copy.weights, self.weights, strict=True):
            variable.assign(table if old is self.token_embedding.embeddings else old)
        copy.token_embedding.trainable = False
        return copy

    # === Cost ===

    def forward_flops(self) -> float:
        rows = self.config["decoder_vocabulary_size"] or self.vocabulary_size
        has_keys = self.source_keys is not None
        read = [*self.encoder_layers, self.decoder, *[self.source_keys] * has_keys]
        multiplied = kernels(read) + rows * self.config["hidden_dim"]
        # 50 words, the longest that Bahdanau et al. trained on.
        attended = 50 * (self.decoder.attention is not None)
        return 2 * multiplied + 4 * attended * self.config["hidden_dim"]

    # === State ===

    def initial_state(self, batch_size: int, length: int = 0) -> Any:
        """As `Backbone`'s, after a source of `length` tokens of padding."""
        width, number = self.config["hidden_dim"], len(self.decoder.cells)

        def zeros(*sizes):
            return ops.zeros((batch_size, *sizes), self.compute_dtype)

        state = {name: zeros(number, width) for name in self.decoder.cells[0].parts}
        if self.config["input_feeding"]:
            state["fed"] = zeros(width)
        fixed = {}
        if self.decoder.attention is not None:
            mask = ops.zeros((batch_size, length), "int32")
            fixed = {name: zeros(length, width) for name in ("keys", "values")}
            fixed["padding_mask"] = mask
        return state | {FIXED: fixed}

    def state_after(self, token_ids: Tensor, padding_mask: Tensor, length: int) -> Any:
        return self.start(self.encode(token_ids, padding_mask), padding_mask)


@keras.saving.register_keras_serializable("keras_lm")
class RNNEncoderBackbone(EncoderHalf, RNNEncoderDecoderBackbone):
    """The encoder of an RNN encoder-decoder alone, for all tasks that read texts.

    See `EncoderHalf`; texts are read without special tokens.

    Example:

        encoder = keras_lm.models.RNNEncoderBackbone(100, num_layers=2, hidden_dim=16)
        encoder({"token_ids": [[8, 6, 1]]})["sequence_output"].shape  # (1, 3, 16)
    """

    TEMPLATE = WordBackbone.TEMPLATE
    learning_rate = WordBackbone.learning_rate


RNNEncoderDecoderBackbone.encoder_class = RNNEncoderBackbone


def _check(hidden_dim, embedding_dim, cell, attention, bidirectional, **config):
    """Raise a ValueError for arguments that make no model."""
    if cell not in CELLS:
        raise ValueError(f"cell={cell!r}: pass one of {sorted(CELLS)}.")
    if attention is not None and attention not in ATTENTIONS:
        raise ValueError(f"attention={attention!r}: pass one of {sorted(ATTENTIONS)}, or None.")
    if bidirectional and hidden_dim % 2:
        raise ValueError(f"bidirectional=True halves hidden_dim={hidden_dim}: pass an even number.")
    if bidirectional and config["reverse_source"]:
        raise ValueError(
            "reverse_source=True with bidirectional=True, which reads both ways: leave one out."
        )
    if config["input_feeding"] and attention in (None, "additive"):
        raise ValueError(
            f"input_feeding=True with attention={attention!r}: "
            + (
                "there is no attentional output to feed"
                if attention is None
                else "it feeds its context anyway"
            )
            + ". Leave input_feeding out, or pass 'dot', 'general' or 'concat'."
        )
    if config["tie_embeddings"] and embedding_dim not in (None, hidden_dim):
        raise ValueError(
            f"tie_embeddings=True needs embedding_dim={embedding_dim} to equal "
            f"hidden_dim={hidden_dim}: leave it out."
        )
