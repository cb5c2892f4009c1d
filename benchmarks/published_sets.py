"""What a small pretrained encoder learns from published data sets, beside a trivial baseline.

    python benchmarks/published_sets.py SOURCE FOLDER results.jsonl
    python benchmarks/published_sets.py SOURCE FOLDER results.jsonl --sets CoLA STS-B --seeds 3
    python benchmarks/published_sets.py SOURCE FOLDER results.jsonl --sets MNLI --rate 1e-4

FOLDER holds the data sets as they are published: `glue/RTE`, `snli`, `codah` and so on, see `SETS`.
Each is read by `keras_lm.data.read_published` and learnt at the defaults of `fit`. Where a set has
no labelled test or development file besides, its rows are shuffled and split. A line of
`results.jsonl` is one run, and those that are there are not repeated; the table goes to the screen.
"""

import argparse
import collections
import itertools
import json
import random
import statistics
import tempfile
import time
from pathlib import Path

import keras
import numpy as np

from keras_lm import metrics, tasks
from keras_lm.data import read_published
from keras_lm.datasets import PUBLISHED
from keras_lm.training import AdamW

# The name → format, files to train on, files to test on (none: a share of the others is held out),
# and the most rows to train on, which keeps a run to some minutes of one core.
SETS = {
    "RTE": ("rte", ["glue/RTE/train.tsv"], ["glue/RTE/dev.tsv"], None),
    "CoLA": ("cola", ["glue/CoLA/train.tsv"], ["glue/CoLA/dev.tsv"], None),
    "STS-B": ("stsb", ["glue/STS-B/sts-train.csv"], ["glue/STS-B/sts-dev.csv"], None),
    "SST-2": ("sst2", ["glue/SST-2/train.tsv"], ["glue/SST-2/dev.tsv"], 12_000),
    "SST-5": (
        "sst5",
        ["sst5-and-sentence-clf/stsa.fine.train"],
        ["sst5-and-sentence-clf/stsa.fine.test"],
        None,
    ),
    "CODAH": ("codah", ["codah/full_data.tsv"], [], None),
    "WikiANN": ("wikiann", ["wikiann-en/train"], ["wikiann-en/test"], 10_000),
    "QNLI": ("qnli", ["glue/QNLI/dev.tsv"], [], None),
    "SNLI": ("snli", ["snli/dev.jsonl"], [], None),
    "MNLI": ("mnli", ["glue/MNLI/dev.jsonl"], [], None),
    "CommonsenseQA": (
        "commonsenseqa",
        ["commonsenseqa/train.jsonl"],
        ["commonsenseqa/valid.jsonl"],
        3_000,
    ),
    "SQuAD 2.0": (
        "squad",
        ["squad2-dev-cs224n/dev-v2.0.json", "xquad-en/xquad.en.json"],
        [],
        None,
    ),
}
HELD_OUT, MOST_TESTED = 1000, 2000
LENGTHS = {"squad": 256, "sst2": 64, "cola": 64, "wikiann": 64}  # tokens; the others have 128


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source")
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rate", type=float, help="the highest learning rate [default: of `fit`]")
    options = parser.parse_args()
    setting = {"epochs": options.epochs, "rate": options.rate}
    done = []
    if options.results.exists():
        done = [json.loads(line) for line in options.results.read_text("utf-8").splitlines()]
    for name in options.sets:
        train, test = read(name, options.folder)
        for seed in range(options.seeds):
            key = {"set": name, "seed": seed} | setting
            if any(key.items() <= row.items() for row in done):
                continue
            start = time.perf_counter()
            keras.utils.set_random_seed(seed)
            row = key | {"train": len(train.labels), "test": len(test.labels)}
            row |= {"baseline": BASELINES[task_of(name)](train, test)}
            row |= {"scores": LEARNERS[task_of(name)](options, SETS[name][0], train, test)}
            done.append(row | {"s": round(time.perf_counter() - start)})
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(done[-1]) + "\n")
            print(json.dumps(done[-1]), flush=True)
    rows = [row for row in done if row["set"] in options.sets]
    print(table([row for row in rows if setting.items() <= row.items()]))


def table(rows):
    """Return Markdown: a line a score of a set, with its mean and range over seeds."""
    lines = ["| set | rows | | baseline | learnt |", "| --- | ---: | --- | ---: | ---: |"]
    for name in SETS:
        runs = [row for row in rows if row["set"] == name]
        for score in runs[0]["scores"] if runs else []:
            values = [row["scores"][score] for row in runs]
            spread = f" ({min(values):.3g}–{max(values):.3g})" if len(runs) > 1 else ""
            base = runs[0]["baseline"].get(score)
            cells = [name, f"{runs[0]['train']:,} / {runs[0]['test']:,}", score]
            cells += ["" if base is None else f"{base:.3g}"]
            lines.append(f"| {' | '.join(cells)} | {statistics.mean(values):.3g}{spread} |")
    return "\n".join(lines)


# === Rows ===


def read(name, folder):
    """Return rows to train and to test on, as `PublishedRows`; their order is always the same."""
    kind, train, test, most = SETS[name]
    if kind == "squad":
        return read_articles([folder / path for path in train])
    rows = joined([read_published(folder / path, kind) for path in train])
    order = list(range(len(rows.labels)))
    random.Random(0).shuffle(order)
    if test:
        tested = joined([read_published(folder / path, kind) for path in test])
        held_out = list(range(len(tested.labels)))
        random.Random(0).shuffle(held_out)
        return take(rows, order[:most]), take(tested, held_out[:MOST_TESTED])
    return take(rows, order[HELD_OUT:][:most]), take(rows, order[:HELD_OUT])


def joined(parts):
    """Return rows of several files as those of one."""
    first, *others = parts
    for other in others:
        for key, column in first.x.items():
            column += other.x[key]
        first.labels += other.labels
    return first


def take(rows, order):
    rows = type(rows)(rows.x, rows.labels, None, rows.class_names, 0)
    rows.x = {key: [column[i] for i in order] for key, column in rows.x.items()}
    rows.labels = [rows.labels[i] for i in order]
    return rows


def read_articles(paths):
    """Return questions on articles, and those on every fifth of the first file's, held out.

    Both files have paragraphs of the same articles, and none of these may be in both parts.
    """
    files = [json.loads(path.read_text("utf-8"))["data"] for path in paths]
    held_out = {article["title"] for article in files[0][4::5]}
    parts = {"train": [], "test": [a for a in files[0] if a["title"] in held_out]}
    parts["train"] = [a for a in itertools.chain(*reversed(files)) if a["title"] not in held_out]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, articles in parts.items():
            path = Path(folder) / f"{name}.json"
            path.write_text(json.dumps({"data": articles}), encoding="utf-8")
            results.append(read_published(path, "squad"))
    train, test = results
    random.Random(0).shuffle(order := list(range(len(test.labels))))
    return train, take(test, order[:HELD_OUT])


def task_of(name):
    """Return the task that learns a set, as the command line names it."""
    return PUBLISHED[SETS[name][0]].task


# === Trivial baselines ===


def most_frequent(train, test):
    """The class, or the place of a choice, that most rows have; it has no correlation."""
    (label, _), *_ = collections.Counter(train.labels).most_common(1)
    return {"accuracy": float(np.mean([label == other for other in test.labels]))}


def shared_words(_, test):
    """The share of their words that two texts have in common."""

    def overlap(one, two):
        one, two = set(one.lower().split()), set(two.lower().split())
        return len(one & two) / max(1, len(one | two))

    results = [overlap(*pair) for pair in zip(test.x["text"], test.x["text_pair"], strict=True)]
    return correlations(np.array(test.labels), np.array(results))


def most_frequent_tags(train, test):
    """The tag that each word has most often, and that of most words for those not seen."""
    tags = collections.defaultdict(collections.Counter)
    for words, labels in zip(train.x["text"], train.labels, strict=True):
        for word, label in zip(words, labels, strict=True):
            tags[word][label] += 1
            tags[None][label] += 1
    best = {word: counter.most_common(1)[0][0] for word, counter in tags.items()}
    results = [[best.get(word, best[None]) for word in words] for words in test.x["text"]]
    return {"entity F1": entity_f1(train.class_names, test.labels, results)}


def never_an_answer(_, test):
    none = float(np.mean([not answers for answers in test.labels]))
    return {"EM": none, "F1": none, "no answer": none}


def correlations(right, results):
    scores = {}
    for metric in (metrics.SpearmanCorrelation(), metrics.PearsonCorrelation()):
        metric.update_state(right, results)
        scores[type(metric).__name__.removesuffix("Correlation")] = float(metric.result())
    return scores


def entity_f1(class_names, right, results):
    metric = metrics.EntityF1(class_names)
    numbers = {name: number for number, name in enumerate(class_names)}
    for one, other in zip(right, results, strict=True):
        rows = [np.array([[numbers[label] for label in row]]) for row in (one, other)]
        metric.update_state(rows[0], keras.ops.one_hot(rows[1], len(class_names)))
    return float(metric.result())


# === What is learnt ===


def learn(cls, options, kind, train, **arguments):
    length = LENGTHS.get(kind, 128)
    task = cls.from_preset(options.source, sequence_length=length, **arguments)
    if options.rate is not None:
        task.compile(optimizer=AdamW(options.rate))
    task.fit(train.x, train.labels, epochs=options.epochs, verbose=0)
    return task


def classes(options, kind, train, test):
    task = learn(tasks.TextClassifier, options, kind, train, class_names=train.class_names)
    matthews = metrics.MatthewsCorrelation(len(train.class_names))
    task.compile(weighted_metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy"), matthews])
    scores = task.evaluate(test.x, test.labels, verbose=0, return_dict=True)
    results = {"accuracy": float(scores["accuracy"])}
    return results | ({"Matthews": float(scores[matthews.name])} if kind == "cola" else {})


def numbers(options, kind, train, test):
    task = learn(tasks.TextRegressor, options, kind, train)
    return correlations(np.array(test.labels), task.predict(test.x, verbose=0).reshape(-1))


def choices(options, kind, train, test):
    task = learn(tasks.MultipleChoice, options, kind, train)
    scores = task.evaluate(test.x, test.labels, verbose=0, return_dict=True)
    return {"accuracy": float(scores["accuracy"])}


def words(options, kind, train, test):
    task = learn(tasks.TokenClassifier, options, kind, train, class_names=train.class_names)
    results = [[label or "O" for label in row] for row in task.tag(test.x)["labels"]]
    return {"entity F1": entity_f1(train.class_names, test.labels, results)}


def questions(options, kind, train, test):
    """The threshold of no answer is tuned on the last tenth of the rows: on other articles."""
    at = len(train.labels) * 9 // 10
    order = list(range(len(train.labels)))
    task = learn(tasks.QuestionAnswerer, options, kind, take(train, order[:at]))
    known = take(train, order[at:])
    task.tune_null_threshold(known.x, known.labels)
    scores = task.score(test.x, test.labels)
    asked = [i for i, answers in enumerate(test.labels) if answers]
    task.null_threshold = None
    answered = take(test, asked)
    always = task.score(answered.x, answered.labels)
    return {
        "EM": scores["exact_match"],
        "F1": scores["f1"],
        "no answer": scores["no_answer_accuracy"],
        "EM where there is one": always["exact_match"],
        "F1 where there is one": always["f1"],
    }


BASELINES = {
    "text-classifier": most_frequent,
    "multiple-choice": most_frequent,
    "text-regressor": shared_words,
    "token-classifier": most_frequent_tags,
    "question-answerer": never_an_answer,
}
LEARNERS = {
    "text-classifier": classes,
    "multiple-choice": choices,
    "text-regressor": numbers,
    "token-classifier": words,
    "question-answerer": questions,
}


if __name__ == "__main__":
    main()
