"""A BERT of one block, quick to train, and a problem that it can learn."""

import contextlib

import pytest
import tensorflow as tf

from keras_lm.models import BertBackbone
from keras_lm.tasks import (
    FeatureExtractor,
    MaskedLM,
    MultiVectorEncoder,
    Pretrainer,
    SparseEncoder,
    TextClassifier,
    TextRegressor,
)
from keras_lm.tokenizers import WordPieceTokenizer

WORDS = [
    "a",
    "the",
    "film",
    "was",
    "is",
    "and",
    "very",
    "good",
    "great",
    "fine",
    "nice",
    "bad",
    "poor",
    "awful",
    "dull",
    "it",
    "i",
    "saw",
    "like",
    "loved",
    "hated",
    "story",
    "cast",
    "not",
    "so",
    ",",
    ".",
    "!",
    "##s",
    "##ly",
    "##er",
    "un",
    "[",
    "]",
]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]

GOOD = ["the film was good", "great story", "i loved it", "a very nice cast", "so fine !"]
BAD = ["the film was bad", "awful story", "i hated it", "a very dull cast", "so poor !"]


@pytest.fixture(scope="session")
def tokenizer():
    return WordPieceTokenizer(VOCABULARY, lowercase=True)


@pytest.fixture(scope="session")
def make_backbone():
    def make(**options):
        options = {
            "vocabulary_size": len(VOCABULARY),
            "num_layers": 1,
            "num_heads": 2,
            "hidden_dim": 16,
            "intermediate_dim": 24,
            "max_sequence_length": 24,
            "dropout": 0.0,
        } | options
        return BertBackbone(**options)

    return make


@pytest.fixture(scope="session")
def make(make_backbone, tokenizer):
    """`make(TextClassifier, num_classes=2)` is a task over a fresh backbone.

    It runs eagerly, because tracing takes most of a test's time, unless `in_graph`.
    """

    def make(cls, backbone=None, in_graph=False, **options):
        options = {"tokenizer": tokenizer} | options
        task = cls(make_backbone() if backbone is None else backbone, **options)
        if not in_graph:
            task.compile(run_eagerly=True)
        return task

    return make


@pytest.fixture
def classifier(make):
    return make(TextClassifier, num_classes=2)


@pytest.fixture(scope="session")
def eagerly():
    """`with eagerly():` is for a part of a test what the mark `eager` is for all of it."""

    @contextlib.contextmanager
    def without_tracing():
        before = tf.config.functions_run_eagerly()
        tf.config.run_functions_eagerly(True)
        try:
            yield
        finally:
            tf.config.run_functions_eagerly(before)

    return without_tracing


# Every task, with its data: class, arguments, x and y.
TASKS = [
    pytest.param(
        TextClassifier, {"class_names": ["bad", "good"]}, ["good", "bad"], id="classifier"
    ),
    pytest.param(
        TextClassifier,
        {"class_names": ["long", "good"], "multi_label": True},
        [["long", "good"], []],
        id="multi_label",
    ),
    pytest.param(TextRegressor, {}, [1.0, -0.5], id="regressor"),
    pytest.param(MaskedLM, {"top_k": 2}, None, id="masked_lm"),
    pytest.param(Pretrainer, {}, [0, 1], id="pretrainer"),
    pytest.param(FeatureExtractor, {"layers": "scalar_mix"}, None, id="features"),
    pytest.param(SparseEncoder, {}, None, id="sparse"),
    pytest.param(MultiVectorEncoder, {"query_length": 8}, None, id="multi_vector"),
]


def pytest_generate_tests(metafunc):
    if "every_task" in metafunc.fixturenames:
        metafunc.parametrize("every_task", [pytest.param(p.values, id=p.id) for p in TASKS])


@pytest.fixture
def texts():
    return [text for pair in zip(GOOD, BAD) for text in pair]


@pytest.fixture
def labels():
    return [1, 0] * len(GOOD)
