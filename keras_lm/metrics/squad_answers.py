"""Metrics of answers to questions. Shapes: B batch, G right answers."""

import collections
import re
import string

import keras
import numpy as np
import tensorflow as tf

PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized_answer(text):
    """Return the words of an answer as SQuAD's script compares them, joined by spaces.

    Lower-cased, without ASCII's punctuation marks, without the articles a, an and the.

    Source: the evaluation script of SQuAD 2.0 (Rajpurkar et al. 2018, section 5 and
    https://rajpurkar.github.io/SQuAD-explorer), `normalize_answer`.
    """
    text = text.lower().translate(PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def some(texts):
    """Return those that are not empty, or an empty one if there is none."""
    return [text for text in texts if text] or [""]


def _normalized_golds(answers):
    """Return the right answers of which something is left, or an empty one if there is none."""
    return some(map(normalized_answer, answers))


def answer_exact_match(text, answers):
    """Return 1.0 if an answer equals one of the right ones, else 0.0; none equals no answer."""
    return float(normalized_answer(text) in _normalized_golds(answers))


def answer_f1(text, answers):
    """Return the F1 of an answer's words, with the most similar of the right answers."""
    found = normalized_answer(text).split()
    return max(_f1_of_words(found, answer.split()) for answer in _normalized_golds(answers))


def _f1_of_words(found, right):
    if not found or not right:
        return float(found == right)
    same = sum((collections.Counter(found) & collections.Counter(right)).values())
    return 2 * same / (len(found) + len(right))


def answer_is_known(text, answers):
    """Return 1.0 if there is an answer where there should be one, and none elsewhere; else 0.0."""
    return float(bool(normalized_answer(text)) == (_normalized_golds(answers) != [""]))


class AnswerMetric(keras.metrics.Mean):
    """The mean of a number for each text, which `compare(text, right_texts)` computes.

    It is computed in Python, so that it is that of the published scripts: not on TPUs, nor by XLA.

    Call: `update_state(labels, texts, sample_weight=None)`: right answers, lists of strings, which
    may be ragged, or tensors (B, G) or (B,); and (B,) strings. An empty string is no answer, and
    as a right answer beside others it is padding.
    """

    compare = None

    def update_state(self, labels, texts, sample_weight=None):
        columns = string_columns(labels, texts)
        values = tf.numpy_function(self._compare_all, columns, tf.float32)
        return super().update_state(tf.ensure_shape(values, [None]), sample_weight)

    def _compare_all(self, labels, texts):
        return np.array([self.compare(*row) for row in decoded_rows(labels, texts)], "float32")


def string_columns(labels, texts):
    """Return right texts as a tensor (B, G), padded with empty strings, and texts (B,)."""
    if isinstance(labels, (list, tuple)) and not any(isinstance(x, str) for x in labels):
        labels = tf.ragged.constant([list(row) for row in labels], tf.string, ragged_rank=1)
    if isinstance(labels, tf.RaggedTensor):
        labels = labels.to_tensor("")
    labels = tf.convert_to_tensor(labels, tf.string)
    labels = labels if labels.shape.rank == 2 else labels[:, tf.newaxis]
    return [labels, tf.convert_to_tensor(texts, tf.string)]


def decoded_rows(labels, texts):
    """Yield each of the texts (B,) with its right ones, a list of those of (B, G), from bytes."""
    for text, row in zip(texts, labels, strict=True):
        yield text.decode("utf-8", "replace"), [label.decode("utf-8", "replace") for label in row]


@keras.saving.register_keras_serializable("keras_lm")
class ExactMatch(AnswerMetric):
    """Share of questions whose answer is one of the right ones, as SQuAD's script counts it.

    From 0 to 1; the script prints percents. Articles, punctuation and case do not count.

    Call: see `AnswerMetric`.

    Example:

        metric = keras_lm.metrics.ExactMatch()
        metric.update_state([["Ada", "Ada Lovelace"], []], ["the Ada.", ""])
        metric.result()  # 1.0

    Source: SQuAD, https://arxiv.org/abs/1606.05250, section 6.1; SQuAD 2.0,
    https://arxiv.org/abs/1806.03822.
    """

    compare = staticmethod(answer_exact_match)

    def __init__(self, name="exact_match", **kwargs):
        super().__init__(name=name, **kwargs)


@keras.saving.register_keras_serializable("keras_lm")
class AnswerF1(AnswerMetric):
    """Mean F1 of the words of answers and right answers, as SQuAD's script counts it, from 0 to 1.

    Call, source: see `ExactMatch`.
    """

    compare = staticmethod(answer_f1)

    def __init__(self, name="f1", **kwargs):
        super().__init__(name=name, **kwargs)


@keras.saving.register_keras_serializable("keras_lm")
class NoAnswerAccuracy(AnswerMetric):
    """Share of questions that are rightly answered, with whatever text, or rightly left without.

    Call: see `AnswerMetric`.
    """

    compare = staticmethod(answer_is_known)

    def __init__(self, name="no_answer_accuracy", **kwargs):
        super().__init__(name=name, **kwargs)
