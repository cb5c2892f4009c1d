"""Batches of strings from a `keras.utils.PyDataset`, as from a generator of the same ones."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_lm.tasks import QuestionAnswerer, TextClassifier, TokenClassifier

pytestmark = pytest.mark.eager

TEXTS, LABELS = ["good film", "bad film", "a great story", "dull"], [1, 0, 1, 0]


class Rows(keras.utils.PyDataset):
    """Batches of `size` rows of columns, and which of them were read."""

    def __init__(self, *columns, size=2):
        super().__init__()
        self.columns, self.size, self.read = columns, size, []

    def __len__(self):
        return -(-len(self.columns[-1]) // self.size)

    def __getitem__(self, place):
        self.read.append(place)
        rows = slice(place * self.size, (place + 1) * self.size)
        return tuple(
            {k: v[rows] for k, v in x.items()} if isinstance(x, dict) else x[rows]
            for x in self.columns
        )

    def on_epoch_end(self):
        self.read.append("end")


@pytest.fixture(scope="module")
def make(tokenizer_of):
    return functools.partial(tiny.make_still_task, tokenizer=tokenizer_of("wordpiece"))


@pytest.mark.parametrize(
    ("cls", "arguments", "data"),
    [
        (
            TextClassifier,
            {"class_names": ["bad", "good"]},
            ({"text": TEXTS, "text_pair": TEXTS[::-1]}, ["good", "bad"] * 2),
        ),
        (TokenClassifier, {"num_classes": 2}, (TEXTS, [[0, 1], [1, 0], [0, 0, 1], [1]])),
        pytest.param(
            QuestionAnswerer,
            {"sequence_length": 8, "stride": 2},
            (
                {"question": ["who"] * 4, "context": TEXTS},
                [{"text": "film", "start": text.index("film")} if "film" in text else None
                 for text in TEXTS],
            ),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["pairs", "words", "windows"],
)  # fmt: skip
def test_each_task_reads_what_it_reads_from_a_generator(make, cls, arguments, data):
    task, rows = make(cls, **arguments), Rows(*data)
    generated = task.evaluate((rows[i] for i in range(2)), verbose=0, return_dict=True)
    assert task.evaluate(rows, verbose=0, return_dict=True) == pytest.approx(generated, abs=1e-6)
    answers = task.predict(rows, verbose=0)
    expected = task.predict((rows[i] for i in range(2)), verbose=0)
    keras.tree.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), answers, expected
    )
    fitted = task.fit(rows, validation_data=rows, verbose=0).history
    assert fitted["val_loss"][0] == pytest.approx(generated["loss"], abs=1e-6)


@pytest.mark.slow
def test_batches_come_in_another_order_each_epoch_and_all_of_them(make):
    task, rows = make(TextClassifier, num_classes=2), Rows(TEXTS * 4, LABELS * 4)
    task.fit(rows, epochs=2, verbose=0)
    ends = [place for place, read in enumerate(rows.read) if read == "end"]
    first, second = rows.read[ends[0] - 8 : ends[0]], rows.read[ends[1] - 8 : ends[1]]
    assert sorted(first) == sorted(second) == list(range(8))
    assert first != second
    rows.read.clear()
    task.fit(rows, shuffle=False, verbose=0)
    assert rows.read[rows.read.index("end") - 8 :][:9] == [*range(8), "end"]


def test_what_it_cannot_be(make):
    task = make(TextClassifier, num_classes=2)
    with pytest.raises(ValueError, match=r"x is a PyDataset: let it return \(x, y"):
        task.fit(Rows(TEXTS, LABELS), LABELS)
    with pytest.raises(ValueError, match=r"x is a PyDataset of 0 batches: let len\(x\) be 1"):
        task.evaluate(Rows([], []))
    with pytest.raises(ValueError, match="validation_split needs arrays or lists"):
        task.fit(Rows(TEXTS, LABELS), validation_split=0.5)
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        make(TextClassifier, num_classes=2).evaluate(Rows(TEXTS, LABELS), verbose=0)
