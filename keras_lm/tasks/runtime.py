"""What depends on Keras's backend: the step, and how TensorFlow's texts reach the network."""

import keras
import numpy as np

from keras_lm.layers.tensorflow import classes_are_named
from keras_lm.tensorflow import IS_INSTALLED, tf

IS_TENSORFLOW = keras.backend.backend() == "tensorflow"

if keras.backend.backend() == "jax":
    from keras_lm.generation import jax_decoding
    from keras_lm.tasks import jax_steps as steps
else:
    from keras_lm.tasks import steps

    jax_decoding = None

__all__ = [
    "IS_TENSORFLOW",
    "answered",
    "at_numbers",
    "check_alike",
    "jax_decoding",
    "outputs_of",
    "require_tensorflow",
    "steps",
]


def answered(task, inputs):
    """Return what a task's network on another backend makes of TensorFlow's tensors, as such.

    Where TensorFlow is not installed, both are numpy arrays.
    """
    inputs = {name: np.asarray(value) for name, value in inputs.items()}
    outputs = task.predict_on_batch(inputs)
    return keras.tree.map_structure(tf.convert_to_tensor, outputs) if IS_INSTALLED else outputs


def outputs_of(task, packed):
    """Return what a task's network makes of packed texts, as its `decode` takes it."""
    return task(packed, training=False) if IS_INSTALLED else answered(task, packed)


def at_numbers(names, *numbers):
    """Return the names that tensors of numbers stand for: strings in the graph, or numpy bytes."""
    if not classes_are_named():
        return list(numbers)
    if IS_TENSORFLOW:
        names = tf.constant(names)
        return [tf.gather(names, number) for number in numbers]
    names = np.array([name.encode() for name in names], object)
    return [names[np.asarray(number)] for number in numbers]


def require_tensorflow(what):
    """Raise a RuntimeError where Keras has another backend than TensorFlow."""
    if not IS_TENSORFLOW:
        raise RuntimeError(
            f"{what} runs on TensorFlow, and KERAS_BACKEND is {keras.backend.backend()}: call "
            "save_to_preset here, and load the preset where KERAS_BACKEND=tensorflow."
        )


def check_alike(model, argument, tasks):
    """Raise a ValueError if tasks of which a model is made were not made in its strategy."""
    # Not `distribute_strategy`, which is that of the moment for what was made outside of all.
    if any(task._distribute_strategy is not model._distribute_strategy for task in tasks):
        raise ValueError(
            f"{argument} were made under another strategy: make them and the "
            f"{type(model).__name__} in one strategy.scope(), or all outside."
        )
