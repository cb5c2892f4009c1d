"""Arguments of `fit`, `evaluate`, `predict` and `compile`, checked before Keras reads them."""

import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import keras

from keras_lm.utils.batch_iteration import check_verbose, check_whole
from keras_lm.utils.flags import check_flag
from keras_lm.utils.registry import advice

# What counts something → the least of it.
COUNTS = {
    "batch_size": 1,
    "epochs": 0,
    "initial_epoch": 0,
    "steps": 1,
    "steps_per_epoch": 1,
    "steps_per_execution": 1,
    "validation_batch_size": 1,
    "validation_freq": 1,
    "validation_steps": 1,
}
FLAGS = ("auto_scale_loss", "group_by_length", "return_dict", "run_eagerly", "shuffle")
REQUIRED = ("epochs", "initial_epoch", "steps_per_execution", "validation_freq")
# Names of further arguments, also those that need no check.
MORE = {
    "fit": (
        *("class_weight", "group_by_length", "sample_weight", "shuffle", "validation_data"),
        *("validation_freq", "validation_steps"),
    ),
    "evaluate": ("callbacks", "return_dict", "sample_weight", "steps"),
    "predict": ("callbacks", "steps"),
    "compile": ("auto_scale_loss", "run_eagerly", "steps_per_execution"),
}


def check_arguments(call: str, more: Mapping[str, Any], **given: Any) -> None:
    """Raise an error that names an argument of a call if its value, or its name, is none.

    Args:
        call: name of the method.
        more: the arguments that it passes on to Keras.
        **given: its own.

    Raises:
        TypeError: if one of `more` is no argument.
        ValueError: if a value is out of its range.
    """
    known = [*given, *MORE[call]]
    for name in more:
        if name not in known and not name.startswith("_"):  # Keras's own
            raise TypeError(f"{call}() has no argument {name!r}.{advice(name, known)}")
    for name, value in {**given, **more}.items():
        if name == "validation_freq" and isinstance(value, (list, tuple, set)):
            for epoch in value:
                check_whole(name, epoch, 1)
        elif name in COUNTS and (value is not None or name in REQUIRED):
            check_whole(name, value, COUNTS[name])
        elif name in CHECKS:
            CHECKS[name](value)


def _check_split(share):
    is_number = isinstance(share, numbers.Real) and not isinstance(share, bool)
    if share is not None and not (is_number and 0 <= share < 1):
        raise ValueError(
            f"validation_split={share!r}: pass a share of the rows, 0 or more and less than 1."
        )


def _check_callbacks(callbacks):
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return
    is_list = isinstance(callbacks, Iterable) and not isinstance(callbacks, (str, Mapping))
    for each in callbacks if is_list else [callbacks]:
        is_none = each is None and not is_list
        if not (is_none or isinstance(each, keras.callbacks.Callback)):
            raise ValueError(
                f"callbacks has {each!r}: pass objects of keras.callbacks.Callback, in a list."
            )


def _check_optimizer(optimizer):
    is_config = isinstance(optimizer, dict) and "class_name" in optimizer
    if not (optimizer is None or is_config or isinstance(optimizer, (str, keras.Optimizer))):
        raise ValueError(
            f"optimizer={optimizer!r}: pass a keras.Optimizer, such as "
            "keras_lm.training.AdamW(5e-5), its name, or 'auto'."
        )


def _check_loss(loss):
    for each in keras.tree.flatten(loss):
        is_loss = isinstance(each, (str, keras.Loss, Callable))
        if each is not None and not is_loss:
            raise ValueError(
                f"loss={each!r}: pass a keras.Loss, a function of labels and outputs, the name of "
                "one, or 'auto'."
            )


def _check_loss_weights(weights):
    for each in keras.tree.flatten(weights):
        is_number = isinstance(each, numbers.Real) and not isinstance(each, bool)
        if each is not None and not (is_number and 0 <= each < math.inf):
            raise ValueError(f"loss_weights has {each!r}: pass finite numbers, 0 or more.")


CHECKS = {
    **{name: partial(check_flag, name) for name in FLAGS},
    "verbose": check_verbose,
    "callbacks": _check_callbacks,
    "loss": _check_loss,
    "loss_weights": _check_loss_weights,
    "optimizer": _check_optimizer,
    "validation_split": _check_split,
}
