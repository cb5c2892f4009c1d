"""Multiple choice: equal to the reference, every form of data, empty choices, exports."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny import assert_equal, hidden_states, inputs_of

import keras_lm
from keras_lm.export.fresh_process import load_tflite
from keras_lm.tasks import MultipleChoice, TextClassifier, TextRegressor

DATA = {
    "text": ["i saw the film", "the story was dull", "so"],
    "choices": [["i loved it", "i hated it"], ["awful", "great"], ["a nice cast", "a cast"]],
}
LABELS = [0, 0, 1]


def make_task(make):
    task = make(MultipleChoice)
    for weight in task.trainable_weights:  # far enough from zero for choices to differ
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.5))
    return task


@pytest.fixture
def task(make):
    return make_task(make)


@pytest.fixture(scope="module")
def shared(make):
    """A task for tests that only read it."""
    return make_task(make)


def pairs(task, texts, choices):
    """Logits of pairs, one at a time: no padding, no second axis."""
    single = [
        task.packer.pack(text=task.tokenizer([text]), text_pair=task.tokenizer([choice]))
        for text, choice in zip(texts, choices)
    ]
    return [float(task.head(task.backbone(packed), packed)[0, 0]) for packed in single]


@pytest.mark.eager
def test_huggingface(goldens, tmp_path):
    folder = goldens("bert-multiple-choice")
    arrays = np.load(folder / "expected.npz")
    inputs = inputs_of(arrays)
    task = keras_lm.tasks.Task.from_preset(folder)
    assert type(task) is MultipleChoice
    assert_equal(task(inputs), arrays["out.logits"])
    flat = {name: value.reshape(-1, value.shape[-1]) for name, value in inputs.items()}
    backbone = task.backbone
    assert_equal(hidden_states(backbone, flat), arrays["out.hidden_states"])
    assert_equal(backbone.attention_probabilities(flat), arrays["out.attentions"])
    metrics = task.evaluate(inputs, arrays["in.labels"], verbose=0, return_dict=True)
    assert_equal(metrics["loss"], arrays["out.loss"])
    task.save_to_preset(tmp_path / "preset")
    again = keras_lm.tasks.Task.from_preset(tmp_path / "preset")
    np.testing.assert_array_equal(again(inputs), task(inputs))
    for other in (TextClassifier, TextRegressor):  # whose heads differ from its own
        arguments = {"num_classes": 2} if other is TextClassifier else {}
        with pytest.warns(UserWarning, match="new and random are classifier"):
            other.from_preset(folder, **arguments)


@pytest.mark.eager
def test_a_choice_is_read_with_its_text(shared):
    task = shared
    expected = [
        pairs(task, [text] * len(choices), choices)
        for text, choices in zip(DATA["text"], DATA["choices"])
    ]
    logits = task.predict(DATA, verbose=0, batch_size=2)
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    answer = task.choose(DATA)
    np.testing.assert_array_equal(answer["labels"], np.argmax(expected, axis=1))
    np.testing.assert_allclose(answer["scores"], keras.ops.softmax(np.array(expected)), atol=1e-5)


FORMS = {
    "tuple": lambda x, c: (x, c),
    "rows": lambda x, c: list(zip(x, c)),
    "arrays": lambda x, c: {"text": np.array(x), "choices": np.array(c)},
    "bytes": lambda x, c: {"text": x, "choices": [[s.encode() for s in row] for row in c]},
    "dataset": lambda x, c: tf.data.Dataset.from_tensor_slices({"text": x, "choices": c}).batch(2),
    "ragged dataset": lambda x, c: tf.data.Dataset.from_tensors(
        {"text": x, "choices": tf.ragged.constant(c)}
    ),
    "packed": None,
}


@pytest.mark.eager
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data(shared, form):
    task = shared
    expected = task.predict_on_batch(DATA)
    x = FORMS[form](DATA["text"], DATA["choices"]) if FORMS[form] else None
    if x is None:
        x = {name: v.numpy() for name, v in task.preprocess(task.columns(DATA)).items()}
    np.testing.assert_allclose(task.predict(x, verbose=0), expected, atol=1e-5)
    if not isinstance(x, tf.data.Dataset):
        loss = task.test_on_batch(x, LABELS, return_dict=True)["loss"]
        losses = keras.losses.sparse_categorical_crossentropy(
            np.array(LABELS), expected, from_logits=True
        )
        assert loss == pytest.approx(float(np.mean(losses)), rel=1e-4)


@pytest.mark.thorough
@pytest.mark.eager
def test_it_learns(make):
    task = make(MultipleChoice)
    task.compile(optimizer=keras.optimizers.Adam(1e-2), run_eagerly=True)
    texts = ["the film", "the story", "it", "a cast"] * 3
    choices = [["good", "bad"], ["awful", "great"], ["dull", "fine"], ["nice", "poor"]] * 3
    labels = [0, 1, 1, 0] * 3
    options = {"validation_split": 0.34, "validation_freq": 10, "epochs": 10}
    history = task.fit({"text": texts, "choices": choices}, labels, **options, verbose=0).history
    assert history["loss"][-1] < 0.8 * history["loss"][0]
    assert history["val_accuracy"][-1] == 1.0
    assert task.choose((["the film"], [["bad", "good"]]))["labels"].tolist() == [1]


def test_choices_may_differ_in_number(task):
    texts = ["the film", "it was", "a story"]
    choices = [["good"], ["bad", "so bad", "not"], ["dull", "nice"]]
    logits = task.predict((texts, choices), verbose=0, batch_size=1)
    assert logits.shape == (3, 3)
    for row, (text, own) in enumerate(zip(texts, choices)):
        np.testing.assert_allclose(
            logits[row, : len(own)], pairs(task, [text] * len(own), own), atol=1e-5
        )
    scores = task.choose((texts, choices))["scores"]
    assert (scores[0, 1:] == 0).all() and scores[2, 2] == 0
    np.testing.assert_allclose(scores.sum(axis=1), 1, atol=1e-6)
    assert np.isfinite(task.fit((texts, choices), [0, 2, 1], verbose=0).history["loss"][0])


@pytest.mark.eager
def test_nothing_but_empty_choices_is_finite(shared):
    answer = shared.choose(([""], [["", ""]]))
    np.testing.assert_allclose(answer["scores"], [[0.5, 0.5]])


@pytest.mark.eager
@pytest.mark.parametrize(
    "x, message",
    [
        (["a"], "'text' and 'choices' are needed"),
        ({"text": ["a"]}, "'text' and 'choices' are needed"),
        ({"text": ["a"], "choices": ["b"]}, "choices is a list of strings: pass a list"),
        ({"text": ["a"], "choices": [[]]}, r"choices\[0\] is empty"),
        ({"text": ["a"], "choices": [["b", None]]}, r"choices\[0\]\[1\] is None"),
        (
            {"text": ["a", "b"], "choices": [["b"], "c"]},
            r"choices\[1\] is 'c', a str, and not a li",
        ),
        ({"text": ["a", "b"], "choices": [["b"]]}, "columns of different lengths"),
        ({"text": [["a"]], "choices": [["b"]]}, r"text\[0\] is \['a'\], a list"),
        ({"token_ids": [[2, 3]]}, r"MultipleChoice takes several sequences"),
    ],
)
def test_bad_data(shared, x, message):
    with pytest.raises(ValueError, match=message):
        shared.predict_on_batch(x)


@pytest.mark.eager
@pytest.mark.parametrize(
    "labels, message",
    [
        ([0, 2, 0], r"labels\[1\]=2, but there are 2 choices"),
        ([0, -1, 0], r"labels\[1\]=-1"),
        ([0.5, 0, 0], "the position of the right choice"),
        (["a", "b", "c"], "the position of the right choice"),
        ([0, 1], "labels has 2 rows for 3 examples"),
        ([0, 1, 1], r"labels\[2\]=1, but choices\[2\] has no such choice"),
    ],
)
def test_bad_labels(shared, labels, message):
    choices = [*DATA["choices"][:2], ["a cast"]]
    with pytest.raises(ValueError, match=message):
        shared.fit({"text": DATA["text"], "choices": choices}, labels, verbose=0)


@pytest.mark.slow
@pytest.mark.eager
def test_saved_model_and_tflite(task, tmp_path):
    x = (["it was", "", b"so \xff"], [["good", "bad", ""], ["a", "i", "."], ["", "", "fine"]])
    folder = task.export(tmp_path / "chooser")
    signatures = tf.saved_model.load(str(folder)).signatures
    served = signatures["serving_default"](text=tf.constant(x[0]), choices=tf.constant(x[1]))
    answer = task.choose(x)
    np.testing.assert_array_equal(served["labels"], answer["labels"])
    np.testing.assert_allclose(served["scores"], answer["scores"], atol=1e-6)
    packed = task.preprocess(task.columns(x))
    np.testing.assert_allclose(signatures["tokens"](**packed)["logits"], task(packed), atol=1e-5)
    tokens = signatures["tokenize"](text=tf.constant(["a"]), choices=tf.constant([["i", "it"]]))
    assert tokens["tokens"].numpy()[0, 1].tolist() == [b"[CLS]", b"a", b"[SEP]", b"it", b"[SEP]"]
    assert (folder / "assets.extra/tf_serving_warmup_requests").is_file()
    pytest.importorskip("ai_edge_litert")
    serve, _ = load_tflite(str(task.export(tmp_path / "m.tflite", format="litert")))
    columns = task.columns(x)
    actual = serve(**{name: column.numpy() for name, column in columns.items()})
    own = task.answer_lite(columns)
    np.testing.assert_array_equal(actual["labels"], own["labels"])
    np.testing.assert_allclose(actual["scores"], own["scores"], atol=1e-4)
