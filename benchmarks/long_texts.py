"""Time and memory of attention in blocks, and of blocks computed again, beside the whole.

    python benchmarks/long_texts.py [--point 4x1024 …] [--rounds 3]

A BERT of 4 layers, 384 wide with 12 heads, takes a forward pass and a training step with AdamW,
float32 and dropout of 0.1, on rows of random tokens. Each form has a process of its own
with one thread, in turns; `taskset -c 0` keeps it on one core. Seconds are of the processor, the
least of three calls, so that other work counts little; memory is the peak above that of the process
before its first call.
"""

import json
import os
import statistics
import subprocess
import sys

import click

SETTINGS = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
}
CALLS = 3

# Attention runs in blocks above this number of scores a row; whether layers are recomputed.
FORMS = {"whole": (10**12, False), "blocks": (0, False), "again": (10**12, True)}
FORMS["blocks, again"] = (0, True)


def peak_memory():
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(form, rows, columns):
    """Return seconds and bytes of a forward pass and a training step, in this process."""
    import time

    import keras
    import numpy as np
    import tensorflow as tf

    from keras_lm.layers import tensorflow as tensorflow_ops
    from keras_lm.models import BertBackbone
    from keras_lm.training import enable_rematerialization

    tensorflow_ops.MANY_SCORES, computes_again = FORMS[form]
    backbone = BertBackbone(1000, 4, 12, 384, 1536, max_sequence_length=columns)
    if computes_again:
        enable_rematerialization(backbone)
    optimizer = keras.optimizers.AdamW(1e-4)
    optimizer.build(backbone.trainable_variables)
    variables = backbone.trainable_variables

    # As in `fit`, the size of a batch is not known before.
    def traced(function):
        spec = tf.TensorSpec((None, columns), tf.int32)
        return tf.function(function, input_signature=[spec], autograph=False)

    @traced
    def forward(token_ids):
        return tf.reduce_sum(backbone({"token_ids": token_ids})["sequence_output"])

    @traced
    def step(token_ids):
        with tf.GradientTape() as tape:
            x = backbone({"token_ids": token_ids}, training=True)["sequence_output"]
            loss = tf.reduce_mean(x**3)
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    ids = tf.constant(np.random.default_rng(0).integers(1, 1000, (rows, columns)), tf.int32)
    results, start = {}, peak_memory()
    for name, function in (("forward", forward), ("training", step)):
        seconds = []
        for _ in range(CALLS + 1):
            before = time.process_time()
            float(function(ids))
            seconds.append(time.process_time() - before)
        results[name] = {"seconds": min(seconds[1:]), "memory": peak_memory() - start}
    return results


@click.command(help=__doc__.splitlines()[0])
@click.option("--point", "points", multiple=True, help="Rows × columns; several are allowed.",
              default=("8x512", "4x1024", "2x2048", "1x4096"))  # fmt: skip
@click.option("--form", "forms", multiple=True, type=click.Choice(list(FORMS)),
              default=[*FORMS])  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--alone", is_flag=True, help="One form at one point, in this process.")
def main(points, forms, rounds, alone):
    """Measure the forms in turns, each in a process of its own, and print a table."""
    if alone:
        click.echo(json.dumps(measure(forms[0], *map(int, points[0].split("x")))))
        return
    click.echo("| rows × tokens | attention | forward, s | MB | training step, s | MB |")
    click.echo("| --- | --- | ---: | ---: | ---: | ---: |")
    for point in points:
        results = {form: [] for form in forms}
        for _ in range(rounds):
            for form in forms:
                command = [sys.executable, __file__, "--alone", "--point", point, "--form", form]
                done = subprocess.run(
                    command, env=os.environ | SETTINGS, capture_output=True, text=True
                )
                if done.returncode:
                    raise click.ClickException(done.stderr[-1000:])
                results[form].append(json.loads(done.stdout.splitlines()[-1]))
        for form, each in results.items():
            cells = [
                text.format(statistics.median(one[part][key] for one in each) / unit)
                for part in ("forward", "training")
                for key, unit, text in (("seconds", 1, "{:.2f}"), ("memory", 1e6, "{:,.0f}"))
            ]
            click.echo(f"| {point.replace('x', ' × ')} | {form} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
