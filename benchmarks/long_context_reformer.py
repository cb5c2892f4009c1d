"""What a training step of Reformer takes by depth and by length, beside full attention.

    python benchmarks/long_context_reformer.py [--depths 2,4,8] [--lengths 4096,16384,65536]

Each row is one process: a network of the same width and number of blocks, whose gradients of a
causal loss are computed twice, on random tokens. Memory is the highest that the process had, less
what it had before the first step; time is that of the second step. GPT-2 attends to all tokens, in
blocks that are computed again as it does by itself, and as a whole.
"""

import resource
import subprocess
import sys
import time

import click

NETWORKS = ("reformer", "gpt2", "gpt2, whole")
WIDTH, HEADS = 128, 2
VOCABULARY_SIZE = 256


@click.command()
@click.option("--depths", default="2,4,8", show_default=True)
@click.option("--lengths", default="4096,16384,65536", show_default=True)
@click.option("--seconds", default=300, show_default=True, help="Longest that a row may take.")
@click.option("--row", hidden=True, help="Measure one row in this process.")
def main(depths, lengths, seconds, row):
    """Print memory and time of a step by depth and by length."""
    if row:
        network, layers, length = row.split("/")
        measure(network, int(layers), int(length))
        return
    depths, lengths = ([int(n) for n in text.split(",")] for text in (depths, lengths))
    rows = [(network, n, lengths[0]) for network in NETWORKS[:2] for n in depths]
    rows += [(network, depths[0], n) for n in lengths for network in NETWORKS]
    click.echo("| network | blocks | tokens | MB | seconds |\n| --- | ---: | ---: | ---: | ---: |")
    for row in dict.fromkeys(rows):
        command = [sys.executable, __file__, "--row", "/".join(map(str, row))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
            found = done.stdout.strip() if done.returncode == 0 else "does not fit | "
        except subprocess.TimeoutExpired:
            found = f" | more than {seconds}"
        click.echo(f"| {' | '.join(map(str, row))} | {found} |")


def measure(network, layers, length):
    """Print the memory and the time of a step."""
    import numpy as np
    import tensorflow as tf

    from keras_lm import models, tasks
    from keras_lm.layers.tensorflow import attention_ops

    size = {
        "vocabulary_size": VOCABULARY_SIZE,
        "num_layers": layers,
        "num_heads": HEADS,
        "hidden_dim": WIDTH,
        "intermediate_dim": 4 * WIDTH,
        "max_sequence_length": length,
    }
    if network == "reformer":
        side = 2 ** ((length - 1).bit_length() // 2)
        grid = [side, -(-length // side)]
        backbone = models.ReformerBackbone(
            **size, axial_shape=grid, axial_dims=[WIDTH // 2, WIDTH // 2]
        )
    else:
        backbone = models.GPT2Backbone(**size)
    if network.endswith("whole"):
        attention_ops.MANY_SCORES = float("inf")
    task = tasks.CausalLM(backbone)
    ids = np.random.default_rng(0).integers(0, VOCABULARY_SIZE, (1, length)).astype("int32")

    @tf.function(autograph=False)
    def step(ids):
        with tf.GradientTape() as tape:
            logits = task({"token_ids": ids}, training=True)[:, :-1]
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(ids[:, 1:], logits)
            loss = tf.reduce_mean(loss)
        gradients = tape.gradient(loss, [v.value for v in task.trainable_variables])
        return sum(tf.reduce_sum(tf.abs(x)) for x in map(tf.convert_to_tensor, gradients))

    compiled = step.get_concrete_function(tf.constant(ids))
    before = peak()
    compiled(tf.constant(ids)).numpy()
    start = time.perf_counter()
    compiled(tf.constant(ids)).numpy()
    print(f"{(peak() - before) / 1000:,.0f} | {time.perf_counter() - start:.1f}")


def peak():
    """Return the highest memory so far, in kB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
