"""`fit`, `evaluate` and `predict` take what `preprocess` returns, or name what does not fit it."""

import keras
import numpy as np
import pytest

from keras_lm import tasks
from keras_lm.feeding.feed import labels_from_user
from tests.tiny import BAD, CHOICES, GOOD, TASKS, make_backbone

TREES = ["(S (D the) (N film) (V was) (A good))", "(S (A great) (NP (N story)))"]
REPEATED = ["the film was good the film", "great story the story"]
# A task → its texts, their labels, and a part of the error if these come with packed texts.
CASES = {
    "TextClassifier": (GOOD, [0, 1, 2, 0], None),
    "TextRegressor": (GOOD, [0.0, 1.0, 2.0, 3.0], None),
    "MultipleChoice": ({"text": GOOD, "choices": CHOICES}, [0, 1, 0, 1], None),
    "TokenClassifier": (
        GOOD,
        [["O", "X", "O", "X"], ["O", "X"], ["X", "O", "O"], ["O", "O", "X", "O"]],
        "labels have rows of .2, 3, 4. and x is packed, with rows of 10 tokens",
    ),
    "ConstituencyParser": ([GOOD[0], GOOD[1]], TREES, "labels are trees, and x is packed"),
    "CoreferenceResolver": (
        REPEATED,
        [[[(0, 8), (18, 26)]], [[(0, 11), (12, 21)]]],
        r"labels\[0\]: .* 6 words",
    ),
    "QuestionAnswerer": (
        {"question": GOOD, "context": BAD},
        [{"text": "film", "start": 4}, None, {"text": "hated", "start": 2}, None],
        "labels are answers, and x is packed",
    ),
}


def task_of(name, tokenizer_of):
    tokenizer = tokenizer_of("wordpiece")
    backbone = make_backbone("BertBackbone", tokenizer.vocabulary_size)
    return getattr(tasks, name)(backbone, tokenizer=tokenizer, **TASKS[name][0])


@pytest.mark.parametrize("name", CASES)
def test_packed_texts(name, tokenizer_of):
    task, (x, y, message) = task_of(name, tokenizer_of), CASES[name]
    task.compile(metrics=None)
    packed = task.preprocess(x)
    actual, expected = (task.predict(each, verbose=0) for each in (packed, x))
    keras.tree.map_structure(
        lambda *both: np.testing.assert_allclose(*both, atol=1e-5), actual, expected
    )
    with pytest.raises(ValueError, match="is packed: pass texts, or call predict"):
        task.preprocess(packed)
    if message is None:
        assert loss(task, packed, y) == pytest.approx(loss(task, x, y), rel=1e-5)
        task.fit(packed, y, validation_split=0.25, verbose=0)
        return
    for call in (task.fit, task.evaluate):
        with pytest.raises(ValueError, match=message):
            call(packed, y, verbose=0)


def loss(task, x, y):
    return task.evaluate(x, y, verbose=0, return_dict=True)["loss"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2]])
def test_packed_labels(name, tokenizer_of):
    """Labels of a task's own kind, packed with their texts, are learned from as those."""
    task, (x, y, _) = task_of(name, tokenizer_of), CASES[name]
    task.compile(metrics=None)
    columns = task.columns(x)
    labels = labels_from_user(y, len(y))
    packed, labels = task.preprocess_with_labels(
        columns, task.labels.match(task.labels.prepare(labels), columns, False)
    )
    labels = keras.tree.map_structure(np.asarray, labels)
    expected = task.evaluate(x, y, verbose=0, return_dict=True)["loss"]
    assert loss(task, packed, labels) == pytest.approx(expected, rel=1e-5)
    history = task.fit(packed, labels, shuffle=False, batch_size=4, verbose=0).history
    assert np.isfinite(history["loss"]).all()


def test_packed_labels_of_other_shapes_are_refused(tokenizer_of):
    """A chart of one cell was that of all spans, and half a place the one before it."""
    parser = task_of("ConstituencyParser", tokenizer_of)
    parser.compile(metrics=None)
    packed = parser.preprocess(GOOD)
    for size in (1, 2, 6):
        with pytest.raises(
            ValueError, match=r"labels has shape .* pass numbers of shape \(B, 5, 5"
        ):
            parser.evaluate(packed, np.zeros((4, size, size), int), verbose=0)
    answerer = task_of("QuestionAnswerer", tokenizer_of)
    answerer.compile(metrics=None)
    packed, places = answerer.preprocess({"question": GOOD, "context": BAD}), np.zeros(4, int)
    for wrong in (places + 0.5, places[:, None], np.zeros((4, 9), int), None, np.array(["a"] * 4)):
        for name in ("start_logits", "end_logits"):
            y = {"start_logits": places, "end_logits": places} | {name: wrong}
            with pytest.raises(ValueError, match=f"{name}'. has shape .* for both ends"):
                answerer.fit(packed, y, verbose=0)
