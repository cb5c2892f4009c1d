"""Two sides in turns, keras_lm and transformers on PyTorch, each in a process with one thread.

Seconds are of the processor, so that other work counts little, and the least of several calls.
"""

import json
import os
import subprocess
import time

import click

THREADS = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "OMP_NUM_THREADS": "1"}
CALLS = 3

# The end of a program of PyTorch's that has a `model`, `forward` and `training`.
TORCH_TIMES = """
import time
results = {}
for function in (forward, training):
    model.train(function is training)
    seconds = []
    for _ in range(4):
        start = time.process_time()
        function()
        seconds.append(time.process_time() - start)
    results[function.__name__] = min(seconds[1:])
print(json.dumps(results))
"""


def least(function, calls=CALLS):
    """Return the least seconds of the processor that a call takes, after a first one."""
    seconds = []
    for _ in range(calls + 1):
        start = time.process_time()
        function()
        seconds.append(time.process_time() - start)
    return min(seconds[1:])


def random_ids(rows, columns):
    """Return int32 ids (rows, columns) between 1 and 9,998."""
    import numpy as np
    import tensorflow as tf

    return tf.constant(np.random.default_rng(0).integers(1, 9999, (rows, columns)), tf.int32)


def step_times(forward, loss_of, ids, *layers):
    """Return the seconds of a forward pass of ids, and of a training step of layers with AdamW."""
    import tensorflow as tf

    from keras_lm.training import AdamW

    weights = [weight for layer in layers for weight in layer.trainable_weights]
    weights = list({id(weight): weight for weight in weights}.values())  # shared ones once
    optimizer = AdamW(1e-4)
    optimizer.build(weights)
    forward = tf.function(forward, autograph=False)

    @tf.function(autograph=False)
    def training(ids):
        with tf.GradientTape() as tape:
            loss = loss_of(ids)
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    return {
        "forward": least(lambda: forward(ids).numpy()),
        "training": least(lambda: training(ids).numpy()),
    }


def run(command):
    """Return what a program prints as JSON in its last line."""
    done = subprocess.run(command, env=os.environ | THREADS, capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(done.stderr[-1500:])
    return json.loads(done.stdout.splitlines()[-1])


def compare(ours, theirs, rounds):
    """Run the commands of both sides in turns, and print a table of `step_times` and the ratio."""
    pairs = [(run(ours), run(theirs)) for _ in range(rounds)]
    click.echo("| | keras_lm, s | PyTorch, s | × |\n| --- | ---: | ---: | ---: |")
    for part in ("forward", "training"):
        first, second = (min(pair[side][part] for pair in pairs) for side in (0, 1))
        click.echo(f"| {part} | {first:.3f} | {second:.3f} | {second / first:.2f} |")
