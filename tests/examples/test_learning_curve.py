"""The learning curve: step losses taken out of Keras's running means, and the picture."""

import numpy as np
import pytest

from demo.learning_curve import StepHistory, draw_learning_curve, smooth


def test_history_recovers_step_losses_from_running_means():
    history = StepHistory(measure=lambda: 0.5, every=2)
    history.on_train_begin()
    epochs = [[0.9, 0.3, 0.6], [0.2, 0.4, 0.1]]
    for epoch, losses in enumerate(epochs):
        history.on_epoch_begin(epoch)
        for batch in range(len(losses)):
            history.on_train_batch_end(batch, {"loss": np.mean(losses[: batch + 1])})
    np.testing.assert_allclose(history.losses, np.ravel(epochs))
    assert [steps for steps, _ in history.accuracies] == [0, 2, 4, 6]


@pytest.mark.parametrize("window", [1, 3, 100])
def test_smooth_is_the_mean_of_what_there_is(window):
    values = [4.0, 2.0, 0.0, 2.0]
    expected = [np.mean(values[max(0, i + 1 - window) : i + 1]) for i in range(4)]
    np.testing.assert_allclose(smooth(values, window), expected)


def test_picture_is_drawn_even_of_one_step(tmp_path):
    history = StepHistory(measure=lambda: 0.5, every=1)
    history.losses, history.accuracies = [0.7], [(0, 0.5), (1, 0.6)]
    draw_learning_curve(history, 0.75, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
