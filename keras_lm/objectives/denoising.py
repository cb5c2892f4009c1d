"""Denoising by one vector: which text did an encoder read, most of whose words were deleted?

Shapes: B batch, S sequence, D hidden, E numbers of a vector, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from keras_lm.layers.attention import PostNormBlock, PreNormBlock, bias_tensor
from keras_lm.layers.basic import Dense, truncated_normal
from keras_lm.layers.masks import IGNORED, MASKED
from keras_lm.objectives.masked_lm import special_ids, text_tokens
from keras_lm.objectives.objective import (
    Draws,
    MaskedAccuracy,
    MaskedCrossentropy,
    Objective,
)
from keras_lm.objectives.whole_words import word_starts
from keras_lm.utils.argument_types import Shape, Tensor


class DenoisingAutoencoder(Objective):
    """TSDAE: teach a sentence encoder without labels, by texts whose words it has to remember.

    A share of each text's words is deleted, the encoder turns the rest into one vector, and a
    decoder writes the whole text from it, each token given those before. The decoder has the
    encoder's own weights: its blocks see no later tokens, and each also attends to the vector, with
    weights of its own. Attention to a single vector is 1 whatever the query, so its query and key
    are left out.

    The task's token head predicts the tokens. Texts are packed by the task, without the encoder's
    prompts. After training, `encoder` has learned; nothing else is needed.

    Args:
        encoder: `keras_lm.tasks.SentenceEncoder` over the task's backbone, which has blocks such as
            BERT's.
        deletion_rate: float in [0, 1). Probability of each word to be deleted; at least one stays.
        seed: int, for training; evaluation deletes the same words each time.

    Raises:
        ValueError: if `deletion_rate` is not in [0, 1); the encoder has no single vector for each
            text, or a backbone with other blocks, or another one than the task; or the task has no
            tokenizer.

    Example:

        encoder = keras_lm.tasks.SentenceEncoder.from_preset(SOURCE, pooling="first")
        objective = keras_lm.objectives.DenoisingAutoencoder(encoder)
        task = keras_lm.tasks.Pretrainer(
            encoder.backbone, [objective], tokenizer=encoder.tokenizer
        )
        task.fit(["He went out.", "It was raining."])
        encoder.save_to_preset("encoder")

    Source: Wang et al. 2021, https://arxiv.org/abs/2104.06979, section 3; deleting words instead of
    tokens: sentence-transformers, `DenoisingAutoEncoderLoss`.
    """

    heads = {"denoised_logits": "token"}
    row_names = ()

    def __init__(self, encoder: Any, deletion_rate: float = 0.6, seed: int | None = None):
        if not 0 <= deletion_rate < 1:
            raise ValueError(f"deletion_rate={deletion_rate}: pass a number from 0 to below 1.")
        backbone, vector = encoder.backbone, encoder.output
        if len(getattr(vector, "shape", ())) != 2:
            raise ValueError(
                f"encoder has pooling={encoder.pooling!r} and no single vector for each text: pass "
                "one with another pooling."
            )
        if not _is_decoder_too(backbone):
            raise ValueError(
                f"encoder is over a {type(backbone).__name__}, whose blocks cannot also be a "
                "decoder's: use an encoder such as BERT or RoBERTa, or train with pairs."
            )
        self.encoder = encoder
        self.deletion_rate = deletion_rate
        self.seed_generator = keras.random.SeedGenerator(seed)
        hidden_dim = backbone.hidden_states[0].shape[-1]
        self.attentions = [VectorAttention(block, hidden_dim) for block in backbone.blocks]
        for attention in self.attentions:
            attention.build(vector.shape)
        self.companions = [encoder, *self.attentions]
        self.tokenizer = None

    def set_tokenizer(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def set_backbone(self, backbone: keras.Model) -> None:
        if backbone is not self.encoder.backbone:
            raise ValueError(
                "The task has another backbone than encoder: make it with encoder.backbone."
            )

    def corrupt(
        self, inputs: dict[str, Tensor], training: bool | None = True
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Add the `damaged` inputs; return the next token of each, (B, S - 1), as labels.

        Raises:
            ValueError: if the task has no tokenizer.
        """
        if self.tokenizer is None:
            raise ValueError("DenoisingAutoencoder needs a tokenizer: give the task one.")
        token_ids, mask = inputs["token_ids"], inputs["padding_mask"]
        draws = Draws(self.seed_generator if training else None)
        kept = self.kept_tokens(token_ids, mask, draws)
        is_next = ops.logical_and(ops.equal(mask[:, 1:], 1), ops.equal(mask[:, :-1], 1))
        labels = ops.where(is_next, token_ids[:, 1:], IGNORED)
        return inputs | {"damaged": self._without_others(inputs, kept)}, labels

    def kept_tokens(self, token_ids: Tensor, mask: Tensor, draws: Any) -> Tensor:
        """Return which real tokens (B, S) are not deleted: all of a word, or none of them."""
        is_text = text_tokens(token_ids, mask, special_ids(self.tokenizer))
        starts = word_starts(token_ids, self.tokenizer.begins_word, self.tokenizer.ends_word)
        # A special token ends a word.
        before = ops.concatenate([ops.zeros_like(is_text[:, :1]), is_text[:, :-1]], axis=1)
        starts = ops.logical_or(starts, ops.logical_not(before))
        word = ops.cumsum(ops.cast(starts, "int32"), axis=1)  # (B, S), from 1, or 0
        chance = ops.take_along_axis(
            draws.uniform(ops.shape(token_ids)), ops.maximum(word - 1, 0), axis=1
        )
        chance = ops.where(is_text, chance, -1.0)
        stays = ops.logical_or(
            chance >= self.deletion_rate, ops.equal(chance, ops.max(chance, axis=1, keepdims=True))
        )
        return ops.where(is_text, stays, ops.equal(mask, 1))

    def _without_others(self, inputs, kept):
        """Return the encoder's inputs of the `kept` tokens (B, S) alone, one after another."""
        length = ops.shape(kept)[1]
        place = ops.arange(length, dtype="int32")[None, :]
        columns = ops.argsort(ops.where(kept, place, length + place), axis=1)

        def moved(x):
            return ops.take_along_axis(x, columns, axis=1)

        damaged = {
            name: moved(x) for name, x in self.encoder.backbone.select_inputs(inputs).items()
        }
        return damaged | {"padding_mask": ops.cast(moved(kept), "int32")}

    def forward(
        self, task: Any, inputs: dict[str, Tensor], labels: Tensor, training: bool | None
    ) -> tuple[Tensor, Tensor]:
        """Return the labels, and the logits of each token given those before, (B, S - 1, V)."""
        vectors = self.encoder(inputs["damaged"], training=training)
        x = self.decode(inputs, vectors, training)[:, :-1]
        head = task.heads[self.heads["denoised_logits"]]
        return labels, task.read_head(head, {"sequence_output": x}, {}, training, [])

    def decode(
        self, inputs: dict[str, Tensor], vectors: Tensor, training: bool | None = None
    ) -> Tensor:
        """Return what the decoder makes of whole texts (B, S) and their vectors, (B, S, D)."""
        backbone = self.encoder.backbone
        # Only what comes before the first block is read; a graph leaves out the rest.
        read = backbone.compute(backbone.select_inputs(inputs), training=False)
        x = backbone.blocks[0].dropout(read["hidden_states"][0], training=training)
        length = ops.shape(x)[1]
        places = ops.arange(length, dtype="int32")
        later = ops.cast(places[None, :] > places[:, None], "float32") * MASKED
        parts = zip(backbone.blocks, self.attentions, read["attention_contexts"], strict=True)
        for block, attention, context in parts:
            bias = later[None, None]
            if context.bias is not None:
                bias += bias_tensor(context.bias)
            x, _ = block.add_attention(x, context._replace(bias=bias), training)
            x = block.residual(x, attention.norm, attention(vectors), training)
            x = block.add_feedforward(x, training)
        return backbone.final_norm(x) if isinstance(block, PreNormBlock) else x

    def counted_labels(self, inputs: dict[str, Tensor], labels: Tensor) -> Any:
        return {"denoised_logits": labels}

    def loss(self) -> MaskedCrossentropy:
        return MaskedCrossentropy()

    def metrics(self) -> list[keras.metrics.Metric]:
        return [MaskedAccuracy()]


def _is_decoder_too(backbone):
    """Whether the blocks compute attention, the feed-forward network and nothing else.

    And whether texts begin in the first column, and each block can be given a mask.
    """
    blocks = getattr(backbone, "blocks", ())
    has_parts = all(
        getattr(type(block), name, None) is getattr(PostNormBlock, name)
        for block in blocks
        for name in ("forward", "call", "attention_inputs")
    )
    is_left = backbone.TEMPLATE.padding_side == "left"
    return blocks and has_parts and not is_left and "attention_contexts" in backbone.symbolic


class VectorAttention(keras.layers.Layer):
    """What attention to one vector adds to each token in a block of a decoder, and its norm.

    Args:
        block: `PostNormBlock`, whose number of heads and norm it has.
        hidden_dim: int, D.

    Call: `layer(vectors)`, (B, E) → (B, 1, D).
    """

    def __init__(self, block: PostNormBlock, hidden_dim: int, **kwargs: Any):
        super().__init__(dtype=block.dtype_policy, **kwargs)
        width = block.num_heads * (block.head_dim or hidden_dim // block.num_heads)
        stddev = block.output_stddev
        self.value, self.output_dense = (
            Dense(
                units,
                kernel_initializer=truncated_normal(deviation),
                dtype=self.dtype_policy,
                name=name,
            )
            for name, units, deviation in (("value", width, 0.02), ("output", hidden_dim, stddev))
        )
        # A norm before attention is one of the query, which one vector needs none of.
        is_before = isinstance(block, PreNormBlock)
        self.norm = None if is_before else block.make_norm("norm")
        if self.norm is not None:
            self.norm.build((None, None, hidden_dim))
        self.output_dense.build((None, width))

    def build(self, vectors_shape: Shape) -> None:
        self.value.build(vectors_shape)

    def call(self, vectors: Tensor) -> Tensor:
        return ops.expand_dims(self.output_dense(self.value(vectors)), 1)
