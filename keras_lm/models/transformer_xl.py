"""Transformer-XL: a language model that reads a text segment by segment, and remembers the last.

Each block attends to what it read before, the memory, beside the tokens of a segment; positions are
distances, and rare words have narrow vectors.

Shapes: B batch, S sequence, M memory, L blocks, D hidden, V vocabulary.
"""

import functools

import keras
from keras import ops

from keras_lm.converters.converter import Converter, require_only, signs
from keras_lm.converters.names import PYTORCH_LEAVES, NameTable, transpose_kernels
from keras_lm.converters.published_labels import huggingface_labels
from keras_lm.layers import AttentionContext, CausalBias
from keras_lm.models.backbone import Backbone, Head, Input, own
from keras_lm.models.causal import CausalBackbone
from keras_lm.models.checked_arguments import Whole
from keras_lm.models.transformer_xl_layers import (
    AdaptiveEmbedding,
    AdaptiveSoftmax,
    RelativeBiases,
    RelativePostNormBlock,
    RelativePreNormBlock,
    SegmentPositions,
    in_order,
)
from keras_lm.packers import Template
from keras_lm.tokenizers.words import WordTokenizer


@keras.saving.register_keras_serializable("keras_lm")
class TransformerXLBackbone(Backbone):
    """The network of Transformer-XL.

    Args:
        vocabulary_size, num_layers, hidden_dim: int. V, the number of blocks, and D.
        num_heads, head_dim: int. N; and H, or None for D / N.
        intermediate_dim: int. Width inside a block's feed-forward network.
        embedding_dim, cutoffs, div_val: see `AdaptiveEmbedding`; the width is D if it is None.
        tie_projections: list of bool, or None; see `AdaptiveSoftmax`.
        memory_length: int, M. How many tokens before a segment are remembered.
        clamp_length: int, or None. See `SegmentPositions`.
        same_length: bool. Each token attends to as many, M with itself; False for all before it.
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
    it is zero, and is attended to. It does not take in padding, and passes on no gradients.

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
            token_embedding=own("token_embedding"),
            tie_projections=own("tie_projections"),
        ),
    }
    RANGES = {"memory_length": Whole(0), "clamp_length": Whole(1, is_optional=True)}
    is_causal = True
    forward_flops = None  # they depend on the segments that a text is read in
    tokenizer_class = WordTokenizer

    def __init__(
        self,
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        head_dim=None,
        embedding_dim=None,
        cutoffs=(),
        div_val=1,
        tie_projections=None,
        memory_length=512,
        clamp_length=None,
        same_length=False,
        pre_norm=False,
        untie_biases=True,
        dropout=0.1,
        attention_dropout=0.0,
        layer_norm_epsilon=1e-5,
        dtype=None,
        name="transformer_xl_backbone",
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
            dtype=dtype,
            name="token_embedding",
        )
        self.dropout = keras.layers.Dropout(dropout, dtype=dtype)
        self.positions = SegmentPositions(hidden_dim, clamp_length, dtype=dtype, name="positions")
        self.attention_bias = CausalBias(max(memory_length, 1) if same_length else None)
        block = RelativePreNormBlock if pre_norm else RelativePostNormBlock
        self.blocks = [
            block(
                num_heads=num_heads,
                intermediate_dim=intermediate_dim,
                head_dim=head_dim,
                dropout=dropout,
                attention_dropout=attention_dropout,
                activation="relu",
                layer_norm_epsilon=layer_norm_epsilon,
                dtype=dtype,
                name=f"block_{i}",
            )
            for i in range(num_layers)
        ]
        if not untie_biases:
            self.biases = RelativeBiases(
                num_heads, head_dim or hidden_dim // num_heads, dtype=dtype, name="biases"
            )
            self.biases.build()
            for block in self.blocks:
                block.biases = self.biases
        self.finish()

    def forward(self, token_ids, padding_mask, memory=None, training=None):
        x = self.dropout(self.token_embedding(token_ids), training=training)
        if memory is None:
            empty = ops.zeros_like(ops.expand_dims(x[:, 0], 1))
            empty = ops.tile(empty, (1, self.config["memory_length"], 1))
            memory = [empty] * len(self.blocks)  # (B, M, D) each
        positions = self.positions(padding_mask, memory[0])
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

    # === State ===

    def initial_state(self, batch_size, length=0):
        shape = (batch_size, self.config["memory_length"], self.config["hidden_dim"])
        return [ops.zeros(shape, self.compute_dtype) for _ in self.blocks]

    def pack_state(self, state):
        return ops.stack(state, axis=1)

    def unpack_state(self, state):
        return ops.unstack(state, len(self.blocks), axis=1)


# === Checkpoints ===

_MOST_CLUSTERS, _MOST_LAYERS = 16, 64  # of which copies are known
NAMES = NameTable(
    {
        "token_embedding/cluster_{i}/embeddings": "word_emb.emb_layers.{i}.weight",
        "token_embedding/cluster_{i}/projection": "word_emb.emb_projs.{i}",
        "token_head/cluster_{i}/projection": "crit.out_projs.{i}",
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
    ignored=r"\bpos_emb\.inv_freq$",
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
)


def _huggingface_config(checkpoint):
    require_only(checkpoint, TransformerXLBackbone, {"attn_type": 0, "adaptive": True})
    config = checkpoint.config
    clamp_length = config.get("clamp_len", 1000)
    return {
        "vocabulary_size": config["vocab_size"],
        "num_layers": config["n_layer"],
        "num_heads": config["n_head"],
        "hidden_dim": config["d_model"],
        "intermediate_dim": config["d_inner"],
        "head_dim": config["d_head"],
        "embedding_dim": config["d_embed"],
        "cutoffs": config["cutoffs"],
        "div_val": config.get("div_val", 4),
        "tie_projections": config.get("tie_projs"),
        "memory_length": config.get("mem_len", 1600),
        "clamp_length": clamp_length if clamp_length > 0 else None,
        "same_length": config.get("same_length", True),
        "pre_norm": config.get("pre_lnorm", False),
        "untie_biases": config.get("untie_r", True),
        "dropout": config.get("dropout", 0.1),
        "attention_dropout": config.get("dropatt", 0.0),
        "layer_norm_epsilon": config.get("layer_norm_epsilon", 1e-5),
    }


TransformerXLBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(signs, model_type="transfo-xl"),
        _huggingface_config,
        NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "score.weight"),
    ),
}
