"""How training scales over devices: counted and timed on this machine, and on paper for many.

python benchmarks/scaling.py              # GPT-3's sizes on 8 to 256 devices, on paper
python benchmarks/scaling.py --measure    # also one and two processes of this machine
python benchmarks/scaling.py --divided    # models divided among devices, on paper
"""

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path

# Tokens of a step, from table 2.1 of https://arxiv.org/abs/2005.14165.
BATCHES = {
    "gpt3_small": 0.5e6,
    "gpt3_medium": 0.5e6,
    "gpt3_large": 0.5e6,
    "gpt3_xl": 1e6,
    "gpt3_2.7b": 1e6,
    "gpt3_6.7b": 2e6,
    "gpt3_13b": 2e6,
    "gpt3_175b": 3.2e6,
}
WORKERS = (8, 16, 32, 64, 128, 256)
# Sizes, the tokens of a text, and the groups of devices that each have the whole model once.
DIVIDED = {
    "bert_base_en_uncased": (512, (1, 2, 4)),
    "bert_large_en_uncased": (512, (1, 2, 4, 8)),
    "gpt2_base_en": (1024, (1, 2, 4)),
    "gpt2_extra_large_en": (1024, (1, 2, 4, 8)),
    "t5_1.1_xxl": (512, (1, 2, 4, 8, 16, 32)),
}


def reduced_bytes(parameters, workers):
    """Return the bytes that each of some workers sends for the sum of float32 gradients.

    A ring sends each part of a gradient to all workers but one, twice: to add it up, and to spread
    the sum. Source: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms", section 3.
    """
    return 4 * parameters * 2 * (workers - 1) / workers


def on_paper(options):
    """Print what a step of each size costs, and how efficient many devices are."""
    from keras_lm.models import GPT3Backbone
    from keras_lm.models.sizes import estimate

    print(
        f"A device computes {options.teraflops:g} TFLOP/s of which {options.utilisation:.0%} are "
        f"used, and sends {options.gigabytes:g} GB/s; float32 gradients; efficiency without any "
        "overlap, and with all that the backward pass (two thirds) can hide.\n"
    )
    print("| size | parameters | tokens a step | FLOPs a step | GB held | GB sent | "
          + " | ".join(map(str, WORKERS)) + " |")  # fmt: skip
    print("| --- |" + " ---: |" * (5 + len(WORKERS)))
    for name, tokens in BATCHES.items():
        sizes = estimate(GPT3Backbone, **GPT3Backbone.SIZES[name])
        flops = tokens * sizes["flops_per_token"]["training"]
        cells = []
        for workers in WORKERS:
            compute = flops / workers / (options.teraflops * 1e12 * options.utilisation)
            sent = reduced_bytes(sizes["parameters"], workers) / (options.gigabytes * 1e9)
            hidden = max(0.0, sent - compute * 2 / 3)
            cells.append(f"{compute / (compute + sent):.0%}, {compute / (compute + hidden):.0%}")
        memory = sizes["memory"]["training_float32"] / 1e9
        print(
            f"| {name} | {sizes['parameters'] / 1e6:,.0f}M | {tokens / 1e6:g}M | {flops:.1e} | "
            f"{memory:,.0f} | {reduced_bytes(sizes['parameters'], 8) / 1e9:.1f} | "
            + " | ".join(cells)
            + " |"
        )


def weights_of(name):
    """Return how many parameters of a size the layout for groups divides, and all others.

    The first is a function of the devices of a group, which may not divide a vocabulary.
    """
    import keras

    from keras_lm.models.sizes import without_weights
    from keras_lm.training import layout_of_transformers
    from keras_lm.utils.registry import sizes

    cls = sizes()[name]
    mesh = keras.distribution.DeviceMesh((1, 1), ["batch", "model"], ["cpu:0"])
    layout = layout_of_transformers(mesh)
    backbone = without_weights(lambda: cls(**cls.SIZES[name]))
    weights = [(math.prod(w.shape), w.shape, layout[w.path]) for w in backbone.weights]

    def on_each(devices):
        held = 0
        for number, shape, axes in weights:
            sizes_divided = [
                size for size, axis in zip(shape, axes.axes if axes else (), strict=False) if axis
            ]
            is_divided = sizes_divided and sizes_divided[0] % devices == 0
            held += number / devices if is_divided else number
        return held

    return on_each, cls.SIZES[name]


def divided_on_paper(options):
    """Print what a device holds and sends where a group of devices has a model once.

    A block computes two products that end in sums over the group, a decoder's with attention to a
    source three, forwards and backwards, each of the group's tokens in bfloat16. Activations are
    those of a block that keeps all, in bfloat16. Sources: Shoeybi et al. 2019,
    https://arxiv.org/abs/1909.08053, section 3; Korthikanti et al. 2022,
    https://arxiv.org/abs/2205.05198, equation 2.
    """
    print(
        f"A group computes {options.rows} texts a step, of 8 groups. Weights, gradients and Adam's "
        "moments are float32, activations bfloat16.\n"
    )
    print("| size | tokens of a text | devices of a group | of all | GB of weights and optimizer "
          "| GB of activations | GB sent in its group | GB sent of gradients |")  # fmt: skip
    print("| --- |" + " ---: |" * 7)
    for name, (length, groups) in DIVIDED.items():
        on_each, size = weights_of(name)
        width, layers, heads = size["hidden_dim"], size["num_layers"], size["num_heads"]
        is_pair = name.startswith("t5")
        sums, stacks = (5, 2) if is_pair else (2, 1)  # of a block, or of one of each side
        tokens = options.rows * length
        for devices in groups:
            held = on_each(devices)
            scores = 5 * heads * length / width
            per_block = tokens * width * (10 + (24 + scores) / devices)
            sent = 2 * sums * layers * 2 * tokens * width * 2 * (devices - 1) / devices
            print(
                f"| {name} | {length} | {devices} | {8 * devices} | {16 * held / 1e9:,.1f} | "
                f"{stacks * layers * per_block / 1e9:,.1f} | {sent / 1e9:,.1f} | "
                f"{reduced_bytes(held, 8) / 1e9:,.1f} |"
            )


def train(options):
    """Time steps of a small GPT-2 as one of several workers, and count bytes over loopback."""
    import keras
    import psutil
    import tensorflow as tf

    from keras_lm import models, tasks
    from keras_lm.utils.processes import strategy_of_workers, workers_of

    strategy = strategy_of_workers()
    workers = workers_of(strategy)
    keras.utils.set_random_seed(0)
    with strategy.scope():
        backbone = models.GPT2Backbone(2048, 4, 4, 128, 512, max_sequence_length=64)
        task = tasks.CausalLM(backbone)
    rows = options.rows * workers.number
    ids = tf.random.stateless_uniform((rows, 64), (0, 0), 0, 2048, tf.int32)
    data = tf.data.Dataset.from_tensors(({"token_ids": ids, "padding_mask": tf.ones_like(ids)},))
    data = data.repeat()
    task.fit(data, steps_per_epoch=3, verbose=0)
    sent, start = psutil.net_io_counters(pernic=True)["lo"].bytes_sent, time.perf_counter()
    processor = time.process_time()
    task.fit(data, steps_per_epoch=options.steps, verbose=0)
    seconds = (time.perf_counter() - start) / options.steps
    sent = (psutil.net_io_counters(pernic=True)["lo"].bytes_sent - sent) / options.steps
    results = {
        "workers": workers.number,
        "parameters": sum(w.shape.num_elements() for w in map(tf.convert_to_tensor,
                          task.trainable_weights)),
        "seconds": seconds,
        "processor": (time.process_time() - processor) / options.steps,
        "bytes": sent / workers.number,
    }  # fmt: skip
    if workers.is_chief:
        print(f"\nfound {json.dumps(results)}", flush=True)


def measure(options):
    """Print a table of one and two processes, each with the same rows of its own."""
    print("\n| workers | ms a step | ms of its processor | MB sent | MB by the formula |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    command = [__file__, "--train", "--steps", str(options.steps), "--rows", str(options.rows)]
    launcher = Path(sys.executable).with_name("keras-lm")
    for workers in (1, 2):
        done = subprocess.run(
            [launcher, "launch", "--processes", str(workers), "--", *command],
            capture_output=True,
            text=True,
            check=True,
        )
        (line,) = [line for line in done.stdout.splitlines() if "found {" in line]
        message = json.loads(line.partition("found ")[2])
        print(
            f"| {workers} | {1e3 * message['seconds']:.0f} | {1e3 * message['processor']:.0f} | "
            f"{message['bytes'] / 1e6:.2f} | "
            f"{reduced_bytes(message['parameters'], workers) / 1e6:.2f} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--teraflops", type=float, default=312, help="of a device (A100, bfloat16)")
    parser.add_argument("--utilisation", type=float, default=0.4, help="share of these in use")
    parser.add_argument("--gigabytes", type=float, default=25, help="a second, of a device's link")
    parser.add_argument("--divided", action="store_true", help="only models in several parts")
    parser.add_argument("--measure", action="store_true", help="one and two processes, too")
    parser.add_argument("--steps", type=int, default=20, help="timed, of a process")
    parser.add_argument("--rows", type=int, default=4, help="of a process, 64 tokens each")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        return train(options)
    if options.divided:
        return divided_on_paper(options)
    on_paper(options)
    if options.measure:
        measure(options)


if __name__ == "__main__":
    main()
