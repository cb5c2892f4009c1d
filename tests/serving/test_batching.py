"""Requests are joined: answers are those of each alone, and so are failures and delays."""

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from keras_lm.export.saved_model import write_batching
from keras_lm.serving import Server
from keras_lm.serving.batching import FILE, Batcher, can_join, read_parameters
from keras_lm.serving.errors import ServingError
from keras_lm.serving.inference import SavedModel

PARAMETERS = {"max_batch_size": 4, "batch_timeout_micros": 60_000_000, "num_batch_threads": 1}


class Model:
    """Doubles numbers, refuses those below zero, and can be made to hang."""

    def __init__(self):
        self.batches = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, inputs):
        self.batches.append(inputs["x"].tolist())
        assert self.go.wait(20)
        if min(inputs["x"], default=0) < 0:
            raise ValueError(f"{inputs['x'].min()} is below zero")
        return {"y": 2 * inputs["x"]}


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(16) as threads:
        yield threads


def ask(batcher, *numbers):
    return batcher.run({"x": np.array(numbers)})["y"].tolist()


def start(pool, batcher, *requests):
    """Ask one after the other; return the answers to come."""
    answers = []
    for numbers in requests:
        answers.append(pool.submit(ask, batcher, *numbers))
        time.sleep(0.03)
    return answers


def test_a_client_alone_waits_for_nobody(model):
    batcher = Batcher(model, PARAMETERS)
    begin = time.monotonic()
    assert [ask(batcher, n) for n in range(20)] == [[2 * n] for n in range(20)]
    assert time.monotonic() - begin < 5


def test_what_comes_while_a_batch_runs_is_joined(model, pool):
    batcher = Batcher(model, PARAMETERS)
    model.go.clear()
    answers = start(pool, batcher, [1], [2, 3], [4], [5, 6], [7])
    model.go.set()
    assert [answer.result() for answer in answers] == [[2], [4, 6], [8], [10, 12], [14]]
    assert model.batches == [[1], [2, 3, 4], [5, 6, 7]]  # each as full as it can be


def test_a_bad_row_fails_alone(model, pool):
    batcher = Batcher(model, PARAMETERS)
    model.go.clear()
    answers = start(pool, batcher, [1], [2], [-3], [4])
    model.go.set()
    assert [answers[n].result() for n in (0, 1, 3)] == [[2], [4], [8]]
    with pytest.raises(ValueError, match="-3 is below zero"):
        answers[2].result()
    assert model.batches == [[1], [2, -3, 4], [2], [-3], [4]]


def test_who_has_waited_runs_beside(model, pool):
    batcher = Batcher(model, PARAMETERS | {"batch_timeout_micros": 1000, "num_batch_threads": 2})
    model.go.clear()
    answers = start(pool, batcher, [1], [2], [3], [4])
    assert model.batches == [[1], [2]]
    model.go.set()
    assert [answer.result() for answer in answers] == [[2], [4], [6], [8]]
    assert model.batches == [[1], [2], [3, 4]]


def test_a_full_batch_runs_beside(model, pool):
    batcher = Batcher(model, PARAMETERS | {"num_batch_threads": 2})
    model.go.clear()
    answers = start(pool, batcher, [1], [2, 3], [4, 5])
    assert model.batches == [[1], [2, 3, 4, 5]]
    model.go.set()
    assert [answer.result() for answer in answers] == [[2], [4, 6], [8, 10]]


def test_requests_that_cannot_be_joined_run_at_once(model, pool):
    batcher = Batcher(model, PARAMETERS)
    model.go.clear()
    _, large, _ = start(pool, batcher, [1], [2, 3, 4, 5, 6], [])
    uneven = {"x": np.arange(2), "one_for_all": np.zeros(1)}
    pool.submit(batcher.run, uneven)
    time.sleep(0.1)
    model.go.set()
    assert large.result() == [4, 6, 8, 10, 12]
    assert model.batches == [[1], [2, 3, 4, 5], [], [0, 1], [6]]  # the large one in parts


def test_outputs_that_have_no_row_each(pool):
    batcher = Batcher(lambda inputs: {"total": inputs["x"].sum(keepdims=True)}, PARAMETERS)
    futures = [pool.submit(batcher.run, {"x": np.array([n])}) for n in range(50)]
    assert [future.result()["total"].item() for future in futures] == list(range(50))
    assert batcher.run({"x": np.arange(9)})["total"].tolist() == [36]


def test_many_threads(model, pool):
    batcher = Batcher(
        lambda inputs: time.sleep(0.0005) or model(inputs),
        PARAMETERS | {"batch_timeout_micros": 200, "num_batch_threads": 2},
    )
    answers = list(pool.map(lambda n: ask(batcher, n, n + 1), range(1000)))
    assert answers == [[2 * n, 2 * n + 2] for n in range(1000)]
    assert len(model.batches) < 1000


# === The file of an export ===


def test_parameters(tmp_path):
    assert read_parameters(tmp_path) is None
    write_batching(tmp_path)
    expected = {"max_batch_size": 128, "batch_timeout_micros": 2000, "num_batch_threads": 4}
    assert read_parameters(tmp_path) == expected
    (tmp_path / FILE).write_text("max_batch_size { value: 3 }")
    assert read_parameters(tmp_path)["max_batch_size"] == 3
    for wrong in ("max_batch_size: {", "max_batch_size { value: 0 }"):
        (tmp_path / FILE).write_text(wrong)
        with pytest.raises(ServingError, match=FILE):
            read_parameters(tmp_path)


def test_signatures_that_can_be_joined(saved_models):
    signatures = SavedModel(saved_models / "kinds" / "7").signature_defs
    joined = {name for name, signature in signatures.items() if can_join(signature)}
    assert joined == {"serving_default", "two", "types", "text", "matrix", "half", "picky"}


def test_clients_of_a_server(saved_models, tmp_path, rest_of):
    shutil.copytree(saved_models / "kinds", tmp_path / "kinds")
    write_batching(tmp_path / "kinds" / "7")
    with Server(tmp_path / "kinds") as server, ThreadPoolExecutor(16) as pool:
        rest = rest_of(server)
        batcher = server._models._models["kinds"].versions[7].served._batchers["picky"]
        sizes, run = [], batcher._run
        batcher._run = lambda inputs: sizes.append(len(inputs["x"])) or run(inputs)
        numbers = [-1.0 if n % 20 == 7 else n + 1.0 for n in range(80)]
        answers = list(
            pool.map(lambda n: rest.post(signature_name="picky", instances=[n]), numbers)
        )
    for number, answer in zip(numbers, answers):
        if number > 0:
            assert answer.json() == {"predictions": [number]}
        else:
            assert answer.status_code == 400
            assert "only above zero" in answer.json()["error"]
    assert max(sizes) > 1
