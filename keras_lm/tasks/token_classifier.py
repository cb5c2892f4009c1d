"""A label for every word. Shapes: B batch, W words, S sequence, N words of all texts, C classes."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.converters.published_labels import Labels
from keras_lm.datasets.tag_schemes import (
    LETTERS,
    OUTSIDE,
    TAG,
    entity_spans,
    is_plain,
    marks_entities,
)
from keras_lm.feeding.feed import columns_of_table, names_in_table
from keras_lm.layers import CRF
from keras_lm.layers.tensorflow import classes_are_named, require
from keras_lm.metrics.entity_f1 import EntityF1
from keras_lm.models.backbone import Backbone
from keras_lm.objectives import IGNORED, MaskedAccuracy, MaskedCrossentropy
from keras_lm.objectives.objective import MeanLoss, label_weights
from keras_lm.objectives.structures import SequenceLikelihood
from keras_lm.packers.overlapping_windows import tokens_and_places_lite
from keras_lm.packers.rows import LOWEST
from keras_lm.packers.words import Words, pieces_in_text, pieces_of_words
from keras_lm.tasks import classes, host_answers
from keras_lm.tasks.classes import (
    ClassLabels,
    check_classes,
    indices_of,
    names_of_classes,
    of_labels,
)
from keras_lm.tasks.signatures import TextSignatures, trace
from keras_lm.tasks.task import Task
from keras_lm.tasks.word_reader import WordPreprocessor, WordReader
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.tokenizers import splitting, strings
from keras_lm.utils.argument_types import RawTexts, Tensor
from keras_lm.utils.user_arguments import read_table


def entities_of(answer, texts, plain=False):
    """Return the entities of what `TokenClassifier.tag` answered; `texts` are (B,) strings.

    For `plain` see `keras_lm.datasets.tag_schemes.is_plain`.
    """
    entities = []
    for row, labels in enumerate(answer["labels"]):
        entities.append([])
        for label, first, end in entity_spans(labels, plain=plain):
            entity = {"label": label, "score": float(np.mean(answer["scores"][row][first:end]))}
            if "start" in answer:
                start, stop = answer["start"][row][first], answer["end"][row][end - 1]
                text = texts[row].numpy().decode("utf-8", "replace")
                entity |= {"text": text[start:stop], "start": start, "end": stop}
            else:
                text = " ".join(answer["tokens"][row][first:end])
                entity |= {"text": text, "start": first, "end": end}
            entities[-1].append(entity)
    return entities


def classes_in_parts(class_names):
    """Return the classes of words that share a token of a class, (C, 4) int32.

    They are those of a word that has the token alone, and of the first of several words, those
    within, and the last: of a token with `B-X`, the first word begins an entity, and all others
    continue it.
    """
    numbers = {name: number for number, name in enumerate(class_names)}
    parts = {"B": "BBII", "E": "EIIE", "L": "LIIL", "S": "SBIE", "U": "UBIL", "W": "WBIE"}
    rows = []
    for name, number in numbers.items():
        prefixes = parts.get(name[0], "") if name[1:2] in ("-", "_") else ""
        if "M" + name[1:] in numbers:
            prefixes = prefixes.replace("I", "M")
        rows.append([numbers.get(p + name[1:], number) for p in prefixes] or [number] * 4)
    return np.array(rows, "int32")


def tag_rules(class_names, scheme):
    """Return which classes may follow each other, (C, C), begin a text and end one, (C,) each.

    They are arrays of 0 and 1; in the first, a row is the class before. `scheme` is `"bio"` or
    `"bioes"`. ValueError if a name is not of it, or one of its class is missing.
    """
    names = list(class_names or [])
    prefixes = ("B-", "I-", "E-", "S-") if scheme == "bioes" else ("B-", "I-")
    types = {name[2:] for name in names if name[:2] in prefixes[1:] or scheme == "bioes"} - {""}
    strange = [name for name in names if name != "O" and name[:2] not in prefixes]
    missing = [p + kind for kind in types for p in prefixes if p + kind not in names and p != "I-"]
    if not names or strange or missing:
        wanted = " and ".join(f"{prefix}X" for prefix in prefixes)
        raise ValueError(
            f"crf={scheme!r}, but class_names={class_names}: pass O, and for each class X its "
            f"{wanted}, or crf=True."
        )
    goes_on = [name[:2] in ("I-", "E-") for name in names]
    is_open = [name[:2] in ("B-", "I-") for name in names]
    must_end = np.array(is_open) & (scheme == "bioes")
    start = 1.0 - np.array(goes_on)
    transitions = np.where(must_end[:, np.newaxis], 0.0, start)
    for before, one in enumerate(names):
        for after, other in enumerate(names):
            if is_open[before] and goes_on[after] and one[2:] == other[2:]:
                transitions[before, after] = 1.0
    return tuple(x.astype("float32") for x in (transitions, start, 1.0 - must_end))


def entities_in_graph(text, answer, plain=False):
    """Return the entities that an answer's labels mark in strings (B,), in the graph: (B, E) each.

    `text`, `labels` (the classes), `scores` (the mean of the words'), and `start` and `end`, in
    characters; rows are padded with empty strings and zeros. See `entity_spans` for the labels.

    Args:
        text: (B,) strings.
        answer: dict of `labels`, `scores`, `start` and `end`, (B, W), of the words.
        plain: bool, see `keras_lm.datasets.tag_schemes.is_plain`.
    """
    labels, scores = answer["labels"], answer["scores"]
    if plain:
        labels = tf.where((labels == "") | (labels == OUTSIDE), OUTSIDE, "I-" + labels)
    is_in = tf.strings.regex_full_match(labels, f"(?s:{TAG})")  # (B, W)
    names = tf.strings.regex_replace(labels, f"^[{''.join(LETTERS)}][-_]", "")
    opens = tf.strings.regex_full_match(labels, "[BIM][-_](?s:.+)")
    goes_on = tf.strings.regex_full_match(labels, "[IMEL][-_](?s:.+)")
    same = opens[:, :-1] & goes_on[:, 1:] & (names[:, :-1] == names[:, 1:])
    first = is_in & ~tf.pad(same, [[0, 0], [1, 0]])[:, : tf.shape(labels)[1]]
    last = is_in & ~tf.pad(same, [[0, 0], [0, 1]])[:, : tf.shape(labels)[1]]

    def at(x, mask):
        return tf.ragged.boolean_mask(x, mask)

    sums = tf.cumsum(scores, axis=1)
    words = tf.broadcast_to(tf.range(tf.shape(labels)[1]), tf.shape(labels))
    number = tf.cast(at(words, last) - at(words, first) + 1, scores.dtype)
    total = at(sums, last) - at(sums - scores, first)
    start, end = at(answer["start"], first).to_tensor(), at(answer["end"], last).to_tensor()
    return {
        "text": strings.substrings(strings.valid_utf8(text), start, end),
        "labels": at(names, first).to_tensor(),
        "scores": (total / number).to_tensor(),
        "start": start,
        "end": end,
    }


def without_ignored(labels, outputs, sample_weight):
    """Return labels that a loss of Keras's takes, and weights with which it is the mean of words.

    Ignored words, which the loss would count, have a weight of 0.
    """
    if classes.is_number(labels, outputs):
        known = ops.not_equal(labels, IGNORED)
        labels = ops.where(known, labels, 0)
    else:
        known = ops.sum(labels, axis=-1) > 0
    number = ops.sum(ops.cast(known, "float32"))
    size = ops.cast(ops.size(known), "float32")
    weights = label_weights(ops.where(known, 0, IGNORED), sample_weight)
    return labels, weights * ops.divide_no_nan(size, number)


def placed(labels, words, places, shape, rest=0.0):
    """Return what each word has at its first piece: (B, S) or (B, S, C).

    Elsewhere it is `IGNORED` or, of floats, `rest`. Of words that share a piece, the first counts.
    """
    labels = ragged(labels)
    splits = [tf.cast(rows.row_splits, tf.int64) for rows in (labels, words)]
    same = require(splits[0] == splits[1], "labels: there must be one for each word", *splits)
    values = labels.values
    values = values if values.dtype.is_floating else tf.cast(values, tf.int32)
    rest = tf.constant(rest if values.dtype.is_floating else IGNORED, values.dtype)
    inner = tf.shape(values)[1:]
    with tf.control_dependencies([same]):
        seen = tf.where((places >= 0) & ~is_of_word_before(places))
        filled = tf.tensor_scatter_nd_update(
            tf.fill(tf.concat([[tf.reduce_prod(shape)], inner], 0), rest),
            tf.gather_nd(places, seen)[:, tf.newaxis],
            tf.gather_nd(values, seen),
        )
    return tf.reshape(filled, tf.concat([shape, inner], 0))


def is_of_word_before(places):
    """Return whether the place of each word is that of the word before it, (N,) bool."""
    before = tf.concat([[-1], places[:-1]], axis=0)
    return (places == before) & (places >= 0)


def ragged(x):
    """Return a tensor of rows as a ragged one, which it may be already."""
    return x if isinstance(x, tf.RaggedTensor) else tf.RaggedTensor.from_tensor(x)


class WordLabels(ClassLabels):
    """A class for each word of a text: lists of names, numbers, or one-hot or soft labels.

    `rows` are the `Words` that split texts, `inputs` the names of packed inputs, and `crf` is
    whether a conditional random field compares labels.
    """

    def __init__(self, num_classes, class_names, rows, inputs, crf):
        super().__init__(num_classes, class_names)
        self.rows, self.inputs, self.crf = rows, inputs, crf

    @property
    def _loss(self):
        """The loss, or of a CRF without another one a loss that takes numbers as it does."""
        return self.loss or "sparse_categorical_crossentropy"

    def prepare(self, labels):
        """Return what words have, ragged (B, W) or (B, W, C); or (B, S) or (B, S, C) of arrays."""
        labels = classes.without_last_axis(labels, self.num_classes) if labels.ndim > 2 else labels
        if labels.ndim == 2 and labels.dtype.kind in "iu":
            self._check_numbers(labels.reshape(-1), lambda i: divmod(i, labels.shape[1]))
            return labels.astype("int32")
        if any(map(_has_vectors, labels)):
            return self._prepare_vectors(labels)
        rows = [_row(label, number) for number, label in enumerate(labels)]
        flat = [label for row in rows for label in row]
        splits, place = _places(rows)
        if any(isinstance(label, (str, bytes)) for label in flat):
            flat = self.numbers_of(flat, lambda i: "[{}][{}]".format(*place(i)))
        flat = np.array(flat, "int32")
        self._check_numbers(flat, place)
        return tf.RaggedTensor.from_row_splits(flat, splits)

    def _prepare_vectors(self, labels):
        """The same of one-hot or soft labels."""
        rows = []
        for number, row in enumerate(labels):
            try:
                row = np.asarray(row, "float32") if len(row) else np.zeros((0, self.num_classes))
            except (TypeError, ValueError):
                row = np.zeros(())  # of no shape at all
            if row.ndim != 2 or row.shape[1] != self.num_classes:
                raise ValueError(
                    f"labels[{number}] has shape {row.shape or 'none'}, but num_classes="
                    f"{self.num_classes}: pass for each word a name or a number, or for each "
                    f"one-hot or soft labels, (words, {self.num_classes})."
                )
            rows.append(row)
        splits, place = _places(rows)
        flat = classes.check_probabilities(
            np.concatenate(rows), self._loss, lambda i: "[{}][{}]".format(*place(i)), gaps=True
        )
        if labels.ndim == 3:
            return flat.reshape(*labels.shape[:2], *flat.shape[1:])
        return tf.RaggedTensor.from_row_splits(flat, splits)

    def _check_numbers(self, flat, place):
        is_wrong = (flat != IGNORED) & ((flat < 0) | (flat >= self.num_classes))
        for i in np.flatnonzero(is_wrong)[:1]:
            row, column = place(i)
            raise ValueError(
                f"labels[{row}][{column}]={flat[i]}, but num_classes={self.num_classes}: classes "
                f"count from 0 to {self.num_classes - 1}, and {IGNORED} leaves a word out."
            )

    def prepare_tensor(self, labels):
        if labels.dtype == tf.string:
            if self.class_names is None:
                raise ValueError(
                    "x is a tf.data.Dataset with string labels: make the task with class_names."
                )
            labels = ragged(labels)
            return labels.with_values(indices_of(labels.values, self.class_names))
        if labels.shape.rank != 3:
            return tf.ragged.map_flat_values(
                lambda flat: classes.check_number_tensor(flat, self.num_classes, gaps=True), labels
            )
        if isinstance(labels, tf.RaggedTensor) and labels.ragged_rank == 2:
            labels = labels.with_values(labels.values.to_tensor())
        if labels.shape[2] not in (None, self.num_classes):
            raise ValueError(
                f"labels has shape {labels.shape}, but num_classes={self.num_classes}: let the "
                f"dataset yield numbers, or one-hot or soft labels with a last axis of "
                f"{self.num_classes}."
            )
        return tf.ragged.map_flat_values(
            lambda flat: classes.check_probability_tensor(flat, self._loss, gaps=True), labels
        )

    def match(self, labels, columns, is_packed):
        if is_packed:
            tokens = next(columns[name] for name in self.inputs if name in columns)
            return _of_tokens(labels, tokens.shape[1])
        labels = ragged(labels)
        words, _ = self.rows.words(columns["text"])
        expected, given = words.row_lengths().numpy(), labels.row_lengths().numpy()
        for row in np.flatnonzero(expected != given)[:1]:
            raise ValueError(
                f"labels[{row}] has {given[row]} labels, but text[{row}] has {expected[row]} "
                "words: pass one for each word, and words as lists to part them yourself."
            )
        return labels

    def for_loss(self, labels, outputs, sample_weight):
        """Return labels and weights with which losses are means of the words not ignored."""
        takes_numbers = classes.takes_numbers(self.loss)
        if not isinstance(self.loss, MeanLoss) and takes_numbers is not None:
            labels, sample_weight = without_ignored(labels, outputs, sample_weight)
        return super().for_loss(labels, outputs, sample_weight)

    def metric(self, metric):
        return MaskedAccuracy(metric) if metric in ("accuracy", "acc") else super().metric(metric)

    def class_weights(self, class_weight, labels=None):
        if self.crf:
            raise ValueError(
                "class_weight weighs words by their class, and with a CRF the loss is that of a "
                "whole text: pass sample_weight, a number for each text, or make the task with "
                "crf=False."
            )
        return super().class_weights(class_weight, labels)


def _row(labels, number):
    """Return the labels of one text's words, names or integers, as a list."""
    if isinstance(labels, (list, tuple, np.ndarray)):
        labels = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
        for column, label in enumerate(labels):
            if not isinstance(label, (str, bytes, int, np.integer)):
                raise ValueError(
                    f"labels[{number}][{column}]={label!r} is neither a class name nor an integer."
                )
        return labels
    raise ValueError(
        f"labels[{number}]={labels!r}: pass a list with a label for each word of the text."
    )


def _of_tokens(labels, number):
    """Return the labels of packed rows, one for each of `number` tokens, as an array."""
    is_ragged = isinstance(labels, tf.RaggedTensor)
    lengths = {*labels.row_lengths().numpy().tolist()} if is_ragged else {labels.shape[1]}
    if lengths != {number}:
        raise ValueError(
            f"labels have rows of {sorted(lengths)} and x is packed, with rows of {number} tokens: "
            f"pass a label for each token, {IGNORED} for those that do not count, or texts as x."
        )
    return labels.to_tensor().numpy() if is_ragged else labels


def _has_vectors(row):
    if isinstance(row, np.ndarray):
        return row.ndim == 2
    return isinstance(row, (list, tuple)) and any(
        isinstance(label, (list, tuple, np.ndarray)) for label in row
    )


def _places(rows):
    """Return the splits (B + 1,) of rows, and a function from a place in all to row and column."""
    splits = np.cumsum([0, *(len(row) for row in rows)])

    def place(index):
        row = int(np.searchsorted(splits, index, "right")) - 1
        return row, index - splits[row]

    return splits, place


@dataclasses.dataclass(frozen=True, eq=False)
class TaggerPreprocessor(WordPreprocessor):
    """A `WordPreprocessor` with a label for each word, and perhaps a predicate in each text."""

    def columns(self, x):
        if not self.rows.predicate:
            return super().columns(x)
        x = read_table(x)
        if names_in_table(x) is not None:
            x = columns_of_table(x, self.rows.names, self.rows.required)
        x = dict(zip(self.rows.names, x, strict=True)) if isinstance(x, tuple) else x
        if not isinstance(x, dict) or not set(self.rows.names) <= set(x):
            raise ValueError(
                "x has no predicates: pass {'text': …, 'predicate': …}, for each text the place of "
                "one word."
            )
        columns = super().columns(x | {"predicate": [str(place) for place in x["predicate"]]})
        words, places = self.rows.words(columns["text"])
        known = tf.strings.length(columns["text"], "UTF8_CHAR") if places else words.row_lengths()
        for row, (place, size) in enumerate(zip(x["predicate"], known.numpy(), strict=True)):
            if not str(place).isdecimal() or int(place) >= size:
                what = "characters" if places else "words"
                raise ValueError(
                    f"predicate[{row}]={place!r} is not a place in text[{row}], of {size} {what}."
                )
        return columns

    def with_labels(self, columns, labels):
        words, packed, places = self.pack_words(columns)
        shape = tf.shape(packed["padding_mask"])
        rest = LOWEST if isinstance(labels, dict) else 0.0  # of a teacher's logits
        return packed, tf.nest.map_structure(
            lambda x: placed(x, words, places, shape, rest), labels
        )

    def pack_words(self, columns: dict[str, Tensor]) -> Any:
        """Return words, ragged (B, W), their packed rows, and the index in (B · S) of each."""
        words, places, pieces = self.read_words(columns)
        marked = self.rows.marked(columns, places)
        return words, *self.rows.pack_words(self.packer, words, pieces, marked)


@keras.saving.register_keras_serializable("keras_lm")
class TokenClassifier(WordReader, Task):
    """Label each word of a text: named entities, parts of speech, semantic roles.

    A word's first piece carries its label; other pieces and special tokens are ignored by the loss.
    Words without pieces, and those beyond `sequence_length`, get an empty string as label.

    Args:
        num_classes, class_names: see `TextClassifier`; names such as `["O", "B-PER", "I-PER"]`.
        splitter: how strings are split into words. `"conll"` splits as CoNLL-2003 is split
            (`Ada|Lovelace|,|Bob|'s|U.S.|office|.`); `"punctuation"` makes every punctuation mark a
            word; `"whitespace"` makes none. With both but the last, a character of a script that
            is written without spaces, such as a Chinese or Thai one, is a word. Lists of words are
            not split. A preset keeps what it was saved with.
        whole_texts: bool. Whether a string is tokenized as a whole, so that its words are found by
            their places, and the words of a list have a space before them if the tokenizer has such
            pieces, as byte-level BPE. False tokenizes each word of both as a text of its own, and
            does not split scripts without spaces, as presets and files older than this argument.
        crf: bool, `"bio"` or `"bioes"`. True puts a conditional random field on the logits
            (`keras_lm.layers.CRF`): the loss is that of whole sequences, labels are the likeliest
            sequence, and a score is the label's marginal probability. `"bio"` also forbids `I-X`
            after anything but `B-X` and `I-X`, and `"bioes"` entities that are not whole;
            `class_names` must then be labels of that scheme.
        predicate: bool. Whether texts come with one word marked, whose semantic roles the others'
            labels are: data are then `{"text": …, "predicate": …}` or a tuple of both, and a
            predicate the place of its word, in words of a list, in characters of a string. Its
            pieces have the segment 1, so the backbone needs two.
        backbone, **arguments: see `Task`.

    Raw data are lists of words, `[["Ada", "lives", "here"], …]`, or strings. Labels are a list for
    each text, with a class name or number for each word; -100 ignores a word. With packed inputs,
    labels are (B, S) numbers. A word may also have one-hot or, for a categorical loss of Keras's,
    soft labels, a number for each class; zeros ignore it. Keras's losses are then, as the default
    one, means over the words that are not ignored.

    Call: `task(inputs)` returns logits (B, S, classes), float32.

    Raises:
        ValueError: if neither `num_classes` nor `class_names` is given, or they disagree; if `crf`
            has another value, or the names are of another scheme; if `predicate` is True and the
            backbone has no second segment.

    Example:

        task = keras_lm.tasks.TokenClassifier.from_preset(SOURCE, class_names=["O", "B-PER"])
        task.fit([["Ada", "lives"], ["Hello", "Bob"]], [["B-PER", "O"], ["O", "B-PER"]])
        task.tag(["Ada speaks"])["labels"]  # [["B-PER", "O"]]
        task.entities(["Ada speaks"])  # [[{"text": "Ada", "label": "PER", "start": 0, "end": 3}]]

        roles = TokenClassifier.from_preset(SOURCE, class_names=ROLES, predicate=True)
        data = {"text": [["Ada", "wrote", "it"]], "predicate": [1]}
        roles.fit(data, [["B-ARG0", "B-V", "B-ARG1"]])
        roles.tag({"text": ["Ada wrote it."], "predicate": [4]})

    An export has the signature `entities` beside `serving_default`: strings to `text`, `labels`,
    `scores`, `start` and `end` of the entities, (B, E), in characters.

    Source: BERT, https://arxiv.org/abs/1810.04805, section 5.3; with a CRF: TagLM,
    https://arxiv.org/abs/1705.00108, section 2.1; roles: Shi and Lin 2019,
    https://arxiv.org/abs/1904.05255, section 2.2, without the LSTM over it.
    """

    preprocessor_class = TaggerPreprocessor
    predicts_sequences = True
    FRESH = ("crf/",)
    num_classes, class_names = of_labels("num_classes"), of_labels("class_names")
    uses_pooler = False

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int | None = None,
        class_names: Sequence[str] | None = None,
        splitter: str = "conll",
        crf: bool | str = False,
        predicate: bool = False,
        whole_texts: bool = True,
        **arguments: Any,
    ):
        splitting.check_word_splitter(splitter)
        if crf not in (False, True, "bio", "bioes"):
            raise ValueError(f"crf={crf!r}: use False, True, 'bio' or 'bioes'.")
        num_classes, class_names = check_classes(num_classes, class_names)
        super().__init__(backbone, **arguments)
        self.splitter = splitter
        self.whole_texts = whole_texts
        self.rows = Words(splitter, predicate, whole_texts)
        self.labels = WordLabels(
            num_classes, class_names, self.rows, self.backbone.input_names, bool(crf)
        )
        self.predicate = predicate
        if predicate and (self.backbone.config.get("num_segments") or 0) < 2:
            raise ValueError(
                f"predicate=True marks a word by the second segment, and {type(backbone).__name__} "
                "has no two: use a BERT, ALBERT, ELECTRA or SpanBERT that has."
            )
        self.crf_choice = crf
        self.allowed = tag_rules(class_names, crf) if crf in ("bio", "bioes") else None
        self.head = self.add_head("token_classification", num_classes=num_classes)
        self.crf = CRF(num_classes, name="crf") if crf else None
        if crf:
            self.crf.build()
        self._finish()

    @classmethod
    def arguments_from_checkpoint(cls, labels: Any) -> dict[str, Any] | None:
        if not labels.may_be("token_classification"):
            return None
        return {"num_classes": labels.num_classes, "class_names": labels.class_names}

    def published_labels(self) -> Any:
        return Labels(self.num_classes, self.class_names, "token_classification")

    def get_arguments(self) -> dict[str, Any]:
        return super().get_arguments() | {
            "num_classes": self.num_classes,
            "class_names": self.class_names,
            "splitter": self.splitter,
            "whole_texts": self.whole_texts,
            "crf": self.crf_choice,
            "predicate": self.predicate,
        }

    def default_loss(self) -> Any:
        return None if self.crf else MaskedCrossentropy()  # see losses_of

    def default_metrics(self) -> list[keras.metrics.Metric]:
        of_entities = [EntityF1(self.class_names)] if marks_entities(self.class_names) else []
        return [MaskedAccuracy(), *of_entities]

    def losses_of(self, labels: Any) -> Any:
        if self.crf is not None and self.loss is None:
            return {None: (1.0, SequenceLikelihood(self.crf))}
        return super().losses_of(labels)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        if self.crf is not None:
            known = ops.not_equal(self.labels.for_metrics(y, y_pred), IGNORED)
            labels = self.crf.decode(y_pred, known, self.allowed)
            y_pred = 1e4 * ops.one_hot(labels, self.num_classes)  # logits of near certainty
        return super().compute_metrics(x, y, y_pred, sample_weight)

    # === Teaching ===

    def word_logits(self, x: RawTexts, batch_size: int = 32, verbose: int | str = "auto") -> Tensor:
        """Return the logits of all words of raw texts, ragged (B, W, classes).

        Those of a word that has no pieces, or was truncated, are all `LOWEST`. With a CRF they are
        the logarithms of its marginal probabilities, which know the whole text.
        """
        answer = self.answer_all(
            x, batch_size, lambda columns: self.in_graph(self.padded_word_logits, columns), verbose
        )
        return tf.RaggedTensor.from_tensor(answer["logits"], answer["lengths"])

    def padded_word_logits(self, columns: dict[str, Tensor]) -> dict[str, Any]:
        """The same in the graph: padded `logits` (B, W, classes), and `lengths` in words (B,)."""
        words, packed, places = self.preprocessor.pack_words(columns)
        logits = self(packed, training=False)
        if self.crf is not None:
            mask = _is_first_piece(places, tf.shape(logits)[:2])
            likely = self.crf.marginals(logits, mask, self.allowed)
            logits = tf.math.log(tf.maximum(likely, 1e-12))
        logits = tf.where(places[:, tf.newaxis] < 0, LOWEST, _at_places(logits, places))
        return {"logits": words.with_values(logits).to_tensor(), "lengths": words.row_lengths()}

    # === Answers ===

    def answer(
        self, columns: dict[str, Tensor], tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> Any:
        """Return a label for each word of strings (B,) or words (B, W), in the graph.

        `tokens` (the words), `labels` and `scores` are (B, W), as are `start` and `end` for
        strings, offsets in characters, int32. Rows are padded with empty strings and zeros.
        """
        self.require_tokenizer()
        if not IS_INSTALLED and self.rows.are_words(columns):
            return host_answers.tags(self, columns, tokenize or self.tokenize)
        words, offsets_of_words, pieces = self.preprocessor.read_words(columns, tokenize)
        texts = tf.concat([words.values, [""]], axis=0)
        marked = self.rows.marked(columns, offsets_of_words)
        return self._answer(words, pieces, texts, offsets_of_words, marked)

    def answer_lite(self, columns: dict[str, Tensor]) -> dict[str, Any]:
        if self.predicate:
            raise ValueError(
                "predicate=True reads numbers out of strings, for which LiteRT has no operation: "
                "export as a SavedModel instead."
            )
        text, tokenizer = columns["text"], self.tokenizer
        words, start, end, texts = splitting.words_and_places_lite(
            text, self.splitter, self.whole_texts
        )
        if self.whole_texts and tokenizer.has_offsets():
            tokens_and_places = tokens_and_places_lite(tokenizer, text)
            pieces = pieces_in_text(*tokens_and_places, words, start, end)
        else:
            # A word tokenizer would split by its own rules; no word contains white space.
            rule = {"splitter": "whitespace"} if hasattr(tokenizer, "tokenize_words") else {}
            pieces = pieces_of_words(words, tokenizer.tokenize_lite(words.values, **rule))
        return self._answer(words, pieces, texts, {"start": start, "end": end})

    def _answer(self, words, pieces, texts, offsets_of_words, marked=None):
        """Return the answer; `texts` are the words and after them an empty one."""
        packed, places = self.rows.pack_words(self.packer, words, pieces, marked)
        index, scores = self._best(self(packed, training=False), places)
        names = names_of_classes(self.class_names, self.num_classes)
        index = _in_parts(tf.cast(index, tf.int32), places, names)
        # Strings are padded as numbers: LiteRT has no operation to do it later.
        size = strings.number_of(words.values)
        number = words.with_values(tf.range(size))
        index = words.with_values(tf.where(places < 0, len(names), index))
        index = strings.padded(index, len(names))
        return {
            "tokens": strings.gathered(texts, strings.padded(number, size)),
            "labels": tf.gather([*names, ""], index) if classes_are_named() else index,
            "scores": strings.padded(words.with_values(tf.where(places < 0, 0.0, scores))),
            **{
                name: strings.padded(tf.cast(place, tf.int32))
                for name, place in offsets_of_words.items()
            },
        }

    def require_packed_answers(self):
        if self.crf is not None:
            raise ValueError(
                f"crf={self.crf_choice!r} compares the labels of words, and packed rows do not say "
                "where words begin: export a tokenizer, too, as in a SavedModel."
            )

    def decode_packed(self, outputs, packed):
        """Return the probabilities of each token's classes: `scores`, (B, S, classes)."""
        return {"scores": tf.nn.softmax(outputs)}

    def _best(self, logits, places):
        """Return the classes of words at indices in (B · S), and their probabilities, (N,) each."""
        if self.crf is None:
            labels, probabilities = tf.argmax(logits, axis=-1), tf.nn.softmax(logits)
        else:
            mask = _is_first_piece(places, tf.shape(logits)[:2])
            labels = self.crf.decode(logits, mask, self.allowed)
            probabilities = self.crf.marginals(logits, mask, self.allowed)
        scores = tf.gather(probabilities, labels, batch_dims=2)  # (B, S)
        return _at_places(labels, places), _at_places(scores, places)

    def tag(self, x: RawTexts, batch_size: int = 32, verbose: int | str = "auto") -> dict[str, Any]:
        """Label the words of raw texts, strings or lists of words, in any form.

        Returns `tokens` (the words), `labels`, `scores`, and for strings also `start` and `end`:
        each a list with a list per text, with an entry per word.
        """
        answer = self.answer_all(x, batch_size, verbose=verbose)
        lengths = (answer["tokens"] != "").sum(axis=1)
        return {
            name: [row[:length].tolist() for row, length in zip(rows, lengths, strict=True)]
            for name, rows in answer.items()
        }

    def entities(
        self, x: RawTexts, batch_size: int = 32, verbose: int | str = "auto"
    ) -> list[list[Any]]:
        """Find the entities that the labels mark in strings or lists of words, but no dataset.

        Returns a list for each text, of dicts: `text` (the part of the string, or the words joined
        by spaces), `label`, `score` (the mean of its words'), `start` and `end`: in characters of a
        string, as Python counts them; in words of a list.
        """
        texts = self.columns(x)["text"]
        return entities_of(self.tag(x, batch_size, verbose), texts, is_plain(self.class_names))

    @property
    def signatures(self) -> "TaggerSignatures":
        return TaggerSignatures(self)


class TaggerSignatures(TextSignatures):
    """Also `entities`, if the names of the classes mark some."""

    def _of_texts(self, answer, tokenize):
        functions = super()._of_texts(answer, tokenize)
        if not marks_entities(self.task.class_names):
            return functions

        def entities(**columns):
            plain = is_plain(self.task.class_names)
            return entities_in_graph(columns["text"], answer(**columns), plain)

        return functions | {"entities": trace(entities, self.texts())}


def _at_places(x, places):
    """Return what (B, S, …) has at the indices in (B · S) of words, (N, …); anything at −1."""
    flat = tf.reshape(x, [-1, *x.shape[2:]])
    one_more = [[0, 1]] + [[0, 0]] * (flat.shape.rank - 1)  # so that it is never empty
    return tf.gather(tf.pad(flat, one_more), tf.maximum(places, 0))


def _in_parts(index, places, class_names):
    """Return the classes of words, (N,), given those of their pieces, which several may share."""
    is_later = is_of_word_before(places)
    goes_on = tf.cast(tf.concat([is_later[1:], [False]], axis=0), tf.int32)
    part = tf.where(is_later, 3 - goes_on, goes_on)
    return tf.gather(tf.reshape(classes_in_parts(class_names), [-1]), 4 * index + part)


def _is_first_piece(places, shape):
    """Return 1 at the indices in (B · S) of words, else 0: (B, S) int32."""
    size = tf.reduce_prod(shape)
    places_and_rest = tf.where(places < 0, size, tf.cast(places, tf.int32))[:, tf.newaxis]
    ones = tf.ones_like(places, tf.int32)
    flags = tf.minimum(tf.scatter_nd(places_and_rest, ones, [size + 1])[:-1], 1)
    return tf.reshape(flags, shape)
