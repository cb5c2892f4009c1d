"""Probes and measures: what Kubernetes and Prometheus ask."""

import socket
import time

import numpy as np
import pytest
import requests
import tensorflow as tf
from prometheus_client.parser import text_string_to_metric_families
from tensorflow_serving.apis import predict_pb2

from keras_lm.serving import Server
from keras_lm.serving.errors import ServingError, StatusCode
from keras_lm.serving.monitoring import not_ready


@pytest.fixture(scope="module")
def watched(saved_models):
    with Server(saved_models / "kinds") as running:
        yield running


def get(server, path):
    return requests.get(server.rest_url + path, timeout=60)


def measures(server):
    """Return the samples of /metrics: (name, values of labels) → value."""
    response = get(server, "/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(response.text)
    samples = [sample for family in families for sample in family.samples]
    return {(s.name, *(v for _, v in sorted(s.labels.items()))): s.value for s in samples}


def test_probes(watched):
    assert get(watched, "/healthz").status_code == 200
    assert get(watched, "/readyz").status_code == 200


class Failed:
    """Models of which one has no version that answers, and one has gone."""

    names = ("good", "bad", "gone")

    def status(self, name):
        if name == "gone":
            raise ServingError(StatusCode.NOT_FOUND, "gone")
        return [(2, "END", None), (1, "AVAILABLE" if name == "good" else "LOADING", None)]


def test_a_server_without_a_version_is_not_ready():
    assert not_ready(Failed()) == ["bad", "gone"]


def test_requests_of_both_protocols_are_counted(watched, rest_of, grpc_of):
    rest = rest_of(watched)
    before = measures(watched)
    rest.post(instances=[1.0, 2.0])
    rest.fails(400, instances=["x"])
    rest_of(watched, "an invented name").post(instances=[1.0])
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "kinds"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.ones(2, "float32")))
    stubs = grpc_of(watched)
    stubs.prediction.Predict(request)
    stubs.channel.close()
    after = measures(watched)

    def more(*labels):
        return after.get(labels, 0) - before.get(labels, 0)

    # In the order of their names: code, method, model, protocol.
    assert more("keras_lm_requests_total", "200", "predict", "kinds", "rest") == 1
    assert more("keras_lm_requests_total", "400", "predict", "kinds", "rest") == 1
    assert more("keras_lm_requests_total", "404", "predict", "", "rest") == 1
    assert more("keras_lm_requests_total", "OK", "Predict", "kinds", "grpc") == 1
    assert more("keras_lm_request_seconds_count", "predict", "kinds", "rest") == 2
    assert after["keras_lm_model_available", "kinds", "7"] == 1
    assert after["keras_lm_requests_running",] == 1  # the one that asks


def test_batches_and_their_queue_are_measured(watched, rest_of):
    before = measures(watched)
    rest_of(watched, "kinds").post(instances=[1.0, 2.0, 3.0])
    after = measures(watched)

    def more(*labels):
        return after.get(labels, 0) - before.get(labels, 0)

    # (In the order of their names: le, the upper end of a bin, then model.)
    assert more("keras_lm_batch_rows_bucket", "2.0", "kinds") == 0
    assert more("keras_lm_batch_rows_bucket", "4.0", "kinds") == 1
    assert more("keras_lm_batch_rows_sum", "kinds") == 3
    assert more("keras_lm_queue_seconds_count", "kinds") == 1


def test_clients_that_go_away_are_counted(watched):
    name = ("keras_lm_clients_gone_total", "other", "")
    before = measures(watched).get(name, 0)
    host, port = watched.rest_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(
            b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
        )
    end = time.monotonic() + 30
    while measures(watched).get(name, 0) == before:
        assert time.monotonic() < end
        time.sleep(0.05)
