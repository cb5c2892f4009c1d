"""Schema graphs of texts and choices, found in the graph: the search of `SchemaGraphs`, exported.

Concepts of all rows are numbers `row * N + concept`, so that one sorted array has all of a batch.
Shapes: B texts, C choices, R = B · C rows, N concepts, M concepts of all rows, T words of all rows,
P pairs, Q paths, L numbers of a packed graph.
"""

import types

import numpy as np

from keras_lm.knowledge import SchemaGraphs
from keras_lm.knowledge.concepts import LONGEST
from keras_lm.knowledge.graph_constants import GraphConstants
from keras_lm.knowledge.lemmas import WORDS
from keras_lm.layers.tensorflow import required
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.tokenizer import normalized
from keras_lm.utils.argument_types import Tensor

NONE = 2**62  # above all numbers
NO_LEMMA = NO_NODE = NO_CONCEPT = np.int64(-1)
MOST_STEPS = 4_000_000  # pairs and neighbours that a batch may ask for


class GraphSearch(tf.Module):
    """Find the graph between the concepts of a text and those of each choice, in TensorFlow.

    It holds the graph of concepts, the words of English that its concepts are found by, and the
    names, as constants and a lookup table, and needs no file and no Python.

    Args:
        graphs: `keras_lm.knowledge.SchemaGraphs` of up to 2 hops, whose `max_paths` and
            `threshold` count here, too; `keras_lm.knowledge.graph_constants` has the limits.

    Call: `search(text, choices)`, strings (B,) and (B, C), returns the packed graphs as numbers,
    (B, C, L) int32, those that `SchemaGraphs.pack` makes. An empty choice has zeros. A batch may
    have 4,000,000 pairs of concepts and neighbours of theirs; more are an `InvalidArgumentError`.

    Raises:
        ValueError: if the graph is too large for constants; the message has the limit.

    Example:

        edges = [("ice", 11, "slippery", 1.0), ("slippery", 4, "fall", 2.0)]
        store = keras_lm.knowledge.ConceptStore.build(edges, "winter")
        search = GraphSearch(keras_lm.knowledge.SchemaGraphs(store, max_hops=2))
        search(tf.constant(["What happens on ice?"]), tf.constant([["You fall.", "42"]]))

    Source: Lin et al. 2019, https://arxiv.org/abs/1909.02151, section 3.
    """

    def __init__(self, graphs: SchemaGraphs):
        super().__init__()
        constants, finder = GraphConstants.of(graphs), graphs.finder
        self._size, self._num_lemmas = graphs.store.num_concepts, constants.num_lemmas
        self._hops, self._path_length = finder.max_hops, graphs.path_length
        self._max_paths = finder.max_paths
        self._threshold = 0.0 if finder.trans_e is None else finder.threshold
        self._between = f"[^{_letters()}]+"
        with tf.init_scope():  # constants, also if this is traced
            words = tf.lookup.KeyValueTensorInitializer(
                tf.constant([*constants.words], tf.string),
                tf.constant([*constants.words.values()], tf.int64),
            )
            self._lemmas = tf.lookup.StaticHashTable(words, tf.constant(NO_LEMMA))
            # (A namespace, because a module would track a dict.)
            self._held = types.SimpleNamespace(
                steps=tf.constant(np.append(constants.steps, NONE)),
                concepts=tf.constant(np.append(constants.concepts, 0), tf.int64),
                first_concept=tf.constant(constants.first_concept),
                stems=[tf.constant(stems, tf.int64) for stems in constants.stems],
                edges=tf.constant(np.append(constants.edges, NONE)),
                first_edge=tf.constant(constants.first_edge),
                relations=tf.constant(np.append(constants.relations, 0), tf.int32),
                lengths=tf.constant(np.append(constants.lengths, 0)),
                scores=tf.constant(np.append(constants.scores, 0), tf.float32),
                names=tf.constant(constants.names),
                relation_names=tf.constant(constants.relation_names),
            )

    @property
    def names(self) -> Tensor:
        """The names of concepts by their numbers, (N,) strings."""
        return self._held.names

    @property
    def relation_names(self) -> Tensor:
        """The names of relations by their numbers, strings; 0 is empty."""
        return self._held.relation_names

    def __call__(self, text: Tensor, choices: Tensor) -> Tensor:
        shape = tf.shape(choices)
        rows = tf.range(tf.size(choices)) // tf.maximum(shape[1], 1)
        choices = tf.reshape(choices, [-1])  # (R,)
        is_choice = choices != ""
        answer_words = self._words(choices)
        words = self._words(tf.where(is_choice, tf.gather(text, rows), ""))
        is_said = self._are_in(words, answer_words)
        answers = self._concepts(answer_words)
        questions = self._concepts(words.with_values(tf.where(is_said, NO_LEMMA, words.values)))
        questions = _without(questions, answers)
        graphs = self._packed(questions, answers, is_choice)  # (R, L)
        return tf.reshape(graphs, tf.concat([shape, tf.shape(graphs)[1:]], axis=0))

    # === Concepts ===

    def _words(self, text):
        """Return the lemmas of (R,) texts, ragged int64, -1 for a word that no concept has."""
        text = tf.strings.regex_replace(text, r"\x00", " ")  # `lower` would end there
        text = tf.strings.lower(normalized(text, "NFC"), encoding="utf-8")
        words = tf.strings.split(tf.strings.regex_replace(text, self._between, " "))
        words = words.with_values(normalized(words.values, "NFC"))
        return words.with_values(self._lemmas.lookup(words.values))

    def _are_in(self, words, others):
        """Return which of ragged words are among the others of their row, (T,) bool."""
        keys, other_keys = (x.value_rowids() * self._num_lemmas + x.values for x in (words, others))
        other_keys = tf.boolean_mask(other_keys, others.values >= 0)
        return (words.values >= 0) & _is_in(keys, other_keys)

    def _concepts(self, words):
        """Return the concepts of rows of lemmas, in their order, each once: (M,)."""
        held, lemmas = self._held, words.values  # (T,)
        at, rows = tf.range(tf.size(lemmas)), words.value_rowids()
        end = tf.cast(tf.gather(words.row_limits(), rows), tf.int32)
        node, nodes = tf.zeros_like(lemmas), []
        for length in range(LONGEST):
            last = tf.minimum(at + length, tf.size(lemmas) - 1)
            lemma = tf.where(at + length < end, tf.gather(lemmas, last), NO_LEMMA)
            step = _place(held.steps, node * self._num_lemmas + lemma)
            goes_on = (node >= 0) & (lemma >= 0) & (step >= 0)
            node = tf.where(goes_on, tf.cast(step, tf.int64) + 1, NO_NODE)
            nodes.append(node)
        node = tf.reshape(tf.stack(nodes, axis=1), [-1])  # (4 T,), by the first word and length
        first, end = (tf.gather(held.first_concept, tf.maximum(node, 0) + more) for more in (0, 1))
        which, place = _expanded(first, tf.where(node >= 0, end - first, 0))
        rows = tf.gather(rows, which // LONGEST)
        keys = tf.unique(rows * self._size + tf.gather(held.concepts, place)).y
        is_derived = tf.zeros_like(keys, tf.bool)
        for stems in held.stems:
            stem = tf.gather(stems, keys % self._size)
            is_derived |= (stem > 0) & _is_in(keys - keys % self._size + stem, keys)
        return tf.boolean_mask(keys, ~is_derived)

    # === Paths ===

    def _pairs(self, questions, answers, number):
        """Return the row of each pair (P,), and its two concepts, without the row."""
        counts = [_counts(keys // self._size, number) for keys in (questions, answers)]
        first, second = (tf.cumsum(count, exclusive=True) for count in counts)
        row, within = _expanded(tf.zeros_like(first), self._few(counts[0] * counts[1]))
        columns = tf.gather(counts[1], row)
        questions = tf.gather(questions, tf.gather(first, row) + within // columns)
        answers = tf.gather(answers, tf.gather(second, row) + within % columns)
        return tf.cast(row, tf.int64), questions % self._size, answers % self._size

    def _edge(self, concept, other):
        """Return the places of edges from some concepts to others, -1 for none."""
        return _place(self._held.edges, concept * self._size + other)

    def _relation(self, edge):
        """Return the relation that is followed along some edges, 0 for none."""
        return tf.where(edge < 0, 0, tf.gather(self._held.relations, tf.maximum(edge, 0)))

    def _paths(self, start, end):
        """Return the paths of pairs: the pair, the concept between or -1, and two edges, (Q,).

        They are sorted by pair; of each, the shortest `max_paths`, without the unlikely ones.
        """
        edge, held = self._edge(start, end), self._held
        pair = tf.cast(tf.where(self._relation(edge) > 0)[:, 0], tf.int32)
        middle, length = tf.fill(tf.shape(pair), NO_CONCEPT), tf.zeros_like(pair)
        length = tf.cast(length, tf.float64)  # less than any of two edges
        if self._hops > 1:
            more = self._paths_of_two(start, end)
            both = zip((pair, middle, length), more, strict=True)
            pair, middle, length = (tf.concat(parts, axis=0) for parts in both)
        order = tf.argsort(length, stable=True)  # of the same length, by the concept
        order = tf.gather(order, tf.argsort(tf.gather(pair, order), stable=True))
        pair, middle = tf.gather(pair, order), tf.gather(middle, order)
        before = tf.cumsum(_counts(pair, tf.size(start)), exclusive=True)
        is_kept = tf.range(tf.size(pair)) - tf.gather(before, pair) < self._max_paths
        pair, middle = tf.boolean_mask(pair, is_kept), tf.boolean_mask(middle, is_kept)
        start, end, is_long = tf.gather(start, pair), tf.gather(end, pair), middle >= 0
        first = self._edge(start, tf.where(is_long, middle, end))
        second = tf.where(is_long, self._edge(middle, end), -1)
        scores = [tf.gather(held.scores, tf.maximum(one, 0)) for one in (first, second)]
        scores = [tf.cast(score, tf.float64) for score in scores]
        is_likely = scores[0] * tf.where(is_long, scores[1], 1) >= self._threshold
        return (tf.boolean_mask(x, is_likely) for x in (pair, middle, first, second))

    def _paths_of_two(self, start, end):
        """Return the pair of each path of two edges, the concept between them, and the length."""
        firsts, limits = (
            [tf.gather(self._held.first_edge, one + more) for one in (start, end)]
            for more in (0, 1)
        )
        counts = [limit - first for first, limit in zip(firsts, limits, strict=True)]
        is_turned = counts[1] < counts[0]  # fewer ways lead on from the other end
        first = tf.where(is_turned, firsts[1], firsts[0])
        pair, edge = _expanded(first, self._few(tf.minimum(*counts)))
        middle = tf.gather(self._held.edges, edge) % self._size
        other = self._edge(tf.gather(tf.where(is_turned, start, end), pair), middle)
        is_path = (self._relation(edge) > 0) & (self._relation(other) > 0)
        is_path &= (middle != tf.gather(start, pair)) & (middle != tf.gather(end, pair))
        pair, middle, edge, other = (
            tf.boolean_mask(x, is_path) for x in (pair, middle, edge, other)
        )
        lengths = self._held.lengths
        return pair, middle, tf.gather(lengths, edge) + tf.gather(lengths, other)

    # === Graphs ===

    def _packed(self, questions, answers, is_choice):
        """Return the packed graphs of rows, (R, L) int32; see `SchemaGraphs.between`."""
        size, number = self._size, tf.size(is_choice)
        row, start, end = self._pairs(questions, answers, number)
        pair, middle, first, second = self._paths(start, end)
        path_row, is_long = tf.gather(row, pair), middle >= 0
        begin, last = tf.gather(start, pair), tf.gather(end, pair)
        through = tf.where(is_long, middle, last)
        is_alone = tf.gather(_counts(path_row, number) == 0, row)
        edges = [
            (path_row, begin, through),
            _masked(is_long, path_row, middle, last),
            self._edges_among(questions, number),
            self._edges_among(answers, number),
            _masked(is_alone, row, start, end),
        ]
        rows, heads, tails = (tf.concat(parts, axis=0) for parts in zip(*edges, strict=True))
        heads, tails = rows * size + heads, rows * size + tails
        nodes = _sorted_once(tf.concat([heads, tails], axis=0))  # (G,)
        heads, tails = (tf.cast(_place(nodes, x), tf.int64) for x in (heads, tails))
        total = tf.maximum(tf.size(nodes, tf.int64), 1)
        edges = _sorted_once(tf.concat([heads * total + tails, tails * total + heads], axis=0))
        edges = tf.stack([edges // total, edges % total], axis=1)  # (E, 2)
        edge_row = tf.gather(nodes, edges[:, 0]) // size

        counts = [_counts(x, number) for x in (nodes // size, edge_row, row, path_row)]
        before_nodes, _, before_pairs, _ = (tf.cumsum(count, exclusive=True) for count in counts)

        def own(rows, *places):
            """Return places of nodes as they count in each graph, a column each; -1 stays."""
            before = tf.gather(before_nodes, rows)
            columns = [tf.where(one < 0, -1, tf.cast(one, tf.int32) - before) for one in places]
            return tf.stack(columns, axis=1)

        def places(rows, *concepts):
            return [_place(nodes, rows * size + one) for one in concepts]

        path = places(path_row, begin, through, last)
        path[2] = tf.where(is_long, path[2], -1)
        relations = [self._relation(first), self._relation(second)][: self._path_length - 1]
        header = tf.stack([tf.where(is_choice, self._path_length, 0), *counts], axis=1)
        node_count, edge_count, pair_count, path_count = counts
        parts = [
            tf.RaggedTensor.from_tensor(header, row_splits_dtype=tf.int32),
            _ragged((nodes % size)[:, tf.newaxis], node_count),
            _ragged(own(edge_row, edges[:, 0], edges[:, 1]), edge_count),
            _ragged(tf.stack([start, end], axis=1), pair_count),
            _ragged(own(row, *places(row, start, end)), pair_count),
            _ragged((pair - tf.gather(before_pairs, path_row))[:, tf.newaxis], path_count),
            _ragged(own(path_row, *path[: self._path_length]), path_count),
            _ragged(tf.stack([*relations, tf.zeros_like(first)], axis=1), path_count),
        ]
        return tf.concat(parts, axis=1).to_tensor()

    def _edges_among(self, concepts, number):
        """Return the edges between concepts of the same row: the row and both ends."""
        rows = concepts // self._size
        limits = tf.gather(tf.cumsum(_counts(rows, number)), rows)
        after = tf.range(tf.size(concepts)) + 1
        which, other = _expanded(after, self._few(limits - after))
        rows = tf.gather(rows, which)
        ends = [tf.gather(concepts, x) % self._size for x in (which, other)]
        return _masked(self._edge(*ends) >= 0, rows, *ends)

    def _few(self, counts):
        """Return how many rows to make of each, if they are not too many in all."""
        total = tf.reduce_sum(tf.cast(counts, tf.float32))
        message = (
            f"texts and choices have too many concepts: {MOST_STEPS:,} pairs and neighbours are "
            "looked at, pass fewer or shorter ones. Here:"
        )
        return required(counts, total <= MOST_STEPS, message, total)


def _letters():
    """Return what words consist of, as Python's regular expressions have it, for RE2."""
    surrogates = range(0xD800, 0xE000)
    everything = "".join(chr(code) for code in range(0x110000) if code not in surrogates)
    spans = (span[0] for span in WORDS.finditer(everything))
    return "".join(rf"\x{{{ord(span[0]):x}}}-\x{{{ord(span[-1]):x}}}" for span in spans)


def _place(ascending, values):
    """Return where some values are in an ascending array that is not empty; -1 for none."""
    at = tf.raw_ops.LowerBound(sorted_inputs=[ascending], values=[values])[0]
    at = tf.minimum(at, tf.size(ascending) - 1)
    return tf.where(tf.gather(ascending, at) == values, at, -1)


def _is_in(values, others):
    return _place(tf.concat([tf.sort(others), [NONE]], axis=0), values) >= 0


def _without(values, others):
    return tf.boolean_mask(values, ~_is_in(values, others))


def _sorted_once(values):
    """Return values in ascending order, each once."""
    values = tf.sort(values)
    before = tf.concat([[NONE], values[:-1]], axis=0)[: tf.size(values)]
    return tf.boolean_mask(values, values != before)


def _counts(rows, number):
    """Return how often each row is there, (number,) int32."""
    return tf.math.unsorted_segment_sum(tf.ones_like(rows, tf.int32), rows, number)


def _expanded(first, counts):
    """Return a row for each of `counts`: which they are of, and `first`, `first + 1`, … of it."""
    ends = tf.cumsum(counts)
    places = tf.range(tf.reduce_sum(counts))
    # Not tf.repeat, which takes the memory of as many for each as the largest count.
    which = tf.raw_ops.UpperBound(sorted_inputs=[ends], values=[places])[0]
    return which, places - tf.gather(ends - counts, which) + tf.gather(first, which)


def _masked(mask, *columns):
    return tuple(tf.boolean_mask(column, mask) for column in columns)


def _ragged(rows, counts):
    """Return (n, W) numbers, of which each row has `counts`, as ragged rows of W times as many."""
    flat = tf.reshape(tf.cast(rows, tf.int32), [-1])
    return tf.RaggedTensor.from_row_lengths(flat, counts * rows.shape[1], validate=False)
