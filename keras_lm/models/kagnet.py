"""KagNet: a text is scored with the graph between the concepts of a question and of an answer.

Shapes: R texts, one for each choice, G nodes, E edges, P pairs of concepts, Q paths, T concepts of
the longest path, D width of a text, C of a concept, K of a pair, U of a path.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.layers import LSTM, Dense
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import as_tensor, float32_or_wider
from keras_lm.layers.recurrent import BidirectionalLSTM
from keras_lm.utils.argument_types import Tensor

LEAKAGE = 0.01  # the slope of `torch.nn.LeakyReLU`


@keras.saving.register_keras_serializable("keras_lm")
class KagNet(keras.layers.Layer):
    """Score texts with the graphs that belong to them.

    Graph convolutions read the graphs, an LSTM the paths from a concept of the question to one of
    the answer; the pair of the two chooses among its paths by attention, and the text among its
    pairs. It goes over the vectors of any text backbone, such as its `pooled_output`.

    All graphs of a batch are one graph, so that none is padded to the size of another. To give
    tensors a fixed size, as XLA needs, fill them up with -1, of `path_concepts` and
    `path_relations` with 0: an edge, pair or path that begins with -1 is left out.

    Args:
        num_concepts, num_relations: int. Rows of the tables. Row 0 of both is for the end of paths
            that are shorter than the longest.
        concept_dim, relation_dim: int. Widths of their vectors.
        pair_dim: int, K.
        path_dim: int, U. Of the LSTM; of both directions together if `bidirectional`.
        graph_hidden_dim, graph_dim: int. Widths of the first and the second graph convolution.
        bidirectional: bool. Whether paths are read from both ends.
        dropout: float. Fraction of what the two layers over a pair return that is dropped.

    Call: `layer(text, graph)` with vectors (R, D), or the outputs of a backbone, whose
    `pooled_output` is read, or the first token if it has none. `graph` is a dict of int32 tensors:

    - `node_concepts` (G,), the row of each node's concept;
    - `edges` (E, 2), the nodes that each edge comes from and goes to;
    - `pair_texts` (P,), the text to which each pair belongs;
    - `pair_concepts`, `pair_nodes` (P, 2), of the question and the answer; a concept that is no
      node has -1;
    - `path_pairs` (Q,), the pair to which each path belongs;
    - `path_concepts`, `path_nodes`, `path_relations` (Q, T). The LSTM reads the ends of short paths
      too, so T should always be the same.

    Returns a dict: `logits` (R, 1), whose sigmoid is the probability that a choice is right,
    `node_states` (G, graph_dim), and as an explanation `pair_attention` (P,), which adds up to 1
    for each text, and `path_attention` (Q,), which does for each pair. A text without a pair is
    read alone.

    Raises:
        ValueError: if `graph` lacks a key, or `path_dim` is odd for both directions.

    Example:

        graph = {
            "node_concepts": [7, 9],
            "edges": [[0, 1], [1, 0]],
            "pair_concepts": [[7, 9]],
            "pair_nodes": [[0, 1]],
            "path_pairs": [0],
            "path_concepts": [[7, 9]],
            "path_nodes": [[0, 1]],
            "path_relations": [[3, 0]],
        }
        kagnet = KagNet(num_concepts=100, num_relations=35)
        graphs = join_graphs([graph, graph])
        kagnet(np.ones((2, 768), "float32"), graphs)["logits"].shape  # (2, 1)

    Source: Lin et al. 2019, https://arxiv.org/abs/1909.02151, section 4; INK-USC/KagNet,
    `models/models.py`. New biases are zeros, not drawn at random.
    """

    PARTS = (
        *("node_concepts", "edges", "pair_texts", "pair_concepts", "pair_nodes", "path_pairs"),
        *("path_concepts", "path_nodes", "path_relations"),
    )

    def __init__(
        self,
        num_concepts: int,
        num_relations: int,
        concept_dim: int = 100,
        relation_dim: int = 100,
        pair_dim: int = 128,
        path_dim: int = 128,
        graph_hidden_dim: int = 50,
        graph_dim: int = 25,
        bidirectional: bool = False,
        dropout: float = 0.1,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if bidirectional and path_dim % 2:
            raise ValueError(f"path_dim={path_dim}: pass an even number for both directions.")
        self.arguments: dict[str, int | bool | float] = {
            "num_concepts": num_concepts,
            "num_relations": num_relations,
            "concept_dim": concept_dim,
            "relation_dim": relation_dim,
            "pair_dim": pair_dim,
            "path_dim": path_dim,
            "graph_hidden_dim": graph_hidden_dim,
            "graph_dim": graph_dim,
            "bidirectional": bidirectional,
            "dropout": dropout,
        }
        dtype = self.dtype_policy

        def dense(units, name, **options):
            return Dense(
                units, kernel_initializer="glorot_normal", dtype=dtype, name=name, **options
            )

        def table(rows, width, name):
            bound = (6 / width) ** 0.5
            initializer = keras.initializers.RandomUniform(-bound, bound)
            return keras.layers.Embedding(rows, width, initializer, dtype=dtype, name=name)

        self.concepts = table(num_concepts, concept_dim, "concepts")
        self.relations = table(num_relations, relation_dim, "relations")
        self.convolutions = [
            dense(graph_hidden_dim, "first_convolution", activation="relu"),
            dense(graph_dim, "second_convolution", activation="relu"),
        ]
        self.pair_layers = [dense(2 * pair_dim, "pair_hidden"), dense(pair_dim, "pair")]
        self.dropout = Dropout(dropout, dtype=dtype)
        lstm, units = (BidirectionalLSTM, path_dim // 2) if bidirectional else (LSTM, path_dim)
        self.lstm = lstm(units, dtype=dtype, name="path")
        self.path_query = dense(path_dim, "path_query")
        self.pair_query = dense(pair_dim, "pair_query")
        wide = float32_or_wider(dtype)
        self.logits = Dense(1, kernel_initializer="glorot_normal", dtype=wide, name="logits")

    def build(self, text_shape: Any, graph_shape: Any = None) -> None:
        sizes = self.arguments
        node = sizes["concept_dim"] + sizes["graph_dim"]
        text = _text_shape(text_shape)[-1]
        for layer, width in (
            (self.concepts, 1),
            (self.relations, 1),
            (self.convolutions[0], sizes["concept_dim"]),
            (self.convolutions[1], sizes["graph_hidden_dim"]),
            (self.pair_layers[0], 2 * node + text),
            (self.pair_layers[1], 2 * sizes["pair_dim"]),
            (self.path_query, sizes["pair_dim"]),
            (self.pair_query, text),
            (self.logits, sizes["pair_dim"] + sizes["path_dim"] + text),
        ):
            layer.build((None, width))
        self.lstm.build((None, None, node + sizes["relation_dim"]))

    def call(
        self, text: Tensor, graph: dict[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        text = _text_vectors(text)  # (R, D)
        _check_keys(graph, self.PARTS)
        graph = {name: as_tensor(graph[name], "int32") for name in self.PARTS}
        states = self.convolve(graph["node_concepts"], graph["edges"])  # (G, graph_dim)
        # A text without a pair has one of two zero vectors: each text has it, after the real pairs.
        rows = ops.shape(text)[0]
        counts = _sum(ops.ones_like(graph["pair_texts"]), graph["pair_texts"], rows)
        alone = ops.where(counts > 0, -1, ops.arange(rows, dtype="int32"))
        of_pair = ops.concatenate([graph["pair_texts"], alone])  # (P + R,)
        vectors = self.concept_vectors(graph["pair_concepts"], graph["pair_nodes"], states)
        vectors = ops.reshape(vectors, (-1, 2 * vectors.shape[-1]))  # question, answer
        vectors = ops.concatenate([vectors, ops.zeros((rows, vectors.shape[-1]), vectors.dtype)])
        vectors = ops.concatenate([vectors, _take(text, of_pair)], axis=-1)
        for layer in self.pair_layers:
            vectors = self.dropout(layer(vectors), training=training)
            vectors = ops.leaky_relu(vectors, LEAKAGE)  # (P + R, K)
        paths, path_attention = self.pool_paths(graph, states, vectors)
        queries = _take(self.pair_query(text), of_pair)  # (P + R, K)
        pair_attention = _softmax(_dot(vectors, queries), of_pair, rows)
        pooled = ops.concatenate([vectors, paths], axis=-1)
        pooled = _sum(
            pooled * ops.cast(pair_attention, pooled.dtype)[:, None], of_pair, rows
        )  # (R, K + U)
        return {
            "logits": self.logits(ops.concatenate([pooled, text], axis=-1)),
            "node_states": states,
            "pair_attention": pair_attention[: ops.shape(graph["pair_texts"])[0]],
            "path_attention": path_attention,
        }

    def convolve(self, node_concepts: Tensor, edges: Tensor) -> Tensor:
        """Return the states of nodes, (G, graph_dim): each layer sums over incoming edges."""
        x = self.concepts(ops.maximum(node_concepts, 0))  # (G, C)
        for layer in self.convolutions:
            x = layer(_sum(_take(x, edges[:, 0]), edges[:, 1], ops.shape(x)[0]))
        return x

    def concept_vectors(self, concepts: Tensor, nodes: Tensor, states: Any) -> Tensor:
        """Return the vector of each concept followed by the state of its node, or by zeros."""
        return ops.concatenate(
            [self.concepts(ops.maximum(concepts, 0)), _take(states, nodes)], axis=-1
        )

    def pool_paths(self, graph: dict[str, Any], states: Any, pairs: Tensor) -> tuple[Any, Any]:
        """Return the paths of each pair as one vector, (P + R, U), and their attention (Q,)."""
        of_path = graph["path_pairs"]
        steps = self.concept_vectors(graph["path_concepts"], graph["path_nodes"], states)
        steps = ops.concatenate([steps, self.relations(graph["path_relations"])], axis=-1)
        paths = self.lstm(steps)[0][:, -1]  # (Q, U): the end of short paths is read, too
        queries, number = _take(self.path_query(pairs), of_path), ops.shape(pairs)[0]
        attention = _softmax(_dot(paths, queries), of_path, number)
        return _sum(paths * ops.cast(attention, paths.dtype)[:, None], of_path, number), attention

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | self.arguments


def join_graphs(graphs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one graph of several, in the form that `KagNet` takes, with numpy arrays.

    Args:
        graphs: list of a dict for each text, with numbers of nodes and pairs that count from 0 in
            each, and without `pair_texts`.

    Raises:
        ValueError: if `graphs` is empty, one lacks a key or has the number of a node or pair that
            it has not, or the paths of two graphs have different lengths T.

    Example:

        graph = {
            "node_concepts": [7, 9],
            "edges": [[0, 1]],
            "pair_concepts": [[7, 9]],
            "pair_nodes": [[0, 1]],
            "path_pairs": [0],
            "path_concepts": [[7, 9]],
            "path_nodes": [[0, 1]],
            "path_relations": [[3, 0]],
        }
        join_graphs([graph, graph])["edges"].tolist()  # [[0, 1], [2, 3]]
    """
    if not graphs:
        raise ValueError("graphs is empty: pass a graph for each text, which may have no nodes.")
    names = [name for name in KagNet.PARTS if name != "pair_texts"]
    for graph in graphs:
        _check_keys(graph, names)
    lengths = {np.shape(graph["path_concepts"])[1] for graph in graphs if len(graph["path_pairs"])}
    if len(lengths) > 1:
        raise ValueError(
            f"graphs have paths of {sorted(lengths)} concepts: fill all up to the same length."
        )
    length = max(lengths, default=1)
    widths = {"edges": (2,), "pair_concepts": (2,), "pair_nodes": (2,)}
    widths |= dict.fromkeys(("path_concepts", "path_nodes", "path_relations"), (length,))
    parts = {name: [] for name in KagNet.PARTS}
    nodes = pairs = 0
    for text, graph in enumerate(graphs):
        arrays = {
            name: np.asarray(graph[name], "int32").reshape(-1, *widths.get(name, ()))
            for name in names
        }
        num_nodes, num_pairs = len(arrays["node_concepts"]), len(arrays["pair_concepts"])
        of_nodes = [(name, num_nodes, nodes) for name in ("edges", "pair_nodes", "path_nodes")]
        for name, number, start in [*of_nodes, ("path_pairs", num_pairs, pairs)]:
            if np.max(arrays[name], initial=-1) >= number:
                raise ValueError(
                    f"graph {text} has {np.max(arrays[name])} in {name}: pass numbers below "
                    f"{number}, or -1."
                )
            arrays[name] = np.where(arrays[name] < 0, -1, arrays[name] + start)
        arrays["pair_texts"] = np.full(num_pairs, text, "int32")
        nodes, pairs = nodes + num_nodes, pairs + num_pairs
        for name, array in arrays.items():
            parts[name].append(array)
    return {name: np.concatenate(arrays).astype("int32") for name, arrays in parts.items()}


def _check_keys(graph, names):
    missing = [name for name in names if name not in graph]
    if missing:
        raise ValueError(f"graph lacks {missing}: pass the keys {list(names)}.")


def _text_vectors(text):
    if not isinstance(text, dict):
        return ops.convert_to_tensor(text)
    pooled = text.get("pooled_output")
    return text["sequence_output"][:, 0] if pooled is None else pooled


def _text_shape(shape):
    if not isinstance(shape, dict):
        return shape
    pooled = shape.get("pooled_output")
    return (shape["sequence_output"][0], shape["sequence_output"][2]) if pooled is None else pooled


def _take(x, rows):
    """Return the rows of a matrix with some numbers, zeros for -1."""
    x = ops.concatenate([x, ops.zeros((1, x.shape[1]), x.dtype)])
    return ops.take(x, ops.where(rows < 0, ops.shape(x)[0] - 1, rows), axis=0)


def _sum(x, segments, number):
    """Return the sums of the rows of each of `number` segments; those of -1 are left out."""
    segments = ops.where(segments < 0, number, segments)
    return ops.segment_sum(x, segments, num_segments=number + 1)[:-1]


def _softmax(scores, segments, number):
    """Return a softmax of scores over each segment, in float32 or wider; 0 for those left out."""
    scores = ops.cast(scores, keras.backend.result_type(scores.dtype, "float32"))
    inside = ops.where(segments < 0, number, segments)
    largest = ops.segment_max(scores, inside, num_segments=number + 1)
    scores = ops.exp(scores - ops.stop_gradient(ops.take(largest, inside)))
    total = ops.segment_sum(scores, inside, num_segments=number + 1)
    scores = scores / ops.take(total, inside)
    return ops.where(segments < 0, ops.zeros_like(scores), scores)


def _dot(a, b):
    return ops.sum(a * b, axis=-1)
