"""Weights of transformers divided among devices, on Keras's JAX backend.

Source: Shoeybi et al. 2019, "Megatron-LM: Training Multi-Billion Parameter Language Models Using
Model Parallelism", https://arxiv.org/abs/1909.08053, section 3.
"""

from collections.abc import Sequence
from typing import Any

import keras

from keras_lm.utils.processes import IS_JAX
from keras_lm.utils.user_arguments import check_whole

BATCH, MODEL = "batch", "model"
# Layers that make heads, or the units between the two products of a feed-forward network: a device
# has some of their columns, and of the layers that read them the rows.
INTO_PARTS = "query_key_value|query_key|query|key_value|value|position|(entity_)?intermediate|gate"
OUT_OF_PARTS = r"(\w*attention|feedforward|block_\d+)/(entity_)?output"


def layout_of_transformers(mesh: keras.distribution.DeviceMesh) -> keras.distribution.LayoutMap:
    """Return which axes of a transformer's weights the axis `"model"` of a mesh divides.

    These are the kernels and biases that make queries, keys, values and the units between a
    feed-forward network's products, by columns; the kernels that read them, by rows; and the
    embeddings of tokens, by rows. All models of `keras_lm.models` that consist of transformer
    blocks have these names, in encoders and decoders. Whatever has others (positions, layer norms,
    heads of tasks, recurrent networks) is on each device as a whole.

    Args:
        mesh: with an axis `"model"`.
    """
    layout = keras.distribution.LayoutMap(mesh)
    layout[r"(.*/)?token_embedding/(.*/)?embeddings"] = (MODEL, None)
    layout[rf"(.*/)?({INTO_PARTS})/kernel"] = (None, MODEL)
    layout[rf"(.*/)?({INTO_PARTS})/bias"] = (MODEL,)
    layout[rf"(.*/)?{OUT_OF_PARTS}/kernel"] = (MODEL, None)
    return layout


class _WherePossible(keras.distribution.ModelParallel):
    """`ModelParallel` that leaves an axis whole if the devices do not divide it."""

    def get_variable_layout(self, variable):
        layout = super().get_variable_layout(variable)
        sizes = dict(zip(self.device_mesh.axis_names, self.device_mesh.shape, strict=True))
        axes = [
            axis if size % sizes.get(axis, 1) == 0 else None
            for axis, size in zip(layout.axes, variable.shape, strict=True)
        ]
        return keras.distribution.TensorLayout(axes, self.device_mesh)


def model_parallel(
    number: int | None = None, devices: Sequence[Any] | None = None
) -> keras.distribution.ModelParallel:
    """Return a distribution that divides weights among groups of devices, and batches among groups.

    Set it before a task is made. Losses and weights are those of one device but for rounding. By
    which rules weights are divided, `layout_of_transformers` says; an axis whose size `number` does
    not divide, such as a vocabulary of 50,257, stays whole. Devices of a group are neighbours in
    `devices`, so that a group lies within a machine if that has a multiple of `number`.

    Args:
        number: int, the devices of a group; None for all, so that there is one group.
        devices: list of `keras.distribution.list_devices()`, by default all of them.

    Raises:
        RuntimeError: if Keras has another backend than JAX.
        ValueError: if `number` does not divide the devices.

    Example:
        keras.distribution.set_distribution(keras_lm.training.model_parallel(4))
        task = keras_lm.tasks.CausalLM.from_preset("gpt2-xl")
    """
    if not IS_JAX:
        raise RuntimeError(
            f"model_parallel is for KERAS_BACKEND=jax, and it is {keras.backend.backend()}: set "
            "that, or train on replicas of the whole model by tf.distribute."
        )
    devices = keras.distribution.list_devices() if devices is None else list(devices)
    number = len(devices) if number is None else number
    check_whole("number", number, 1)
    if len(devices) % number:
        raise ValueError(
            f"number={number} does not divide the {len(devices)} devices into groups: pass a "
            "divisor, or some of the devices."
        )
    shape = len(devices) // number, number
    mesh = keras.distribution.DeviceMesh(shape, [BATCH, MODEL], devices)
    return _WherePossible(layout_map=layout_of_transformers(mesh), batch_dim_name=BATCH)
