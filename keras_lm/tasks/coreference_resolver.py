"""Coreference resolution.

Shapes: B documents, C windows, S sequence, W words, M mentions, K spans, A antecedents.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.datasets.coreference import check_place, mentions_of
from keras_lm.feeding.feed import TaskLabels
from keras_lm.layers import CoreferenceHead
from keras_lm.layers.coreference import in_steps, take_rows
from keras_lm.layers.tensorflow import few_pairs, longest, required
from keras_lm.metrics import CoreferenceF1
from keras_lm.models.backbone import Backbone
from keras_lm.objectives.structures import ClusterLikelihood
from keras_lm.packers import WordWindows
from keras_lm.tasks.scored_answers import ScoredAnswers
from keras_lm.tasks.signatures import TextSignatures
from keras_lm.tasks.word_reader import WordPreprocessor, WordReader
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import splitting, strings
from keras_lm.utils.argument_types import RawLabels, RawTexts, Tensor

# Each span is compared with all earlier ones, by several numbers.
NUMBERS_A_PAIR = 4


class MentionLabels(TaskLabels):
    """The clusters of each text, lists of mentions; `rows` are the `WordWindows` that split it."""

    def __init__(self, rows):
        self.rows = rows

    def prepare(self, labels):
        return mentions_of_rows(labels)

    def match(self, labels, columns, is_packed):
        if not is_packed:
            words, places = self.rows.words(columns["text"])
            check_mentions(labels, columns["text"], words, places)
            return labels
        words = tf.RaggedTensor.from_tensor(columns["word_positions"], padding=0)
        check_mentions(labels, None, words, None)
        return labels.to_tensor(shape=[None, None, 3])

    def check_loss(self, loss):
        if loss is not None:
            raise ValueError("loss: CoreferenceResolver has its own, so leave it at 'auto'.")


@dataclasses.dataclass(frozen=True, eq=False)
class MentionPreprocessor(WordPreprocessor):
    """A `WordPreprocessor` with the mentions of documents, and their windows."""

    def with_labels(self, columns, labels):
        if isinstance(labels, tf.RaggedTensor):
            labels = labels.to_tensor(shape=[None, None, 3])
        labels = tf.cast(labels, tf.int32)
        _, places, packed = self.pack_documents(columns)
        return packed, in_words(labels, places) if places else labels

    def pack_documents(
        self, columns: dict[str, Tensor], tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> Any:
        """Return words, ragged (B, W), their places if these are strings, and the packed dict."""
        words, places, pieces = self.read_words(columns, tokenize)
        return words, places, self.rows.pack_windows(self.packer, words, pieces)


@keras.saving.register_keras_serializable("keras_lm")
class CoreferenceResolver(WordReader, ScoredAnswers):
    """Find clusters of names, nouns and pronouns in a document that refer to the same thing.

    All spans of at most `max_span_width` words are candidates, and the best become mentions, each
    of which goes back to an earlier one or to none. A word's vector is that of its first piece. A
    document that is too long for the model is read in windows that do not overlap; spans and their
    antecedents may be in different ones.

    Args:
        max_span_width: int. No mention has more words; 30 for OntoNotes.
        span_ratio: float. How many spans are compared for each word, above 0 and at most 1.
        max_antecedents: int. With how many earlier spans each is compared.
        num_rounds: int. How often spans take in what their antecedents are: 1 as in the papers, 0
            for first-order inference.
        hidden_dim, feature_dim: int. Widths of the head's hidden layers and embeddings.
        dropout: float, of the head.
        splitter, whole_texts: how texts become words and pieces, see `TokenClassifier`.
        sequence_length: int, of a window.
        backbone, **arguments: see `Task`; any that `TokenClassifier` takes.

    Raw data are strings, or lists of words. The label of a document is a list of clusters, each a
    list of mentions, and these are pairs `(start, end)`: in words of a list, in characters of a
    string, where they must begin and end with words; an end is that of the last one plus 1, as in
    what `resolve` returns, which may also be labels. In a `tf.data.Dataset` and with packed inputs,
    labels are (B, M, 3) integers, start, end and the number of the cluster, from 1, with rows of
    zeros as padding; with packed inputs they are in words. The loss (`ClusterLikelihood`) leaves
    mentions out that are too long. Documents take much memory: `fit` them in batches of one or a
    few, and in parts if they are very long.

    Call: `task(inputs)` takes packed inputs (B, C, S) and `word_positions` (B, W), and returns what
    `keras_lm.layers.CoreferenceHead` does.

    Raises:
        ValueError: if a number is out of range, or words have no vectors in the backbone.

    Example:

        task = keras_lm.tasks.CoreferenceResolver.from_preset(SOURCE)
        words = ["Ada", "Lovelace", "said", "she", "slept"]
        task.fit([words], [[[(0, 2), (3, 4)]]], batch_size=1)
        task.resolve(["Ada Lovelace said she slept"])
        # [[[{"text": "Ada Lovelace", "start": 0, "end": 12}, {"text": "she", …}]]]

    Source: Lee et al. 2017, https://arxiv.org/abs/1707.07045; Lee et al. 2018,
    https://arxiv.org/abs/1804.05392; over BERT: Joshi et al. 2019,
    https://arxiv.org/abs/1908.09091, "independent"; the loss of mentions: Zhang et al. 2018,
    https://arxiv.org/abs/1805.04893. Without speakers, genres and their distances
    in windows; BiLSTMs over word vectors are those of a `FeatureExtractor`.
    """

    preprocessor_class = MentionPreprocessor
    predicts_sequences = True
    FRESH = ("coreference_head/",)
    uses_pooler = False
    row_names = ("word_positions",)

    def __init__(
        self,
        backbone: Backbone,
        max_span_width: int = 10,
        span_ratio: float = 0.4,
        max_antecedents: int = 50,
        num_rounds: int = 1,
        hidden_dim: int = 150,
        feature_dim: int = 20,
        dropout: float = 0.3,
        splitter: str = "conll",
        whole_texts: bool = True,
        **arguments: Any,
    ):
        splitting.check_word_splitter(splitter)
        self.head_arguments = {
            "max_span_width": max_span_width,
            "span_ratio": span_ratio,
            "max_antecedents": max_antecedents,
            "num_rounds": num_rounds,
            "hidden_dim": hidden_dim,
            "feature_dim": feature_dim,
            "dropout": dropout,
        }
        _check_arguments(**self.head_arguments)
        super().__init__(backbone, **arguments)
        self.splitter = splitter
        self.whole_texts = whole_texts
        self.rows = WordWindows(splitter, whole_texts)
        self.labels = MentionLabels(self.rows)
        # Any model that can label words works here; others raise an error.
        self.backbone.make_head("token_classification", num_classes=1)
        self.head = CoreferenceHead(**self.head_arguments, name="coreference_head")
        self.head.build(self.backbone.output["sequence_output"].shape)
        self._finish()

    longest_text = None  # documents are read in windows

    def get_arguments(self) -> dict[str, Any]:
        own = {"splitter": self.splitter, "whole_texts": self.whole_texts}
        return super().get_arguments() | self.head_arguments | own

    # === Training ===

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Any:
        if "word_positions" not in inputs:
            raise ValueError("inputs has no word_positions: pass what preprocess(texts) returns.")
        positions = ops.cast(inputs["word_positions"], "int32")  # (B, W)
        rows = self.packer.flatten(self.backbone.select_inputs(inputs))  # (B · C, S)
        x = self._encode(self.backbone.complete(rows), training)["sequence_output"]
        x = ops.reshape(x, (ops.shape(positions)[0], -1, x.shape[-1]))  # (B, C · S, D)
        mask = ops.cast(positions > 0, "int32")
        words = take_rows(x, ops.maximum(positions - 1, 0))  # (B, W, D)
        return self.head(words, mask, training=training)

    def losses_of(self, labels: Any) -> Any:
        return {None: (1.0, ClusterLikelihood())}

    def validation_batches(self, data: Any, batch_size: int, steps: int | None = None) -> Any:
        CoreferenceF1()  # raises before the first epoch if its extra is missing
        return super().validation_batches(data, batch_size, steps)

    def score(
        self, x: RawTexts, y: RawLabels, batch_size: int = 32, verbose: int | str = "auto"
    ) -> dict[str, float]:
        """Compare the clusters of raw texts with their labels.

        Args:
            x, y: raw texts and their clusters, as in `fit`, no dataset.
            batch_size, verbose: see `resolve`.

        Returns:
            dict of the F1 of `muc`, `b_cubed` and `ceaf_phi4`, and `conll_f1`, their mean, from 0
            to 1; see `keras_lm.metrics.CoreferenceF1`.
        """
        metric = CoreferenceF1()
        metric.update_state(list(y), self.resolve(x, batch_size, verbose))
        scores = metric.scores()
        f1 = {name: measures["f1"] for name, measures in scores.items() if name != "conll_f1"}
        return f1 | {"conll_f1": scores["conll_f1"]}

    # === Answers ===

    def answer(
        self, columns: dict[str, Tensor], tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> Any:
        """Return the mentions of clusters in strings (B,) or words (B, W), in the graph.

        `text`, `start` and `end`, in characters of strings, in words of words, and `cluster`,
        numbered from 1: (B, M) each, padded with empty strings and zeros.
        """
        text = columns["text"]
        words, places, packed = self.preprocessor.pack_documents(columns, tokenize)
        usual = 2 * self.packing["sequence_length"]
        packed = few_pairs(packed, words.nrows(), longest(words), NUMBERS_A_PAIR, usual)
        mentions = clusters_of(self(packed, training=False))
        start, last = mentions["start"], tf.maximum(mentions["end"] - 1, 0)
        if not places:
            text = strings.join(words, " ")
            ends = tf.strings.length(words.values, "UTF8_CHAR") + 1
            ends = tf.cumsum(words.with_values(ends).to_tensor(), axis=1)
            places = {"start": tf.pad(ends, [[0, 0], [1, 0]]), "end": ends - 1}
        else:
            places = {name: tf.cast(x, tf.int32).to_tensor() for name, x in places.items()}
            text = strings.valid_utf8(text)
        # One more, where no text has words.
        first, end = (
            tf.gather(tf.pad(places[name], [[0, 0], [0, 1]]), index, batch_dims=1)
            for name, index in (("start", start), ("end", last))
        )
        is_mention = mentions["cluster"] > 0
        first, end = (tf.where(is_mention, x, 0) for x in (first, end))
        mentions["text"] = strings.substrings(text, first, end)
        if columns["text"].shape.rank == 1:
            mentions |= {"start": first, "end": end}
        return mentions

    def answer_lite(self, columns: dict[str, Tensor]) -> Any:
        raise ValueError(
            "CoreferenceResolver chooses among spans by operations that LiteRT lacks: export as a "
            "SavedModel instead."
        )

    def resolve(self, x: RawTexts, batch_size: int = 32, verbose: int | str = "auto") -> list[Any]:
        """Find the clusters of documents, strings or lists of words, in any form.

        Args:
            x: raw texts.
            batch_size: int. Documents at a time, on a CPU fewer; see `answer_all`.
            verbose: see `Task.answer_all`.

        Returns:
            list of clusters for each document, in the order of their first mentions: lists of
            dicts, `text` (a part of the string, or the words joined by spaces), `start` and `end`,
            in characters of a string, as Python counts them, or in words of a list.
        """
        answer = self.answer_all(x, batch_size, verbose=verbose)
        documents = []
        for texts, *rows in zip(*(answer[n] for n in ("text", "start", "end", "cluster"))):
            clusters = [[] for _ in range(rows[-1].max(initial=0))]
            for text, start, end, cluster in zip(texts, *(row.tolist() for row in rows)):
                if cluster:
                    clusters[cluster - 1].append({"text": text, "start": start, "end": end})
            documents.append(clusters)
        return documents

    @property
    def signatures(self) -> "CoreferenceSignatures":
        return CoreferenceSignatures(self)


class CoreferenceSignatures(TextSignatures):
    """Also `tokens`, which takes the places of words beside the packed windows."""

    def raw_specs(self):
        words = tf.TensorSpec([None], tf.int32, "word_positions")  # of one document
        return super().raw_specs() | {words.name: words}


def _check_arguments(max_span_width, span_ratio, num_rounds, dropout, **sizes):
    for name, value in {"max_span_width": max_span_width, **sizes}.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r}: pass an integer of 1 or more.")
    if not isinstance(num_rounds, int) or num_rounds < 0:
        raise ValueError(f"num_rounds={num_rounds!r}: pass 0 or more, 1 as in the papers.")
    if not 0 < span_ratio <= 1:
        raise ValueError(f"span_ratio={span_ratio}: pass a number above 0, and at most 1.")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout={dropout}: pass a number from 0 up to, not including, 1.")


def mentions_of_rows(labels):
    """Return the mentions of all clusters, ragged (B, M, 3) int32: start, end, cluster from 1.

    `labels` has a list of clusters for each text, a cluster is a list of mentions, and these are
    pairs `(start, end)`, or dicts that have both.
    """
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu" and labels.shape[2:] == (3,):
        return tf.RaggedTensor.from_tensor(tf.constant(labels, tf.int32))
    rows = []
    for row, clusters in enumerate(labels):
        try:
            rows.append(mentions_of(clusters))
        except ValueError as error:
            raise ValueError(f"labels[{row}]: {error}") from error
    flat = np.array([mention for row in rows for mention in row], "int32").reshape(-1, 3)
    return tf.RaggedTensor.from_row_lengths(flat, [len(row) for row in rows])


def check_mentions(mentions, text, words, places):
    """Raise a ValueError for a mention that is not a span of words of its text.

    `mentions` are ragged (B, M, 3), in `words`, ragged (B, W), or in characters of the strings
    `text` if there are `places` of the words there.
    """
    lengths = words.row_lengths().numpy()
    for row, row_mentions in enumerate(mentions):
        bounds = [range(lengths[row]), range(1, lengths[row] + 1)]
        size, unit = lengths[row], "words"
        if places:
            bounds = [set(places[name][row].numpy().tolist()) for name in ("start", "end")]
            size, unit = len(text[row].numpy().decode("utf-8", "replace")), "characters"
        for start, end, cluster in row_mentions.numpy().tolist():
            if not cluster:  # padding
                continue
            check_place((start, end), size, unit, f"labels[{row}]: ")
            if start not in bounds[0] or end not in bounds[1]:
                raise ValueError(
                    f"labels[{row}]: the mention ({start}, {end}) does not begin and end with a "
                    f"word of text[{row}]: pass lists of words, to part them yourself, with "
                    "mentions in words."
                )


def in_words(mentions, places):
    """Return mentions (B, M, 3) in characters as mentions in words; padding as it is, zeros."""
    start, end, cluster = (mentions[:, :, n] for n in range(3))

    def word(at, place):  # (B, M)
        bounds = tf.cast(place, tf.int32).to_tensor(-1)[:, tf.newaxis]  # (B, 1, W)
        same = tf.pad(bounds, [[0, 0], [0, 0], [0, 1]], constant_values=-1) == at[:, :, tf.newaxis]
        return tf.argmax(same, axis=2, output_type=tf.int32), tf.reduce_any(same, axis=2)

    (first, begins), (last, ends) = word(start, places["start"]), word(end, places["end"])
    is_padding = cluster <= 0
    are_words = begins & ends | is_padding
    message = "labels: mentions must begin and end with words of their texts, and one is"
    spans = tf.stack([first, last + 1, cluster], axis=2)
    spans = required(spans, are_words, message, tf.boolean_mask(mentions, ~are_words)[:1, :2])
    return tf.where(is_padding[:, :, tf.newaxis], 0, spans)


def clusters_of(outputs):
    """Return the mentions of clusters by the scores of a `CoreferenceHead`, in the graph.

    A span goes back to its best antecedent, and those that are connected are a cluster. `start`,
    `end` (in words) and `cluster`, (B, M) int32 each, are in the order of the text; clusters are
    numbered from 1 in that of their first mentions. Rows are padded with zeros.
    """
    scores, antecedents = outputs["antecedent_scores"], outputs["antecedents"]
    shape = tf.shape(outputs["start"])
    number = tf.broadcast_to(tf.range(shape[1]), shape)  # (B, K)
    best = tf.argmax(in_steps(scores), axis=2, output_type=tf.int32)  # 0 is none
    earlier = tf.gather(antecedents, tf.maximum(best - 1, 0), batch_dims=2)
    earlier = tf.where(best > 0, earlier, number)
    (first,) = tf.while_loop(  # of each, the first of its cluster
        lambda first: tf.reduce_any(tf.gather(first, first, batch_dims=1) != first),
        lambda first: (tf.gather(first, first, batch_dims=1),),
        (earlier,),
    )
    size = tf.reduce_sum(tf.one_hot(first, shape[1], dtype=tf.int32), axis=1)  # (B, K)
    cluster = tf.cumsum(tf.cast(size > 1, tf.int32), axis=1)
    mentions = {
        "start": outputs["start"],
        "end": outputs["end"],
        "cluster": tf.gather(cluster, first, batch_dims=1),
    }
    is_mention = tf.gather(size, first, batch_dims=1) > 1
    return {
        name: tf.ragged.boolean_mask(value, is_mention).to_tensor()
        for name, value in mentions.items()
    }
