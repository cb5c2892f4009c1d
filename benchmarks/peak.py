"""What bounds a network on this machine: its matrix products alone, and the reading of its weights.

    python benchmarks/peak.py [--tokens 1024] [--rounds 9]

It times the products of BERT-base's blocks for that many tokens, each alone in TensorFlow with
oneDNN, alternating with one of large square matrices; their sum is a lower bound for a forward
pass. Then it times one token's products with all weights of GPT-2 (124M), which do not fit into a
cache: a lower bound for a step of decoding. A figure is the median over the rounds.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import statistics
import time

import click

import keras_lm  # before TensorFlow: it turns oneDNN on  # noqa: F401

HIDDEN_DIM, INTERMEDIATE_DIM, NUM_LAYERS, VOCABULARY_SIZE = 768, 3072, 12, 50257
BLOCK = {
    "query, key, value": (HIDDEN_DIM, 3 * HIDDEN_DIM),
    "attention's output": (HIDDEN_DIM, HIDDEN_DIM),
    "intermediate": (HIDDEN_DIM, INTERMEDIATE_DIM),
    "output": (INTERMEDIATE_DIM, HIDDEN_DIM),
}
LARGE = 4096


@click.command()
@click.option("--tokens", type=click.IntRange(1), default=1024, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=9, show_default=True)
def main(tokens, rounds):
    """Print what matrix products alone reach on this machine, and what that comes to."""
    import tensorflow as tf

    def product(rows, shape, calls):
        """Return a callable that computes a product so often, each with other weights."""
        x = tf.random.normal((rows, shape[0]))
        kernels = [tf.random.normal(shape) for _ in range(calls)]

        @tf.function(autograph=False)
        def run(x, kernels):
            # One after the other, as in a network.
            for kernel in kernels:
                x += 1e-9 * tf.matmul(x, kernel)[0, 0]
            return x[0, 0]

        return lambda: run(x, kernels).numpy()

    block = {name: product(tokens, shape, NUM_LAYERS) for name, shape in BLOCK.items()}
    large = {"large": product(LARGE, (LARGE, LARGE), 1)}
    step = {f"1 {name}": product(1, shape, NUM_LAYERS) for name, shape in BLOCK.items()}
    step["1 vocabulary"] = product(1, (HIDDEN_DIM, VOCABULARY_SIZE), 1)
    seconds = medians(block | large | step, rounds)

    click.echo("| product | GFLOP/s |\n| --- | ---: |")
    for name, shape in BLOCK.items():
        work = 2e-9 * tokens * shape[0] * shape[1] * NUM_LAYERS
        click.echo(f"| {tokens} × {shape[0]} × {shape[1]}, {name} | {work / seconds[name]:.0f} |")
    click.echo(f"| {LARGE} × {LARGE} × {LARGE} | {2e-9 * LARGE**3 / seconds['large']:.0f} |")
    forward = sum(seconds[name] for name in block)
    click.echo(f"\nThe products of BERT-base alone: {tokens / forward:,.0f} tokens/s.")
    read = sum(seconds[name] for name in step)
    weights = NUM_LAYERS * sum(a * b for a, b in BLOCK.values()) + HIDDEN_DIM * VOCABULARY_SIZE
    click.echo(
        f"One token's products with the weights of GPT-2: {1 / read:.1f} tokens/s, "
        f"{4e-9 * weights / read:.1f} GB/s."
    )


def medians(functions, rounds):
    """Return the median seconds of each function, timed in turns."""
    results = {name: [] for name in functions}
    for number in range(rounds + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if number:  # the first traces
                results[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in results.items()}


if __name__ == "__main__":
    main()
