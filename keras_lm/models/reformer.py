"""Reformer: a Transformer for very long texts.

Differs from GPT-2: tokens attend only to those in the same bucket of a hash, or to near ones; two
streams take turns, so that a block's inputs follow from its outputs and need not be kept for the
gradient; positions are those in a grid; the output is both streams, so 2·D wide.

Shapes: B batch, S sequence, T slots, D hidden, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_lm.layers import EachTokenClassifier, PositionEmbedding, SpanHead, float32_or_wider
from keras_lm.layers.backend import Dropout, draw_seed, split_seed
from keras_lm.layers.basic import make_norm, make_token_embedding
from keras_lm.layers.state import known
from keras_lm.models import reformer_steps as steps
from keras_lm.models.backbone import TOKENS, CachedBackbone, Head, Input, from_backbone
from keras_lm.models.reformer_attention import HashedAttention, make_attention
from keras_lm.models.reformer_layers import (
    AtPlaces,
    AxialPositionEmbedding,
    ReformerBlock,
    ReformerClassifier,
    ReformerLMHead,
    WholeChunks,
    check_axes,
    through_reversible,
    with_tokens,
)
from keras_lm.models.sizes import kernels
from keras_lm.packers import Template
from keras_lm.presets.argument_ranges import RATE, Whole, Wholes
from keras_lm.tokenizers import SentencePieceTokenizer
from keras_lm.utils.argument_types import DType, Tensor

SEEDS = 5  # of each block: its hash, its attention, and three more for dropout


def _classifier(**options):
    return Head(
        ReformerClassifier,
        "classifier",
        hidden_dim=from_backbone("hidden_dim"),
        is_causal=from_backbone("causal"),
        dropout=from_backbone("dropout"),
        **options,
    )


def _make_block(i, config, dtype):
    return ReformerBlock(
        make_attention(config, i, dtype),
        config["intermediate_dim"],
        config["activation"],
        config["dropout"],
        config["layer_norm_epsilon"],
        dtype=dtype,
        name=f"block_{i}",
    )


@keras.saving.register_keras_serializable("keras_lm")
class ReformerBackbone(CachedBackbone):
    """The network of Reformer.

    Args:
        vocabulary_size, num_layers, hidden_dim: int. V, the number of blocks, and D.
        num_heads, head_dim: int. Attention heads per block, and their width, or None for D / N.
        intermediate_dim: int. Width inside a block's feed-forward network.
        attention_layers: list of `"lsh"` and `"local"`, the attention of the blocks; a shorter list
            repeats.
        causal: bool. Whether tokens see none after them, so that the model can continue a text.
        local_chunk_length, num_local_chunks_before, num_local_chunks_after: int. See
            `LocalAttention` in `reformer_attention.py`.
        lsh_chunk_length, num_lsh_chunks_before, num_lsh_chunks_after, num_buckets, num_hashes,
            hash_seed: see `HashedAttention` there.
        axial_shape, axial_dims: list of int, see `AxialPositionEmbedding`; None for positions that
            have a vector each. The product of the first is at least `max_sequence_length`, the sum
            of the second D.
        dropout: float. Fraction dropped in training of embeddings, of what each part of a block
            adds, inside of feed-forward networks, and of the output.
        local_attention_dropout, lsh_attention_dropout: float. Of the attention probabilities.
        activation: str. See `keras_lm.layers.get_activation`.
        max_sequence_length: int.
        layer_norm_epsilon: float.
        dtype: a dtype policy or its name. Under a mixed one, streams between blocks are float32.

    Call: `backbone({"token_ids": …, "padding_mask": …, "cache": …})`, the first two (B, S) int32,
    of which the mask is optional. Returns `sequence_output` (B, S, 2·D), and if `causal` a `cache`:
    the tokens so far, `{"token_ids": (B, T), "padding_mask": (B, T), "length": (B,)}` int32. A call
    with a cache reads all of them again, since each token may move others to another chunk: the
    output is that of the whole text. (`generate` does so for a prompt; see `decoding_state`.)
    `rotations`, a list of arrays (N, H, rounds, columns), one for each block with `"lsh"`, may be
    given in place of random ones.

    Texts of any length are filled up to whole chunks. Padding comes after all tokens inside, so
    its side does not matter; but which chunks `"lsh"` compares depends a little on its length.

    In training, nothing is kept of what blocks compute, so memory grows little with their number:
    gradients compute it again, with the same dropout and the same rotations.

    Raises:
        ValueError: if axial positions are too few or not D wide, numbers of buckets are odd, an
            attention is unknown, or there are more tokens than positions.

    Example:

        backbone = keras_lm.models.ReformerBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        backbone({"token_ids": [[5, 9, 4, 3]]})["sequence_output"].shape  # (1, 4, 32)

    Source: Kitaev et al. 2020, https://arxiv.org/abs/2001.04451, sections 2 and 3; google/trax.
    """

    TEMPLATE = Template(single="$A:0", pair="$A:0 $B:0")
    HEADS = {
        "causal_lm": Head(
            ReformerLMHead, "token_head", token_embedding=from_backbone("token_embedding")
        ),
        "token": Head(
            ReformerLMHead, "token_head", token_embedding=from_backbone("token_embedding")
        ),
        "classification": _classifier(),
        "multiple_choice": _classifier(num_classes=1),
        "token_classification": Head(
            EachTokenClassifier, "token_classifier", dropout=from_backbone("dropout")
        ),
        "question_answering": Head(SpanHead, "span_head"),
    }
    RANGES = {
        "num_local_chunks_before": Whole(0),
        "num_local_chunks_after": Whole(0),
        "num_lsh_chunks_before": Whole(0),
        "num_lsh_chunks_after": Whole(0),
        "local_chunk_length": Whole(),
        "lsh_chunk_length": Whole(),
        "local_attention_dropout": RATE,
        "lsh_attention_dropout": RATE,
        "num_hashes": Whole(),
        "num_buckets": Wholes(2, is_optional=True),
        "axial_shape": Wholes(is_optional=True),
        "axial_dims": Wholes(is_optional=True, is_axis=True),
        "hash_seed": Whole(0),
        "max_sequence_length": Whole(),  # which no tensor is: positions are sums of two tables
    }
    tokenizer_class = SentencePieceTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        head_dim: int | None = None,
        attention_layers: Sequence[str] = ("local", "lsh"),
        causal: bool = True,
        local_chunk_length: int = 64,
        num_local_chunks_before: int = 1,
        num_local_chunks_after: int = 0,
        lsh_chunk_length: int = 64,
        num_lsh_chunks_before: int = 1,
        num_lsh_chunks_after: int = 0,
        num_buckets: int | Sequence[int] | None = None,
        num_hashes: int = 1,
        hash_seed: int = 0,
        axial_shape: Sequence[int] | None = None,
        axial_dims: Sequence[int] | None = None,
        dropout: float = 0.05,
        local_attention_dropout: float = 0.05,
        lsh_attention_dropout: float = 0.0,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        max_sequence_length: int = 4096,
        layer_norm_epsilon: float = 1e-12,
        dtype: DType = None,
        name: str = "reformer_backbone",
    ):
        check_axes(axial_shape, axial_dims, max_sequence_length, hidden_dim)
        cache = {"cache": Input(is_state=True)} if causal else {}
        super().__init__(TOKENS | cache, dtype, name)
        self.token_embedding = make_token_embedding(vocabulary_size, hidden_dim, dtype)
        if axial_shape is None:
            self.position_embedding = PositionEmbedding(
                max_sequence_length, hidden_dim, dtype=dtype, name="position_embedding"
            )
        else:
            self.position_embedding = AxialPositionEmbedding(
                axial_shape, axial_dims, dtype=dtype, name="position_embedding"
            )
        self.dropout = Dropout(dropout, dtype=dtype)
        self.seed_generator = keras.random.SeedGenerator()
        self.blocks = [_make_block(i, self.config, dtype) for i in range(num_layers)]
        self.whole_chunks = WholeChunks([block.attention.chunk_length for block in self.blocks])
        self.at_places = AtPlaces()
        self.final_norm = make_norm("final_norm", layer_norm_epsilon, dtype)
        self.finish()

    def fields_of(self, inputs: dict[str, Tensor]) -> dict[str, Input]:
        given = {"rotations": Input((None, None, None), dtype="float32")}
        return self.input_fields | {n: f for n, f in given.items() if n in inputs}

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> dict[str, Any]:
        # In training without hidden states, for which the outputs of all blocks have to be kept.
        return self._outputs(self.forward(**inputs, training=training, is_reversible=training))

    def forward(
        self,
        token_ids: Tensor,
        padding_mask: Tensor,
        cache: Any = None,
        rotations: Tensor | None = None,
        training: bool | None = None,
        is_reversible: bool = False,
    ) -> dict[str, Any]:
        if cache is not None and "blocks" in cache:
            return steps.read_token(self, token_ids, padding_mask, cache)
        cache, slots = with_tokens(cache, token_ids, padding_mask)
        tokens, mask, places = self.in_order(cache, slots)
        y = x = self.embedded(tokens, mask, training=training)
        noise = self.noise(training, rotations)
        hidden_states = [self.at_places(y, places)]
        if is_reversible:
            x, y = through_reversible(self.blocks, x, y, mask, noise)
            hidden_states = None
        else:
            for block, (seeds, of_block) in zip(self.blocks, noise, strict=True):
                x, y = block(x, y, mask, seeds=seeds, rotations=of_block)
                hidden_states.append(self.at_places(y, places))
        x = self.final_norm(self.at_places(ops.concatenate([x, y], axis=-1), places))
        outputs = {
            "sequence_output": self.dropout(x, training=training),
            "hidden_states": hidden_states,
        }
        return outputs | ({"cache": cache} if self.is_causal else {})

    def noise(self, training: bool | None, rotations: Tensor) -> list[tuple[Any, Tensor | None]]:
        """Return the seeds (SEEDS, 2) of each block in training, and the rotations it is given."""
        seeds = [None] * len(self.blocks)
        if training:
            all_seeds = split_seed(draw_seed(self.seed_generator), SEEDS * len(self.blocks))
            seeds = ops.unstack(ops.reshape(all_seeds, (-1, SEEDS, 2)), len(self.blocks))
        given = iter(() if rotations is None else ops.unstack(rotations))
        is_lsh = [isinstance(block.attention, HashedAttention) for block in self.blocks]
        return [
            (seed, next(given, None) if takes else None)
            for seed, takes in zip(seeds, is_lsh, strict=True)
        ]

    # === State: the tokens so far ===

    @property
    def is_causal(self) -> bool:
        return self.config["causal"]

    def in_order(self, cache: Any, slots: int) -> tuple[Any, Any, Any]:
        """Return all tokens and their mask in whole chunks, and where those of `slots` are."""
        token_ids, mask = cache["token_ids"], cache["padding_mask"]
        if slots is not None:
            used = ops.max(cache["length"])
            if known(used) is None and keras.backend.backend() != "tensorflow":
                raise ValueError(
                    "ReformerBackbone reads a text in as many chunks as it has, a number that XLA "
                    "has to know: continue texts with KERAS_BACKEND=tensorflow."
                )
            token_ids, mask = token_ids[:, :used], mask[:, :used]
        token_ids, mask, places = self.whole_chunks(token_ids, mask)
        if slots is not None:
            places = ops.take_along_axis(places, slots, axis=1)
        return token_ids, mask, places

    def decoding_state(self, state: Any) -> Any:
        """Return what the attention of each block keeps of the tokens so far.

        A token then reads these, and not the whole text: its output is the same up to the first
        block with `"lsh"`, and after it but for the earlier tokens that it would have moved to
        another chunk there, as in Hugging Face's cache.
        """
        return steps.after_prompt(self, state)

    def embedded(
        self,
        token_ids: Tensor,
        padding_mask: Tensor,
        start: Any = None,
        training: bool | None = None,
    ) -> Tensor:
        """Return the vectors of tokens and their positions, (B, S, D)."""
        x = self.dropout(self.token_embedding(token_ids), training=training)
        positions = self.position_embedding(padding_mask, start=start)
        x = x + self.dropout(positions, training=training)
        return ops.cast(x, float32_or_wider(self.dtype_policy))

    def initial_state(self, batch_size: int | Tensor, length: int | Tensor = 0) -> dict[str, Any]:
        if not self.is_causal:
            return super(CachedBackbone, self).initial_state(batch_size, length)
        slots = ops.zeros((batch_size, length), "int32")
        return {
            "token_ids": slots,
            "padding_mask": slots,
            "length": ops.zeros((batch_size,), "int32"),
        }

    def pack_state(self, state: Any) -> Any:
        return state

    def unpack_state(self, state: Any) -> Any:
        return state

    def cache_bytes(self) -> int:
        return 8 * self.max_sequence_length

    # === Heads, and cost ===

    def make_head(self, kind: str, **options: Any) -> keras.layers.Layer:
        needed = {"causal_lm": True, "token": False}.get(kind, self.is_causal)
        if needed != self.is_causal:
            other = "MaskedLM" if needed else "CausalLM"
            raise ValueError(
                f"causal={not needed}: this model has no head for kind={kind!r}. Load it with "
                f"causal={needed}, or take {other}."
            )
        return super().make_head(kind, **options)

    @classmethod
    def in_both_directions(cls, size: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by which a size sees as much after a token as before it."""
        sides = {
            f"num_{kind}_chunks_after": size.get(f"num_{kind}_chunks_before", 1)
            for kind in ("local", "lsh")
        }
        return {"causal": False} | sides

    @classmethod
    def of_width(cls, size: dict[str, Any], hidden_dim: int) -> dict[str, Any]:
        rest = [hidden_dim * dim // size["hidden_dim"] for dim in size["axial_dims"][1:]]
        return super().of_width(size, hidden_dim) | {"axial_dims": [hidden_dim - sum(rest), *rest]}

    def forward_flops(self) -> float:
        """Return the FLOPs for a token of a full sequence: of kernels, attention, and hashing."""
        flops = 2 * kernels(self.blocks) + sum(block.attention.flops() for block in self.blocks)
        of_tokens = 4 * self.vocabulary_size * self.config["hidden_dim"]
        return flops + self.is_causal * of_tokens


ReformerBackbone.SIZES = {
    "reformer_crime_and_punishment_en": {
        "vocabulary_size": 320,
        "num_layers": 6,
        "num_heads": 2,
        "hidden_dim": 256,
        "intermediate_dim": 512,
        "head_dim": 64,
        "num_buckets": [64, 128],
        "axial_shape": [512, 1024],
        "axial_dims": [64, 192],
        "max_sequence_length": 524288,
    },
    "reformer_enwik8_en": {
        "vocabulary_size": 258,
        "num_layers": 12,
        "num_heads": 8,
        "hidden_dim": 1024,
        "intermediate_dim": 4096,
        "attention_layers": ["local", "local", "lsh", "local"],
        "local_chunk_length": 128,
        "lsh_chunk_length": 256,
        "num_buckets": 512,
        "num_hashes": 4,
        "axial_shape": [128, 512],
        "axial_dims": [256, 768],
        "dropout": 0.2,
        "local_attention_dropout": 0.2,
        "lsh_attention_dropout": 0.1,
        "max_sequence_length": 65536,
    },
}
ReformerBackbone.PUBLISHED = {
    "reformer_crime_and_punishment_en": "hf://google/reformer-crime-and-punishment",
    "reformer_enwik8_en": "hf://google/reformer-enwik8",
}
