"""A tiny BERT with random weights, its vocabulary, texts that are hard to export for, exports."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from keras_lm import tasks
from keras_lm.models import BertBackbone
from keras_lm.tokenizers import WordPieceTokenizer

VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("a", "the", "film", "song", "was", "is", "good", "bad", "loud", "un", "中"),
    *("##ly", "##er", "##s", "##aff", "##able", ".", ",", "!", "?"),
]

TEXTS = [
    "the film was good",
    "",
    "Unaffable films, louder and LOUDER!",
    b"a bad \xff\xfe song \xf0\x9f",
    "the good song " * 500,
    "Ünaffable 中文 song\u200d\u0000s",
]


@pytest.fixture(scope="session")
def texts():
    return TEXTS


@pytest.fixture(scope="session")
def tokenizer():
    return WordPieceTokenizer(VOCABULARY, lowercase=True)


@pytest.fixture(scope="session")
def make_backbone():
    """`make_backbone(**arguments)` is a BertBackbone of one block, its weights far from zero."""

    def make(**arguments):
        sizes = {
            "vocabulary_size": len(VOCABULARY),
            "num_layers": 1,
            "num_heads": 2,
            "hidden_dim": 16,
            "intermediate_dim": 32,
            "max_sequence_length": 24,
        }
        backbone = BertBackbone(**sizes | arguments)
        random = np.random.default_rng(1)
        for weight in backbone.weights:
            weight.assign_add(0.3 * random.normal(size=weight.shape))
        return backbone

    return make


# === Exports that many tests read, and none changes ===


def classifier_of_pairs(backbone, **arguments):
    task = tasks.TextClassifier(
        backbone(), class_names=["bad", "good"], text_pair=True, name="task", **arguments
    )
    task.compile(jit_compile=True)  # means training; the export has its own graph
    return task


TASKS = {
    "classifier of pairs": classifier_of_pairs,
    "multi-label pairs": lambda backbone, **a: tasks.TextClassifier(
        backbone(), class_names=["x", "y", "z"], multi_label=True, text_pair=True, **a
    ),
    "half precision, fixed length": lambda backbone, **a: tasks.TextClassifier(
        backbone(dtype="mixed_bfloat16"), num_classes=2, padding="fixed", **a
    ),
    "regressor of pairs on a scalar mix": lambda backbone, **a: tasks.TextRegressor(
        tasks.FeatureExtractor(backbone(), layers="scalar_mix"), text_pair=True, **a
    ),
    "vectors of tokens": lambda backbone, **a: tasks.FeatureExtractor(
        backbone(), pooling="none", prompt="a good ", **a
    ),
    "fill mask": lambda backbone, **a: tasks.MaskedLM(backbone(), **a),
    "pretrainer of pairs": lambda backbone, **a: tasks.Pretrainer(backbone(), text_pair=True, **a),
}

# A task, the folder of its export, and the signatures of this, loaded.
Exported = collections.namedtuple("Exported", ["task", "folder", "signatures"])


@pytest.fixture(scope="session")
def exported_as(make_backbone, tmp_path_factory):
    """`exported_as("fill mask")` is that one of `TASKS`, exported once as a model `film critic`.

    Its texts may hold the padding's own token.
    """

    @functools.cache
    def exported(name):
        tokenizer = WordPieceTokenizer(VOCABULARY, lowercase=True, added_tokens=["[PAD]"])
        task = TASKS[name](make_backbone, tokenizer=tokenizer)
        folder = task.export(tmp_path_factory.mktemp("models") / "film critic")
        return Exported(task, folder, tf.saved_model.load(str(folder)).signatures)

    return exported


@pytest.fixture(scope="session")
def wide_task(make_backbone, tokenizer):
    """Nearly all of its weights are in matrices, one of them of a size that 64 does not divide."""
    backbone = make_backbone(hidden_dim=260, intermediate_dim=1001, num_heads=4)
    for weight in backbone.weights:
        weight.assign(weight * 0.3)
    return tasks.TextClassifier(backbone, class_names=["bad", "good"], tokenizer=tokenizer)


@pytest.fixture(scope="session")
def stored(wide_task, tmp_path_factory):
    """The exports of `wide_task` by how their weights are stored."""
    models = tmp_path_factory.mktemp("models")
    exports = {}
    for weights in ("float32", "float16", "int8"):
        folder = wide_task.export(models, weights=weights)
        exports[weights] = Exported(wide_task, folder, tf.saved_model.load(str(folder)).signatures)
    return exports


# === Around exports ===


@pytest.fixture(scope="session")
def requests_of():
    def requests_of(folder):
        """(signature, model's name, its inputs) of each warm-up request."""
        path = folder / "assets.extra" / "tf_serving_warmup_requests"
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            request = getattr(log, log.WhichOneof("log_type")).request
            if log.WhichOneof("log_type") == "predict_log":
                inputs = {k: tf.constant(tf.make_ndarray(v)) for k, v in request.inputs.items()}
            else:
                examples = request.input.example_list.examples
                inputs = {"inputs": tf.constant([e.SerializeToString() for e in examples])}
            yield request.model_spec.signature_name, request.model_spec.name, inputs

    return requests_of
