"""A tiny BERT with random weights, its vocabulary, and texts that are hard to export for."""

import keras
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

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
        keras.utils.set_random_seed(1)
        sizes = {
            "vocabulary_size": len(VOCABULARY),
            "num_layers": 1,
            "num_heads": 2,
            "hidden_dim": 16,
            "intermediate_dim": 32,
            "max_sequence_length": 24,
        }
        backbone = BertBackbone(**sizes | arguments)
        for weight in backbone.weights:
            weight.assign_add(keras.random.normal(weight.shape, stddev=0.3, dtype=weight.dtype))
        return backbone

    return make


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
