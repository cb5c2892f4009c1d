"""Transformer-XL: a language model that reads a text segment by segment, and remembers the last.

Each block attends to what it read before, the memory, beside the tokens of a segment; positions are
distances, and rare words have narrow vectors.

Shapes: B batch, S sequence, M memory, L blocks, D hidden, V vocabulary.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.converter import (
    ConfigTable,
    Converter,
    Derived,
    Fixed,
    Key,
    Refused,
    match_score,
    require_only,
)
from keras_lm.converters.entries import Entries
from keras_lm.converters.names import (
    GOOGLE_LEAVES,
    PYTORCH_LEAVES,
    NameTable,
    transpose_kernels,
)
from keras_lm.converters.published_labels import huggingface_labels
from keras_lm.layers import AttentionContext, CausalBias, PaddingBias
from keras_lm.layers.backend import Dropout
from keras_lm.layers.left_to_right import KeyValueCache
from keras_lm.layers.state import FIXED
from keras_lm.layers.transformer import block_options
from keras_lm.models.backbone import Backbone, Head, Input, from_backbone
from keras_lm.models.causal import CausalBackbone
from keras_lm.models.checked_arguments import Whole, check_arguments
from keras_lm.models.sizes import kernels
from keras_lm.models.transformer_xl_layers import (
    RelativeBiases,
    RelativePostNormBlock,
    RelativePreNormBlock,
    SegmentPositions,
    frequencies,
    in_order,
)
from keras_lm.models.transformer_xl_words import AdaptiveEmbedding, AdaptiveSoftmax
from keras_lm.packers import Template
from keras_lm.tokenizers import TransformerXLTokenizer
from keras_lm.utils.argument_types import DType


def _make_block(config, dtype, name):
    block = RelativePreNormBlock if config["pre_norm"] else RelativePostNormBlock
    options = block_options(config | {"activation": "relu"}, dtype)
    return block(head_dim=config["head_dim"], **options, name=name)


@keras.saving.register_keras_serializable("keras_lm")
class TransformerXLBackbone(Backbone):
    """The network of Transformer-XL.

    Args:
        vocabulary_size, num_layers, hidden_dim: int. V, the number of blocks, and D.
        num_heads, head_dim: int. N; and H, or None for D / N.
        intermediate_dim: int. Width inside a block's feed-forward network.
        embedding_dim, cutoffs, div_val, project_all: see `AdaptiveEmbedding`; the width is D if it
            is None.
        tie_projections, tie_embeddings: see `AdaptiveSoftmax`; bool, whether it has the vectors of
            the embedding.
        memory_length: int, M. How many tokens before a segment are remembered.
        clamp_length: int, or None. See `SegmentPositions`.
        same_length: bool. Each token attends to as many, M with itself; False for all before it.
        counts_itself: bool. False with `same_length` is for M tokens beside itself, as in the
            authors' TensorFlow code.
        starts_empty: bool. Whether there is nothing to attend to before a text, as in the authors'
            PyTorch code; else zeros are, as in their TensorFlow code and Hugging Face's.
        pre_norm: bool. Normalise before each part of a block, and not after it.
        untie_biases: bool. Whether each block has `RelativeBiases` of its own.
        dropout: float. Fraction dropped in training of embeddings, distances, of what each part of
            a block adds, and inside of feed-forward networks.
        attention_dropout: float. Fraction dropped of the attention probabilities.
        layer_norm_epsilon: float.
        dtype: a dtype policy or its name, such as `"mixed_bfloat16"`.

    Call: `backbone({"token_ids": …, "padding_mask": …, "memory": …})`, the first two (B, S) int32;
    the mask and the memory are optional. Returns `sequence_output` (B, S, D) and the `memory`
    (B, L, M, D) of the next segment: what each of L blocks read of the last M tokens. At the start
    it is zero. It does not take in padding, and passes on no gradients.

    Example:

        backbone = keras_lm.models.TransformerXLBackbone(
            vocabulary_size=100,
            num_layers=2,
            num_heads=2,
            hidden_dim=16,
            intermediate_dim=32,
            cutoffs=[20, 50],
            memory_length=4,
        )
        first = backbone({"token_ids": [[5, 9, 2]]})
        backbone({"token_ids": [[7, 80]], "memory": first["memory"]})["sequence_output"]

    Source: Dai et al. 2019, https://arxiv.org/abs/1901.02860, section 3; kimiyoung/transformer-xl.
    """

    TEMPLATE = Template(single="$A:0", pair="$A:0 $B:0")
    HEADS = CausalBackbone.HEADS | {
        "causal_lm": Head(
            AdaptiveSoftmax,
            "token_head",
            token_embedding=from_backbone("token_embedding"),
            tie_projections=from_backbone("tie_projections"),
            tied=from_backbone("tie_embeddings"),
        ),
    }
    RANGES = {"memory_length": Whole(0), "clamp_length": Whole(1, is_optional=True)}
    STREAM_LENGTHS = {"memory_length": 1}  # as in the authors' scripts
    is_causal = True
    tokenizer_class = TransformerXLTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        head_dim: int | None = None,
        embedding_dim: int | None = None,
        cutoffs: Sequence[int] = (),
        div_val: int = 1,
        project_all: bool = True,
        tie_projections: bool | Sequence[bool] | None = None,
        tie_embeddings: bool = True,
        memory_length: int = 512,
        clamp_length: int | None = None,
        same_length: bool = False,
        counts_itself: bool = True,
        starts_empty: bool = False,
        pre_norm: bool = False,
        untie_biases: bool = True,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        layer_norm_epsilon: float = 1e-5,
        dtype: DType = None,
        name: str = "transformer_xl_backbone",
    ):
        super().__init__(
            inputs={
                "token_ids": Input(),
                "padding_mask": Input(default=1, like="token_ids"),
                "memory": Input(is_state=True),
            },
            dtype=dtype,
            name=name,
        )
        self.token_embedding = AdaptiveEmbedding(
            vocabulary_size,
            hidden_dim,
            embedding_dim or hidden_dim,
            cutoffs,
            div_val,
            project_all,
            dtype=dtype,
            name="token_embedding",
        )
        self.dropout = Dropout(dropout, dtype=dtype)
        self.positions = SegmentPositions(hidden_dim, clamp_length, dtype=dtype, name="positions")
        self.attention_bias, self.padding_bias = CausalBias(), PaddingBias()
        self._set_lengths()
        self.blocks = [_make_block(self.config, dtype, f"block_{i}") for i in range(num_layers)]
        if not untie_biases:
            self.biases = RelativeBiases(
                num_heads, head_dim or hidden_dim // num_heads, dtype=dtype, name="biases"
            )
            self.biases.build()
            for block in self.blocks:
                block.biases = self.biases
        self.finish()

    def set_lengths(self, **lengths: Any) -> None:
        """Change `memory_length`, `clamp_length` or `same_length`, which no weight depends on.

        Models are evaluated with longer memories than they were trained with. A memory of an
        earlier call has the earlier length: begin without one. Of a task that has been called, call
        `forget_graphs` afterwards.

        Raises:
            ValueError: if another argument is passed, or a value is out of range.

        Example:

            task.backbone.set_lengths(memory_length=1600, clamp_length=1000, same_length=True)
            task.forget_graphs()
            task.score(texts)["perplexity"]

        Source: Transformer-XL, https://arxiv.org/abs/1901.02860, section 4.1.
        """
        unknown = sorted(lengths.keys() - {"memory_length", "clamp_length", "same_length"})
        if unknown:
            raise ValueError(
                f"set_lengths got {unknown}: it takes memory_length, clamp_length and same_length."
            )
        check_arguments(type(self), lengths)
        self._arguments |= lengths
        self._set_lengths()
        self.finish()

    def _set_lengths(self):
        config = self.config
        self.positions.clamp_length = config["clamp_length"]
        window = config["memory_length"] + (not config["counts_itself"])
        self.attention_bias.window = max(window, 1) if config["same_length"] else None

    def forward(self, token_ids, padding_mask, memory=None, training=None):
        if isinstance(memory, dict):
            return self._step(token_ids, padding_mask, memory)
        x = self.dropout(self.token_embedding(token_ids), training=training)
        if memory is None:
            empty = ops.zeros_like(ops.expand_dims(x[:, 0], 1))
            empty = ops.tile(empty, (1, self.config["memory_length"], 1))
            memory = [empty] * len(self.blocks)  # (B, M, D) each
        positions = self.positions(padding_mask, self._is_read(memory[0]))
        distances = self.dropout(positions["distances"], training=training)
        shared = AttentionContext(
            bias=self.attention_bias(positions["padding_mask"], positions["slots"]),
            positions=positions | {"distances": distances},
        )
        hidden_states, contexts, new_memory = [x], [], []  # (B, S, D)
        for block, before in zip(self.blocks, memory, strict=True):
            new_memory.append(ops.stop_gradient(in_order(before, x, positions["kept"])))
            contexts.append(shared._replace(memory=before))
            x, _ = block(x, contexts[-1], training=training)
            hidden_states.append(x)
        x = hidden_states[-1] = self.dropout(x, training=training)
        return {
            "sequence_output": x,
            "memory": new_memory,
            "hidden_states": hidden_states,
            "attention_contexts": contexts,
        }

    def _is_read(self, memory):
        """Return the mask (B, M) int32 of a memory (B, M, D)."""
        if self.config["starts_empty"]:  # no vector is zero in all of its numbers
            return ops.cast(ops.any(ops.not_equal(memory, 0), axis=2), "int32")
        return ops.ones_like(memory[:, :, 0], dtype="int32")

    def _step(self, token_ids, padding_mask, memory):
        """`forward` of one token (B, 1), given a memory in the form of `decoding_state`."""
        cache = KeyValueCache(padding_mask, memory, len(self.blocks))
        bias = self.padding_bias(cache.padding_mask)
        slots = ops.arange(ops.shape(bias)[3], dtype="int32")
        columns = (slots - memory["length"][0] - 1) % ops.size(slots)  # the token itself is last
        x = self.token_embedding(token_ids)
        contexts = cache.contexts([bias] * len(self.blocks))
        for block, context, distances in zip(
            self.blocks, contexts, memory[FIXED]["distances"], strict=True
        ):
            positions = {"distances": distances[:1], "columns": columns}
            x, ((keys, *_), values) = block(x, context._replace(positions=positions))
            cache.keep((keys, values))
        state = cache.state()
        length = state["length"] % ops.size(slots)
        return {"sequence_output": x, "memory": state | {"length": length, FIXED: memory[FIXED]}}

    def forward_flops(self) -> float:
        """See `Backbone.forward_flops`: of a segment as long as the memory, the last word of it.

        What a segment projects of the memory and of its distances counts for its tokens, and so do
        the words of all clusters.
        """
        again = 0  # keys, values and distances of as many columns of memory as there are tokens
        for block in self.blocks:
            width = block.attention.num_heads * block.attention.head_dim
            again += 3 * width * self.config["hidden_dim"]
        words = sum(
            math.prod(shape)
            for cluster in self.token_embedding.clusters
            for shape in (cluster.shapes["embeddings"], cluster.shapes["projection"])
            if shape
        )
        scores = 6 * self.attended_tokens() * width
        return 2 * (kernels(self.blocks) + again + words) + scores

    def attended_tokens(self):
        memory_length = self.config["memory_length"]
        return len(self.blocks) * memory_length * (1 if self.config["same_length"] else 2)

    # === State ===

    def initial_state(self, batch_size, length=0):
        shape = (batch_size, self.config["memory_length"], self.config["hidden_dim"])
        return [ops.zeros(shape, self.compute_dtype) for _ in self.blocks]

    def pack_state(self, state):
        return ops.stack(state, axis=1)

    def unpack_state(self, state):
        return ops.unstack(state, len(self.blocks), axis=1)

    def decoding_state(self, state: Any) -> dict[str, Any]:
        """Return the memory's keys and values, (B, N, T, H) a block, and those of distances.

        They are a `KeyValueCache` of the T tokens to which one attends, itself among them, in which
        it takes the slot of the one that is too far away now; all rows have the same `length`. So
        no step projects the memory again.
        """
        number = self.attention_bias.window or self.config["memory_length"] + 1
        distances = self.positions.vectors(ops.arange(number - 1, -1, -1, dtype="int32"))
        free = [(0, 0), (0, 0), (0, 1), (0, 0)]
        keys, values, projected = [], [], []
        state = [memory[:, ops.shape(memory)[1] - number + 1 :] for memory in state]
        for block, memory in zip(self.blocks, state, strict=True):
            both = block.attention.keys_and_values(block.read(memory, block.attention_norm))
            for kept, part in zip((keys, values), both, strict=True):
                kept.append(ops.pad(part, free))
            projected.append(block.attention.project_distances(ops.expand_dims(distances, 0)))
        is_read = self._is_read(state[0])
        return {
            "keys": tuple(keys),
            "values": tuple(values),
            "padding_mask": ops.pad(is_read, [(0, 0), (0, 1)]),
            "length": ops.full((ops.shape(is_read)[0],), number - 1, "int32"),
            FIXED: {"distances": tuple(projected)},
        }


def _size(vocabulary_size, num_layers, hidden_dim, num_heads, intermediate_dim, length, **others):
    return {
        "vocabulary_size": vocabulary_size,
        "num_layers": num_layers,
        "hidden_dim": hidden_dim,
        "num_heads": num_heads,
        "intermediate_dim": intermediate_dim,
        "memory_length": length,
    } | others


_CLUSTERS = {"cutoffs": [20000, 40000, 200000], "div_val": 4}
_LM1B = {"cutoffs": [60000, 100000, 640000], "div_val": 4, "tie_projections": [False] * 4}
# Those of the authors' scripts for PyTorch: for the words of WikiText-103, of which the large one
# was published, and of One Billion Word, whose vocabulary is that of Jozefowicz et al. 2016,
# https://arxiv.org/abs/1602.02410; and for the characters of enwik8 and text8, without line ends.
# Lengths are those of training.
TransformerXLBackbone.SIZES = {
    "transformer_xl_base_wt103_en": _size(
        267735, 16, 410, 10, 2100, 150, cutoffs=_CLUSTERS["cutoffs"]
    ),
    "transformer_xl_large_wt103_en": _size(
        267735, 18, 1024, 16, 4096, 384, dropout=0.2, attention_dropout=0.2, **_CLUSTERS
    ),
    "transformer_xl_12_layers_enwik8": _size(204, 12, 512, 8, 2048, 512),
    "transformer_xl_24_layers_enwik8": _size(
        204, 24, 1024, 8, 3072, 768, dropout=0.15, attention_dropout=0.15
    ),
    "transformer_xl_base_lm1b_en": _size(793471, 18, 1024, 8, 4096, 32, dropout=0.0, **_LM1B),
    "transformer_xl_large_lm1b_en": _size(
        793471, 24, 1280, 16, 8192, 32, dropout=0.05, attention_dropout=0.05, **_LM1B
    ),
    "transformer_xl_12_layers_text8_en": _size(27, 12, 512, 8, 2048, 512),
    "transformer_xl_24_layers_text8_en": _size(
        27, 24, 1024, 8, 3072, 768, dropout=0.15, attention_dropout=0.15
    ),
}
TransformerXLBackbone.PUBLISHED = {
    "transformer_xl_large_wt103_en": "hf://transfo-xl/transfo-xl-wt103",
}

# === Checkpoints ===

_MOST_CLUSTERS, _MOST_LAYERS = 16, 64  # of which copies are known


def _holds_frequencies(array):
    return array.ndim == 1 and np.allclose(array, frequencies(2 * array.size), rtol=1e-2)


NAMES = NameTable(
    {
        "token_embedding/cluster_{i}/embeddings": "word_emb.emb_layers.{i}.weight",
        "token_embedding/cluster_{i}/projection": "word_emb.emb_projs.{i}",
        "token_head/cluster_{i}/projection": "crit.out_projs.{i}",
        "token_head/cluster_{i}/embeddings": "crit.out_layers.{i}.weight",
        "token_head/cluster_{i}/bias": "crit.out_layers.{i}.bias",
        "token_head/others/kernel": "crit.cluster_weight",
        "token_head/others/bias": "crit.cluster_bias",
        "biases/content": "r_w_bias",
        "biases/position": "r_r_bias",
        "block_{i}/attention/biases/content": "layers.{i}.dec_attn.r_w_bias",
        "block_{i}/attention/biases/position": "layers.{i}.dec_attn.r_r_bias",
        "block_{i}/attention/query_key_value": "layers.{i}.dec_attn.qkv_net",
        "block_{i}/attention/position": "layers.{i}.dec_attn.r_net",
        "block_{i}/attention/output": "layers.{i}.dec_attn.o_net",
        "block_{i}/attention_norm": "layers.{i}.dec_attn.layer_norm",
        "block_{i}/feedforward/intermediate": "layers.{i}.pos_ff.CoreNet.0",
        "block_{i}/feedforward/output": "layers.{i}.pos_ff.CoreNet.3",
        "block_{i}/feedforward_norm": "layers.{i}.pos_ff.layer_norm",
        "classifier/logits": "score",
    },
    leaves=PYTORCH_LEAVES,
    layout=transpose_kernels,
    prefix=r"transformer\.",
    buffers={"pos_emb.inv_freq": _holds_frequencies},
    copies={
        f"crit.out_layers.{i}.weight": f"word_emb.emb_layers.{i}.weight"
        for i in range(_MOST_CLUSTERS)
    }
    | {
        f"crit.out_projs.{i}": (f"word_emb.emb_projs.{i}", "word_emb.emb_projs.0")
        for i in range(_MOST_CLUSTERS)
    }
    | {
        f"layers.{i}.dec_attn.{name}": name
        for i in range(_MOST_LAYERS)
        for name in ("r_w_bias", "r_r_bias")
    },
    constants={"pos_emb.inv_freq": lambda arguments: frequencies(arguments["hidden_dim"])},
)


def _reversed_clusters(path, array):
    """The layout of the authors' PyTorch code, which counts clusters from the last column."""
    array = transpose_kernels(path, array)
    return array[..., ::-1] if path.startswith("token_head/others/") else array


AUTHORS_NAMES = dataclasses.replace(NAMES, layout=_reversed_clusters)


class _TensorFlowNames(NameTable):
    """The names of the authors' TensorFlow code, where each cluster has a bias of its own."""

    def load(self, variables, tensors):
        names, resolved = self.names, self.resolve(tensors)
        if "adaptive_embed/cutoff_1/lookup_table" not in resolved:  # they share one table
            biases = sorted(
                (name for name in resolved if re.fullmatch(r"adaptive_softmax/cutoff_\d+/b", name)),
                key=lambda name: int(re.search(r"\d+", name)[0]),
            )
            names = names | {"token_head/cluster_{i}/bias": tuple(biases)}
        return NameTable.load(dataclasses.replace(self, names=names), variables, tensors)


def _tensorflow_layout(path, array):
    if path.endswith(("/projection", "/others/kernel")):
        return array.T
    number = re.match(r"block_(\d+)/attention/biases/", path)
    return array[int(number[1])] if number and array.ndim == 3 else array


TENSORFLOW_NAMES = _TensorFlowNames(
    {
        "token_embedding/cluster_{i}/embeddings": "adaptive_embed/cutoff_{i}/lookup_table",
        "token_embedding/cluster_{i}/projection": "adaptive_embed/cutoff_{i}/proj_W",
        "token_head/cluster_{i}/projection": "adaptive_softmax/cutoff_{i}/proj",
        "token_head/cluster_{i}/bias": "adaptive_softmax/cutoff_{i}/b",
        "token_head/others/kernel": "adaptive_softmax/cutoff_0/cluster_W",
        "token_head/others/bias": "adaptive_softmax/cutoff_0/cluster_b",
        "biases/content": "r_w_bias",
        "biases/position": "r_r_bias",
        "block_{i}/attention/biases/content": "r_w_bias",
        "block_{i}/attention/biases/position": "r_r_bias",
        "block_{i}/attention/query_key_value": "layer_{i}/rel_attn/qkv",
        "block_{i}/attention/position": "layer_{i}/rel_attn/r",
        "block_{i}/attention/output": "layer_{i}/rel_attn/o",
        "block_{i}/attention_norm": "layer_{i}/rel_attn/LayerNorm",
        "block_{i}/feedforward/intermediate": "layer_{i}/ff/layer_1",
        "block_{i}/feedforward/output": "layer_{i}/ff/layer_2",
        "block_{i}/feedforward_norm": "layer_{i}/ff/LayerNorm",
    },
    leaves=GOOGLE_LEAVES,
    layout=_tensorflow_layout,
    prefix="transformer/",
    spellings={
        "adaptive_embed/lookup_table": "adaptive_embed/cutoff_0/lookup_table",
        "adaptive_embed/proj_W": "adaptive_embed/cutoff_0/proj_W",
        "adaptive_softmax/bias": "adaptive_softmax/cutoff_0/b",
    },
)


def _settings(config):
    """Return the arguments that no tensor shows; our defaults for what is not stated."""
    clamp_length = config.get("clamp_len", -1)
    return {
        **({"memory_length": config["mem_len"]} if "mem_len" in config else {}),
        "clamp_length": clamp_length if clamp_length > 0 else None,
        "same_length": config.get("same_length", False),
        "pre_norm": bool(config.get("pre_lnorm", False)),
        "dropout": config.get("dropout", 0.1),
        "attention_dropout": config.get("dropatt", 0.0),
    }


# Sizes in the authors' configurations, which their tensors have to agree with.
_SIZES = {
    "n_token": "vocabulary_size",
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "d_model": "hidden_dim",
    "d_inner": "intermediate_dim",
    "d_head": "head_dim",
    "d_embed": "embedding_dim",
    "cutoffs": "cutoffs",
}


def _as_stated(checkpoint, arguments):
    """Return arguments by tensors; raise a CheckpointError if the configuration has others."""
    for theirs, ours in _SIZES.items():
        stated = checkpoint.config.get(theirs)
        if stated is not None and stated != arguments[ours]:
            raise CheckpointError(
                f"{checkpoint.source}: its configuration has {theirs}={stated}, and its tensors "
                f"{arguments[ours]}: it is another checkpoint's. Copy or download it again."
            )
    return arguments


def _check_huggingface(checkpoint):
    words, states = (checkpoint.config.get(key) for key in ("d_embed", "d_model"))
    if "score.weight" in checkpoint.tensors and words != states:
        raise CheckpointError(
            f"{checkpoint.source}: its classifier reads the network's vectors, d_model={states}, "
            f"with a matrix for those of words, d_embed={words}, and the two are not equally wide."
        )


def _tied_projections(config, tensors=None):
    tied = config.get("tie_projs")
    if tied is None and not config.get("proj_share_all_but_first", True):
        tied = []
    # Those beyond a list are not tied, as there.
    number = len(config["cutoffs"]) + 1
    return None if tied is None else [*tied, *[False] * number][:number]


def _write_projections(arguments):
    tied = arguments["tie_projections"]
    return {} if tied is None else {"tie_projs": [bool(each) for each in tied]}


def _projects_anyway(arguments):
    """Whether no cluster's vectors are as wide as the network's, or all are in one table."""
    width, div_val = arguments["embedding_dim"] or arguments["hidden_dim"], arguments["div_val"]
    widths = [width // div_val**i for i in range(len(arguments["cutoffs"]) + 1)]
    return div_val == 1 or arguments["hidden_dim"] not in widths


def _write_memory(arguments):
    length = arguments["memory_length"]
    if length == 0 and arguments["same_length"]:  # there, no token would attend to itself
        raise Refused("memory_length", length, "1 or more with same_length=True")
    return {"mem_len": length}


def _clamp_length(config, tensors=None):
    length = config.get("clamp_len", 1000)
    return length if length > 0 else None


_CONFIG = ConfigTable(
    TransformerXLBackbone,
    "transfo-xl",
    {
        "vocabulary_size": Key("vocab_size"),
        "num_layers": Key("n_layer"),
        "num_heads": Key("n_head"),
        "hidden_dim": Key("d_model"),
        "intermediate_dim": Key("d_inner"),
        "head_dim": Derived(
            lambda config, _: config["d_head"],
            lambda given: {
                "d_head": given["head_dim"] or given["hidden_dim"] // given["num_heads"]
            },
        ),
        "embedding_dim": Derived(
            lambda config, _: config["d_embed"],
            lambda given: {"d_embed": given["embedding_dim"] or given["hidden_dim"]},
        ),
        "cutoffs": Derived(
            lambda config, _: config["cutoffs"], lambda given: {"cutoffs": [*given["cutoffs"]]}
        ),
        "div_val": Key("div_val", 4),
        "project_all": Fixed(True, unless=_projects_anyway),
        "tie_projections": Derived(_tied_projections, _write_projections),
        "tie_embeddings": Derived(
            lambda config, _: config.get("tie_word_embeddings", config.get("tie_weight", True)),
            lambda given: {"tie_word_embeddings": given["tie_embeddings"]},
        ),
        "memory_length": Derived(lambda config, _: config.get("mem_len", 1600), _write_memory),
        "clamp_length": Derived(
            _clamp_length, lambda given: {"clamp_len": given["clamp_length"] or -1}
        ),
        "same_length": Key("same_length", True),
        "counts_itself": Fixed(True, unless=lambda given: not given["same_length"]),
        "starts_empty": Fixed(False, unless=lambda given: given["memory_length"] == 0),
        "pre_norm": Derived(
            lambda config, _: bool(config.get("pre_lnorm", False)),
            lambda given: {"pre_lnorm": given["pre_norm"]},
        ),
        "untie_biases": Key("untie_r", True),
        "dropout": Key("dropout", 0.1),
        "attention_dropout": Key("dropatt", 0.0),
        "layer_norm_epsilon": Key("layer_norm_epsilon", 1e-5),
    },
    Entries(
        read={
            "clamp_len",
            "cutoffs",
            "d_embed",
            "d_head",
            "mem_len",
            "pre_lnorm",
            "proj_share_all_but_first",
            "tie_projs",
            "tie_weight",
            "tie_word_embeddings",
        },
        # How random weights are drawn, and how its authors' program trains and evaluates.
        harmless={
            "ext_len",
            "init",
            "init_range",
            "init_std",
            "proj_init_std",
            "sample_softmax",
            "tgt_len",
        },
        refused={"attn_type": (0,), "adaptive": (True,)},
    ),
    _check_huggingface,
    constants={"trainer_compatible": True},  # without it, the language model warns there
    aliases={
        "hidden_size": "d_model",
        "n_token": "vocab_size",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
)


def _authors_config(checkpoint):
    """Return the arguments of a model of the authors' PyTorch code: sizes by its tensors."""
    known = {"attn_type": 0, "ext_len": 0}
    require_only(checkpoint, TransformerXLBackbone, known)
    tensors, names = checkpoint.tensors, NAMES.resolve(checkpoint.tensors)
    if "r_emb" in names:
        raise CheckpointError(
            f"{checkpoint.source} has a table of positions, {names['r_emb']} (attn_type 1 or 3), "
            "and only relative positions without one (attn_type 0) are known."
        )

    def equal(name, *others):
        """Whether a tensor is a copy of another; one that is not there is."""
        found = [names[other] for other in (name, *others) if other in names]
        return len(found) < 2 or np.array_equal(tensors[found[0]], tensors[found[1]])

    def shape(name):
        return tensors.shape(names[name])

    tables = _numbered(names, "word_emb.emb_layers.{}.weight", shape)
    number = 1 + (shape("crit.cluster_bias")[0] if "crit.cluster_bias" in names else 0)
    is_untied = "r_w_bias" not in names
    bias = "layers.0.dec_attn.r_w_bias" if is_untied else "r_w_bias"
    intermediate_dim, hidden_dim = shape("layers.0.pos_ff.CoreNet.0.weight")
    num_heads, head_dim = shape(bias)
    arguments = _with_clusters(checkpoint, tables, number) | {
        "num_layers": len(_numbered(names, "layers.{}.dec_attn.qkv_net.weight", shape)),
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim,
        "head_dim": head_dim,
        "tie_projections": [
            equal(f"crit.out_projs.{i}", f"word_emb.emb_projs.{min(i, len(tables) - 1)}")
            for i in range(number)
        ],
        "tie_embeddings": all(
            equal(f"crit.out_layers.{i}.weight", f"word_emb.emb_layers.{i}.weight")
            for i in range(len(tables))
        ),
        "starts_empty": True,
        "untie_biases": is_untied,
        "layer_norm_epsilon": 1e-5,
        **_settings(checkpoint.config),
    }
    return _as_stated(checkpoint, arguments)


def _tensorflow_config(checkpoint):
    """Return the arguments of a model of the authors' TensorFlow code: sizes by its tensors."""
    tensors, names = checkpoint.tensors, TENSORFLOW_NAMES.resolve(checkpoint.tensors)

    def shape(name):
        return tensors.shape(names[name])

    tables = _numbered(names, "adaptive_embed/cutoff_{}/lookup_table", shape)
    biases = _numbered(names, "adaptive_softmax/cutoff_{}/b", shape)
    hidden_dim, intermediate_dim = shape("layer_0/ff/layer_1/kernel")
    *layers, num_heads, head_dim = shape("r_w_bias")
    clusters = _with_clusters(checkpoint, tables, len(biases), [rows for (rows,) in biases])
    arguments = clusters | {
        "num_layers": len(_numbered(names, "layer_{}/rel_attn/qkv/kernel", shape)),
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim,
        "head_dim": head_dim,
        "project_all": "adaptive_embed/cutoff_0/proj_W" in names,
        "tie_projections": [
            f"adaptive_softmax/cutoff_{i}/proj" not in names for i in range(len(biases))
        ],
        "counts_itself": False,
        "untie_biases": bool(layers),
        "layer_norm_epsilon": 1e-12,
        **_settings(checkpoint.config),
    }
    return _as_stated(checkpoint, arguments)


def _numbered(names, pattern, shape):
    """Return the shapes of the tensors with the numbers 0, 1, … in a pattern."""
    found = (pattern.format(i) for i in itertools.count())
    return [shape(name) for name in itertools.takewhile(names.__contains__, found)]


def _with_clusters(checkpoint, tables, number, rows=None):
    """Return the arguments of words in `number` clusters, by the shapes of their tables."""
    rows = [size for size, _ in tables] if rows is None else rows
    if len(rows) < number:  # in one table
        rows = np.diff([0, *checkpoint.config["cutoffs"], rows[0]]).tolist()
    widths = [width for _, width in tables]
    divisors = range(1 if len(widths) == 1 else 2, widths[0] + 1)
    divisors = [n for n in divisors if [widths[0] // n**i for i in range(len(widths))] == widths]
    stated = checkpoint.config.get("div_val")
    if not divisors or (stated is not None and len(widths) > 1 and stated not in divisors):
        raise CheckpointError(
            f"{checkpoint.source}: its tables of words are {widths} wide, which does not follow "
            f"from div_val={stated}: it is damaged, or its configuration is another's."
        )
    return {
        "vocabulary_size": sum(rows),
        "embedding_dim": widths[0],
        "cutoffs": np.cumsum(rows)[:-1].tolist(),
        "div_val": stated if stated in divisors else divisors[0],
    }


TransformerXLBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(match_score, model_type="transfo-xl"),
        _CONFIG,
        NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "score.weight"),
        architectures={
            "": "TransfoXLModel",
            "causal_lm": "TransfoXLLMHeadModel",
            "classification": "TransfoXLForSequenceClassification",
        },
        tokenizer="TransfoXLTokenizer",
        versions="4.35 to 4.37",
    ),
    "transformer_xl": Converter(lambda checkpoint: True, _authors_config, AUTHORS_NAMES),
    "google": Converter(
        lambda checkpoint: any("adaptive_softmax/" in name for name in checkpoint.tensors),
        _tensorflow_config,
        TENSORFLOW_NAMES,
    ),
}
