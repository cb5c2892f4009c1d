"""Every task through a `.keras` file, and training in every mode that Keras has."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.tasks import FeatureExtractor, MaskedLM, Pretrainer, TextClassifier, TextRegressor
from keras_lm.training import AdamW

TEXTS = ["the film was good", "bad"]


def data_for(cls, y):
    x = (TEXTS, TEXTS[::-1]) if cls is Pretrainer else TEXTS
    return (x,) if y is None else (x, y)


def randomise(task):
    rng = np.random.default_rng(3)
    for weight in task.weights:
        if "float" in str(weight.dtype):
            weight.assign(weight + rng.normal(size=weight.shape, scale=0.1))


@pytest.mark.eager
def test_keras_file_round_trip(every_task, make, tmp_path):
    cls, options, y = every_task
    task = make(cls, **options, sequence_length=9, truncation="only_first")
    task.compile(optimizer=AdamW(1e-3, weight_decay=0.3), run_eagerly=True)
    if cls is not FeatureExtractor:
        task.train_on_batch(*data_for(cls, y))
    randomise(task)
    task.save(tmp_path / "task.keras")
    loaded = keras.models.load_model(tmp_path / "task.keras")
    assert type(loaded) is cls
    assert loaded.get_arguments() == task.get_arguments()
    assert loaded.tokenizer.vocabulary == task.tokenizer.vocabulary
    assert loaded.tokenizer.get_config() == task.tokenizer.get_config()
    assert isinstance(loaded.optimizer, AdamW)
    assert loaded.optimizer.weight_decay == 0.3
    assert int(loaded.optimizer.iterations) == int(task.optimizer.iterations)

    x = data_for(cls, y)[0]
    expected, actual = task.predict_on_batch(x), loaded.predict_on_batch(x)
    for a, b in zip(tf.nest.flatten(expected), tf.nest.flatten(actual)):
        np.testing.assert_allclose(a, b, atol=1e-6)
    if cls is not FeatureExtractor:
        result = loaded.test_on_batch(*data_for(cls, y))
        np.testing.assert_allclose(result, task.test_on_batch(*data_for(cls, y)), atol=1e-5)
        assert np.isfinite(loaded.train_on_batch(*data_for(cls, y))).all()


@pytest.mark.eager
def test_keras_file_of_a_classifier_on_features(make, tmp_path):
    extractor = make(FeatureExtractor, layers="scalar_mix", pooling="max")
    task = make(TextClassifier, extractor, class_names=["bad", "good"])
    randomise(task)
    task.save(tmp_path / "task.keras")
    loaded = keras.models.load_model(tmp_path / "task.keras")
    np.testing.assert_allclose(
        task.predict_on_batch(TEXTS), loaded.predict_on_batch(TEXTS), atol=1e-6
    )


def test_keras_file_of_a_task_without_tokenizer(make, tmp_path):
    task = make(TextClassifier, tokenizer=None, num_classes=3)
    task.save(tmp_path / "task.keras")
    loaded = keras.models.load_model(tmp_path / "task.keras")
    assert loaded.tokenizer is None
    packed = {"token_ids": np.array([[2, 7, 3]])}
    np.testing.assert_allclose(task(packed), loaded(packed), atol=1e-6)


@pytest.mark.eager
def test_mixed_precision(every_task, make, make_backbone):
    cls, options, y = every_task
    task = make(cls, make_backbone(dtype="mixed_bfloat16"), **options)
    outputs = task.predict_on_batch(data_for(cls, y)[0])
    for output in tf.nest.flatten(outputs):
        assert np.asarray(output).dtype == "float32"
        assert np.isfinite(output).all()
    if cls is not FeatureExtractor:
        assert np.isfinite(task.train_on_batch(*data_for(cls, y))).all()
    assert {str(w.dtype) for w in task.trainable_weights} == {"float32"}


@pytest.mark.slow
def test_float16_scales_the_loss(make, make_backbone):
    task = make(TextClassifier, make_backbone(dtype="mixed_float16"), in_graph=True, num_classes=2)
    history = task.fit(TEXTS, [0, 1], epochs=2, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    inner = getattr(task.optimizer, "inner_optimizer", task.optimizer)
    assert inner._learning_rate.total_steps == 2


@pytest.mark.thorough  # as the steps of tests/training/test_distribution.py
def test_fixed_padding_trains_under_xla(make):
    task = make(MaskedLM, in_graph=True, padding="fixed", sequence_length=8)
    task.compile(jit_compile=True)
    assert np.isfinite(task.fit(TEXTS, verbose=0).history["loss"]).all()
    assert task.preprocess({"text": tf.constant(["a"])})["token_ids"].shape == (1, 8)


def test_graph_and_eager_give_the_same(make, make_backbone):
    losses = []
    for in_graph in (True, False):
        keras.utils.set_random_seed(0)
        task = make(TextRegressor, in_graph=in_graph)
        history = task.fit(TEXTS, [1.0, 2.0], epochs=2, batch_size=1, shuffle=False, verbose=0)
        losses.append(history.history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-4)


MIRRORED = """
import sys

sys.argv = ["test"]
import keras, numpy as np, tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from keras_lm.models import BertBackbone, ElectraBackbone
from keras_lm.objectives import MaskedLanguageModel, ReplacedByGenerator
from keras_lm.tasks import MaskedLM, MultiTask, Pretrainer, TextClassifier, TextRegressor
from keras_lm.training import Lamb
from keras_lm.tokenizers import WordPieceTokenizer

words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]
tokenizer = WordPieceTokenizer(words, lowercase=True)


TEXTS = ["good film", "bad", "good", "bad film film film"]


def electra(tokenizer):
    backbone = ElectraBackbone(8, 1, 2, 8, 8, dropout=0.0)
    generator = MaskedLM(backbone.make_generator(0.5), tokenizer=tokenizer)
    # However many replicas draw them, masks are everywhere, and samples the likeliest tokens.
    masking = MaskedLanguageModel(rate=1.0, mask_share=1.0, random_share=0.0)
    objective = ReplacedByGenerator(generator, weight=2.0, temperature=1e-6, masking=masking)
    return Pretrainer(backbone, [objective], tokenizer=tokenizer)


def losses(strategy, cls, x, *y, optimizer=None, size=None, **options):
    keras.utils.set_random_seed(0)
    with strategy.scope():
        if cls is electra:
            task = electra(tokenizer)
        else:
            task = cls(BertBackbone(8, 1, 2, 8, 8, dropout=0.0), tokenizer=tokenizer, **options)
        # One replica needs no graph, whose tracing takes longest.
        task.compile(
            optimizer=optimizer() if optimizer else keras.optimizers.SGD(0.5),
            run_eagerly=strategy is not mirrored,
            micro_batch_size=size,
        )
    history = task.fit(x, *y, batch_size=4, epochs=3, shuffle=False, verbose=0).history["loss"]
    if cls is TextClassifier:
        assert task.predict(x, batch_size=4, verbose=0).shape == (4, 2)
    return history


mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert mirrored.num_replicas_in_sync == 2
assert np.isfinite(losses(mirrored, MaskedLM, TEXTS)).all()
# One replica has a single label, the other nine.
labels = np.array([[5, -100, -100, -100, -100], [-100] * 5, [5, 6, 7, 6, 5], [7, 7, 5, 6, -100]])
packed = {"token_ids": np.array([[5, 6, 7, 5, 6], [7] * 5, [5] * 5, [6] * 5], "int32")}
data = {
    MaskedLM: ((packed, labels), {}),
    TextClassifier: ((TEXTS, [1, 0, 1, 0]), {"num_classes": 2}),
    Pretrainer: ((packed, {"token_labels": labels, "next_sentence_labels": [0, 1, 0, 1]}), {}),
    electra: ((TEXTS,), {}),
}
for cls, (x, options) in data.items():
    both = losses(mirrored, cls, *x, **options)
    one = losses(tf.distribute.get_strategy(), cls, *x, **options)
    assert one[2] < one[0]
    np.testing.assert_allclose(both, one, rtol=1e-4)


# Several tasks: each batch is divided, whosever it is.
def together(strategy):
    keras.utils.set_random_seed(0)
    with strategy.scope():
        first = TextClassifier(
            BertBackbone(8, 1, 2, 8, 8, dropout=0.0), tokenizer=tokenizer, num_classes=2
        )
        second = TextRegressor(first.backbone, tokenizer=tokenizer)
        for task in (first, second):
            task.compile(run_eagerly=strategy is not mirrored)
        many = MultiTask({"first": first, "second": second})
        many.compile(keras.optimizers.SGD(0.1), run_eagerly=strategy is not mirrored)
    # One batch of each, so that the order of the two is all that is drawn.
    both = {"first": (TEXTS, [1, 0, 1, 0]), "second": (TEXTS, [1.0, 2.0, 3.0, 4.0])}
    logs = [many.fit({name: rows}, batch_size=4, verbose=0).history for name, rows in both.items()]
    logs.append(many.fit(both, batch_size=2, epochs=2, validation_data=both, verbose=0).history)
    assert all(np.isfinite(values).all() for each in logs for values in each.values())
    return logs[0]["first_loss"] + logs[1]["second_loss"]


np.testing.assert_allclose(together(mirrored), together(tf.distribute.get_strategy()), rtol=1e-4)
try:
    with mirrored.scope():
        inside = MaskedLM(BertBackbone(8, 1, 2, 8, 8), tokenizer=tokenizer)
    MultiTask({"words": inside})
except ValueError as error:
    assert "another strategy" in str(error)
else:
    raise AssertionError


# Clipped once, by the norm of the sum; and in parts of one row.
def clipped():
    return Lamb(0.02, global_clipnorm=0.01, weight_decay=0.1)


x, options = data[Pretrainer]
options = {"optimizer": clipped}
one = losses(tf.distribute.get_strategy(), Pretrainer, *x, **options)
both = losses(mirrored, Pretrainer, *x, **options, size=1)
np.testing.assert_allclose(both, one, rtol=1e-4)
"""


@pytest.mark.thorough
def test_two_replicas_train_as_one(tmp_path):
    script = tmp_path / "mirrored.py"
    script.write_text(MIRRORED)
    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=600, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
