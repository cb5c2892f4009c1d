"""The constituents of a sentence.

Shapes: B batch, W words, F = W + 1 places, K constituents, L labels, N of all.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_lm.datasets.trees import CHAIN, NO_TAG, Tree, read_tree, unescaped
from keras_lm.layers import SpanScorer
from keras_lm.layers.masks import IGNORED
from keras_lm.layers.span_chart import best_trees
from keras_lm.layers.tensorflow import few_pairs
from keras_lm.metrics import ConstituentF1
from keras_lm.models.backbone import Backbone
from keras_lm.objectives import TreeHinge
from keras_lm.packers import WordEnds
from keras_lm.tasks.classes import (
    NamedClasses,
    check_classes,
    names_of_classes,
    of_labels,
    text_of,
)
from keras_lm.tasks.scored_answers import ScoredAnswers
from keras_lm.tasks.signatures import TextSignatures
from keras_lm.tasks.word_reader import WordPreprocessor, WordReader
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import splitting, strings
from keras_lm.tokenizers.splitting import SPACES
from keras_lm.utils.argument_types import RawLabels, RawTexts, Tensor
from keras_lm.utils.user_arguments import warn

LONGEST = 256  # tokens; a chart takes memory by the square


class TreeLabels(NamedClasses):
    """The tree of each text, whose constituents have classes; `rows` are the `WordEnds`."""

    def __init__(self, num_classes, class_names, rows):
        super().__init__(num_classes, class_names)
        self.rows = rows

    def prepare(self, labels):
        if labels.dtype.kind in "iu" and labels.ndim == 3:
            return labels.astype("int32")
        return [_tree(label, row) for row, label in enumerate(labels)]

    def prepare_tensor(self, labels):
        if labels.dtype == tf.string:
            raise ValueError(
                "x is a tf.data.Dataset with trees as strings: let it yield what "
                "task.label_spans(trees) returns for them."
            )
        return labels

    def match(self, labels, columns, is_packed):
        if not isinstance(labels, list):
            if is_packed:
                _check_shape(labels, columns["word_positions"].shape[1])
            return labels
        if is_packed:
            raise ValueError("labels are trees, and x is packed: pass numbers, (B, F, F).")
        words, _ = self.rows.words(columns["text"])
        for row, (text_words, tree) in enumerate(zip(words.to_list(), labels, strict=True)):
            text_words = [unescaped(word.decode("utf-8", "replace")) for word in text_words]
            if text_words != list(tree.words):
                pairs = zip([*text_words, None], [*tree.words, None])
                place, pair = next((i, pair) for i, pair in enumerate(pairs) if len({*pair}) > 1)
                raise ValueError(
                    f"word {place} of text[{row}] is {pair[0]!r}, and of the tree labels[{row}] "
                    f"{pair[1]!r}: pass the tree's words, as a list to part them yourself."
                )
        return self.spans_of(labels)

    def spans_of(self, trees):
        """See `ConstituencyParser.label_spans`."""
        trees = [_tree(tree, row) for row, tree in enumerate(trees)]
        rows = [tree.spans() for tree in trees]
        spans = [span for row in rows for span in row]
        if self.class_names is None:
            self.numbers_of([label for label, *_ in spans], lambda _: "")
        numbers = {name: number for number, name in enumerate(self.class_names, start=1)}
        unknown = [label for label, *_ in spans if label not in numbers]
        if unknown:
            warn(
                f"{len(unknown)} of {len(spans)} constituents have a label that is not in "
                f"class_names, such as {unknown[0]!r}: the loss does not count them."
            )
        triples = [(start, end, numbers.get(label, 0)) for label, start, end in spans]
        triples = np.array(triples, "int32").reshape(-1, 3)
        return tf.RaggedTensor.from_row_lengths(triples, [len(row) for row in rows])


@dataclasses.dataclass(frozen=True, eq=False)
class TreePreprocessor(WordPreprocessor):
    """A `WordPreprocessor` with the charts of trees."""

    def with_labels(self, columns, labels):
        packed = self(columns)
        size = tf.shape(packed["word_positions"])[1] + 1
        lengths = _lengths(packed)
        return packed, tf.nest.map_structure(
            lambda spans: chart_of_spans(spans, lengths, size), labels
        )


@keras.saving.register_keras_serializable("keras_lm")
class ConstituencyParser(WordReader, ScoredAnswers):
    """Find the constituents of sentences: noun phrases, clauses, as in the Penn Treebank.

    A linear layer on the vectors of each word's last piece, then a score for each label of each
    span (`keras_lm.layers.SpanScorer`), of which the best tree is found exactly (CKY). A text is a
    sentence. Of one longer than `sequence_length`, the last words are in no constituent.

    Args:
        num_classes, class_names: see `TextClassifier`; the labels of spans, `["NP", "S", "S::VP"]`,
            where a chain of constituents over the same words has one label. See
            `keras_lm.data.labels_of_trees`.
        splitter, whole_texts: how texts become words and pieces, see `TokenClassifier`.
        hidden_dim: int, the width of the span scorer's hidden layer.
        backbone, **arguments: see `Task`. `sequence_length` is by default the backbone's limit, but
            at most 256.

    Raw data are lists of words, or strings. Labels are a tree for each, a string in brackets as
    `keras_lm.data.read_tree` reads it, over the same words. Trees whose label is not in
    `class_names` count as if they lacked this constituent, with a warning.

    Call: `task(inputs)` returns scores (B, F, F, 1 + classes) float32, of label i + 1 for the words
    from one place to another; label 0 means no constituent. Packed inputs need `word_positions`,
    (B, W) int32, 1 + the column of each word's last piece, 0 after the last word, and labels are
    (B, F, F) numbers; see `keras_lm.objectives.TreeHinge`.

    Raises:
        ValueError: if neither `num_classes` nor `class_names` is given, or they disagree.

    Example:

        trees = ["(S (NP (NNP Ada)) (VP (VBZ speaks)))", "(S (VP (VB Speak)))"]
        words = [["Ada", "speaks"], ["Speak"]]
        names = keras_lm.data.labels_of_trees(trees)
        task = keras_lm.tasks.ConstituencyParser.from_preset(SOURCE, class_names=names)
        task.fit(words, trees)
        task.parse(["Ada speaks"])  # ["(TOP (S (NP (XX Ada)) (VP (XX speaks))))"]
        task.constituents(["Ada speaks"])[0][1]  # {"text": "Ada", "label": "NP", "start": 0, …}

    An export answers strings with `text`, the tree in brackets, and `labels`, `scores`, `start` and
    `end` of its constituents in pre-order, (B, K), in characters. LiteRT cannot answer.

    Source: Kitaev and Klein 2018, https://arxiv.org/abs/1805.01052; Kitaev et al. 2019,
    https://arxiv.org/abs/1812.11760, without the layers of attention and the tagger over BERT.
    """

    preprocessor_class = TreePreprocessor
    predicts_sequences = True
    FRESH = ("span_scorer/",)
    num_classes, class_names = of_labels("num_classes"), of_labels("class_names")
    uses_pooler = False
    row_names = ("word_positions",)

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int | None = None,
        class_names: Sequence[str] | None = None,
        splitter: str = "conll",
        whole_texts: bool = True,
        hidden_dim: int = 250,
        **arguments: Any,
    ):
        splitting.check_word_splitter(splitter)
        num_classes, class_names = check_classes(num_classes, class_names)
        super().__init__(backbone, **arguments)
        self.splitter = splitter
        self.whole_texts = whole_texts
        self.hidden_dim = hidden_dim
        self.rows = WordEnds(splitter, whole_texts=whole_texts)
        self.labels = TreeLabels(num_classes, class_names, self.rows)
        self.head = self.add_head("token_classification", num_classes=2 * hidden_dim)
        self.scorer = SpanScorer(num_classes, hidden_dim, name="span_scorer")
        self.scorer.build()
        self._finish()

    @classmethod
    def usual_length(cls, limit: int | None) -> int:
        return min(limit or LONGEST, LONGEST)

    def get_arguments(self) -> dict[str, Any]:
        return super().get_arguments() | {
            "num_classes": self.num_classes,
            "class_names": self.class_names,
            "splitter": self.splitter,
            "whole_texts": self.whole_texts,
            "hidden_dim": self.hidden_dim,
        }

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Any:
        if "word_positions" not in inputs:
            raise ValueError(
                "inputs lacks word_positions, (B, W) int32, 1 + the column of each word's last "
                "piece: preprocess makes them of texts."
            )
        return self.scorer(super().call(inputs, training), inputs["word_positions"])

    # === Training ===

    def default_loss(self) -> Any:
        return TreeHinge()

    def label_spans(self, trees: Any) -> Tensor:
        """Return start, end and number of the label of trees' constituents, ragged (N, K, 3).

        These are the labels that a `tf.data.Dataset` yields for texts. A task without `class_names`
        learns them here.
        """
        return self.labels.spans_of(trees)

    def score(
        self, x: RawTexts, y: RawLabels, batch_size: int = 32, verbose: int | str = "auto"
    ) -> dict[str, float]:
        """Compare the trees of raw texts with the right ones, `y`, as EVALB does.

        Returns:
            dict of `precision`, `recall`, `f1` and `complete_match`, from 0 to 1; see
            `keras_lm.metrics.ConstituentF1`.
        """
        metric = ConstituentF1()
        metric.update_state(y, self.parse(x, batch_size, verbose))
        return metric.scores()

    # === Answers ===

    def answer(
        self, columns: dict[str, Tensor], tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> Any:
        """Return the constituents of strings (B,) or words (B, W), in the graph.

        See `keras_lm.tasks.constituency_parser.constituents_in_graph`.
        """
        words, places, pieces = self.preprocessor.read_words(columns, tokenize)
        packed, _ = self.rows.pack_words(self.packer, words, pieces)
        rows, tokens = tf.unstack(tf.shape(packed["padding_mask"]))
        usual = self.packing["sequence_length"]
        packed = few_pairs(packed, rows, tokens, self.hidden_dim, usual)
        scores = self(packed, training=False)
        names = names_of_classes(self.class_names, self.num_classes)
        tree = best_trees(scores, _lengths(packed))
        return constituents_in_graph(tree, scores, names, words, places)

    def answer_lite(self, columns: dict[str, Tensor]) -> Any:
        raise ValueError(
            "A ConstituencyParser writes trees with string operations that LiteRT lacks: export it "
            "as a SavedModel instead."
        )

    def parse(
        self,
        x: RawTexts,
        batch_size: int = 32,
        verbose: int | str = "auto",
        tags: Sequence[Sequence[str]] | None = None,
    ) -> list[str]:
        """Return the trees of raw texts, strings or lists of words, in any form: in brackets.

        Args:
            x, batch_size, verbose: see `Task.answer_all`.
            tags: the parts of speech of each text's words, a list of lists of str; None for `XX`.
        """
        trees = self.answer_all(x, batch_size, verbose=verbose)["text"].tolist()
        if tags is None:
            return trees
        parts = [tree.split(f"({NO_TAG} ") for tree in trees]
        for row, (part, own) in enumerate(zip(parts, tags, strict=True)):
            if len(part) != len(own) + 1:
                raise ValueError(f"tags[{row}] has {len(own)} tags for {len(part) - 1} words.")
        return [
            part[0] + "".join(f"({tag} {rest}" for tag, rest in zip(own, part[1:], strict=True))
            for part, own in zip(parts, tags, strict=True)
        ]

    def constituents(
        self, x: RawTexts, batch_size: int = 32, verbose: int | str = "auto"
    ) -> list[Any]:
        """Return the constituents of raw texts, strings or lists of words, but no dataset.

        Returns a list for each text, in pre-order, of dicts: `text` (the part of the string, or the
        words joined by spaces), `label`, `score` (how far it is above no constituent, not a
        probability), `start` and `end`: in characters of a string, as Python counts them; in words
        of a list.
        """
        texts = self.columns(x)["text"]
        answer = self.answer_all(x, batch_size, verbose=verbose)
        is_list, constituents = isinstance(texts, tf.RaggedTensor), []
        for row, text in enumerate(texts):
            if is_list:
                text = [word.decode("utf-8", "replace") for word in text.numpy()]
            else:
                text = text.numpy().decode("utf-8", "replace")
            columns = (answer[name][row].tolist() for name in ("labels", "scores", "start", "end"))
            constituents.append(
                [
                    {
                        "text": " ".join(text[start:end]) if is_list else text[start:end],
                        **{"label": label, "score": score, "start": start, "end": end},
                    }
                    for label, score, start, end in zip(*columns, strict=True)
                    if label
                ]
            )
        return constituents

    @property
    def signatures(self) -> "ParserSignatures":
        return ParserSignatures(self)


class ParserSignatures(TextSignatures):
    """Those of texts; packed rows also have the words' positions."""

    def raw_specs(self):
        positions = tf.TensorSpec([None, None], tf.int32, "word_positions")
        return super().raw_specs() | {"word_positions": positions}


def _lengths(packed):
    """Return the number of words of packed rows, (B,) int32."""
    return tf.math.count_nonzero(packed["word_positions"], axis=1, dtype=tf.int32)


def _check_shape(labels, number):
    """Raise a ValueError if labels of packed rows are not numbers for this many words."""
    size = number + 1
    if labels.shape[1:] != (size, size):
        raise ValueError(
            f"labels has shape {tuple(labels.shape)}, and x is packed, with up to {number} words: "
            f"pass numbers of shape (B, {size}, {size}), or texts as x."
        )


def _tree(label, row):
    """Return a label as a `Tree`; ValueError if it is not a tree."""
    if isinstance(label, Tree):
        return label
    if not isinstance(label, (str, bytes)):
        raise ValueError(
            f"labels[{row}]={label!r} is a {type(label).__name__}: pass a tree in brackets, "
            "'(S (NN a))', or what keras_lm.data.read_tree returns."
        )
    text = text_of(label)
    try:
        return read_tree(text or "()")
    except ValueError as error:
        raise ValueError(f"labels[{row}]={text[:60]!r} is not a tree: {error}") from error


def chart_of_spans(spans, lengths, size):
    """Return the label of each span, (B, F, F) int32: 0 for none, `IGNORED` outside of a text.

    Args:
        spans: ragged (B, K, 3) int32: start, end and label of constituents, in words. Those that
            end after their text, which was truncated, are left out.
        lengths: (B,) int32, the number of words.
        size: F.
    """
    places = tf.range(size)
    inside = (places[:, tf.newaxis] < places) & (places <= lengths[:, tf.newaxis, tf.newaxis])
    row, values = spans.value_rowids(), tf.cast(spans.values, tf.int32)
    kept = tf.where(values[:, 1] <= tf.gather(lengths, row))[:, 0]
    row, values = tf.cast(tf.gather(row, kept), tf.int32), tf.gather(values, kept)
    index = tf.concat([row[:, tf.newaxis], values[:, :2]], axis=1)
    return tf.tensor_scatter_nd_update(tf.where(inside, 0, IGNORED), index, values[:, 2])


def constituents_in_graph(tree, scores, class_names, words, places):
    """Return the constituents of trees in pre-order, in the graph, and each tree in brackets.

    `labels`, `scores`, `start` and `end` are (B, K), padded with empty strings and zeros, where
    start and end are in characters of strings, in words of lists; `text` is (B,).

    Args:
        tree: what `keras_lm.layers.span_chart.best_trees` returns.
        scores: (B, F, F, L) float.
        class_names: list of str, of labels 1, 2, …; the parts of `S::VP` are several constituents.
        words: ragged (B, W) strings.
        places: dict of `start` and `end`, ragged (B, W) int, or empty.
    """
    in_tree, labels = tree
    last = tf.shape(labels, tf.int64)[1] - 1
    # The widest of those with one start comes first.
    indices = tf.where(tf.reverse(in_tree & (labels > 0), axis=[2]))
    row, start, end = indices[:, 0], indices[:, 1], last - indices[:, 2]
    index = tf.stack([row, start, end], axis=1)
    chains = tf.ragged.constant([[], *(name.split(CHAIN) for name in class_names)], tf.string)
    names = tf.gather(chains, tf.gather_nd(labels, index))  # (N, of a chain)
    best = tf.gather_nd(tf.reduce_max(scores, axis=-1), index)
    row, start, end, best = (tf.repeat(x, names.row_lengths()) for x in (row, start, end, best))
    names = names.values
    first = tf.gather(tf.cast(words.row_starts(), tf.int64), row)
    text = _in_brackets(words, names, first + start, first + end - 1)
    if places:
        start = tf.gather(places["start"].values, first + start)
        end = tf.gather(places["end"].values, first + end - 1)

    by_text = tf.RaggedTensor.from_value_rowids(names, row, words.nrows(), validate=False)
    return {
        "text": text,
        "labels": by_text.to_tensor(),
        "scores": by_text.with_values(best).to_tensor(),
        "start": by_text.with_values(tf.cast(start, tf.int32)).to_tensor(),
        "end": by_text.with_values(tf.cast(end, tf.int32)).to_tensor(),
    }


def _in_brackets(words, names, first, last):
    """Return trees in brackets, as `Tree` writes them, (B,), for the words of constituents.

    `first` and `last` are places among the words of all texts.
    """
    join, number = tf.strings.unsorted_segment_join, tf.size(words.values)
    inner = words.values
    for pattern, escape in ((SPACES, ""), (r"\(", "-LRB-"), (r"\)", "-RRB-"), ("^$", "_")):
        inner = tf.strings.regex_replace(inner, pattern, escape)
    opened = join(tf.strings.join(["(", names, " "]), first, number)
    closed = join(tf.fill(tf.shape(last), ")"), last, number)
    parts = tf.strings.join([opened, f"({NO_TAG} ", inner, ")", closed])
    texts = join(parts, strings.row_ids(words), words.nrows(), " ")
    return tf.where(words.row_lengths() > 0, tf.strings.join(["(TOP ", texts, ")"]), "")
