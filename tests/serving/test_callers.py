"""What nobody waits for is dropped before it starts, and stopped while it runs."""

import threading
import time

import grpc
import numpy as np
import pytest
import requests
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from keras_lm.serving import Server
from keras_lm.serving.batching import DEFAULTS, Batcher
from keras_lm.serving.callers import SHUTTING_DOWN, Caller, Callers, all_of
from keras_lm.serving.errors import ServingError

MANY = 10_000_000.0  # turns, which take longer than any test may


@pytest.fixture(scope="module")
def looping(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "looping"

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")], autograph=False)
    def count(x):
        (turns,) = tf.while_loop(lambda n: n < x[0], lambda n: [n + 1], [0.0])
        return {"y": turns + 0 * x}

    tf.saved_model.save(tf.Module(), str(folder / "1"), signatures={"serving_default": count})
    with Server(folder) as server:
        yield server


def test_all_have_left_before_one_is_told():
    """Otherwise what one leaves free could begin with another, after the server's end."""
    callers, seen = Callers(), []
    several = [callers.add(Caller()) for _ in range(3)]
    for caller in several:
        caller.when_left(lambda: seen.append([one.has_left for one in several]))
    callers.leave(SHUTTING_DOWN)
    assert seen == [[True] * 3] * 3
    for caller in [*several, callers.add(Caller())]:
        with pytest.raises(ServingError, match="shutting down"):
            caller.check()


def is_idle(server, seconds=5):
    end = time.monotonic() + seconds
    while server._models.is_busy and time.monotonic() < end:
        time.sleep(0.02)
    return not server._models.is_busy


def test_a_client_of_rest_that_leaves_stops_the_graph(looping, rest_of):
    url = rest_of(looping, "looping").url + ":predict"
    with pytest.raises(requests.Timeout):
        requests.post(url, json={"instances": [MANY]}, timeout=0.3)
    assert is_idle(looping)
    assert requests.post(url, json={"instances": [3]}, timeout=30).json() == {"predictions": [3.0]}


def test_a_deadline_of_grpc_stops_the_graph(looping, grpc_of):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "looping"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto([MANY]))
    with pytest.raises(grpc.RpcError, match="DEADLINE_EXCEEDED"):
        grpc_of(looping).prediction.Predict(request, timeout=0.3)
    assert is_idle(looping)


def test_who_has_left_is_not_served():
    caller, calls = Caller(), []
    caller.when_left(lambda: calls.append(1))
    caller.leave()
    caller.leave()
    caller.when_left(lambda: calls.append(2))
    assert calls == [1, 2]
    with pytest.raises(ServingError, match="CANCELLED: Nobody waits"), caller.served():
        raise AssertionError
    one, other = Caller(), Caller()
    both = all_of([one, other])
    one.leave()
    assert not both.has_left
    other.leave()
    assert both.has_left


def test_who_leaves_stops_nobody_else():
    count = tf.function(
        lambda: tf.while_loop(lambda n: n < 3, lambda n: [n + 1], [0]), autograph=False
    )
    count()  # traced
    one, other = Caller(), Caller()
    inside, goes_on = threading.Event(), threading.Event()

    def serve():
        with other.served():
            inside.set()
            assert goes_on.wait(10)

    serving = threading.Thread(target=serve)
    with one.served():
        serving.start()
        assert inside.wait(10)
        other.leave()
        assert int(count()[0]) == 3
        goes_on.set()
        serving.join(10)
        assert int(count()[0]) == 3
        one.leave()
        with pytest.raises(tf.errors.CancelledError):
            count()
    assert int(count()[0]) == 3


def test_who_leaves_the_queue_of_a_batch_is_dropped():
    runs, free, begun = [], threading.Event(), threading.Event()

    def run(inputs):
        runs.append(len(inputs["x"]))
        begun.set()
        assert free.wait(10)
        return inputs

    batcher = Batcher(run, DEFAULTS | {"num_batch_threads": 1})
    first = threading.Thread(target=lambda: batcher.run({"x": np.zeros(1)}))
    first.start()
    assert begun.wait(10)
    caller, errors = Caller(), []

    def ask():
        try:
            with caller.served():
                batcher.run({"x": np.zeros(5)})
        except ServingError as error:
            errors.append(error.code.name)

    second = threading.Thread(target=ask)
    second.start()
    while not batcher._queue:
        time.sleep(0.01)
    caller.leave()
    free.set()
    first.join(10)
    second.join(10)
    assert (runs, errors) == ([1], ["CANCELLED"])
