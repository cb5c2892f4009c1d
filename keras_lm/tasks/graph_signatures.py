"""The signatures of `GraphChoice`.

Shapes: B texts, C choices, R = B · C, L numbers of a packed graph, P pairs, Q paths, T concepts of
the longest path.
"""

import numpy as np

from keras_lm.packers.graph_rows import GRAPH_SIZES, joined
from keras_lm.tasks.signatures import TextSignatures, plain_floats, trace
from keras_lm.tensorflow import tf


class GraphSignatures(TextSignatures):
    """Signatures that find a graph for each choice themselves, or take it packed.

    Those that find it also have `explain`, which returns beside the answer what each choice was
    scored by, filled up with empty strings and zeros: `pairs` (B, C, P, 2), the concepts of the
    text and of the choice, and `pair_weights` (B, C, P), which add up to 1; `paths`
    (B, C, Q, T), their concepts, `relations` (B, C, Q, T - 1), of which `-` turns one around, and
    `path_weights` (B, C, Q), the share of a path in all that the choice was scored by.
    """

    @property
    def search(self):
        return self.task.graph_search()

    def texts(self):
        super().texts()
        return self.task.packer.specs(optional=self.search is None)

    def found(self, columns):
        """Return columns with a packed graph for each choice."""
        if "graphs" in columns or self.search is None:
            return columns
        return columns | {"graphs": self.search(columns["text"], columns["choices"])}

    def answer(self, tokenize=None):
        answer = super().answer(tokenize)
        return lambda **columns: answer(**self.found(columns))

    def pieces(self, tokenize=None):
        pieces = super().pieces(tokenize)

        def without_graphs(**columns):
            shape = tf.concat([tf.shape(columns["choices"]), [GRAPH_SIZES]], axis=0)
            return pieces(**columns | {"graphs": tf.zeros(shape, tf.int32)})

        return without_graphs

    def functions(self):
        functions = super().functions()
        if self.search is not None:
            functions["explain"] = trace(self.explain, self.texts())
        return functions

    def explain(self, **columns):
        task = self.task
        packed = task.preprocess(self.found(columns))
        outputs = task.read_graphs(packed)
        graphs = tf.reshape(packed["graphs"], [-1, tf.shape(packed["graphs"])[2]])  # (R, L)
        graph, weights = joined(graphs), outputs["pair_attention"]
        names = tf.gather(self.search.names, graph["path_concepts"])
        relations = tf.gather(self.search.relation_names, graph["path_relations"][:, :-1])
        shape = tf.shape(packed["graphs"])[:2]

        def of_choices(values, counts):
            rows = tf.RaggedTensor.from_row_lengths(values, counts).to_tensor()
            return tf.reshape(rows, tf.concat([shape, tf.shape(rows)[1:]], axis=0))

        pair_counts, path_counts = graphs[:, 3], graphs[:, 4]
        path_weights = outputs["path_attention"] * tf.gather(weights, graph["path_pairs"])
        found = {
            "pairs": of_choices(tf.gather(self.search.names, graph["pair_concepts"]), pair_counts),
            "pair_weights": of_choices(weights, pair_counts),
            "paths": of_choices(names, path_counts),
            "relations": of_choices(relations, path_counts),
            "path_weights": of_choices(path_weights, path_counts),
        }
        logits = task.packer.join(outputs["logits"], packed)
        return plain_floats(task.decode(logits, packed) | found)

    def lite_texts(self):
        # LiteRT has no kernels to decode strings (DecodeBase64, DecodeRaw): it takes numbers.
        if self.task.graph_in_export:
            raise ValueError(
                "graph_in_export=True: a .tflite cannot find graphs, since LiteRT has no kernels "
                "to look words (LookupTableFindV2) and edges (LowerBound, UpperBound) up. Leave it "
                "out, and the .tflite takes graphs as numbers, or export as a SavedModel."
            )
        numbers = tf.TensorSpec([None] * 3, tf.int32, "graphs")
        return self.task.packer.specs(optional=True) | {"graphs": numbers}

    def lite_columns(self, columns):
        tensors = {name: tf.constant(column, tf.string) for name, column in columns.items()}
        return columns | {"graphs": self.task.preprocess(tensors)["graphs"].numpy()}

    def answering(self, texts):
        columns = self.task.columns(texts)
        if self.search is not None:
            columns.pop("graphs", None)
        elif "graphs" not in columns:
            arrays = [columns[name].numpy() for name in ("text", "choices")]
            columns = columns | {"graphs": self.task.packed_graphs(*arrays)}
        yield "serving_default", self.task, columns

    def requests(self, batch_sizes):
        yield from super().requests(batch_sizes)
        if self.search is not None:
            shape = [batch_sizes[0], 2]
            yield "explain", {"text": np.full(shape[0], "a"), "choices": np.full(shape, "a")}

    def lite_requests(self):
        ((name, columns),) = super().lite_requests()
        return [(name, columns | {"graphs": np.zeros((2, 2, GRAPH_SIZES), "int32")})]

    def raw_specs(self):
        graphs = tf.TensorSpec([None, None], tf.int32, "graphs")  # (C, L)
        return super().raw_specs() | {graphs.name: graphs}
