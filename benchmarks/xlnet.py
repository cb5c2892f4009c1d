"""XLNet beside transformers' code for PyTorch: a forward pass, and a step of its pretraining.

    python benchmarks/xlnet.py [--rounds 3] [--environment torch_transformers=FOLDER]

Rows of 128 tokens, eight at a time; of each a sixth is predicted by the second stream. How it is
timed: see `two_sides.py`.
"""

import json
import sys

import click
from environments import python_of
from two_sides import TORCH_TIMES, compare, random_ids, step_times

SIZE = {"num_layers": 6, "num_heads": 4, "hidden_dim": 256, "intermediate_dim": 1024}
VOCABULARY, LENGTH, BATCH, TARGETS = 8000, 128, 8, 21

TORCH = """
import json, sys, torch
from transformers import XLNetConfig, XLNetLMHeadModel
torch.set_num_threads(1)
size, vocabulary, length, batch, targets = json.loads(sys.argv[1])
config = XLNetConfig(
    vocab_size=vocabulary, n_layer=size["num_layers"], n_head=size["num_heads"],
    d_model=size["hidden_dim"], d_inner=size["intermediate_dim"], dropout=0.0,
)
model = XLNetLMHeadModel(config)
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
ids = torch.randint(0, vocabulary, (batch, length))
places = torch.arange(targets) * 6
hidden = torch.zeros(batch, length, length)
hidden[:, :, places] = 1.0
mapping = torch.zeros(batch, targets, length)
mapping[:, torch.arange(targets), places] = 1.0
def forward():
    with torch.no_grad():
        model.transformer(ids, use_mems=False)
def training():
    optimizer.zero_grad()
    model(ids, perm_mask=hidden, target_mapping=mapping, labels=ids[:, places],
          use_mems=False).loss.backward()
    optimizer.step()
"""


def measure():
    """Return our seconds of a forward pass and a training step."""
    import numpy as np
    import tensorflow as tf

    from keras_lm.models import XLNetBackbone

    backbone = XLNetBackbone(VOCABULARY, **SIZE, dropout=0.0, attention_dropout=0.0)
    head, ids = backbone.make_head("token"), random_ids(BATCH, LENGTH) % VOCABULARY
    places = np.arange(TARGETS) * 6
    hidden = np.zeros((BATCH, LENGTH, LENGTH), "int32")
    hidden[:, :, places] = 1
    mapping = np.tile(np.eye(LENGTH, dtype="float32")[places], (BATCH, 1, 1))
    targets = {"permutation_mask": hidden, "target_mapping": mapping}
    head(backbone({"token_ids": ids[:1, :1]}))

    def forward(ids):
        return backbone({"token_ids": ids})["sequence_output"]

    def loss_of(ids):
        logits = head(backbone({"token_ids": ids} | targets, training=True))
        labels = tf.gather(ids, places, axis=1)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    return step_times(forward, loss_of, ids, backbone, head)


@click.command()
@click.option("--environment", "environments", multiple=True, help="PEER=FOLDER.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--ours", is_flag=True, hidden=True)
def main(environments, rounds, ours):
    """Print a table of both sides and their ratio."""
    if ours:
        click.echo(json.dumps(measure()))
        return
    python = python_of("torch_transformers", dict(each.split("=") for each in environments))
    arguments = json.dumps([SIZE, VOCABULARY, LENGTH, BATCH, TARGETS])
    torch = [python, "-c", TORCH + TORCH_TIMES, arguments]
    compare([sys.executable, __file__, "--ours"], torch, rounds)


if __name__ == "__main__":
    main()
