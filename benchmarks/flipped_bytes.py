"""Flip single bytes of each kind of file of ours, and count which load with another answer.

    python benchmarks/flipped_bytes.py                 # 200 flips of each kind
    python benchmarks/flipped_bytes.py --cost          # what comparing costs, with MiniLM's size

A flip that is refused, or that changes nothing, is right. The exit status is 1 if a file loads with
another answer.
"""

import argparse
import contextlib
import functools
import pathlib
import re
import statistics
import sys
import tempfile
import time
import warnings
from unittest import mock

import numpy as np

import keras_lm
from keras_lm import data, litert, models, tasks, tokenizers, training
from keras_lm.converters import checked_files
from keras_lm.serving.predictors import SavedModelPredictor
from keras_lm.utils import files

WORDS = ["a", "the", "film", "was", "is", "and", "very", "good", "great", "bad", "poor", "dull"]
WORDS += ["it", "i", "saw", "story", "cast", "not", "so"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
TEXTS = ["the film was good", "a dull story and a poor cast", "not so bad", "i saw it"]


def make_task(words=VOCABULARY, **sizes):
    """Return a classifier with random weights, small by default."""
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 64} | sizes
    backbone = models.BertBackbone(len(words), max_sequence_length=32, **sizes)
    tokenizer = tokenizers.WordPieceTokenizer(words, lowercase=True)
    return tasks.TextClassifier(backbone, tokenizer=tokenizer, class_names=["bad", "good"])


def of_preset(folder):
    return keras_lm.tasks.Task.from_preset(folder).predict(TEXTS, verbose=0)


def of_keras_file(folder):
    import keras

    return keras.saving.load_model(folder / "task.keras", compile=False).predict(TEXTS, verbose=0)


def of_export(folder):
    answers = SavedModelPredictor(folder / "1", "serving_default").answer({"text": TEXTS})
    return [answers["scores"], answers["labels"]]


def of_lite(folder):
    answers = litert.InterpreterPool(folder / "task.tflite").run("serving_default", {"text": TEXTS})
    return [answers["scores"], answers["labels"]]


def of_shards(folder):
    rows = data.read_token_shards(folder)
    return [*rows.as_numpy_iterator(), data.read_token_index(folder)]


def kinds(root):
    """Write a file of each kind, and yield its name, its path, and what reads its folder."""
    task = make_task()
    task.save_to_preset(root / "preset")
    for name in ("model.safetensors", "keras_lm.json", "assets/vocab.txt", "checksums.json"):
        yield f"preset, {name}", root / "preset" / name, of_preset, root / "preset"
    (root / "keras").mkdir()
    task.save(root / "keras" / "task.keras")
    yield ".keras", root / "keras" / "task.keras", of_keras_file, root / "keras"
    version = task.export(root / "export")
    names = ("saved_model.pb", "variables/variables.index")
    names += ("variables/variables.data-00000-of-00001", "checksums.json")
    for name in names:
        yield f"export, {name}", version / name, of_export, root / "export"
    (root / "lite").mkdir()
    task.export(root / "lite" / "task.tflite")
    yield ".tflite", root / "lite" / "task.tflite", of_lite, root / "lite"
    documents = ["\n".join(TEXTS) for _ in range(40)]
    template = task.packer.template
    data.write_row_shards(documents, task.tokenizer, template, 8, root / "shards", num_shards=2)
    for name in ("tokens.json", "tokens-00000-of-00002.tfrecord"):
        yield f"shards, {name}", root / "shards" / name, of_shards, root / "shards"
    yield checkpoint(root)
    yield lora(root)


def checkpoint(root):
    task, path = make_task(), root / "run" / "run.safetensors"
    path.parent.mkdir()
    saver = training.TrainingCheckpoint(path)
    task.fit(TEXTS, [0, 1, 0, 1], verbose=0, callbacks=[saver])
    before = [weight.numpy() for weight in task.weights]

    def read(folder):
        for weight, value in zip(task.weights, before, strict=True):
            weight.assign(value)
        step = training.TrainingCheckpoint(path).restore(task)
        return [step, *(weight.numpy() for weight in task.weights)]

    return "training checkpoint", path, read, path.parent


def lora(root):
    path = root / "lora" / "lora.safetensors"
    path.parent.mkdir()

    def fresh():
        return tasks.Task.from_preset(root / "preset")

    def read(folder):
        task = fresh()
        training.load_lora(task, path)
        return [weight.numpy() for weight in task.weights]

    task = fresh()
    training.enable_lora(task, 2)
    training.save_lora(task, path)
    return "LoRA", path, read, path.parent


def same(one, other):
    """Return whether two answers are equal, nested arrays and dicts."""
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return np.array_equal(one, other)


def flip(name, path, read, folder, number, draws):
    """Flip bytes one at a time; return how many load with another answer."""
    content, right = path.read_bytes(), read(folder)
    refused = wrong = 0
    for _ in range(number):
        place, bit = int(draws.integers(len(content))), 1 << int(draws.integers(8))
        changed = bytearray(content)
        changed[place] ^= bit
        path.write_bytes(changed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if not same(right, read(folder)):
                    wrong += 1
                    print(f"  another answer: byte {place}, bit {bit}")
        except Exception:  # any error is a refusal
            refused += 1
    path.write_bytes(content)
    print(f"{name:<52}{refused:>8} refused{number - refused - wrong:>6} equal{wrong:>6} wrong")
    return wrong


@contextlib.contextmanager
def unchecked():
    """A context in which nothing is compared, as before there were checksums."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(checked_files, "check_tensor", lambda *_: None))
        for module in list(sys.modules.values()):
            for name in ("check_sums", "check_end"):
                if getattr(module, name, None) is getattr(files, name) and module is not files:
                    stack.enter_context(mock.patch.object(module, name, lambda *_: None))
        yield


def cost(root, rounds):
    """Print the seconds of loading with and without comparing, in turns."""
    words = [*VOCABULARY, *(f"word{i}" for i in range(30_522 - len(VOCABULARY)))]
    sizes = {"num_layers": 6, "num_heads": 12, "hidden_dim": 384, "intermediate_dim": 1536}
    task = make_task(words, **sizes)
    preset, export, lite = root / "preset", root / "export", root / "task.tflite"
    ways = {
        "preset": (task.save_to_preset, preset, tasks.Task.from_preset),
        "SavedModel": (
            task.export,
            export,
            lambda folder: SavedModelPredictor(folder / "1", "serving_default"),
        ),
        ".tflite": (task.export, lite, litert.InterpreterPool),
    }
    for name, (write, path, read) in ways.items():
        write(path)
        load = functools.partial(read, path)
        load()
        seconds = {True: [], False: []}
        for number in range(2 * rounds):
            is_checked = number % 2 == 0
            with contextlib.nullcontext() if is_checked else unchecked():
                start = time.perf_counter()
                load()
                seconds[is_checked].append(time.perf_counter() - start)
        medians = [statistics.median(seconds[way]) for way in (True, False)]
        least = [min(seconds[way]) for way in (True, False)]
        print(
            f"{name:<12} compared {medians[0]:.3f} s, not {medians[1]:.3f} s: "
            f"{medians[0] / medians[1] - 1:+.1%} (least {least[0]:.3f} and {least[1]:.3f} s)"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--flips", type=int, default=200, help="of each kind of file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds whose names this expression finds")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--rounds", type=int, default=7, help="of --cost")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        if options.cost:
            cost(pathlib.Path(root), options.rounds)
            return 0
        draws = np.random.default_rng(options.seed)
        results = [kind for kind in kinds(pathlib.Path(root)) if re.search(options.only, kind[0])]
        return int(sum(flip(*kind, options.flips, draws) for kind in results) > 0)


if __name__ == "__main__":
    sys.exit(main())
