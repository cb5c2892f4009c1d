"""State as nested tensors: flat names and back, other numbers of rows, and what a search keeps."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.layers.state import FIXED, fit_rows, map_state, named_tensors, nested_tensors

STATE = {
    "layers": [{"hidden": np.ones((2, 3), "float32")}, {"hidden": np.zeros((2, 3), "float32")}],
    "memory": np.arange(8, dtype="int32").reshape(2, 4),
    FIXED: {"keys": np.full((2, 5), 7.0, "float32")},
}
SPEC = keras.tree.map_structure(
    lambda x: keras.KerasTensor((None, *x.shape[1:]), str(x.dtype)), STATE
)


def test_flat_names_and_back():
    named = named_tensors(STATE, "states")
    assert list(named) == [
        "states_layers_0_hidden",
        "states_layers_1_hidden",
        "states_memory",
        "states_fixed_keys",
    ]
    # Other names than the alphabet's order, and another order of the dict.
    shuffled = {name: named[name] for name in sorted(named, reverse=True)}
    keras.tree.map_structure(
        np.testing.assert_array_equal, nested_tensors(shuffled, SPEC, "states"), STATE
    )


def test_what_is_fixed_is_not_touched():
    doubled = map_state(lambda x: 2 * x, STATE)
    np.testing.assert_array_equal(doubled["memory"], 2 * STATE["memory"])
    np.testing.assert_array_equal(doubled["layers"][0]["hidden"], np.full((2, 3), 2.0))
    assert doubled[FIXED] is STATE[FIXED]


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_other_numbers_of_rows(rows, in_graph):
    def fit(rows, state):
        return fit_rows(state, rows, SPEC, "states")

    fitted = tf.function(fit, autograph=False)(tf.constant(rows), STATE) if in_graph else None
    fitted = fitted or fit(rows, STATE)
    for actual, given in zip(keras.tree.flatten(fitted), keras.tree.flatten(STATE), strict=True):
        expected = np.zeros((rows, *given.shape[1:]))
        expected[:2] = given[:rows]
        np.testing.assert_array_equal(actual, expected)


def test_another_state_is_refused():
    with pytest.raises(
        ValueError, match=r"states has another structure.*has the keys \['memory'\]"
    ):
        fit_rows({"memory": STATE["memory"]}, 2, SPEC, "states")
    with pytest.raises(ValueError, match=r"states has a tensor of shape \(2, 6\)"):
        fit_rows(STATE | {"memory": np.zeros((2, 6), "int32")}, 2, SPEC, "states")
    # A size that varies may be any.
    spec = SPEC | {"memory": keras.KerasTensor((None, None), "int32")}
    fit_rows(STATE | {"memory": np.zeros((2, 6), "int32")}, 2, spec, "states")
