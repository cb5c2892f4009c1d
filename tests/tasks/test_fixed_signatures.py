"""The signature for browsers: a known number of bytes in, the task's answers as numbers out."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks
from keras_lm.models import BertBackbone
from keras_lm.tokenizers import WordPieceTokenizer

pytestmark = pytest.mark.eager

VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *(
        "a",
        "the",
        "film",
        "song",
        "was",
        "good",
        "bad",
        "loud",
        "##ly",
        "na",
        "##ive",
        "中",
        ".",
        ",",
    ),
]
TEXTS = ["the film was good", "", "naïve, 中文 and\n bad\u0000ly", "a loud song. " * 30]
TOKENIZER = WordPieceTokenizer(VOCABULARY, lowercase=True)
TASKS = {
    "classes": lambda **a: tasks.TextClassifier(backbone(), class_names=["bad", "good"], **a),
    "several classes of pairs": lambda **a: tasks.TextClassifier(
        backbone(), class_names=["x", "y", "z"], multi_label=True, text_pair=True, **a
    ),
    "a number, from the left": lambda **a: tasks.TextRegressor(
        backbone(), truncation_side="left", **a
    ),
    "vectors, after a prompt": lambda **a: tasks.FeatureExtractor(
        backbone(), prompt="a film: ", normalize=True, **a
    ),
    "words": lambda **a: tasks.TokenClassifier(backbone(), class_names=["O", "B-X"], **a),
    "answers": lambda **a: tasks.QuestionAnswerer(backbone(), num_answers=3, **a),
    "an ensemble": lambda **a: tasks.Ensemble(
        [tasks.TextClassifier(backbone(seed), num_classes=2, **a) for seed in (1, 2)]
    ),
}


def backbone(seed=1):
    made = BertBackbone(len(VOCABULARY), 1, 2, 16, 32, max_sequence_length=24)
    random = np.random.default_rng(seed)
    for weight in made.weights:
        weight.assign_add(0.3 * random.normal(size=weight.shape))
    return made


def answers_of(offer, texts):
    """Return what the offer answers to each text, which is also its second one, cut to fit."""
    names = offer.task.answer_names
    for text in texts:
        columns = {name: [text] for name in names}
        inputs = {k: tf.constant(x) for k, x in offer.lite_batch(columns).items()}
        answer = {k: x.numpy() for k, x in offer.answer_lite(**inputs).items()}
        room = offer.num_bytes // offer.num_rows
        read = offer.cut(text.encode(), room)
        yield read, answer, {k: x.numpy() for k, x in offer.task.answer(
            {name: tf.constant([read]) for name in names}
        ).items()}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.thorough if name == "an ensemble" else [])
        for name in TASKS
    ],
)
def test_answers_are_the_tasks_as_numbers(name):
    task = TASKS[name](tokenizer=TOKENIZER)
    offer = task.fixed_signatures()
    names = [name.encode() for name in [*(getattr(task, "class_names", None) or "01"), ""]]
    for read, answer, expected in answers_of(offer, TEXTS):
        is_long = len(read) > 200
        assert (answer.pop("unread")[0] > 0) == is_long
        assert answer.pop("call") == 1
        assert {x.dtype.name for x in answer.values()} <= {"int32", "float32"}
        assert answer.keys() == expected.keys() - {"text", "tokens", "class_names"}
        for key, value in answer.items():
            own = expected[key]
            if name == "words":
                assert value.shape == (1, offer.num_bytes)
                rest = value[:, own.shape[1] :]
                assert (rest == (-1 if key == "labels" else 0)).all()
                value = value[:, : own.shape[1]]
            if own.dtype == object:
                assert np.array(names, object)[value].tolist() == own.tolist()
            else:
                np.testing.assert_allclose(value, own, atol=1e-5)


def test_a_long_text_is_cut_where_the_task_cuts_it():
    """With room for 16 bytes of each token, the answer is that to the whole text."""
    for name in ("classes", "a number, from the left"):
        task = TASKS[name](tokenizer=TOKENIZER)
        offer = task.fixed_signatures()
        assert offer.num_bytes == 16 * 24
        for (read, answer, _), text in zip(
            answers_of(offer, [TEXTS[3], "中" * 200]), [TEXTS[3], "中" * 200]
        ):
            assert len(read) < len(text.encode())
            expected = task.answer({"text": tf.constant([text])})
            np.testing.assert_allclose(answer["scores"], expected["scores"], atol=1e-5)


def test_whole_characters_are_cut():
    task = TASKS["classes"](tokenizer=TOKENIZER)
    offer = task.fixed_signatures(num_bytes=64)
    for text in ("é😀中a" * 9, "a" * 9, ""):
        for room in range(12):
            cut = offer.cut(text.encode(), room)
            assert text.startswith(cut.decode())
            assert room - 3 <= len(cut) <= room or cut == text.encode()
    offer = TASKS["a number, from the left"](tokenizer=TOKENIZER).fixed_signatures()
    assert [offer.cut("a中b".encode(), room).decode() for room in (1, 2, 3, 4, 5, 9)] == [
        *("b", "b", "b", "中b", "a中b", "a中b")
    ]


def test_several_rows_share_the_bytes():
    task = TASKS["classes"](tokenizer=TOKENIZER)
    offer = task.fixed_signatures(num_rows=3)
    inputs = offer.lite_batch({"text": TEXTS[:2]})  # and an empty one
    assert inputs["text"].shape == (3 * 16 * 24,)
    answer = offer.answer_lite(**{k: tf.constant(x) for k, x in inputs.items()})
    expected = task.answer({"text": tf.constant([*TEXTS[:2], ""])})
    np.testing.assert_allclose(answer["scores"], expected["scores"], atol=1e-5)
    assert answer["unread"].shape == (3,)


def test_numbers_that_make_no_sense_are_refused():
    task = TASKS["classes"](tokenizer=TOKENIZER)
    with pytest.raises(ValueError, match=r"num_rows=0: pass an int, 1 or more"):
        task.fixed_signatures(num_rows=0)
    with pytest.raises(ValueError, match=r"num_bytes=1: pass an int, 2 or more"):
        task.fixed_signatures(num_bytes=1, num_rows=2)
    with pytest.raises(ValueError, match=r"num_bytes='9'"):
        task.fixed_signatures(num_bytes="9")
