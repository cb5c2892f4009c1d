"""Graphs for servers refuse too much work, with the number."""

import pytest
import tensorflow as tf

from keras_lm.generation import work
from keras_lm.layers.tensorflow.tracing import bounded


@pytest.mark.eager
def test_work_is_bounded_where_it_is_asked_for():
    assert work.within(tf.constant(5), 2**9, 2**6, 2**9) == 5
    with bounded():
        assert work.within(tf.constant(5), 2**6, 2**4, 2**6) == 5
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"may be 65536.*65600"):
            work.within(tf.constant(5), 64, 1, 1025)
