"""Metrics of answers to questions. Shapes: B batch, G right answers."""

import collections
import re
import string
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import Tensor

PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized_answer(text):
    """Return an answer in the form that SQuAD's script compares.

    It is lower-cased, without ASCII punctuation and the articles a, an and the, and its words are
    separated by single spaces.

    Source: the evaluation script of SQuAD 2.0 (Rajpurkar et al. 2018, section 5 and
    https://rajpurkar.github.io/SQuAD-explorer), `normalize_answer`.
    """
    text = text.lower().translate(PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def some(texts):
    """Return the texts that are not empty; if there are none, a single empty text."""
    return [text for text in texts if text] or [""]


def _normalized_golds(answers):
    """Return the normalized right answers that are not empty, or a single empty answer."""
    return some(map(normalized_answer, answers))


def answer_exact_match(text: str, answers: Sequence[str]) -> float:
    """Return 1.0 if an answer equals one of the right ones, else 0.0; "" means no answer."""
    return float(normalized_answer(text) in _normalized_golds(answers))


def answer_f1(text: str, answers: Sequence[str]) -> float:
    """Return the F1 of an answer's words with the most similar right answer."""
    words = normalized_answer(text).split()
    return max(_f1_of_words(words, answer.split()) for answer in _normalized_golds(answers))


def _f1_of_words(words, right):
    if not words or not right:
        return float(words == right)
    same = sum((collections.Counter(words) & collections.Counter(right)).values())
    return 2 * same / (len(words) + len(right))


def answer_is_known(text: str, answers: Sequence[str]) -> float:
    """Return 1.0 if a text is answered that has an answer, or left if it has none; else 0.0."""
    return float(bool(normalized_answer(text)) == (_normalized_golds(answers) != [""]))


class AnswerMetric(keras.metrics.Mean):
    """The mean of `compare(text, right_texts)` over texts.

    It is computed in Python, like the published scripts, so it does not run on TPUs or under XLA.

    Call: `update_state(labels, texts, sample_weight=None)`: right answers, which are lists of
    strings, ragged or not, or tensors (B, G) or (B,); and answers, (B,) strings. An empty string
    means no answer; next to other right answers it is padding.
    """

    compare = None

    def update_state(self, labels: Any, texts: Any, sample_weight: Tensor | None = None) -> None:
        columns = string_columns(labels, texts)
        values = tf.numpy_function(self._compare_all, columns, tf.float32)
        return super().update_state(tf.ensure_shape(values, [None]), sample_weight)

    def _compare_all(self, labels, texts):
        return np.array([self.compare(*row) for row in decoded_rows(labels, texts)], "float32")


def string_columns(labels, texts):
    """Return right texts as a tensor (B, G), padded with empty strings, and texts, (B,)."""
    if isinstance(labels, (list, tuple)) and not any(isinstance(x, str) for x in labels):
        labels = tf.ragged.constant([list(row) for row in labels], tf.string, ragged_rank=1)
    if isinstance(labels, tf.RaggedTensor):
        labels = labels.to_tensor("")
    labels = tf.convert_to_tensor(labels, tf.string)
    labels = labels if labels.shape.rank == 2 else labels[:, tf.newaxis]
    return [labels, tf.convert_to_tensor(texts, tf.string)]


def decoded_rows(labels, texts):
    """Yield each text of (B,) with a list of its right texts of (B, G), decoded."""
    for text, row in zip(texts, labels, strict=True):
        yield text.decode("utf-8", "replace"), [label.decode("utf-8", "replace") for label in row]


@keras.saving.register_keras_serializable("keras_lm")
class ExactMatch(AnswerMetric):
    """Share of questions answered with one of the right answers, as in SQuAD's script.

    It is from 0 to 1; the script prints percents. Articles, punctuation and case are ignored.

    Call: see `AnswerMetric`.

    Example:

        metric = keras_lm.metrics.ExactMatch()
        metric.update_state([["Ada", "Ada Lovelace"], []], ["the Ada.", ""])
        metric.result()  # 1.0

    Source: SQuAD, https://arxiv.org/abs/1606.05250, section 6.1; SQuAD 2.0,
    https://arxiv.org/abs/1806.03822.
    """

    compare = staticmethod(answer_exact_match)

    def __init__(self, name: str = "exact_match", **kwargs: Any):
        super().__init__(name=name, **kwargs)


@keras.saving.register_keras_serializable("keras_lm")
class AnswerF1(AnswerMetric):
    """Mean F1 between the words of answers and right answers, from 0 to 1, as in SQuAD's script.

    Call, source: see `ExactMatch`.
    """

    compare = staticmethod(answer_f1)

    def __init__(self, name: str = "f1", **kwargs: Any):
        super().__init__(name=name, **kwargs)


@keras.saving.register_keras_serializable("keras_lm")
class NoAnswerAccuracy(AnswerMetric):
    """Accuracy of deciding whether a question has an answer, whatever the answer's text.

    Call: see `AnswerMetric`.
    """

    compare = staticmethod(answer_is_known)

    def __init__(self, name: str = "no_answer_accuracy", **kwargs: Any):
        super().__init__(name=name, **kwargs)
