"""Metrics: entities, answers, labels, translations, and Keras's own of what tasks give them.

Shapes: B batch, S sequence, C classes, G right answers.
"""

import collections
import re
import string

import keras
import numpy as np
import tensorflow as tf

from keras_lm import optional
from keras_lm.label_metrics import (
    BestThresholdAccuracy,
    BinaryF1,
    ExpectedCalibrationError,
    MatthewsCorrelation,
    PearsonCorrelation,
    SpearmanCorrelation,
)
from keras_lm.objectives import IGNORED
from keras_lm.tag_schemes import scheme_of

__all__ = [
    "AnswerF1",
    "BestThresholdAccuracy",
    "BinaryF1",
    "Bleu",
    "ChrF",
    "EntityF1",
    "ExactMatch",
    "ExpectedCalibrationError",
    "MatthewsCorrelation",
    "NoAnswerAccuracy",
    "PearsonCorrelation",
    "Rouge",
    "SpearmanCorrelation",
]

# Metrics of Keras whose labels are one-hot, and whose outputs are probabilities.
ONE_HOT = (
    keras.metrics.AUC,
    keras.metrics.CategoricalAccuracy,
    keras.metrics.CategoricalCrossentropy,
    keras.metrics.FBetaScore,  # and F1Score
    keras.metrics.FalseNegatives,
    keras.metrics.FalsePositives,
    keras.metrics.OneHotMeanIoU,
    keras.metrics.Precision,
    keras.metrics.PrecisionAtRecall,
    keras.metrics.Recall,
    keras.metrics.RecallAtPrecision,
    keras.metrics.SensitivityAtSpecificity,
    keras.metrics.SpecificityAtSensitivity,
    keras.metrics.TopKCategoricalAccuracy,
    keras.metrics.TrueNegatives,
    keras.metrics.TruePositives,
)


@keras.saving.register_keras_serializable("keras_lm")
class EntityF1(keras.metrics.Metric):
    """The F1 of named entities, from 0 to 1: one is right if its class and both ends are.

    It is the micro-average over all entities, as in the CoNLL evaluation; see
    `keras_lm.tag_schemes.entity_spans` for the labels that mark one.

    Args:
        class_names: list of str such as `["O", "B-PER", "I-PER"]`, in the order of the logits.
        strict: bool. Whether only entities count that are whole in their scheme, BIO, or BIOES if a
            name ends entities, as in seqeval's strict mode; otherwise also such as begin with
            `I-PER`, as in the CoNLL evaluation.

    Call: `update_state(labels, logits)`, (B, S) int, of which `IGNORED` ones are left out, and
    (B, S, C) float.

    Raises:
        ValueError: if no name marks an entity.

    Example:

        task.compile(metrics=["accuracy", keras_lm.metrics.EntityF1(task.class_names)])

    Source: Tjong Kim Sang and De Meulder 2003, https://aclanthology.org/W03-0419.
    """

    def __init__(self, class_names, strict=False, name="entity_f1", **kwargs):
        super().__init__(name=name, **kwargs)
        self.class_names = list(class_names)
        self.strict = strict
        parts = [class_name.partition("-") for class_name in class_names]
        types = [name if prefix in tuple("BIELSU") else "" for prefix, _, name in parts]
        if not any(types):
            raise ValueError(f"class_names={class_names} mark no entity: use O, B-X and I-X.")
        # Of each class: the number of its type, 0 outside; and may the next, or this one, continue?
        self.types = sorted(set(types) | {""})
        self._types = np.array([self.types.index(name) for name in types], "int32")
        self._opens = np.array([prefix in tuple("BI") for prefix, *_ in parts]) & (self._types > 0)
        self._continues = np.array([prefix in tuple("IEL") for prefix, *_ in parts])
        # With `strict`, what may begin an entity, and what may end one.
        ends = "ELSU" if scheme_of(class_names) == "BIOES" else "BI"
        self._begins, self._ends = (
            np.array([not strict or prefix in tuple(found) for prefix, *_ in parts])
            for found in ("BSU", ends)
        )
        # How many there are of each type.
        self.right, self.found, self.marked = (
            self.add_weight((len(self.types),), "zeros", name=name)
            for name in ("right", "found", "marked")
        )

    def update_state(self, labels, logits, sample_weight=None):
        if sample_weight is not None:
            raise ValueError("EntityF1 takes no weights: name it in metrics, not weighted_metrics.")
        labels = tf.cast(labels, tf.int32)
        # Words first: further pieces of a word and special tokens are no part of the sequence.
        is_word = labels != IGNORED
        order = tf.argsort(tf.cast(~is_word, tf.int32), axis=1, stable=True)
        is_word = tf.gather(is_word, order, batch_dims=1)
        marked, found = (
            self._entities(tf.gather(classes, order, batch_dims=1), is_word)
            for classes in (labels, tf.argmax(logits, axis=-1, output_type=tf.int32))
        )
        both = tf.sets.intersection(marked[tf.newaxis], found[tf.newaxis]).values
        for count, entities in ((self.right, both), (self.found, found), (self.marked, marked)):
            types = tf.cast(entities % len(self._types), tf.int32)
            number = len(self.types)
            count.assign_add(tf.math.bincount(types, None, number, number, tf.float32))

    def _entities(self, classes, is_word):
        """Return the entities of words (B, S), a sorted number each: text, ends and type, (N,)."""
        classes = tf.where(is_word, classes, 0)
        types = tf.where(is_word, tf.gather(self._types, classes), 0)
        opens, continues = tf.gather(self._opens, classes), tf.gather(self._continues, classes)
        same = opens[:, :-1] & continues[:, 1:] & (types[:, :-1] == types[:, 1:])
        same &= types[:, 1:] > 0
        first = tf.where((types > 0) & ~tf.pad(same, [[0, 0], [1, 0]]))  # (N, 2)
        last = tf.where((types > 0) & ~tf.pad(same, [[0, 0], [0, 1]]))
        is_whole = tf.gather(self._begins, tf.gather_nd(classes, first))
        is_whole &= tf.gather(self._ends, tf.gather_nd(classes, last))
        first, last = tf.boolean_mask(first, is_whole), tf.boolean_mask(last, is_whole)
        length = tf.shape(classes, tf.int64)[1]
        number = (first[:, 0] * length + first[:, 1]) * length + last[:, 1]
        return number * len(self._types) + tf.cast(tf.gather_nd(types, first), tf.int64)

    def result(self):
        right, found, marked = map(keras.ops.sum, (self.right, self.found, self.marked))
        return keras.ops.divide_no_nan(2 * right, found + marked)

    def scores(self):
        """Return `precision`, `recall` and `f1`, and those of each type of entity in `classes`.

        For a type there is also the number of `entities` that the labels mark; types that do not
        occur are left out.
        """
        counts = np.stack([np.asarray(count) for count in (self.right, self.found, self.marked)])
        classes = {
            name: _ratios(*counts[:, i]) | {"entities": int(counts[2, i])}
            for i, name in enumerate(self.types)
            if counts[:, i].any()
        }
        return _ratios(*counts.sum(axis=1)) | {"classes": classes}

    def get_config(self):
        return super().get_config() | {"class_names": self.class_names, "strict": self.strict}


def _ratios(right, found, marked):
    return {
        "precision": float(right / found) if found else 0.0,
        "recall": float(right / marked) if marked else 0.0,
        "f1": float(2 * right / (found + marked)) if found or marked else 0.0,
    }


@keras.saving.register_keras_serializable("keras_lm")
class OneHotMetric(keras.metrics.Metric):
    """One of Keras's metrics of one-hot labels and probabilities, over class numbers and logits.

    `compile` of a task puts it around those that need it.

    Args:
        metric: `keras.metrics.Metric`, one of `ONE_HOT`.
        multi_label: bool. Whether labels are (B, C) of 0 and 1, and not numbers, (B,) or (B, S).
    """

    def __init__(self, metric, multi_label=False, name=None, **kwargs):
        super().__init__(name=name or metric.name, **kwargs)
        self.metric = metric
        self.multi_label = multi_label

    def update_state(self, labels, logits, sample_weight=None):
        logits = tf.cast(logits, tf.float32)
        if self.multi_label:
            probabilities = tf.sigmoid(logits)
        else:
            known = labels != IGNORED
            if sample_weight is not None and labels.shape.rank == 2:
                weight = tf.reshape(sample_weight, [tf.shape(sample_weight)[0], -1])  # (B, 1 or S)
                sample_weight = tf.broadcast_to(weight, tf.shape(labels))[known]
            probabilities = tf.nn.softmax(logits[known])
            labels = tf.one_hot(tf.cast(labels[known], tf.int32), logits.shape[-1])
        self.metric.update_state(labels, probabilities, sample_weight=sample_weight)

    def reset_state(self):
        self.metric.reset_state()

    def result(self):
        return self.metric.result()

    def get_config(self):
        metric = keras.saving.serialize_keras_object(self.metric)
        return super().get_config() | {"metric": metric, "multi_label": self.multi_label}

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config.pop("metric")), **config)


def of_classes(metric, multi_label=False):
    """Return a metric, or its name, as `compile` takes it: `ONE_HOT` ones as `OneHotMetric`."""
    # Keras chooses between the kinds of these by the shape of the labels.
    if isinstance(metric, str) and metric not in ("accuracy", "acc", "crossentropy", "ce"):
        metric = keras.metrics.get(metric)
    return OneHotMetric(metric, multi_label) if isinstance(metric, ONE_HOT) else metric


# === Answers to questions ===

PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized_answer(text):
    """Return the words of an answer as SQuAD's script compares them, joined by spaces.

    Lower-cased, without ASCII's punctuation marks, without the articles a, an and the.

    Source: the evaluation script of SQuAD 2.0 (Rajpurkar et al. 2018, section 5 and
    https://rajpurkar.github.io/SQuAD-explorer), `normalize_answer`.
    """
    text = text.lower().translate(PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def _some(texts):
    """Return those that are not empty, or an empty one if there is none."""
    return [text for text in texts if text] or [""]


def _normalized_golds(answers):
    """Return the right answers of which something is left, or an empty one if there is none."""
    return _some(map(normalized_answer, answers))


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
        columns = _string_columns(labels, texts)
        values = tf.numpy_function(self._compare_all, columns, tf.float32)
        return super().update_state(tf.ensure_shape(values, [None]), sample_weight)

    def _compare_all(self, labels, texts):
        return np.array([self.compare(*row) for row in _decoded_rows(labels, texts)], "float32")


def _string_columns(labels, texts):
    """Return right texts as a tensor (B, G), padded with empty strings, and texts (B,)."""
    if isinstance(labels, (list, tuple)) and not any(isinstance(x, str) for x in labels):
        labels = tf.ragged.constant([list(row) for row in labels], tf.string, ragged_rank=1)
    if isinstance(labels, tf.RaggedTensor):
        labels = labels.to_tensor("")
    labels = tf.convert_to_tensor(labels, tf.string)
    labels = labels if labels.shape.rank == 2 else labels[:, tf.newaxis]
    return [labels, tf.convert_to_tensor(texts, tf.string)]


def _decoded_rows(labels, texts):
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


# === Translations and summaries ===


class CorpusMetric(keras.metrics.Metric):
    """A score of sacreBLEU, from 0 to 100, of all texts together; see its subclasses.

    Args:
        metric: one of `sacrebleu.metrics`.

    Attributes:
        signature: str. What sacreBLEU asks to be published beside a score: its settings and
            version, after the first `update_state` with the number of references, too.

    Call: `update_state(labels, texts)`: right texts, lists of strings for one each, or lists of
    lists, ragged or (B, G) tensors for several; and (B,) strings. Beside others an empty right
    text is padding. It is computed in Python: not on TPUs, nor by XLA.
    """

    def __init__(self, metric, name, **kwargs):
        super().__init__(name=name, **kwargs)
        self.metric = metric
        # Whole numbers of n-grams: beyond 2 ** 24 a float32 could not count.
        size = len(self._count([[b""]], [b""]))
        self.counts = self.add_weight((size,), "zeros", dtype="int64", name="counts")

    @property
    def signature(self):
        return str(self.metric.get_signature())

    def update_state(self, labels, texts, sample_weight=None):
        if sample_weight is not None:
            raise ValueError(f"{type(self).__name__} takes no weights: leave sample_weight out.")
        counts = tf.numpy_function(self._count, _string_columns(labels, texts), tf.int64)
        self.counts.assign_add(tf.ensure_shape(counts, self.counts.shape))

    def _count(self, labels, texts):
        rows = [
            (text, [x for x in right if x] or [""]) for text, right in _decoded_rows(labels, texts)
        ]
        most = max(len(right) for _, right in rows)
        streams = [[right[i] if i < len(right) else None for _, right in rows] for i in range(most)]
        counts = self.metric._extract_corpus_statistics([text for text, _ in rows], streams)
        return np.sum(np.array(counts, "int64"), axis=0)

    def result(self):
        def score(counts):
            return np.float32(self.metric._compute_score_from_stats(counts.tolist()).score)

        return tf.ensure_shape(tf.numpy_function(score, [tf.identity(self.counts)], tf.float32), [])


@keras.saving.register_keras_serializable("keras_lm")
class Bleu(CorpusMetric):
    """BLEU of translations as sacreBLEU computes it, from 0 to 100.

    Texts are plain ones, as they would be printed: sacreBLEU splits them into words. It needs the
    extra `translation`.

    Args:
        tokenize: str. sacreBLEU's tokenizer: `"13a"`, that of WMT, `"zh"`, `"intl"`, …
        lowercase: bool. Whether case does not count.

    Call: see `CorpusMetric`.

    Example:

        metric = keras_lm.metrics.Bleu()
        metric.update_state(["The house is small."], task.generate(["Das Haus ist klein."]))
        print(float(metric.result()), metric.signature)

    Source: Papineni et al. 2002, https://aclanthology.org/P02-1040; Post 2018,
    https://arxiv.org/abs/1804.08771.
    """

    def __init__(self, tokenize="13a", lowercase=False, name="bleu", **kwargs):
        sacrebleu = optional.require("sacrebleu.metrics", "BLEU")
        if tokenize not in sacrebleu.BLEU.TOKENIZERS:
            known = ", ".join(sacrebleu.BLEU.TOKENIZERS)
            raise ValueError(f"tokenize={tokenize!r} is none of sacreBLEU's tokenizers: {known}.")
        # Its warning of texts that are split into words already goes by the batch.
        metric = sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
        super().__init__(metric, name, **kwargs)
        self.arguments = {"tokenize": tokenize, "lowercase": lowercase}

    def get_config(self):
        return super().get_config() | self.arguments


@keras.saving.register_keras_serializable("keras_lm")
class ChrF(CorpusMetric):
    """chrF of translations, the F-score of n-grams of characters, from 0 to 100, by sacreBLEU.

    Args:
        word_order: int. 2 is chrF++, which counts words and pairs of them, too.
        lowercase: bool. Whether case does not count.

    Call, example: see `Bleu`.

    Source: Popović 2015, https://aclanthology.org/W15-3049; 2017, https://aclanthology.org/W17-4770.
    """

    def __init__(self, word_order=0, lowercase=False, name="chrf", **kwargs):
        sacrebleu = optional.require("sacrebleu.metrics", "chrF")
        super().__init__(sacrebleu.CHRF(word_order=word_order, lowercase=lowercase), name, **kwargs)
        self.arguments = {"word_order": word_order, "lowercase": lowercase}

    def get_config(self):
        return super().get_config() | self.arguments


@keras.saving.register_keras_serializable("keras_lm")
class Rouge(AnswerMetric):
    """Mean ROUGE F1 of summaries, from 0 to 1, by the package rouge-score.

    Of several right summaries, the one that gives the highest score counts. It needs the extra
    `translation`.

    Args:
        kind: str. `"rouge1"` and so on count n-grams, `"rougeL"` the longest common subsequence,
            `"rougeLsum"` that of each line: put each sentence on one.
        stem: bool. Whether words are compared by their English stems, as in most papers.

    Call: see `AnswerMetric`.

    Example:

        metric = keras_lm.metrics.Rouge("rouge2")
        metric.update_state(["A cat sat."], task.generate([article]))

    Source: Lin 2004, https://aclanthology.org/W04-1013.
    """

    def __init__(self, kind="rougeL", stem=True, name=None, **kwargs):
        scorer = optional.require("rouge_score.rouge_scorer", "ROUGE")
        super().__init__(name=name or kind.lower(), **kwargs)
        self.kind, self.stem = kind, stem
        self._scorer = scorer.RougeScorer([kind], use_stemmer=stem)
        self._scorer.score("", "")  # raises for a kind that there is none of

    def compare(self, text, summaries):
        return self._scorer.score_multi(_some(summaries), text)[self.kind].fmeasure

    def get_config(self):
        return super().get_config() | {"kind": self.kind, "stem": self.stem}
