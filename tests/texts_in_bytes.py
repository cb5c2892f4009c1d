"""Exports that take texts as bytes: tasks, texts that are hard to read, and how answers compare.

`.tflite` and `.onnx` files are asked the same here.
"""

import numpy as np
import tensorflow as tf

from keras_lm import tasks

HARD = [
    *("the Film was GOOD", "", " ", "Unaffable, naïve Straße ẞ!", "e\u0301 n\u0303 İ ΟΔΥΣΣΕΥΣ Σ"),
    *(
        "👍🏽 a 👩\u200d👧",
        "日本語のテキスト。film",
        "한국어 שלום नमस्ते ไทย",
        "a\0b \x00good",
        "bad " * 300,
    ),
    *(
        b"a bad \xff\xfe song \xf0\x9f",
        b"\xe2\x82",
        b"\xed\xa0\x80 x",
        bytes(range(256)),
        b"x" * 300,
    ),
    b"[MASK]a [SEP] [MASK][MASK]",
]

# What an `.onnx` leaves out, except for the strings that a task makes itself.
STRINGS = ("class_names", "terms", "text", "tokens")

TASKS = {
    "classifier": lambda backbone, **a: tasks.TextClassifier(
        backbone, class_names=["bad", "good"], **a
    ),
    "multi-label pairs": lambda backbone, **a: tasks.TextClassifier(
        backbone, class_names=["x", "y", "z"], multi_label=True, text_pair=True, **a
    ),
    "regressor, fixed length": lambda backbone, **a: tasks.TextRegressor(
        backbone, padding="fixed", sequence_length=9, **a
    ),
    "embedder with a prompt": lambda backbone, **a: tasks.FeatureExtractor(
        backbone, pooling="mean", normalize=True, prompt="Ünaffable films: ", **a
    ),
    "tagger": lambda backbone, **a: tasks.TokenClassifier(backbone, class_names=["O", "B-X"], **a),
    "tagger with a CRF": lambda backbone, **a: tasks.TokenClassifier(
        backbone, class_names=["O", "B-X"], crf=True, **a
    ),
    "questions": lambda backbone, **a: tasks.QuestionAnswerer(backbone, num_answers=3, **a),
    "choices": lambda backbone, **a: tasks.MultipleChoice(backbone, **a),
    "masks": lambda backbone, **a: tasks.MaskedLM(backbone, **a),
    "special tokens": lambda backbone, **a: tasks.TextRegressor(backbone, parse_special=True, **a),
    "sparse": lambda backbone, **a: tasks.SparseEncoder(backbone, **a),
    "terms": lambda backbone, **a: tasks.SparseEncoder(backbone, top_k=3, **a),
    "tokens": lambda backbone, **a: tasks.MultiVectorEncoder(backbone, query_length=8, **a),
}

# Models over the kinds of tokenizers that have a mask; of the last three, other rules of one.
MASKED = {
    "BertBackbone": "wordpiece",
    "RobertaBackbone": "bytebpe-roberta",
    "AlbertBackbone": "sentencepiece-albert",
    "XLNetBackbone": "sentencepiece-xlnet",
    "MPNetBackbone": "wordpiece-mpnet",
    "ModernBertBackbone": "bytebpe-modernbert",
    "DebertaV3Backbone": "sentencepiece-deberta",
}


def encoded(texts):
    """Return texts as (N,) objects of bytes."""
    texts = [text.encode() if isinstance(text, str) else text for text in texts]
    return np.array([*texts, None], object)[:-1]


def columns_of(task, rows):
    """Return columns of texts that differ, for a task of one or two texts, or of choices."""
    rows = encoded(rows)
    if isinstance(task, tasks.TokenClassifier | tasks.QuestionAnswerer):
        # Parts of a text stay as they are given, and places are in characters of valid text.
        rows = encoded([row.decode("utf-8", "replace") for row in rows])
    others = np.roll(rows, 3) if len(rows) > 1 else encoded(["a loud song"])
    columns = [rows, others]
    if isinstance(task, tasks.MultipleChoice):
        columns[1] = np.stack([others, rows, np.full_like(rows, b"")], axis=1)
    return dict(zip(task.answer_names, columns))


def texts_with_masks(mask):
    """Return texts with no mask, with several, and with more than a model reads."""
    return [
        f"{mask} the film was {mask} good , it 's {mask} .",
        *("", "no mask", mask, mask * 3, f"a\0b {mask} ünaïve 日本", f"{mask} a " * 99),
        b"\xff\xc3 " + mask.encode() + b" \xe2\x82",
        "word " * 5000 + mask,
        f"word word ' {mask} ' x ' ' {mask}  . n't",
    ]


def strings_in(answer, name):
    """Return the strings of an answer, which come as such or as bytes and ends."""
    if f"{name}_ends" not in answer:
        return answer[name]
    data, ends = answer[name].tobytes(), answer[f"{name}_ends"]
    starts = np.concatenate([[0], ends.ravel()[:-1]])
    return encoded(data[a:b] for a, b in zip(starts, ends.ravel(), strict=True)).reshape(ends.shape)


def assert_answers(answer, task, columns, left_out=()):
    """Compare a file's answer with the task's: strings are equal, and numbers within 1e-5.

    It has all that the task answers but the names that are `left_out`.
    """
    answer = {name.removeprefix("filled_"): value for name, value in answer.items()}
    expected = task.answer({name: tf.constant(x.tolist()) for name, x in columns.items()})
    expected = {name: x.numpy() for name, x in expected.items() if name not in left_out}
    if isinstance(task, tasks.MaskedLM) and not expected["scores"].shape[1]:
        # A file has room for one mask at least.
        shape = [len(expected["text"]), 1, task.top_k]
        expected |= {"tokens": np.full(shape, b"", object), "scores": np.zeros(shape, "float32")}
    if isinstance(task, tasks.MultiVectorEncoder):  # whose rows have one length in a .tflite
        length = expected["mask"].shape[1]
        assert not answer["mask"][:, length:].any()
        answer = {name: value[:, :length] for name, value in answer.items()}
    assert {name.removesuffix("_ends") for name in answer} == {*expected}
    for name, value in expected.items():
        served = strings_in(answer, name)
        if name == "labels" and value.dtype == object and served.dtype != object:
            names = [*(task.class_names or map(str, range(task.num_classes))), ""]
            served = encoded(names)[served]
        if value.dtype.kind == "f":
            np.testing.assert_allclose(served, value, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(served, value)
