"""Metrics of labels and logits beside scikit-learn's and scipy's: alone, in `fit`, on replicas."""

import itertools
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef

from keras_lm import metrics, models, tasks
from keras_lm.objectives import IGNORED
from keras_lm.tokenizers import WordPieceTokenizer

random = np.random.default_rng(4)
ROWS = 60
CLASSES = random.integers(0, 3, ROWS)
LOGITS = (random.normal(size=(ROWS, 3)) + np.eye(3)[CLASSES]).astype("float32")
BINARY = (CLASSES > 0).astype("int32")
TWO = (random.normal(size=(ROWS, 2)) + np.eye(2)[BINARY]).astype("float32")
# With ties.
NUMBERS = np.round(random.normal(size=ROWS), 1).astype("float32")
OUTPUTS = np.round(0.5 * NUMBERS + random.normal(size=ROWS), 1).astype("float32")[:, np.newaxis]


def calibration_error(labels, logits, bins=15):
    sure = softmax(logits, axis=-1)
    best, right = sure.max(-1), sure.argmax(-1) == labels
    edges = np.linspace(0, 1, bins + 1)
    inside = [(best > a) & (best <= b) for a, b in itertools.pairwise(edges)]
    return sum(abs(right[x].mean() - best[x].mean()) * x.mean() for x in inside if x.any())


def best_accuracy(labels, logits):
    scores = logits[:, 1] - logits[:, 0]
    return max(np.mean((scores >= at) == labels) for at in [np.inf, *scores])


CASES = {
    "matthews": (metrics.MatthewsCorrelation, {}, BINARY, TWO, matthews_corrcoef),
    "gorodkin": (
        metrics.MatthewsCorrelation,
        {"num_classes": 3},
        CLASSES,
        LOGITS,
        matthews_corrcoef,
    ),
    "f1": (metrics.BinaryF1, {}, BINARY, TWO, f1_score),
    "f1 of none": (
        metrics.BinaryF1,
        {"class_id": 0},
        BINARY,
        TWO,
        lambda y, results: f1_score(y, results, pos_label=0),
    ),
    "calibration": (metrics.ExpectedCalibrationError, {}, CLASSES, LOGITS, calibration_error),
    "pearson": (
        metrics.PearsonCorrelation,
        {},
        NUMBERS,
        OUTPUTS,
        lambda x, y: pearsonr(x, y[:, 0])[0],
    ),
    "spearman": (
        metrics.SpearmanCorrelation,
        {"capacity": ROWS},
        NUMBERS,
        OUTPUTS,
        lambda x, y: spearmanr(x, y[:, 0])[0],
    ),
    "threshold": (metrics.BestThresholdAccuracy, {}, BINARY, TWO, best_accuracy),
}


def expected(compare, labels, outputs):
    by_class = compare not in (calibration_error, best_accuracy) and outputs.shape[-1] > 1
    return pytest.approx(compare(labels, outputs.argmax(-1) if by_class else outputs), abs=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_equal_to_others_over_batches_of_any_size(name):
    cls, options, labels, outputs, compare = CASES[name]
    metric = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(cls(**options))
    )
    assert float(metric.result()) == 0.0  # of nothing
    specs = [tf.TensorSpec([None, *x.shape[1:]], x.dtype) for x in (labels, outputs)]
    update = tf.function(metric.update_state, autograph=False).get_concrete_function(*specs)
    for start, end in ((0, 7), (7, 7), (7, 41), (41, ROWS)):
        update(*(tf.constant(x[start:end], x.dtype) for x in (labels, outputs)))
    assert float(metric.result()) == expected(compare, labels, outputs)
    metric.reset_state()
    metric.update_state(labels[:20, np.newaxis], outputs[:20])
    assert float(metric.result()) == expected(compare, labels[:20], outputs[:20])


@pytest.mark.parametrize("name", ["matthews", "f1", "calibration", "pearson"])
def test_weights_count_as_repetitions(name):
    cls, options, labels, outputs, compare = CASES[name]
    times = random.integers(0, 3, ROWS)
    metric = cls(**options)
    metric.update_state(labels, outputs, sample_weight=times)
    assert float(metric.result()) == expected(
        compare, np.repeat(labels, times), np.repeat(outputs, times, axis=0)
    )


def test_words_that_are_ignored_do_not_count():
    labels, logits = CLASSES.reshape(6, 10).copy(), LOGITS.reshape(6, 10, 3)
    labels[:, 7:] = IGNORED
    known = labels.reshape(-1) != IGNORED
    metric = metrics.MatthewsCorrelation(3)
    metric.update_state(labels, logits, sample_weight=np.ones([6, 1]))
    right = matthews_corrcoef(CLASSES[known], LOGITS.argmax(-1)[known])
    assert float(metric.result()) == pytest.approx(right, abs=1e-5)


def test_only_the_first_values_are_kept():
    metric = metrics.SpearmanCorrelation(capacity=25)
    for start in range(0, ROWS, 10):
        metric.update_state(NUMBERS[start : start + 10], OUTPUTS[start : start + 10])
    right = spearmanr(NUMBERS[:25], OUTPUTS[:25, 0])[0]
    assert float(metric.result()) == pytest.approx(right, abs=1e-5)


def test_threshold():
    metric = metrics.BestThresholdAccuracy()
    metric.update_state([1, 0, 1, 0, 1], [0.9, 0.8, 0.5, 0.5, 0.5])
    assert (metric.threshold(), float(metric.result())) == (pytest.approx(0.9), pytest.approx(0.6))
    metric.reset_state()
    metric.update_state([0, 0], [0.1, 0.2])
    assert (metric.threshold(), float(metric.result())) == (np.inf, 1.0)


@pytest.mark.parametrize(
    "make, labels, outputs, message",
    [
        (metrics.MatthewsCorrelation, CLASSES, LOGITS, "pass MatthewsCorrelation.num_classes=3"),
        (metrics.BinaryF1, np.eye(2)[BINARY], TWO, "pass one class per row"),
        (metrics.PearsonCorrelation, NUMBERS, TWO, "pass one number per row"),
        (lambda: metrics.BinaryF1(2), BINARY, TWO, "class_id=2"),
        (lambda: metrics.SpearmanCorrelation(0), BINARY, TWO, "capacity=0"),
    ],
)
def test_what_does_not_fit(make, labels, outputs, message):
    with pytest.raises(ValueError, match=message):
        make().update_state(labels, outputs)
    with pytest.raises(ValueError, match="takes no weights"):
        metrics.SpearmanCorrelation().update_state([1.0], [1.0], sample_weight=[1.0])


def evaluated(strategy, cls, labels, made, **options):
    """Return what a tiny task's metrics are after `fit` and in `evaluate` under a strategy."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]
    draw = np.random.default_rng(7)
    texts = [" ".join(draw.choice(words[5:], 3)) for _ in labels]
    keras.utils.set_random_seed(0)
    with strategy.scope():
        size = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 8}
        network = models.BertBackbone(len(words), **size, dropout=0.0)
        tokenizer = WordPieceTokenizer(words, lowercase=True)
        task = cls(network, tokenizer=tokenizer, sequence_length=8, padding="fixed", **options)
        task.compile(optimizer=keras.optimizers.SGD(0.01), metrics=[make() for make in made])
    history = task.fit(texts, labels, batch_size=4, shuffle=False, verbose=0).history
    measured = task.evaluate(texts, labels, batch_size=4, return_dict=True, verbose=0)
    return {name: (history[name][0], measured[name]) for name in measured}


def two_replicas():
    """Print the metrics under two replicas and under one; the last batch has a single row."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    of_classes = [metrics.MatthewsCorrelation, metrics.BinaryF1, metrics.ExpectedCalibrationError]
    cases = [
        (tasks.TextClassifier, BINARY[:17], [*of_classes, metrics.BestThresholdAccuracy]),
        (
            tasks.TextRegressor,
            NUMBERS[:17],
            [metrics.PearsonCorrelation, metrics.SpearmanCorrelation],
        ),
    ]
    # One for all cases: the exchanges of a second one would be taken for those of the first.
    strategies = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), tf.distribute.get_strategy()
    for cls, labels, made in cases:
        options = {"num_classes": 2} if cls is tasks.TextClassifier else {}
        results = []
        for strategy in strategies:
            # Of one replica, a few steps take less time than tracing them.
            tf.config.run_functions_eagerly(strategy is strategies[1])
            results.append(evaluated(strategy, cls, labels, made, **options))
        print(json.dumps(results))


@pytest.mark.slow
def test_two_replicas_measure_what_one_measures():
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert [len(both) for both, _ in lines] == [5, 3]
    for both, one in lines:
        assert both.keys() == one.keys()
        for name, values in one.items():
            assert both[name] == pytest.approx(values, abs=1e-4), name
            assert name == "loss" or any(values)


if __name__ == "__main__":
    two_replicas()


def test_loose_f1_counts_as_its_paper():
    right = [{0, 1}, {2}, {0}, {1}]
    results = [{0}, {2, 3}, set(), {1}]
    labels, logits = (np.zeros((4, 4), "float32") for _ in range(2))
    logits -= 1
    for row, (marked, named) in enumerate(zip(right, results, strict=True)):
        labels[row, [*marked]], logits[row, [*named]] = 1, 2
    precision, recall = (1 + 1 / 2 + 0 + 1) / 4, (1 / 2 + 1 + 0 + 1) / 4
    macro = 2 * precision * recall / (precision + recall)
    micro = 2 * (3 / 4) * (3 / 5) / (3 / 4 + 3 / 5)
    for average, expected in (("micro", micro), ("macro", macro)):
        metric = metrics.LooseF1(average)
        metric.update_state(labels[:3], logits[:3])
        metric.update_state(labels[3:], logits[3:])
        np.testing.assert_allclose(metric.result(), expected, rtol=1e-6)
        again = metrics.LooseF1.from_config(metric.get_config())
        again.update_state(labels, logits, sample_weight=[1, 1, 1, 0])
        assert float(again.result()) < expected
        assert float(metrics.LooseF1(average).result()) == 0
    with pytest.raises(ValueError, match="average='mean': pass 'micro' or 'macro'"):
        metrics.LooseF1("mean")
    with pytest.raises(ValueError, match=r"pass \(B, classes\) each"):
        metric.update_state([1], logits)


def test_micro_f1_leaves_a_class_out():
    labels = np.array([0, 0, 1, 2, 2, 1])
    logits = np.eye(3, dtype="float32")[[0, 1, 1, 2, 0, 2]]
    metric = metrics.MicroF1(3, without=0)
    metric.update_state(labels, logits)
    # Of 4 found, of which 2 are right, and 4 marked.
    np.testing.assert_allclose(metric.result(), 2 * 2 / (4 + 4))
    metric = metrics.MicroF1.from_config(metrics.MicroF1(3).get_config())
    metric.update_state(labels, logits)
    np.testing.assert_allclose(metric.result(), 3 / 6)
    with pytest.raises(ValueError, match="without=3: pass 0 to 2"):
        metrics.MicroF1(3, without=3)
