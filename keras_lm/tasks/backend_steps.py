"""What depends on Keras's backend: the step, and that graphs of text need TensorFlow's."""

import keras

if keras.backend.backend() == "jax":
    from keras_lm.tasks import jax_steps as steps
else:
    from keras_lm.tasks import steps

__all__ = ["require_tensorflow", "steps", "without_defaults"]


def require_tensorflow(what):
    """Raise a RuntimeError where Keras has another backend than TensorFlow."""
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise RuntimeError(
            f"{what} runs on TensorFlow, and KERAS_BACKEND is {backend}: call save_to_preset here, "
            "and load the preset where KERAS_BACKEND=tensorflow."
        )


def without_defaults(config):
    """Return what a task is compiled with, without `jit_compile` as a backend has it by default.

    The file may be loaded on another backend. False is left out on all, as older files have it.
    """
    if not config or config.get("jit_compile") not in (False, steps.IS_COMPILED):
        return config
    return {name: value for name, value in config.items() if name != "jit_compile"}
