"""What the options of `keras-lm finetune` mean to Keras: callbacks and weights of classes."""

import click
import numpy as np

from keras_lm.registry import advice


def parse_class_weight(ctx, param, value):
    """Callback of `--class-weight`: `"bad=2,good=1"` → a dict; `"balanced"` stays."""
    if value in (None, "balanced"):
        return value
    weights = {}
    for part in value.split(","):
        name, is_there, number = part.rpartition("=")
        try:
            weights[name.strip()] = float(number)
        except ValueError:
            is_there = ""
        if not is_there or not 0 <= weights[name.strip()] < float("inf"):
            raise click.BadParameter(f"{part!r} is neither balanced nor NAME=WEIGHT.")
    return weights


def class_weights(given, class_names, labels):
    """Return what `fit` takes as weights of classes; None for all the same.

    `given` is as `parse_class_weight` returns it, `labels` are (B,) numbers, or lists of the words'
    numbers. Balanced classes weigh the same in total: the number of texts or words / (the number of
    classes that occur · of its texts or words).
    """
    if given is None:
        return None
    if given == "balanced":
        labels = np.hstack(labels)
        numbers, counts = np.unique(labels, return_counts=True)
        weights = len(labels) / (len(numbers) * counts)
        return dict(zip(numbers.tolist(), weights.tolist(), strict=True))
    for name in given:
        if name not in class_names:
            raise click.UsageError(
                f"--class-weight names {name!r}, and the classes are {', '.join(class_names)}."
                + advice(name, class_names)
            )
    return given


def callbacks(tensorboard=None, early_stopping=None):
    """Return Keras's callbacks: for TensorBoard's folder, and to stop after so many worse epochs.

    With `early_stopping` the weights after training are those of the best epoch.
    """
    import keras

    found = []
    if tensorboard:
        found.append(keras.callbacks.TensorBoard(str(tensorboard)))
    if early_stopping:
        found.append(
            keras.callbacks.EarlyStopping(
                "val_loss", mode="min", patience=early_stopping, restore_best_weights=True
            )
        )
    return found
