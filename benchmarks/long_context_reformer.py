"""What a training step of Reformer takes by depth and by length, beside full attention.

    python benchmarks/long_context_reformer.py [--depths 2,4,8] [--lengths 4096,16384,65536]
        [--vocabulary-size 256] [--networks reformer,reformer-whole,gpt2,gpt2-whole]

Each row is one process: a network of the same width and number of blocks, whose gradients of a
causal loss are computed twice, on random tokens. Memory is the highest that the process had, less
what it had before the first step; time is that of the second step. GPT-2 attends to all tokens, in
blocks that are computed again as it does by itself, and as a whole. Losses are computed some rows
at a time, and as a whole.
"""

import resource
import subprocess
import sys
import time

import click

NETWORKS = ("reformer", "reformer-whole", "gpt2", "gpt2-whole")
WIDTH, HEADS = 128, 2


@click.command()
@click.option("--depths", default="2,4,8", show_default=True)
@click.option("--lengths", default="4096,16384,65536", show_default=True)
@click.option("--seconds", default=300, show_default=True, help="Longest that a row may take.")
@click.option("--vocabulary-size", default=256, show_default=True)
@click.option("--networks", default=",".join(NETWORKS), show_default=True)
@click.option("--row", hidden=True, help="Measure one row in this process.")
def main(depths, lengths, seconds, vocabulary_size, networks, row):
    """Print memory and time of a step by depth and by length."""
    if row:
        network, layers, length = row.split("/")
        measure(network, int(layers), int(length), vocabulary_size)
        return
    networks = networks.split(",")
    depths, lengths = ([int(n) for n in text.split(",")] for text in (depths, lengths))
    rows = [(name, n, lengths[0]) for name in networks if "whole" not in name for n in depths]
    rows += [(name, depths[0], n) for n in lengths for name in networks]
    click.echo("| network | blocks | tokens | MB | seconds |\n| --- | ---: | ---: | ---: | ---: |")
    for row in dict.fromkeys(rows):
        command = [sys.executable, __file__, "--row", "/".join(map(str, row))]
        command += ["--vocabulary-size", str(vocabulary_size)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
            results = done.stdout.strip() if done.returncode == 0 else "does not fit | "
        except subprocess.TimeoutExpired:
            results = f" | more than {seconds}"
        click.echo(f"| {' | '.join(map(str, row))} | {results} |")


def measure(network, layers, length, vocabulary_size):
    """Print the memory and the time of a step."""
    import numpy as np
    import tensorflow as tf

    from keras_lm import models, tasks
    from keras_lm.layers import chunks
    from keras_lm.layers import tensorflow as tensorflow_ops

    size = {
        "vocabulary_size": vocabulary_size,
        "num_layers": layers,
        "num_heads": HEADS,
        "hidden_dim": WIDTH,
        "intermediate_dim": 4 * WIDTH,
        "max_sequence_length": length,
    }
    if network.startswith("reformer"):
        side = 2 ** ((length - 1).bit_length() // 2)
        grid = [side, -(-length // side)]
        backbone = models.ReformerBackbone(
            **size, axial_shape=grid, axial_dims=[WIDTH // 2, WIDTH // 2]
        )
    else:
        backbone = models.GPT2Backbone(**size)
    if network.endswith("whole"):
        tensorflow_ops.MANY_SCORES = float("inf")
        chunks.NUMBERS_AT_ONCE = 2**62
    task = tasks.CausalLM(backbone)
    ids = np.random.default_rng(0).integers(0, vocabulary_size, (1, length)).astype("int32")

    @tf.function(autograph=False)
    def step(ids):
        with tf.GradientTape() as tape:
            losses = task({"token_ids": ids, "labels": tf.roll(ids, -1, 1)}, training=True)
            loss = tf.reduce_mean(losses)
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
