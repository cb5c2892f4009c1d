"""Reformer learns to copy: the second half of a long text is its first half again.

    python benchmarks/copying.py [--stages 130:80,1040:80,4095:120]

A text is 0 w 0 w, w of random symbols; the loss is that of the second w. It is learnt at growing
lengths by the same network, one block of attention by hashing, 128 wide. Queries and keys are the
same vectors, so a symbol finds one whose position is near its own: positions are those of a grid
whose rows divide w, and what is to be copied stands in the same column. After each length,
accuracy is measured on new texts with 1 to 8 rounds of hashing. At the end, a step of training at
the two last lengths is timed beside GPT-2 of the same size, which attends to all earlier tokens.

Source of the task: Reformer, https://arxiv.org/abs/2001.04451, section 4.
"""

import time

import click
import keras
import numpy as np

from keras_lm import models, objectives, tasks, training

COLUMNS, WIDTH, HEADS = 65, 128, 2
ROUNDS, TEXTS = (1, 2, 4, 8), 8


def make(longest, symbols, rounds):
    """Return a network for texts whose w has at most `symbols` symbols."""
    length = 2 * longest + 1
    backbone = models.ReformerBackbone(
        symbols + 1,
        num_layers=1,
        num_heads=HEADS,
        hidden_dim=WIDTH,
        intermediate_dim=2 * WIDTH,
        attention_layers=["lsh"],
        num_hashes=rounds,
        axial_shape=[-(-length // COLUMNS), COLUMNS],
        axial_dims=[WIDTH // 2, WIDTH // 2],
        dropout=0.0,
        max_sequence_length=length,
    )
    return tasks.CausalLM(backbone)


def make_full(longest, symbols):
    """Return a network of the same size whose tokens attend to all before them."""
    backbone = models.GPT2Backbone(
        symbols + 1,
        num_layers=1,
        num_heads=HEADS,
        hidden_dim=WIDTH,
        intermediate_dim=2 * WIDTH,
        dropout=0.0,
        max_sequence_length=2 * longest + 1,
    )
    return tasks.CausalLM(backbone)


def seconds(tasks_of, length, symbols):
    """Return the least time of three steps on one text, of each task; they take turns."""
    text, labels = make_texts(np.random.default_rng(0), 1, length, symbols)
    for task in tasks_of:
        task.compile(optimizer=training.AdamW(1e-3))
        task.fit(text, labels, batch_size=1, verbose=0)
    rounds = []
    for _ in range(3):
        rounds.append([])
        for task in tasks_of:
            start = time.perf_counter()
            task.fit(text, labels, batch_size=1, verbose=0)
            rounds[-1].append(time.perf_counter() - start)
    return np.min(rounds, axis=0)


def make_texts(rng, number, length, symbols):
    """Return packed texts 0 w 0 w without the last symbol, and labels; w has `length` symbols."""
    words = rng.integers(1, symbols + 1, (number, length))
    zeros = np.zeros((number, 1), "int64")
    whole = np.concatenate([zeros, words, zeros, words], axis=1).astype("int32")
    labels = whole[:, 1:].copy()
    labels[:, : length + 1] = objectives.IGNORED
    return {"token_ids": whole[:, :-1], "padding_mask": np.ones_like(labels)}, labels


def accuracy(task, length, symbols):
    """Return the share of the second w that is right, in new texts."""
    inputs, labels = make_texts(np.random.default_rng(1), TEXTS, length, symbols)
    right = []
    for i in range(TEXTS):
        logits = task({name: x[i : i + 1] for name, x in inputs.items()})
        results = np.argmax(keras.ops.convert_to_numpy(logits[0]), axis=-1)
        right.append((results == labels[i])[length + 1 :])
    return np.mean(right)


@click.command()
@click.option("--stages", default="130:80,1040:80,4095:120", show_default=True,
              help="Symbols of w, a multiple of 65, and steps.")  # fmt: skip
@click.option("--tokens", default=8192, show_default=True, help="In a step.")
@click.option("--symbols", default=32, show_default=True)
@click.option("--rounds", default=1, show_default=True, help="Of hashing, in training.")
@click.option("--learning-rate", default=2e-3, show_default=True)
def main(stages, tokens, symbols, rounds, learning_rate):
    """Print how much of a text's second half is right, after training at each length."""
    stages = [[int(n) for n in stage.split(":")] for stage in stages.split(",")]
    longest = max(length for length, _ in stages)
    keras.utils.set_random_seed(0)
    task = make(longest, symbols, rounds)
    task.compile(optimizer=training.AdamW(learning_rate))
    rng = np.random.default_rng(0)
    click.echo("| w | steps | seconds | " + " | ".join(f"{n} rounds, %" for n in ROUNDS) + " |")
    click.echo("| ---: " * (3 + len(ROUNDS)) + "|")
    for length, steps in stages:
        rows = max(tokens // (2 * length), 1)
        start = time.perf_counter()
        task.fit(*make_texts(rng, steps * rows, length, symbols), batch_size=rows, verbose=0)
        cells = [f"{length:,}", f"{steps:,}", f"{time.perf_counter() - start:.0f}"]
        for number in ROUNDS:
            other = make(longest, symbols, number)
            other.set_weights(task.get_weights())
            cells.append(f"{100 * accuracy(other, length, symbols):.1f}")
        click.echo(f"| {' | '.join(cells)} |")
    click.echo("\n| tokens | a step, s | full attention, s | × |\n| ---: | ---: | ---: | ---: |")
    for length, _ in stages[-2:]:
        both = make(length, symbols, rounds), make_full(length, symbols)
        ours, full = seconds(both, length, symbols)
        click.echo(f"| {2 * length + 1:,} | {ours:.2f} | {full:.2f} | {full / ours:.1f} |")


if __name__ == "__main__":
    main()
