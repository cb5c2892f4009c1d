"""The mean of the last weights."""

import keras
import numpy as np
import pytest

from keras_lm.training import AverageWeights


class Log(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append([weight.numpy().copy() for weight in self.model.weights])


def model():
    inputs = keras.Input([3])
    hidden = keras.layers.BatchNormalization()(keras.layers.Dense(2)(inputs))
    made = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dropout(0.1)(hidden)))
    made.compile(keras.optimizers.SGD(0.1), "mse")
    return made


@pytest.mark.eager
@pytest.mark.parametrize(
    ("arguments", "steps"),
    [({"last": 2}, [5, 8]), ({"last": 3, "every": 2}, [3, 5, 7]), ({"last": 9}, [2, 5, 8])],
)
def test_weights_are_the_mean_of_the_last(arguments, steps):
    x, y = np.random.rand(12, 3), np.random.rand(12)
    trained, log = model(), Log()
    trained.fit(x, y, 4, 3, verbose=0, callbacks=[log, AverageWeights(**arguments)])
    for i, weight in enumerate(trained.weights):
        expected = np.mean([log.seen[step][i] for step in steps], axis=0)
        np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-5, atol=1e-7)
    assert not np.array_equal(trained.weights[0].numpy(), log.seen[-1][0])


@pytest.mark.parametrize("wrong", [{"last": 0}, {"every": 0}])
def test_bad_arguments(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}=0"):
        AverageWeights(**wrong)
