"""Which weights devices of a group divide, by their names in every model."""

import keras
import pytest
import tiny

from keras_lm.training import layout_of_transformers, model_parallel

MESH = ((1, 2), ["batch", "model"], ["cpu:0", "cpu:1"])


@pytest.fixture(scope="module")
def layout():
    return layout_of_transformers(keras.distribution.DeviceMesh(*MESH))


@pytest.mark.eager
@pytest.mark.parametrize("name", sorted(tiny.MODELS))
def test_every_kernel_of_a_block_is_divided(name, backbone_of, layout):
    whole = []
    for weight in backbone_of(name).weights:
        axes = layout[weight.path]  # Keras refuses a path that two rules match
        if axes is not None:
            assert len(axes.axes) == len(weight.shape), weight.path
        elif "block_" in weight.path and weight.path.endswith("/kernel"):
            whole.append(weight.path)
    assert not whole


def test_tensorflow_has_replicas():
    with pytest.raises(RuntimeError, match="KERAS_BACKEND=jax"):
        model_parallel(2)
