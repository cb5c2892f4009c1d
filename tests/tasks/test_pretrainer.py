"""Objectives together: what a Pretrainer asks of data, shares, trains beside itself, and writes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from safetensors import safe_open

from keras_lm.models import GPT2Backbone
from keras_lm.objectives import (
    CausalLanguageModel,
    MaskedAccuracy,
    MaskedCrossentropy,
    MaskedLanguageModel,
    NextSentence,
    Objective,
)
from keras_lm.tasks import CausalLM, MaskedLM, Pretrainer
from keras_lm.training import TrainingCheckpoint

TEXTS = ["the film was good", "i loved it", "a very dull cast", "so fine !"]
PAIRS = (TEXTS, TEXTS[::-1])


class Replaced(Objective):
    """Read what a generator makes of the text, and say what a teacher sees in the text itself."""

    heads = {"replaced_logits": "token"}

    def __init__(self, vocabulary_size):
        self.generator, self.teacher = (
            keras.Sequential(
                [
                    keras.Input([None], dtype="int32"),
                    keras.layers.Embedding(vocabulary_size, 4),
                    keras.layers.Dense(vocabulary_size),
                ]
            )
            for _ in range(2)
        )
        self.teacher.trainable = False
        self.companions = [self.generator, self.teacher]
        self.seed_generator = keras.random.SeedGenerator()
        self.seen = []

    def corrupt(self, inputs, training=True):
        self.seen.append(np.array(inputs["token_ids"]) if tf.executing_eagerly() else None)
        return inputs, None

    def forward(self, task, inputs, labels, training):
        token_ids = inputs["token_ids"]
        logits = self.generator(token_ids)
        noise = keras.random.normal(ops.shape(logits), seed=self.seed_generator)
        replaced = ops.cast(ops.argmax(logits + noise, axis=-1), "int32")
        outputs = task.backbone(inputs | {"token_ids": replaced}, training=training)
        read = task.heads["token"](outputs, training=training)
        wanted = ops.argmax(self.teacher(token_ids), axis=-1)
        labels = {"generator_logits": token_ids, "replaced_logits": wanted}
        return labels, {"generator_logits": logits, "replaced_logits": read}

    def loss(self):
        return dict.fromkeys(("generator_logits", "replaced_logits"), MaskedCrossentropy())

    def metrics(self):
        return {"generator_logits": [MaskedAccuracy()]}


def values(variables):
    return [ops.convert_to_numpy(variable).copy() for variable in variables]


# === Which labels ===


@pytest.mark.eager
def test_objectives_are_those_of_the_backbone(make):
    task = make(Pretrainer)
    assert [type(objective) for objective in task.objectives] == [MaskedLanguageModel, NextSentence]
    logs = task.train_on_batch(PAIRS, [0, 1, 0, 1], return_dict=True)
    names = {"token_logits", "next_sentence_logits"}
    assert set(logs) == {"loss"} | {f"{n}_{m}" for n in names for m in ("loss", "accuracy")}
    logs = task.train_on_batch(PAIRS, {"next_sentence_labels": [0, 1, 0, 1]}, return_dict=True)
    assert logs["token_logits_loss"] > 1  # made as before


@pytest.mark.eager
def test_a_single_objective_needs_no_prefix(make):
    task = make(Pretrainer, objectives=[MaskedLanguageModel(whole_words=True, rate=0.5)])
    history = task.fit(TEXTS, epochs=3, verbose=0, validation_data=(TEXTS, None)).history
    assert set(history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert history["val_loss"][-1] < history["val_loss"][0]
    assert not [w for w in task.trainable_weights if w.path.startswith("pooler/")]
    assert list(task(task.preprocess({"text": tf.constant(TEXTS)}))) == ["token_logits"]


@pytest.mark.eager
def test_what_labels_are_for_is_said(make, make_backbone, tokenizer):
    task = make(Pretrainer)
    with pytest.raises(ValueError, match=r"labels are missing.*say there which second texts"):
        task.train_on_batch(PAIRS)
    with pytest.raises(
        ValueError, match=r"'next_labels'\]: Pretrainer takes a dict with .*'next_sentence_labels'"
    ):
        task.train_on_batch(PAIRS, {"next_labels": [0, 1, 0, 1]})

    class Same(NextSentence):
        heads = {"same_logits": "next_sentence"}

    task = make(Pretrainer, objectives=[NextSentence(), Same()])
    with pytest.raises(ValueError, match=r"dict with .*'next_sentence_labels', 'same_labels'"):
        task.train_on_batch(PAIRS, [0, 1, 0, 1])
    task.train_on_batch(PAIRS, {"next_sentence_labels": [0] * 4, "same_labels": [1] * 4})
    assert len(task.heads) == 1  # two outputs of one head


@pytest.mark.eager
def test_objectives_that_cannot_be(make, make_backbone, tokenizer):
    with pytest.raises(ValueError, match="two that predict 'token_logits'"):
        make(Pretrainer, objectives=[MaskedLanguageModel(), MaskedLanguageModel()])
    gpt2 = GPT2Backbone(tokenizer.vocabulary_size, 1, 2, 8, 8, max_sequence_length=16)
    with pytest.raises(
        ValueError, match=r"GPT2Backbone has no pretraining objectives.*pass objectives="
    ):
        make(Pretrainer, gpt2)
    with pytest.raises(ValueError, match="no head for kind='token'"):
        make(Pretrainer, gpt2, objectives=[MaskedLanguageModel()])
    task = make(Pretrainer, gpt2, objectives=[CausalLanguageModel()])
    logs = task.test_on_batch(TEXTS, return_dict=True)
    assert logs["perplexity"] == pytest.approx(np.exp(logs["loss"]), rel=1e-4)
    assert not make(CausalLM, gpt2).objective.labels_of_data


# === Heads of another task ===


@pytest.mark.eager
def test_a_model_is_evaluated_with_another_objective(make):
    task = make(MaskedLM)
    for weight in task.weights:
        weight.assign_add(0.3 * keras.random.normal(weight.shape, seed=1))
    heads = {"token": task.head}
    same = make(Pretrainer, task.backbone, objectives=[MaskedLanguageModel()], heads=heads)
    expected = task.evaluate(TEXTS, verbose=0, return_dict=True)
    assert same.evaluate(TEXTS, verbose=0, return_dict=True) == pytest.approx(expected)
    harder = [MaskedLanguageModel(rate=0.9, whole_words=True)]
    other = make(Pretrainer, task.backbone, objectives=harder, heads=heads)
    metrics = other.evaluate(TEXTS, verbose=0, return_dict=True)
    assert metrics["loss"] != pytest.approx(expected["loss"])
    with pytest.raises(ValueError, match=r"heads has \['token'\].*need \['next_sentence'\]"):
        make(Pretrainer, task.backbone, objectives=[NextSentence()], heads=heads)


# === Companions ===


@pytest.fixture
def accompanied(make, tokenizer):
    def make_task(**options):
        objectives = [MaskedLanguageModel(), Replaced(tokenizer.vocabulary_size)]
        return make(Pretrainer, objectives=objectives, **options)

    return make_task


@pytest.mark.slow
@pytest.mark.eager
def test_companions_are_trained_unless_frozen(accompanied):
    task = accompanied()
    _, replaced = task.objectives
    generator, teacher = values(replaced.generator.weights), values(replaced.teacher.weights)
    texts = task.preprocess({"text": tf.constant(TEXTS)})["token_ids"].numpy()
    task.compile(optimizer=keras.optimizers.Adam(0.05), run_eagerly=True)
    history = task.fit(TEXTS, epochs=6, shuffle=False, verbose=0).history
    assert history["generator_logits_loss"][-1] < history["generator_logits_loss"][0] - 0.3
    assert {"replaced_logits_loss", "token_logits_accuracy"} <= set(history)
    assert history["loss"][0] == pytest.approx(
        sum(history[f"{name}_logits_loss"][0] for name in ("token", "replaced", "generator"))
    )
    np.testing.assert_array_equal(replaced.seen[0], texts)  # as they are, without masks
    for before, weight in zip(generator, replaced.generator.weights):
        assert (before != weight.numpy()).any()
    for before, weight in zip(teacher, replaced.teacher.weights):
        np.testing.assert_array_equal(before, weight)


@pytest.mark.thorough  # as ELECTRA's in tests/objectives/test_replaced_by_generator.py
def test_companions_in_the_graph(accompanied):
    task = accompanied(in_graph=True)
    assert np.isfinite(task.fit(TEXTS, epochs=2, verbose=0).history["loss"]).all()


@pytest.mark.eager
def test_companions_are_in_no_preset_and_no_export(accompanied, make, tmp_path):
    task = accompanied()
    plain = make(Pretrainer, task.backbone, objectives=[MaskedLanguageModel()])
    assert {w.path for w in task.weights} == {w.path for w in plain.weights}
    task.save_to_preset(tmp_path / "preset")
    with safe_open(tmp_path / "preset" / "model.safetensors", framework="numpy") as file:
        stored = set(file.keys())
    assert stored == {w.path for w in plain.weights}
    spec = {"text": tf.TensorSpec([None], tf.string)}
    graph = tf.function(task.answer, autograph=False).get_concrete_function(spec)
    own = {id(weight.value) for weight in task.weights}
    assert {id(variable) for variable in graph.variables} <= own
    objectives = [MaskedLanguageModel(), Replaced(len(task.tokenizer.vocabulary))]
    again = Pretrainer.from_preset(tmp_path / "preset", objectives=objectives)
    packed = task.preprocess({"text": tf.constant(TEXTS)})
    np.testing.assert_allclose(again(packed)["token_logits"], task(packed)["token_logits"])


@pytest.mark.eager
def test_a_keras_file_has_the_heads_that_were_trained(accompanied, make, tmp_path):
    task = make(Pretrainer, objectives=[MaskedLanguageModel()])
    task.save(tmp_path / "masked.keras")
    again = keras.saving.load_model(tmp_path / "masked.keras")
    inputs = task.preprocess({"text": tf.constant(TEXTS)})
    np.testing.assert_array_equal(again(inputs)["token_logits"], task(inputs)["token_logits"])
    replaced = accompanied()
    replaced.save(tmp_path / "replaced.keras")
    with pytest.raises(ValueError, match=r"a head for \['replaced_logits'\].*load_weights"):
        keras.saving.load_model(tmp_path / "replaced.keras")
    before = np.array(replaced(inputs)["replaced_logits"])
    for weight in replaced.weights:
        weight.assign(weight + 1)
    replaced.load_weights(tmp_path / "replaced.keras")
    np.testing.assert_array_equal(replaced(inputs)["replaced_logits"], before)


@pytest.mark.slow
@pytest.mark.eager
def test_companions_and_chance_go_on_from_a_checkpoint(accompanied, tmp_path):
    file = tmp_path / "run.safetensors"

    def state(task):
        everything = [v for objective in task.objectives for v in objective.variables]
        return values([*task.variables, *task.optimizer.variables, *everything])

    def train(task, epochs, **options):
        task.fit(TEXTS, batch_size=2, epochs=epochs, shuffle=False, verbose=0, **options)

    task = accompanied()
    train(task, 1, callbacks=[TrainingCheckpoint(file)])
    keras.utils.set_random_seed(9)
    other = accompanied()
    with pytest.raises(ValueError, match="with another teacher"):
        TrainingCheckpoint(file).restore(other)
    other.objectives[1].teacher.set_weights(task.objectives[1].teacher.get_weights())
    assert TrainingCheckpoint(file).restore(other) == 2
    for first, second in zip(state(task), state(other), strict=True):
        np.testing.assert_array_equal(first, second)
    for one in (task, other):
        one.compile(optimizer=keras.optimizers.SGD(0.1), run_eagerly=True)
        train(one, 1)
    for first, second in zip(state(task), state(other), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.eager
def test_with_words(make, tokenizer, tmp_path):
    task = make(Pretrainer)
    for weight in task.weights:
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.3))
    grown = task.with_words(["Unsers", "filmer"])
    rows = tokenizer.vocabulary_size
    assert grown.tokenizer.vocabulary[rows:] == ["unsers", "filmer"]
    pieces = [tokenizer.token_to_id(token) for token in ("un", "##s", "##er", "##s")]
    for variable, own in (
        (grown.backbone.token_embedding.embeddings, task.backbone.token_embedding.embeddings),
        (grown.heads["token"].bias, task.heads["token"].bias),
    ):
        variable, own = map(ops.convert_to_numpy, (variable, own))
        np.testing.assert_array_equal(variable[:rows], own)
        np.testing.assert_allclose(variable[rows], own[pieces].mean(axis=0), atol=1e-6)
    # What it says of texts without the words is what it said.
    outputs, before = (each(each.preprocess(PAIRS)) for each in (grown, task))
    np.testing.assert_allclose(
        outputs["token_logits"][..., :rows], before["token_logits"], atol=1e-5
    )
    np.testing.assert_allclose(
        outputs["next_sentence_logits"], before["next_sentence_logits"], atol=1e-5
    )
    grown.fit(PAIRS, [0, 1, 0, 1], verbose=0)

    grown.save_to_preset(tmp_path / "grown")
    again = MaskedLM.from_preset(tmp_path / "grown")
    assert again.tokenizer(["unsers film"]).to_list() == [[rows, tokenizer.token_to_id("film")]]

    with pytest.raises(ValueError, match="network of its own"):
        make(Pretrainer, objectives=[Replaced(rows)]).with_words(["filmer"])
