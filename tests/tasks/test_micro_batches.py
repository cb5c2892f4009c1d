"""Batches computed in parts train as whole ones do."""

import keras
import numpy as np
import pytest

from keras_lm.models import AWDLSTMBackbone, BertBackbone, DistilBertBackbone, ElectraBackbone
from keras_lm.objectives import (
    LayerDistillation,
    MaskedLanguageModel,
    MaskedLMDistillation,
    NextSentence,
    Objective,
    ReplacedByGenerator,
)
from keras_lm.tasks import CausalLM, MaskedLM, Pretrainer, TextClassifier, TokenClassifier
from keras_lm.training import AdamW, Lamb

B, S, V = 7, 6, 20
SIZE = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 8, "dropout": 0.0}
random = np.random.default_rng(0)
LENGTHS = np.array([6, 2, 5, 1, 3, 6, 2])
PACKED = {
    "token_ids": random.integers(5, V, (B, S)).astype("int32"),
    "padding_mask": (np.arange(S) < LENGTHS[:, None]).astype("int32"),
}
# One part of three rows has a single label.
LABELS = np.where(PACKED["padding_mask"], random.integers(0, 3, (B, S)), -100).astype("int32")
LABELS[:3] = -100
LABELS[1, 0] = 2
CLASSES = random.integers(0, 3, B).astype("int32")


def pretrainer(**options):
    masking = MaskedLanguageModel(mask_id=4, vocabulary_size=V, special_ids=[], rate=0.4, seed=3)
    return Pretrainer(BertBackbone(V, **SIZE, **options), [masking, NextSentence()])


def classifier(**options):
    return TextClassifier(BertBackbone(V, **SIZE, **options), num_classes=3)


def tagger(crf=False):
    return TokenClassifier(BertBackbone(V, **SIZE), class_names=["O", "B-x", "I-x"], crf=crf)


DATA = {
    pretrainer: (PACKED, {"next_sentence_labels": CLASSES % 2}),
    classifier: (PACKED, CLASSES, np.arange(1.0, B + 1, dtype="float32")),
    tagger: (PACKED, LABELS),
}


def trained(make, size, optimizer=AdamW, eager=True, rows=B - 2, **options):
    """Return the task and its history after a step on five rows, and one on the other two."""
    keras.utils.set_random_seed(1)
    task = make(**options)
    optimizer = optimizer(keras.optimizers.schedules.PolynomialDecay(0.01, 9), global_clipnorm=0.1)
    task.compile(optimizer=optimizer, micro_batch_size=size, run_eagerly=eager)
    history = task.fit(
        *DATA[make][:2],
        sample_weight=dict(enumerate(DATA[make])).get(2),
        batch_size=rows,
        shuffle=False,
        verbose=0,
    )
    assert int(task.optimizer.iterations) == -(-B // rows)
    return task, history.history


def compare(one, other, atol=1e-5):
    (task, history), (again, other_history) = one, other
    assert history.keys() == other_history.keys()
    for name, values in history.items():
        np.testing.assert_allclose(values, other_history[name], rtol=1e-4, err_msg=name)
    for a, b in zip(task.weights, again.weights, strict=True):
        np.testing.assert_allclose(a, b, atol=atol, err_msg=a.path)


@pytest.mark.parametrize(
    "make, options",
    [
        pytest.param(pretrainer, {}, marks=pytest.mark.eager),
        pytest.param(tagger, {"crf": True}, marks=pytest.mark.eager),
        pytest.param(pretrainer, {"optimizer": Lamb, "eager": False}, marks=pytest.mark.thorough),
        pytest.param(classifier, {}, marks=pytest.mark.thorough),
        pytest.param(tagger, {}, marks=pytest.mark.thorough),
    ],
    ids=["pretrainer", "crf", "lamb-in-graph", "classifier", "tagger"],
)
def test_parts_train_as_the_whole(make, options):
    whole = trained(make, None, **options)
    parts = trained(make, 3, **options)
    compare(parts, whole)
    start = make(**{k: v for k, v in options.items() if k == "crf"})
    assert any(np.abs(a - b).max() > 1e-3 for a, b in zip(start.weights, whole[0].weights))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "dtype", [pytest.param("mixed_bfloat16", marks=pytest.mark.thorough), "mixed_float16"]
)
def test_mixed_precision(dtype):
    whole = trained(classifier, None, Lamb, eager=False, dtype=dtype)
    parts = trained(classifier, 2, Lamb, eager=False, dtype=dtype)
    compare(parts, whole, atol=1e-3)
    scaled = isinstance(parts[0].optimizer, keras.optimizers.LossScaleOptimizer)
    assert scaled == (dtype == "mixed_float16")


def test_the_setting_is_saved(tmp_path):
    task = classifier()
    task.compile(optimizer=Lamb(1e-3, bias_correction=False), micro_batch_size=3)
    task.save(tmp_path / "task.keras")
    loaded = keras.models.load_model(tmp_path / "task.keras")
    assert loaded.micro_batch_size == 3
    assert type(loaded.optimizer) is Lamb
    assert not loaded.optimizer.bias_correction
    task.compile()
    assert task.micro_batch_size is None


class OwnForward(Objective):
    """Masked language modelling whose labels come from its own forward pass."""

    heads = {"token_logits": "token"}

    def corrupt(self, inputs, training=True):
        return inputs, None

    def forward(self, task, inputs, labels, training):
        return inputs["token_ids"], task(inputs, training=training)["token_logits"]

    def loss(self):
        return MaskedLanguageModel().loss()


class Counted(OwnForward):
    def counted_labels(self, inputs, labels):
        return {"token_logits": inputs["token_ids"]}


def own(cls=Counted):
    return Pretrainer(BertBackbone(V, **SIZE), [cls()])


def electra():
    """A temperature so low that samples are the likeliest tokens, in parts as in the whole."""
    backbone = ElectraBackbone(V, **SIZE)
    masking = MaskedLanguageModel(mask_id=4, vocabulary_size=V, special_ids=[], seed=3)
    generator = MaskedLM(backbone.make_generator(1 / 2))
    generator_loss = ReplacedByGenerator(generator, temperature=1e-6, masking=masking)
    return Pretrainer(backbone, [generator_loss])


def distilbert():
    masking = MaskedLanguageModel(mask_id=4, vocabulary_size=V, special_ids=[], seed=3)
    teacher = MaskedLM(BertBackbone(V, **SIZE))
    objective = MaskedLMDistillation(teacher, masking=masking)
    return Pretrainer(DistilBertBackbone(V, **SIZE), [objective])


def tinybert():
    student, teacher = BertBackbone(V, **SIZE), BertBackbone(V, **SIZE)
    return Pretrainer(student, [LayerDistillation(student, teacher)])


DATA |= dict.fromkeys([own, electra, distilbert, tinybert], (PACKED, None))


@pytest.mark.eager
@pytest.mark.parametrize(
    "make", [electra, *(pytest.param(f, marks=pytest.mark.slow) for f in (distilbert, tinybert))]
)
def test_second_networks(make):
    # In a second step ELECTRA's masks would differ: samples, a draw for each part, come between.
    compare(trained(make, 2, rows=B), trained(make, None, rows=B))


@pytest.mark.eager
def test_objectives_with_their_own_forward_say_what_they_count():
    compare(trained(own, 2), trained(own, None))
    with pytest.raises(ValueError, match="labels of 'token_logits' are not known before"):
        trained(own, 2, cls=OwnForward)


def language_model(**options):
    none = dict.fromkeys(["dropout", "embedding_dropout", "input_dropout", "weight_drop"], 0.0)
    size = {"num_layers": 1, "hidden_dim": 8, "embedding_dim": 8}
    return CausalLM(AWDLSTMBackbone(V, **size, **none, output_dropout=0.0, **options))


FULL = PACKED | {"padding_mask": np.ones((B, S), "int32")}  # then parts have like counts
DATA |= {language_model: (FULL, None)}


@pytest.mark.eager
def test_what_a_head_adds_is_divided_by_its_own_count():
    compare(trained(language_model, 2, rows=B), trained(language_model, None, rows=B))
    without = {"activation_penalty": 0.0, "slowness_penalty": 0.0}
    loss, lower = (
        trained(language_model, 2, rows=B, **options)[1]["loss"] for options in ({}, without)
    )
    assert lower[0] < loss[0] - 1e-4


def test_what_does_not_go():
    with pytest.raises(ValueError, match="micro_batch_size=0"):
        classifier().compile(micro_batch_size=0)
    with pytest.raises(ValueError, match="micro_batch_size=2, jit_compile=True"):
        classifier().compile(micro_batch_size=2, jit_compile=True)


@pytest.mark.parametrize("size", [1.5, 0, -3, "2"])
def test_sizes_that_are_no_number_of_rows(size):
    with pytest.raises(ValueError, match=r"micro_batch_size=.*whole"):
        classifier().compile(micro_batch_size=size)


@pytest.mark.parametrize("rate", [float("inf"), float("nan"), -1e-3])
@pytest.mark.parametrize("cls", [keras.optimizers.SGD, keras.optimizers.AdamW, AdamW, Lamb])
def test_learning_rates_that_nothing_works_with(cls, rate):
    with pytest.raises(ValueError, match=f"={rate}: pass a finite number"):
        classifier().compile(optimizer=cls(rate))


def test_a_rate_of_zero_and_schedules_are_taken():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    for rate in (0.0, schedule):
        classifier().compile(optimizer=keras.optimizers.SGD(rate))
