"""Rows with a packed graph each.

Shapes: B batch, C choices, R = B · C rows, L numbers of a packed graph, T concepts of a path.
"""

from collections.abc import Callable
from typing import Any

from keras_lm.knowledge.schema_graphs import WIDTHS
from keras_lm.packers.packer import Packer
from keras_lm.packers.rows import Choices
from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import Tensor

GRAPH_SIZES = 5  # numbers in front of a packed graph


class ChoicesWithGraphs(Choices):
    """The same with a column `graphs`: a packed graph for each choice, empty for none.

    They are strings, see `keras_lm.knowledge.pack_graph`, or their numbers already, (B, C, L).
    """

    names = ("text", "choices", "graphs")
    lists = ("choices", "graphs")
    samples = {"graphs": ""}

    def pack(
        self, packer: Packer, columns: dict[str, Tensor], tokenize: Callable[..., Any] | None = None
    ) -> dict[str, Tensor]:
        graphs, shape = columns["graphs"], tf.shape(columns["choices"])
        if graphs.dtype == tf.string:
            graphs = tf.reshape(_numbers(tf.reshape(graphs, [-1])), [shape[0], shape[1], -1])
        return super().pack(packer, columns, tokenize) | {"graphs": graphs}


def _numbers(packed):
    """Return the numbers of packed graphs (R,), filled up with zeros: (R, L) int32."""
    parts = tf.io.decode_base64(packed)
    lengths = tf.strings.length(parts) // 4
    numbers = tf.io.decode_raw(tf.strings.reduce_join(parts), tf.int32)
    numbers = tf.RaggedTensor.from_row_lengths(numbers, lengths).to_tensor()
    missing = tf.maximum(GRAPH_SIZES - tf.shape(numbers)[1], 0)  # if all graphs are empty
    return tf.pad(numbers, [[0, 0], [0, missing]])


def joined(graphs):
    """Return one graph of all packed ones (R, L), in the form that `KagNet` takes."""
    rows, length = tf.shape(graphs)[0], tf.reduce_max(graphs[:, 0])  # T, 0 of an empty graph
    length = tf.maximum(length, 1)
    counts = dict(zip(WIDTHS, (1, 2, 3, 3, 4, 4, 4), strict=True))  # where its number stands
    column, start, parts = tf.range(tf.shape(graphs)[1]), tf.fill([rows], GRAPH_SIZES), {}
    for name, width in WIDTHS.items():
        width = length if width is None else width
        end = start + graphs[:, counts[name]] * width  # (R,)
        own = (column >= start[:, tf.newaxis]) & (column < end[:, tf.newaxis])
        parts[name] = tf.reshape(tf.boolean_mask(graphs, own), [-1, width])
        start = end
    nodes, edges, pairs, paths = tf.unstack(graphs[:, 1:GRAPH_SIZES], 4, axis=1)
    first_node, first_pair = (tf.cumsum(x, exclusive=True) for x in (nodes, pairs))

    def moved(name, first, number):
        """Return numbers that count from 0 in each graph as those of all; -1 stays."""
        by = tf.repeat(first, number)[:, tf.newaxis]
        return tf.where(parts[name] < 0, -1, parts[name] + by)

    concepts = parts["node_concepts"][:, 0]
    path_nodes = moved("path_nodes", first_node, paths)
    with_none = tf.concat([concepts, [0]], axis=0)
    return {
        "node_concepts": concepts,
        "edges": moved("edges", first_node, edges),
        "pair_texts": tf.repeat(tf.range(rows), pairs),
        "pair_concepts": parts["pair_concepts"],
        "pair_nodes": moved("pair_nodes", first_node, pairs),
        "path_pairs": moved("path_pairs", first_pair, paths)[:, 0],
        "path_nodes": path_nodes,
        "path_concepts": tf.gather(
            with_none, tf.where(path_nodes < 0, tf.shape(concepts)[0], path_nodes)
        ),
        "path_relations": parts["path_relations"],
    }
