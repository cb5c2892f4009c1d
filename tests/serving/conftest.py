"""Small SavedModels that cost no time to make, and one server of them for most tests."""

import collections
import gc
import shutil
from importlib.util import find_spec

import grpc
import pytest
import requests
import tensorflow as tf
from tensorflow_serving.apis import (
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)

from keras_lm import tasks
from keras_lm.models import BertBackbone
from keras_lm.serving import Server
from keras_lm.tokenizers import WordPieceTokenizer


@pytest.fixture(scope="module", autouse=True)
def little_garbage():
    """What there is before a file's tests is not searched whenever a server lets a model go."""
    gc.freeze()
    yield
    gc.unfreeze()


def takes(**specs):
    """Decorate a function that becomes a signature with (shape, type) of each input."""

    def trace(function):
        inputs = {name: tf.TensorSpec(*spec, name) for name, spec in specs.items()}
        return tf.function(function, autograph=False).get_concrete_function(**inputs)

    return trace


def save(folder, **signatures):
    """Write a SavedModel with these signatures."""
    tf.saved_model.save(tf.Module(), str(folder), signatures=signatures)


def save_constant(folder, number):
    """Write a SavedModel that answers every row with `number`."""

    @takes(x=([None], tf.float32))
    def serving_default(x):
        return {"y": x * 0.0 + float(number)}

    save(folder, serving_default=serving_default)


def save_kinds(folder):
    """Write a SavedModel with a signature for each kind of input and output."""

    @takes(x=([None], tf.float32))
    def serving_default(x):
        return {"y": x / 2 + 2}

    @takes(ids=([None, 2], tf.int32), scale=([None], tf.float32))
    def two(ids, scale):
        totals = tf.cast(tf.reduce_sum(ids, 1), tf.float32) * scale
        return {"total": totals, "ids": ids}

    @takes(
        small=([None], tf.uint8),
        large=([None], tf.int64),
        exact=([None], tf.float64),
        flag=([None], tf.bool),
    )
    def types(small, large, exact, flag):
        return {"small": small, "large": large, "exact": exact, "flag": ~flag}

    @takes(text=([None], tf.string))
    def text(text):
        return {"text": text, "raw_bytes": text, "length": tf.strings.length(text)}

    @takes(x=([None, 2, 3], tf.float32))
    def matrix(x):
        return {"y": tf.transpose(x, [0, 2, 1])}

    @takes(x=([], tf.float32))
    def scalar(x):
        return {"y": x + 1}

    @takes(x=([None], tf.float32))
    def half(x):
        return {"y": tf.cast(x, tf.float16)}

    @takes(x=([None], tf.float32))
    def picky(x):
        with tf.control_dependencies([tf.debugging.assert_positive(x, "only above zero")]):
            return {"y": tf.identity(x)}

    @takes(seconds=([], tf.float64))
    def slow(seconds):
        # A loop would take the processor from what waits. It sleeps twice, also before the end.
        sleeping = tf.raw_ops.SleepDataset(
            input_dataset=tf.data.Dataset.range(1)._variant_tensor,
            sleep_microseconds=tf.cast(seconds * 1e6 / 2, tf.int64),
            output_types=[tf.int64],
            output_shapes=[[]],
        )
        (zero,) = tf.raw_ops.DatasetToSingleElement(
            dataset=sleeping, output_types=[tf.int64], output_shapes=[[]]
        )
        return {"zero": zero}

    save(
        folder,
        serving_default=serving_default,
        two=two,
        types=types,
        text=text,
        matrix=matrix,
        scalar=scalar,
        half=half,
        picky=picky,
        slow=slow,
    )


def save_examples(folder):
    """Write a SavedModel whose signatures take tf.Examples: of Classify, Regress and neither."""

    def parse(inputs):
        features = {
            "text": tf.io.FixedLenFeature([], tf.string, ""),
            "weights": tf.io.VarLenFeature(tf.float32),
            "count": tf.io.FixedLenFeature([], tf.int64, 0),
        }
        return tf.io.parse_example(inputs, features)

    @takes(inputs=([None], tf.string))
    def classify(inputs):
        texts = parse(inputs)["text"]
        scores = tf.cast(tf.strings.length(texts), tf.float32)
        return {
            "classes": tf.stack([texts, tf.strings.upper(texts)], 1),
            "scores": tf.stack([scores, scores / 10], 1),
        }

    @takes(inputs=([None], tf.string))
    def only_scores(inputs):
        return {"scores": classify(inputs=inputs)["scores"]}

    @takes(inputs=([None], tf.string))
    def only_classes(inputs):
        return {"classes": classify(inputs=inputs)["classes"]}

    @takes(inputs=([None], tf.string))
    def regress(inputs):
        features = parse(inputs)
        weights = tf.sparse.reduce_sum(features["weights"], 1)
        return {"outputs": weights + tf.cast(features["count"], tf.float32)}

    @takes(inputs=([None], tf.string))
    def regress_column(inputs):
        return {"outputs": regress(inputs=inputs)["outputs"][:, None]}

    @takes(inputs=([None], tf.string))
    def regress_wide(inputs):
        return {"outputs": tf.stack([regress(inputs=inputs)["outputs"]] * 2, 1)}

    @takes(inputs=([None], tf.string))
    def flat(inputs):
        return {"scores": classify(inputs=inputs)["scores"][:, 0]}

    save(
        folder,
        serving_default=classify,
        only_scores=only_scores,
        only_classes=only_classes,
        regress=regress,
        regress_column=regress_column,
        regress_wide=regress_wide,
        flat=flat,
    )


@pytest.fixture(scope="session")
def saved_models(tmp_path_factory):
    """Folder with the models `kinds`, `examples` and `numbers` (versions 1 to 4)."""
    root = tmp_path_factory.mktemp("saved_models")
    save_kinds(root / "kinds" / "7")
    save_examples(root / "examples" / "1")
    for number in range(1, 5):
        save_constant(root / "numbers" / str(number), number)
    return root


@pytest.fixture
def numbers(saved_models):
    """`numbers(folder, 2)` puts version 2 of a model into a folder at once; it answers 2."""

    def publish(folder, number, source=None):
        source = saved_models / "numbers" / str(source or number)
        shutil.copytree(source, folder / f".{number}")
        return (folder / f".{number}").rename(folder / str(number))

    return publish


Exported = collections.namedtuple("Exported", ["task", "folder", "tflite"])


@pytest.fixture(scope="session")
def critic(tmp_path_factory):
    """A classifier of films, as a task, a folder of versions and a `.tflite`."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film"]
    task = tasks.TextClassifier(
        BertBackbone(7, 1, 2, 8, 8, max_sequence_length=8),
        tokenizer=WordPieceTokenizer(vocabulary, True),
        class_names=["bad", "good"],
        text_pair=False,
    )
    root = tmp_path_factory.mktemp("critic")
    task.export(root / "exported")
    path = root / "critic.tflite"
    if find_spec("ai_edge_litert"):
        task.export(path, format="litert")
    return Exported(task, root / "exported", path)


@pytest.fixture(scope="session")
def server(saved_models):
    """A server of `kinds` and `examples`."""
    with Server([saved_models / "kinds", saved_models / "examples"]) as running:
        yield running


class Rest:
    """A client of one model's REST routes."""

    def __init__(self, server, model="kinds"):
        self.url = f"{server.rest_url}/v1/models/{model}"

    def get(self, path=""):
        return requests.get(self.url + path, timeout=60)

    def post(self, path=":predict", data=None, **json):
        if data is None:
            return requests.post(self.url + path, json=json, timeout=60)
        return requests.post(self.url + path, data=data, timeout=60)

    def fails(self, status, path=":predict", data=None, **json):
        """Return the message of an error, and check that it has the form of all errors."""
        response = self.post(path, data, **json)
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/json"
        assert response.json().keys() == {"error"}
        return response.json()["error"]


@pytest.fixture(scope="session")
def rest(server):
    """A client of the model `kinds`."""
    return Rest(server)


@pytest.fixture(scope="session")
def rest_of():
    """`rest_of(server, model)` is a client of that model."""
    return Rest


class Grpc:
    """Both stubs of a server."""

    def __init__(self, server):
        unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channel = grpc.insecure_channel(server.grpc_address, unlimited)
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.model = model_service_pb2_grpc.ModelServiceStub(self.channel)


@pytest.fixture(scope="session")
def grpc_of():
    """`grpc_of(server)` has the stubs of that server."""
    return Grpc


@pytest.fixture(scope="session")
def stubs(server):
    """The stubs of the server."""
    both = Grpc(server)
    yield both
    both.channel.close()
