"""A SavedModel of TensorFlow's own operations answers where TensorFlow Text is not."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks
from keras_lm.tokenizers import SentencePieceTokenizer, SubwordTokenizer

PROGRAM = """
import pickle, sys
import tensorflow as tf

folder, file = sys.argv[1:]
model = tf.saved_model.load(folder)
batches = pickle.loads(open(file, "rb").read())
answers = []
for batch in batches:
    answer = model.signatures["serving_default"](**{n: tf.constant(x) for n, x in batch.items()})
    answers.append({name: value.numpy() for name, value in answer.items()})
assert "tensorflow_text" not in sys.modules
open(file, "wb").write(pickle.dumps((answers, [*model.signatures])))
"""

CASES = {
    "classifier": lambda backbone, **a: tasks.TextClassifier(
        backbone, class_names=["bad", "good"], **a
    ),
    "pairs": lambda backbone, **a: tasks.TextRegressor(backbone, text_pair=True, **a),
    "tagger": lambda backbone, **a: tasks.TokenClassifier(backbone, class_names=["O", "B-X"], **a),
    "questions": lambda backbone, **a: tasks.QuestionAnswerer(backbone, num_answers=3, **a),
    "choices": lambda backbone, **a: tasks.MultipleChoice(backbone, **a),
    "masks": lambda backbone, **a: tasks.MaskedLM(backbone, **a),
}


def ask(folder, batches, file):
    """Return the answers of an export in a process that imports TensorFlow alone, and its names."""
    file.write_bytes(pickle.dumps(batches))
    subprocess.run([sys.executable, "-c", PROGRAM, str(folder), str(file)], check=True)
    return pickle.loads(file.read_bytes())


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("case", [*CASES, "SentencePiece"])
def test_a_process_without_tensorflow_text(
    case, make_backbone, tokenizer, texts, tmp_path, goldens
):
    if case == "SentencePiece":
        tokenizer = SentencePieceTokenizer.from_files(
            goldens("tokenizers") / "sentencepiece-albert"
        )
    backbone = make_backbone(vocabulary_size=tokenizer.vocabulary_size)
    task = CASES.get(case, CASES["classifier"])(backbone, tokenizer=tokenizer)
    folder = task.export(tmp_path / "plain", operations="tensorflow")
    rows = [text.encode() if isinstance(text, str) else text for text in texts]
    if case == "masks":
        rows = [b" [MASK] ".join([row, b"film"]) for row in rows] + [b"[MASK][MASK]", b"none"]
    batches = []
    for size in (len(rows), 1, 3):
        columns = [rows[:size], [*rows[1:size], b"a loud song"]]
        if case == "choices":
            columns[1] = [[one, b"the song", b""] for one in columns[1]]
        batches.append(dict(zip(task.answer_names, columns)))
    answers, signatures = ask(folder, batches, tmp_path / "batches")
    assert "tokens" in signatures and "tokenize" not in signatures
    for batch, answer in zip(batches, answers):
        expected = task.answer({name: tf.constant(column) for name, column in batch.items()})
        assert set(answer) == set(expected)
        for name, value in expected.items():
            if value.dtype == tf.string:
                np.testing.assert_array_equal(answer[name], value.numpy())
            else:
                np.testing.assert_allclose(answer[name], value, atol=1e-5)


def test_what_cannot_do_without_is_refused_by_name(make_backbone, tokenizer, tmp_path):
    def export(task, **options):
        task.export(tmp_path / "folder", operations="tensorflow", **options)

    subwords = SubwordTokenizer([*"ab_", "[CLS]", "[SEP]"], None, None)
    with pytest.raises(ValueError, match="SubwordTokenizer has no form without TensorFlow Text"):
        export(tasks.TextRegressor(make_backbone(), tokenizer=subwords))
    regressor = tasks.TextRegressor(make_backbone(), tokenizer=tokenizer)
    with pytest.raises(ValueError, match="needs a SavedModel that is not frozen"):
        export(regressor, freeze=True)
    with pytest.raises(ValueError, match="use 'tensorflow_text' or 'tensorflow'"):
        regressor.export(tmp_path / "folder", operations="all")
    assert list(tmp_path.iterdir()) == []
