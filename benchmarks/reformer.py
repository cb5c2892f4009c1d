"""Reformer beside transformers' code for PyTorch: a forward pass, and a step of causal training.

    python benchmarks/reformer.py [--rounds 3] [--environment torch_transformers=FOLDER]

The network is that of `google/reformer-crime-and-punishment`, with as many buckets as the length
asks for, and without dropout. How it is timed: see `two_sides.py`.
"""

import json
import math
import sys

import click
from environments import python_of
from two_sides import TORCH_TIMES, compare, random_ids, step_times

SIZE = {"num_layers": 6, "num_heads": 2, "hidden_dim": 256, "intermediate_dim": 512, "head_dim": 64}
KINDS, VOCABULARY = ["local", "lsh"], 320
SHAPES = ((2, 2048), (1, 8192))  # rows and tokens

TORCH = """
import json, sys, torch
from transformers import ReformerConfig, ReformerModelWithLMHead
torch.set_num_threads(1)
size, kinds, vocabulary, grid, batch, length = json.loads(sys.argv[1])
config = ReformerConfig(
    vocab_size=vocabulary, attn_layers=kinds * (size["num_layers"] // len(kinds)),
    num_attention_heads=size["num_heads"], attention_head_size=size["head_dim"],
    hidden_size=size["hidden_dim"], feed_forward_size=size["intermediate_dim"],
    axial_pos_shape=grid, axial_pos_embds_dim=[size["hidden_dim"] // 2] * 2,
    max_position_embeddings=length, is_decoder=True, num_buckets=None, use_cache=False,
    hidden_dropout_prob=0.0, local_attention_probs_dropout_prob=0.0,
    lsh_attention_probs_dropout_prob=0.0,
)
model = ReformerModelWithLMHead(config)
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
ids = torch.randint(0, vocabulary, (batch, length))
def forward():
    with torch.no_grad():
        model.reformer(ids)
def training():
    optimizer.zero_grad()
    model(ids, labels=ids).loss.backward()
    optimizer.step()
"""


def measure(rows, length):
    """Return our seconds of a forward pass and a training step."""
    import tensorflow as tf

    from keras_lm.models import ReformerBackbone

    backbone = ReformerBackbone(
        VOCABULARY,
        **SIZE,
        attention_layers=KINDS,
        axial_shape=grid_of(length),
        axial_dims=[SIZE["hidden_dim"] // 2] * 2,
        dropout=0.0,
        local_attention_dropout=0.0,
        max_sequence_length=length,
    )
    head, ids = backbone.make_head("causal_lm"), random_ids(rows, length) % VOCABULARY
    head(backbone({"token_ids": ids[:1, :1]}))

    def forward(ids):
        return backbone({"token_ids": ids})["sequence_output"]

    def loss_of(ids):
        logits, labels = head(backbone({"token_ids": ids}, training=True)), tf.roll(ids, -1, 1)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    return step_times(forward, loss_of, ids, backbone, head)


def grid_of(length):
    """Return the sides of a grid of `length` positions, a power of 2."""
    side = 2 ** (math.ceil(math.log2(length)) // 2)
    return [side, length // side]


@click.command()
@click.option("--environment", "environments", multiple=True, help="PEER=FOLDER.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--ours", type=int, nargs=2, hidden=True)
def main(environments, rounds, ours):
    """Print a table of both sides and their ratio for each shape."""
    if ours:
        click.echo(json.dumps(measure(*ours)))
        return
    python = python_of("torch_transformers", dict(each.split("=") for each in environments))
    for rows, length in SHAPES:
        arguments = json.dumps([SIZE, KINDS, VOCABULARY, grid_of(length), rows, length])
        torch = [python, "-c", TORCH + TORCH_TIMES, arguments]
        click.echo(f"\n{rows} × {length:,} tokens\n")
        compare([sys.executable, __file__, "--ours", str(rows), str(length)], torch, rounds)


if __name__ == "__main__":
    main()
