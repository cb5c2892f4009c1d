"""Several models that answer as one: the mean of members with tokenizers of their own."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.converters import CheckpointError
from keras_lm.export.fresh_process import load_tflite
from keras_lm.models import Backbone, LSTMBackbone
from keras_lm.tasks import Distiller, Ensemble, Task, TextClassifier, TextRegressor, TokenClassifier
from keras_lm.tokenizers import WordTokenizer

WORDS = ["<UNK>", "<S>", "</S>", "good", "bad", "film", "story", "the", "was"]


@pytest.fixture
def lstm():
    tokenizer = WordTokenizer(WORDS, unknown_token="<UNK>", bos_token="<S>", eos_token="</S>")
    backbone = LSTMBackbone(len(WORDS), num_layers=1, hidden_dim=6, bidirectional=True)
    return {"backbone": backbone, "tokenizer": tokenizer}


def shaken(task):
    for variable in task.trainable_variables:
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.5))
    return task


@pytest.fixture
def members(make, lstm):
    """A BERT and an LSTM over other words, which disagree."""
    bert = make(TextClassifier, class_names=["bad", "good"])
    return [shaken(bert), shaken(make(TextClassifier, **lstm, num_classes=2))]


def softmax(logits):
    exp = np.exp(logits - logits.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


@pytest.mark.eager
def test_the_mean_of_probabilities(members, texts, labels):
    task = Ensemble(members)
    task.compile(run_eagerly=True)
    assert isinstance(task, TextClassifier)
    expected = np.mean([softmax(each.predict_on_batch(texts)) for each in members], axis=0)
    answer = task.classify(texts, batch_size=3)
    np.testing.assert_allclose(answer["scores"], expected, atol=1e-6)
    names = np.array(["bad", "good"])
    assert answer["labels"].tolist() == names[expected.argmax(-1)].tolist()
    np.testing.assert_allclose(softmax(task.predict(texts, verbose=0)), expected, atol=1e-6)
    metrics = task.evaluate(texts, labels, verbose=0, return_dict=True)
    assert metrics["accuracy"] == pytest.approx(np.mean(expected.argmax(-1) == labels))
    loss = -np.mean(np.log(expected[np.arange(len(labels)), labels]))
    assert metrics["loss"] == pytest.approx(loss, rel=1e-5)


def test_several_labels(make, texts):
    members = [shaken(make(TextClassifier, num_classes=3, multi_label=True)) for _ in range(2)]
    task = Ensemble(members)
    logits = np.stack([each.predict_on_batch(texts[:4]) for each in members])
    expected = np.mean(1 / (1 + np.exp(-logits)), axis=0)
    np.testing.assert_allclose(task.classify(texts[:4])["scores"], expected, atol=1e-6)


@pytest.mark.eager
def test_preset(make, texts, tmp_path):
    pairs = (texts[:3], texts[1:4])
    options = ({}, {"activation": "sigmoid"}, {})
    members = [shaken(make(TextRegressor, text_pair=True, **each)) for each in options]
    Ensemble(members).save_to_preset(tmp_path / "preset")
    expected = np.mean([each.regress(pairs)["scores"] for each in members], axis=0)
    for cls in (Task, Ensemble, TextRegressor):
        loaded = cls.from_preset(tmp_path / "preset")
        assert isinstance(loaded, Ensemble)
        assert len(loaded.members) == 3
    np.testing.assert_allclose(loaded.regress(pairs)["scores"], expected, atol=1e-6)
    np.testing.assert_array_equal(loaded.labels.prepare(np.array([2.0])), [[2.0]])
    with pytest.raises(ValueError, match="and no TextClassifier"):
        TextClassifier.from_preset(tmp_path / "preset")
    with pytest.raises(CheckpointError, match="such as member_0"):
        Backbone.from_preset(tmp_path / "preset")
    file = tmp_path / "preset" / "keras_lm.json"
    (tmp_path / "preset" / "checksums.json").unlink()  # older presets have none
    file.write_text(file.read_text().replace('"members": 3', '"members": "../other"'))
    with pytest.raises(CheckpointError, match=r"'members' is \.\./other"):
        Task.from_preset(tmp_path / "preset")


@pytest.mark.eager
def test_keras_file(members, make, texts, tmp_path):
    """The vocabulary of each member returns, what it was compiled with, and members of members."""
    members[1].compile(optimizer=keras.optimizers.SGD(0.3))
    task = Ensemble([shaken(make(TextClassifier, num_classes=2)), Ensemble(members)])
    task.save(tmp_path / "task.keras")
    loaded = keras.saving.load_model(tmp_path / "task.keras")
    assert type(loaded) is type(task)
    bert, lstm = loaded.members[1].members
    assert [bert.tokenizer.vocabulary, lstm.tokenizer.vocabulary] == [
        member.tokenizer.vocabulary for member in members
    ]
    assert float(lstm.optimizer.learning_rate) == pytest.approx(0.3)
    expected = task.classify(texts)
    actual = loaded.classify(texts)
    np.testing.assert_allclose(actual["scores"], expected["scores"], atol=1e-6)
    assert actual["labels"].tolist() == expected["labels"].tolist()

    with pytest.raises(ValueError, match="share weights"):
        Ensemble([members[0], members[0]]).save(tmp_path / "task.keras")
    config = task.get_config() | {"members": [{"class_name": "Lambda"}]}
    with pytest.raises(ValueError, match="'Lambda' as a member"):
        type(task).from_config(config)


@pytest.mark.eager
def test_one_artefact(members, texts, tmp_path):
    task = Ensemble(members)
    folder = task.export(tmp_path / "exported")
    serve = tf.saved_model.load(str(folder)).signatures
    assert set(serve) == {"serving_default", "classify"}
    expected = task.classify(texts)
    actual = serve["serving_default"](text=tf.constant(texts))
    np.testing.assert_allclose(actual["scores"], expected["scores"], atol=1e-5)
    example = tf.train.Example()
    example.features.feature["text"].bytes_list.value.append(texts[0].encode())
    actual = serve["classify"](inputs=tf.constant([example.SerializeToString()]))
    np.testing.assert_allclose(actual["scores"], expected["scores"][:1], atol=1e-5)


@pytest.mark.slow
@pytest.mark.eager
def test_litert_and_constants(members, texts, tmp_path):
    task = Ensemble(members)
    serve, _ = load_tflite(str(task.export(tmp_path / "model.tflite", format="litert")))
    frozen = tf.saved_model.load(str(task.export(tmp_path / "frozen", freeze=True))).signatures
    expected = task.classify(texts)
    for actual in (
        serve(text=np.array([text.encode() for text in texts], object)),
        frozen["serving_default"](text=tf.constant(texts)),
    ):
        np.testing.assert_allclose(actual["scores"], expected["scores"], atol=1e-4)
        assert np.array(actual["labels"]).astype(str).tolist() == expected["labels"].tolist()


@pytest.mark.thorough
@pytest.mark.eager
def test_it_teaches(members, make, texts):
    student = make(TextClassifier, num_classes=2)
    distiller = Distiller(student, Ensemble(members))
    losses = distiller.fit(texts, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert student.class_names == ["bad", "good"]


@pytest.mark.eager
def test_members_that_do_not_go_together(members, make):
    with pytest.raises(ValueError, match="members are none"):
        Ensemble([])
    with pytest.raises(ValueError, match="two or more"):
        Ensemble(members[:1])
    with pytest.raises(ValueError, match="members are TextClassifier, TextRegressor"):
        Ensemble([members[0], make(TextRegressor)])
    with pytest.raises(ValueError, match="members are TokenClassifier"):
        Ensemble([make(TokenClassifier, num_classes=2)] * 2)
    with pytest.raises(ValueError, match=r"differ in num_classes, \[2, 3\]"):
        Ensemble([members[0], make(TextClassifier, num_classes=3)])
    with pytest.raises(ValueError, match="differ in class_names"):
        Ensemble([members[0], make(TextClassifier, class_names=["good", "bad"])])
    with pytest.raises(ValueError, match=r"members\[1\] has no tokenizer"):
        Ensemble([members[0], make(TextClassifier, num_classes=2, tokenizer=None)])
    task = Ensemble(members)
    for train in (task.fit, task.train_on_batch):
        with pytest.raises(ValueError, match="fit of each member"):
            train(["a"], [0])
    with pytest.raises(ValueError, match="change each member"):
        task.with_words(["film"])
    with pytest.raises(ValueError, match=r"save each of task\.members"):
        task.save_to_huggingface("folder")
    other = tf.distribute.MirroredStrategy(["CPU:0"]).scope()
    with other, pytest.raises(ValueError, match="members were made under another strategy"):
        Ensemble(members)
