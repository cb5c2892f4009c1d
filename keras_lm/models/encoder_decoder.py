"""What encoder-decoders share: inputs, the state of a decoder, and the head.

`EncoderDecoderBackbone` is for all of them, `CachedEncoderDecoderBackbone` for Transformers, and
`EncoderHalf` makes a model of the encoder alone.

Shapes: B batch, S source, T new target tokens, L decoder blocks, N heads, H per head, D hidden.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_lm.layers import AttentionContext, CausalBias, PaddingBias
from keras_lm.layers.attention import through_blocks
from keras_lm.layers.backend import Dropout
from keras_lm.layers.decoder import DecoderCache
from keras_lm.layers.state import FIXED
from keras_lm.models.backbone import TOKENS, Backbone, CachedBackbone, Input
from keras_lm.models.sizes import kernels
from keras_lm.models.word_backbone import WordBackbone
from keras_lm.packers import Template
from keras_lm.utils.argument_types import DType, Tensor


def make_token_embeddings(
    rows: int, decoder_rows: int | None, width: int, initializer: Callable[[], Any], dtype: DType
) -> tuple[Any, Any]:
    """Return the layers that embed tokens of the source and of the target.

    Args:
        rows, decoder_rows: sizes of the two vocabularies; None for one layer that embeds both.
        width: of an embedding.
        initializer: callable that returns the initializer of a table.
        dtype: of the layers.
    """

    def make(rows, name):
        return keras.layers.ReversibleEmbedding(
            rows, width, embeddings_initializer=initializer(), dtype=dtype, name=name
        )

    of_source = make(rows, "token_embedding")
    if decoder_rows is None:
        return of_source, of_source
    return of_source, make(decoder_rows, "decoder_token_embedding")


class EncoderDecoderBackbone(Backbone):
    """A model that reads a source, and writes a target token by token.

    A subclass defines its layers, and its two halves; the first is

        def encode(self, token_ids, padding_mask, training=None):
            …
            return {"encoder_sequence_output": x, "encoder_hidden_states": [...]}

    Call: `backbone({"encoder_token_ids": …, "encoder_padding_mask": …, "decoder_token_ids": …,
    "decoder_padding_mask": …})`, the first two (B, S), the others (B, T), all int32; the masks are
    optional. Returns `encoder_sequence_output` (B, S, D), `sequence_output` (B, T, D) of the
    decoder, and the state after these tokens, which has under `"fixed"` what stays the same for a
    source. With a state, a call takes further decoder tokens and no encoder's.

    A Transformer's state is the `cache`: that of `CausalBackbone`, and under `"fixed"`

        {"keys": (B, L, N, S, H), "values": (B, L, N, S, H), "padding_mask": (B, S) int32}

    Args:
        state_name: str. The key of the state in inputs and outputs.
        dtype: a dtype policy or its name.

    Example:

        backbone = keras_lm.models.T5Backbone(100, 2, 2, hidden_dim=16, intermediate_dim=32)
        first = backbone({"encoder_token_ids": [[8, 6, 1]], "decoder_token_ids": [[0, 5]]})
        more = backbone({"decoder_token_ids": [[7]], "cache": first["cache"]})

    Source: Sutskever et al. 2014, https://arxiv.org/abs/1409.3215, section 2.
    """

    usual_task = "Seq2SeqLM"

    TEMPLATE = Template(single="$A:0 </s>:0", pair="$A:0 </s>:0 $B:0 </s>:0")
    INNER = (*Backbone.INNER, "encoder_hidden_states", "encoder_attention_contexts")
    mask_name = "decoder_padding_mask"
    # Whether the token that the decoder starts with may be generated.
    generates_start = True
    has_cross_attention = True

    def __init__(self, state_name: str = "cache", dtype: DType = None, name: str | None = None):
        inputs = {
            "encoder_token_ids": Input(),
            "encoder_padding_mask": Input(default=1, like="encoder_token_ids"),
            "decoder_token_ids": Input(),
            "decoder_padding_mask": Input(default=1, like="decoder_token_ids"),
            state_name: Input(is_state=True),
        }
        super().__init__(inputs, dtype=dtype, name=name)

    def fields_of(self, inputs: dict[str, Tensor]) -> dict[str, Input]:
        if inputs.get(self.state_name) is None:
            return self.input_fields
        # The state holds what the encoder has read.
        fields = self.input_fields.items()
        return {name: field for name, field in fields if not name.startswith("encoder_")}

    def encode(
        self, token_ids: Tensor, padding_mask: Tensor, training: bool | None = None
    ) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__} must define encode.")

    def state_after(self, token_ids: Tensor, padding_mask: Tensor, length: int) -> Any:
        """Return the state before any target token, for sources (B, S).

        Args:
            token_ids, padding_mask: int32 (B, S).
            length: int. How many target tokens to make room for, if the state has slots.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how its decoder starts.")

    @property
    def encoder_hidden_states(self) -> list[Tensor]:
        """Symbolic tensors: the encoder's embedding output, then that of each of its blocks."""
        return self.symbolic["encoder_hidden_states"]

    def encoder_backbone(self) -> Backbone:
        """Return the encoder as a model of its own, with copies of its weights.

        It is a backbone as BERT's, for all tasks that read texts; see `EncoderHalf`.

        Example:

            t5 = keras_lm.models.T5Backbone(100, 2, 2, hidden_dim=16, intermediate_dim=32)
            task = keras_lm.tasks.TextClassifier(t5.encoder_backbone(), num_classes=2)
        """
        config = self.get_config()
        del config["name"]
        encoder = self.encoder_class(**config)
        own = {variable.path: variable for variable in self.weights}
        for variable in encoder.weights:
            if "seed_generator" not in variable.path:
                variable.assign(own[variable.path])
        return encoder

    def without_head(self, kind: str) -> str:
        message = super().without_head(kind)
        if self.encoder_class is None:
            return message
        return (
            f"{message} Its encoder may: pass backbone.encoder_backbone(), or a source to "
            "from_preset of the task."
        )


class EncoderHalf(WordBackbone):
    """The encoder of an encoder-decoder as a model of its own, for all tasks that read texts.

    A mixin before the class of the whole model, whose arguments it takes: those of a decoder make
    no difference. `from_preset` takes a checkpoint of either. Heads read the mean of a text's
    tokens, or each.

    Call: `encoder({"token_ids": …, "padding_mask": …})`, (B, S) int32 each; the mask is optional.
    Returns `sequence_output` (B, S, D).
    """

    TEMPLATE = EncoderDecoderBackbone.TEMPLATE
    SIZES = {}  # those of the whole model
    PRETRAINING_HEADS = {}  # the same
    INNER = Backbone.INNER
    mask_name = "padding_mask"
    learning_rate = Backbone.learning_rate
    # What only a decoder has, in presets; a model adds what its published files have.
    LEFT_OUT = r"^(decoder|token_head)[_/]"
    encoder_class = None

    def finish(self) -> None:
        self.input_fields = TOKENS
        super().finish()

    def fields_of(self, inputs: dict[str, Tensor]) -> dict[str, Input]:
        return self.input_fields

    def forward(
        self, token_ids: Tensor, padding_mask: Tensor, training: bool | None = None
    ) -> dict[str, Any]:
        encoded = self.encode(token_ids, padding_mask, training)
        names = ("sequence_output", "hidden_states", "attention_contexts")
        encoded = {name: encoded.get(f"encoder_{name}") for name in names}
        return {name: value for name, value in encoded.items() if value is not None}

    @property
    def blocks(self) -> list[keras.layers.Layer]:
        return self.encoder_blocks


class CachedEncoderDecoderBackbone(EncoderDecoderBackbone, CachedBackbone):
    """A Transformer that reads a source, and writes a target token by token.

    A subclass defines its layers (`token_embedding`, `decoder_token_embedding`, and those of
    `make_blocks`), and how tokens become vectors:

        def embed(self, embedding, token_ids, padding_mask, start=None):
            return embedding(token_ids) + self.position_embedding(padding_mask, start)

    One whose halves do more, such as T5 with its relative positions, defines `encode` and `decode`,
    around `through_encoder` and `through_decoder`. Arguments and calls are those of
    `EncoderDecoderBackbone`.

    Source: https://arxiv.org/abs/1706.03762, section 3.1.
    """

    # The last norms of the halves, in a model that has them.
    encoder_norm: keras.layers.Layer | None = None
    decoder_norm: keras.layers.Layer | None = None

    def forward(
        self,
        decoder_token_ids: Tensor,
        decoder_padding_mask: Tensor,
        encoder_token_ids: Tensor | None = None,
        encoder_padding_mask: Tensor | None = None,
        cache: Any = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        encoded = {}
        if cache is None:
            encoded = self.encode(encoder_token_ids, encoder_padding_mask, training)
        cache = DecoderCache(
            decoder_padding_mask,
            cache,
            len(self.decoder_blocks),
            encoded.get("encoder_sequence_output"),
            encoder_padding_mask,
        )
        return encoded | self.decode(decoder_token_ids, decoder_padding_mask, cache, training)

    def embed(
        self, embedding: keras.Layer, token_ids: Tensor, padding_mask: Tensor, start: Any = None
    ) -> Tensor:
        """Return the vectors (B, S, D) of tokens at their places; `start` as for positions."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it embeds tokens.")

    def encode(
        self, token_ids: Tensor, padding_mask: Tensor, training: bool | None = None
    ) -> dict[str, Any]:
        x = self.embed(self.token_embedding, token_ids, padding_mask)
        return self.through_encoder(x, self.padding_bias(padding_mask), training)

    def decode(
        self,
        token_ids: Tensor,
        padding_mask: Tensor,
        cache: DecoderCache,
        training: bool | None = None,
    ) -> dict[str, Any]:
        """Return the decoder's outputs, with its `cache`, for tokens (B, T) after those in it."""
        x = self.embed(self.decoder_token_embedding, token_ids, padding_mask, cache.start)
        bias = self.causal_bias(cache.padding_mask, cache.slots)
        return self.through_decoder(x, bias, cache, training)

    # === What the halves of a subclass are made of ===

    def make_blocks(self, encoder_block: type, decoder_block: type, options: Any) -> None:
        """Make dropout, biases and the blocks of both halves, for a constructor.

        Args:
            encoder_block, decoder_block: classes of the blocks.
            options: dict of their arguments, such as `block_options` returns.
        """
        number = self.config["num_layers"]
        decoder_number = self.config["num_decoder_layers"]
        decoder_number = number if decoder_number is None else decoder_number
        self.dropout = Dropout(options["dropout"], dtype=options["dtype"])
        self.padding_bias, self.causal_bias = PaddingBias(), CausalBias()
        self.encoder_blocks: list[keras.layers.Layer] = [
            encoder_block(**options, name=f"encoder_block_{i}") for i in range(number)
        ]
        self.decoder_blocks: list[keras.layers.Layer] = [
            decoder_block(**options, name=f"decoder_block_{i}") for i in range(decoder_number)
        ]

    def through_encoder(
        self, embedded: Tensor, bias: Tensor, training: bool | None = None
    ) -> dict[str, Any]:
        """Return what `encode` does, given embeddings (B, S, D) and self-attention's bias."""
        x, context = self.dropout(embedded, training=training), AttentionContext(bias=bias)
        states = [embedded, *through_blocks(self.encoder_blocks, x, context, training)]
        if self.encoder_norm is not None:
            states[-1] = self.encoder_norm(states[-1])
        return {
            "encoder_sequence_output": states[-1],
            "encoder_hidden_states": states,
            "encoder_attention_contexts": [context] * len(self.encoder_blocks),
        }

    def through_decoder(
        self, embedded: Tensor, bias: Any, cache: DecoderCache, training: bool | None = None
    ) -> dict[str, Any]:
        """Return what `decode` does, given embeddings (B, T, D) and self-attention's bias."""
        x, biases = self.dropout(embedded, training=training), [bias] * len(self.decoder_blocks)
        contexts = cache.contexts(biases, self.padding_bias(cache.source_mask))
        states = [embedded, *cache.through(self.decoder_blocks, x, contexts, training)]
        if self.decoder_norm is not None:
            states[-1] = self.decoder_norm(states[-1])
        return self.outputs_of(states, contexts) | {"cache": cache.state()}

    # === To look inside ===

    def encoder_attention_probabilities(self, inputs: dict[str, Tensor]) -> list[Tensor]:
        """Return the encoder's attention probabilities, a list of (B, N, S, S), one per block."""
        computed = self.compute(inputs)
        states, contexts = (
            computed[f"encoder_{name}"] for name in ("hidden_states", "attention_contexts")
        )
        return [
            block.attention_probabilities(x, context)
            for block, x, context in zip(self.encoder_blocks, states[:-1], contexts, strict=True)
        ]

    def cross_attention_probabilities(self, inputs: dict[str, Tensor]) -> list[Tensor]:
        """Return what target tokens read of the source, a list of (B, N, T, S), one per block."""
        computed = self.compute(inputs)
        states, contexts = computed["hidden_states"], computed["attention_contexts"]
        return [
            block.cross_attention_probabilities(x, context)
            for block, x, context in zip(self.decoder_blocks, states[:-1], contexts, strict=True)
        ]

    @property
    def blocks(self) -> list[keras.layers.Layer]:
        return self.decoder_blocks

    # === Cost ===

    def forward_flops(self) -> float:
        rows = self.config.get("decoder_vocabulary_size") or self.vocabulary_size
        multiplied = kernels([*self.encoder_blocks, *self.decoder_blocks])
        multiplied += rows * self.config["hidden_dim"]
        attentions = len(self.encoder_blocks) + 2 * len(self.decoder_blocks)
        _, heads, width = self.cache_sizes()
        attended = attentions * (self.max_sequence_length or 512)
        return 2 * multiplied + 4 * attended * heads * width

    # === State ===

    def cache_sizes(self) -> tuple[int, int, int]:
        _, heads, width = super().cache_sizes()
        return len(self.decoder_blocks), heads, self.config.get("head_dim") or width

    def initial_state(self, batch_size: int, length: int = 0) -> Any:
        """As `Backbone`'s, after a source of `length` tokens of padding."""
        state = super().initial_state(batch_size, length)
        source = {name: state[name] for name in ("keys", "values", "padding_mask")}
        return state | {FIXED: source}

    def state_after(self, token_ids: Tensor, padding_mask: Tensor, length: int) -> Any:
        encoded = self.encode(token_ids, padding_mask)["encoder_sequence_output"]
        state = super().initial_state(ops.shape(token_ids)[0], length)
        blocks = self.decoder_blocks
        pairs = [block.cross_attention.keys_and_values(encoded) for block in blocks]
        keys, values = map(tuple, zip(*pairs, strict=True))
        return state | {FIXED: {"keys": keys, "values": values, "padding_mask": padding_mask}}

    def pack_state(self, state: Any) -> Any:
        return super().pack_state(state) | {FIXED: super().pack_state(state[FIXED])}

    def unpack_state(self, state: Any) -> Any:
        return super().unpack_state(state) | {FIXED: super().unpack_state(state[FIXED])}
