"""Training on a task of GLUE, its scores and its answers. Imports TensorFlow."""

import collections
import math
import time

import click
import keras
import numpy as np

from glue.board import mean_score
from glue.report import write_answers
from keras_lm import metrics, tasks, training

METRICS = {
    "matthews": metrics.MatthewsCorrelation,
    "f1": metrics.BinaryF1,
    "accuracy": keras.metrics.SparseCategoricalAccuracy,
    "pearson": metrics.PearsonCorrelation,
    "spearman": metrics.SpearmanCorrelation,
}


def run_settings(board, model, results, settings, make_task, keeps=False):
    """Train a model on a task by each of some settings, but for runs that the board has already.

    Args:
        board: `Board`.
        model: str, the model's folder in it.
        found: `FoundTask`.
        settings: list of `Setting`.
        make_task: function from (class of the task, its arguments) to a new task.
        keeps: bool. Whether the best run's task is saved, to `presets`.
    """
    name = results.task.name
    waiting = [each for each in settings if board.read(model, name, each) is None]
    if not waiting:
        return
    x, labels, _ = results.read(results.train, board.rows)
    held_out = {key: results.read(path, board.rows)[:2] for key, path in results.dev.items()}
    cls, arguments = task_class(results.task, x)
    for setting in waiting:
        start = time.perf_counter()
        keras.utils.set_random_seed(setting.seed)
        task = make_task(cls, arguments)
        rate = setting.learning_rate or task.backbone.learning_rate
        fit(task, x, labels, setting, rate)
        scores = measure(
            results.task,
            {
                key: (np.array(y), task.predict(texts, batch_size=32, verbose=0))
                for key, (texts, y) in held_out.items()
            },
        )
        result = {"scores": scores, "learning_rate": rate, "rows": len(labels)}
        best = board.best(model, name)
        if keeps and (best is None or mean_score(result) > mean_score(best)):
            task.save_to_preset(board.folder / "presets" / model / name)
        board.write(model, name, setting, result)
        shown = ", ".join(f"{key} {value:.1f}" for key, value in scores.items())
        seconds = time.perf_counter() - start
        click.echo(f"{name:<5}  {model}, {setting.name}: {shown} ({seconds:.0f} s)")


def task_class(task, x):
    """Return the class that learns a `GlueTask` of texts `x`, and its arguments."""
    arguments = {"text_pair": "text_pair" in x}
    if not task.class_names:
        return tasks.TextRegressor, arguments
    return tasks.TextClassifier, arguments | {"class_names": task.class_names}


def fit(task, x, labels, setting, learning_rate):
    """Train a task on texts as `task.fit` takes them."""
    task.compile(optimizer=training.AdamW(learning_rate))
    losses = task.fit(
        x,
        labels,
        batch_size=setting.batch_size,
        epochs=setting.epochs,
        verbose=0,
        callbacks=[keras.callbacks.TerminateOnNaN()],
    ).history["loss"]
    if not math.isfinite(losses[-1]):
        raise click.ClickException(
            f"the loss is no longer a number after {len(losses)} epochs: try a lower "
            f"--learning-rate than {learning_rate:g}."
        )


def measure(task, answered):
    """Return the scores of a `GlueTask`, in percent: dict of a measure → float.

    `answered` is a dict of a held-out set → labels (B,), names or numbers, and outputs.
    """
    scores = {}
    for key, (labels, outputs) in answered.items():
        if labels.dtype.kind in "OU":
            labels = np.array([task.class_names.index(label) for label in labels])
        for measured in ("accuracy",) if key else task.measures:
            metric = METRICS[measured]()
            metric.update_state(labels, outputs[:, 0] if not task.class_names else outputs)
            scores[key or measured] = 100 * float(metric.result())
    return scores


def most_frequent(results, rows):
    """Return the scores of the most frequent class for all texts, or of the mean of the labels."""
    labels = results.read(results.train, rows)[1]
    classes = results.task.class_names
    one = np.array([np.mean(labels)]) if not classes else np.zeros(len(classes))
    if classes:
        most = collections.Counter(labels).most_common(1)[0][0]
        one[classes.index(most) if isinstance(most, str) else most] = 1.0
    answered = {}
    for key, path in results.dev.items():
        labels = np.array(results.read(path, rows)[1])
        answered[key] = (labels, np.tile(one, (len(labels), 1)))
    return measure(results.task, answered)


def answer_tests(board, model, results):
    """Write the answers of the best run to the test sets, but for files that are newer than it."""
    preset = board.folder / "presets" / model / results.task.name
    since = (preset / "keras_lm.json").stat().st_mtime
    folder = board.folder / "submission" / model
    paths = {
        folder / name: file
        for name, file in results.test.items()
        if not (folder / name).is_file() or (folder / name).stat().st_mtime < since
    }
    if not paths:
        return
    task = tasks.Task.from_preset(preset)
    for path, file in paths.items():
        x, _, ids = results.read(file)
        outputs = task.predict(x, batch_size=32, verbose=0)
        write_answers(path, results.task, outputs, ids)
        click.echo(f"{path.name}: {len(outputs):,} answers")
