"""Speed of the objectives that mask, beside a training step of BERT-base.

    python benchmarks/corruption.py [--batch-size 32] [--sequence-length 128] [--rounds 5]

The rows are random tokens, a third of which go on with a word; what stands in them makes no
difference. In each round each objective corrupts four batches, and BERT-base takes one step on
`--step-size` rows with masked language modelling, AdamW and float32. The table shows the medians of
tokens a second, and of the ratio to the step of the same round; wanted is 20 at the least. Figures
are those of the machine; compare ratios.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import statistics
import sys
import time

import click
import keras
import numpy as np
import tensorflow as tf

from keras_lm.models import BertBackbone
from keras_lm.objectives import (
    MaskedLanguageModel,
    MaskedNGrams,
    MaskedSpans,
    SentenceOrder,
    SpanBoundary,
)
from keras_lm.tasks import MaskedLM
from keras_lm.tokenizers import WordPieceTokenizer

BATCHES = 4

MASKING = {
    "masked LM": [MaskedLanguageModel()],
    "ELECTRA's 85/15": [MaskedLanguageModel(mask_share=0.85, random_share=0.0)],
    "static, 10 masks": [MaskedLanguageModel(masks_per_text=10)],
    "whole words": [MaskedLanguageModel(whole_words=True)],
    "n-grams": [MaskedNGrams()],
    "n-grams, sentence order": [MaskedNGrams(), SentenceOrder()],
    "spans": [MaskedSpans()],
    "spans, boundary objective": [MaskedSpans(), SpanBoundary()],
}


def make_tokenizer(size):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [f"##{i}" if i % 3 == 0 else str(i) for i in range(len(special), size)]
    return WordPieceTokenizer([*special, *words], lowercase=True)


def make_batch(tokenizer, rows, columns):
    ids = np.random.default_rng(0).integers(5, tokenizer.vocabulary_size, (rows, columns))
    ids[:, 0] = tokenizer.special_id("cls")
    ids[:, [columns // 2, -1]] = tokenizer.special_id("sep")
    second = np.broadcast_to(np.arange(columns) > columns // 2, ids.shape)
    packed = {"token_ids": ids, "padding_mask": np.ones_like(ids), "segment_ids": second}
    return {name: tf.constant(value, tf.int32) for name, value in packed.items()}


def in_turn(objectives):
    """A function of a batch that lets objectives corrupt it one after the other."""

    def corrupt(inputs):
        results = []
        for objective in objectives:
            inputs, labels = objective.corrupt(inputs)
            results.append(labels)
        return inputs, results

    return tf.function(corrupt, autograph=False)


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@click.command(help=__doc__.splitlines()[0])
@click.option("--batch-size", default=32, show_default=True)
@click.option("--sequence-length", default=128, show_default=True)
@click.option("--step-size", default=8, show_default=True, help="Rows of BERT-base's step.")
@click.option("--rounds", default=5, show_default=True)
def main(batch_size, sequence_length, step_size, rounds):
    size = BertBackbone.SIZES["bert_base_en_uncased"]
    tokenizer = make_tokenizer(size["vocabulary_size"])
    task = MaskedLM(BertBackbone(**size), tokenizer=tokenizer)
    task.compile(optimizer=keras.optimizers.AdamW(1e-4), jit_compile=False)
    packed = make_batch(tokenizer, step_size, sequence_length)
    batch = make_batch(tokenizer, batch_size, sequence_length)
    functions = {}
    for name, objectives in MASKING.items():
        for objective in objectives:
            objective.set_tokenizer(tokenizer)
        functions[name] = in_turn(objectives)

    steps, corruptions = [], {name: [] for name in functions}
    for measured in range(rounds + 1):  # the first round warms up
        step = seconds(lambda: task.train_on_batch(packed)) / (step_size * sequence_length)
        for name, function in functions.items():
            times = [seconds(lambda: function(batch)) for _ in range(BATCHES)]  # noqa: B023
            if measured:
                corruptions[name].append(sum(times) / BATCHES / (batch_size * sequence_length))
        if measured:
            steps.append(step)

    click.echo(f"python {' '.join(sys.argv)}")
    click.echo(f"BERT-base takes a step at {1 / statistics.median(steps):.0f} tokens/s\n")
    click.echo("| corruption alone | tokens/s | ÷ the step's |\n| --- | ---: | ---: |")
    for name, times in corruptions.items():
        ratio = statistics.median(step / time for step, time in zip(steps, times, strict=True))
        click.echo(f"| {name} | {1 / statistics.median(times):,.0f} | {ratio:,.0f} |")


if __name__ == "__main__":
    main()
