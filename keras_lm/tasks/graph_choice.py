"""Multiple choice with a graph of concepts beside the text.

Shapes: B batch, C choices, R = B · C texts, L numbers of a packed graph, P pairs, Q paths, T
concepts of the longest path.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_lm.knowledge import SchemaGraphs
from keras_lm.knowledge.graph_constants import why_too_large
from keras_lm.knowledge.schema_graphs import unpack_graph
from keras_lm.models import KagNet
from keras_lm.models.backbone import Backbone
from keras_lm.objectives import MarginRanking
from keras_lm.packers import ChoicesWithGraphs
from keras_lm.packers.graph_rows import GRAPH_SIZES, joined
from keras_lm.packers.graph_search import GraphSearch
from keras_lm.tasks.multiple_choice import ChoicePreprocessor, MultipleChoice
from keras_lm.tasks.runtime import require_tensorflow
from keras_lm.tasks.signatures import TextSignatures, plain_floats, trace
from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import RawTexts, Tensor


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

    def with_graphs(self, columns):
        """Return columns with a packed graph for each choice."""
        if "graphs" in columns or self.search is None:
            return columns
        return columns | {"graphs": self.search(columns["text"], columns["choices"])}

    def answer(self, tokenize=None):
        answer = super().answer(tokenize)
        return lambda **columns: answer(**self.with_graphs(columns))

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
        packed = task.preprocess(self.with_graphs(columns))
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
        explanation = {
            "pairs": of_choices(tf.gather(self.search.names, graph["pair_concepts"]), pair_counts),
            "pair_weights": of_choices(weights, pair_counts),
            "paths": of_choices(names, path_counts),
            "relations": of_choices(relations, path_counts),
            "path_weights": of_choices(path_weights, path_counts),
        }
        logits = task.packer.join(outputs["logits"], packed)
        return plain_floats(task.decode(logits, packed) | explanation)

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


@dataclasses.dataclass(frozen=True, eq=False)
class GraphPreprocessor(ChoicePreprocessor):
    """A `ChoicePreprocessor` that finds the graph of each choice which has none yet.

    `pack_graphs` maps arrays of texts and choices, bytes (B,) and (B, C), to packed graphs (B, C).
    """

    pack_graphs: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def columns(self, x):
        columns = super().columns(x)
        if "graphs" not in columns:
            return columns
        graphs = columns["graphs"]
        if isinstance(graphs, tf.RaggedTensor):
            graphs = graphs.to_tensor("")
        if graphs.shape != columns["choices"].shape:
            raise ValueError(
                f"graphs has the shape {tuple(graphs.shape)}, and choices "
                f"{tuple(columns['choices'].shape)}: pass a packed graph for each choice."
            )
        return columns | {"graphs": graphs}

    def pack(self, columns, tokenize):
        if "graphs" not in columns:
            choices = columns["choices"]
            if isinstance(choices, tf.RaggedTensor):
                choices = choices.to_tensor("")
            # On the host, by Python: the signatures of an export take graphs.
            graphs = tf.numpy_function(self.pack_graphs, [columns["text"], choices], tf.string)
            graphs.set_shape(choices.shape)
            columns = columns | {"choices": choices, "graphs": graphs}
        return super().pack(columns, tokenize)


@keras.saving.register_keras_serializable("keras_lm")
class GraphChoice(MultipleChoice):
    """Choose the best of several texts, by the text and by a graph of concepts: KagNet.

    The concepts of a text and of each choice are looked up in a graph, and the paths between them
    are read beside the text's vector, which any model that classifies texts makes.

    Args:
        graphs: `keras_lm.knowledge.SchemaGraphs`.
        text_dim: int. Width of the text's vector, which the model's classification head makes.
        concept_dim, relation_dim: int. Widths of their vectors; None for those of the `TransE` of
            `graphs`, which these begin with then, or 100.
        pair_dim, path_dim, graph_hidden_dim, graph_dim, bidirectional: see `KagNet`.
        graph_dropout: float, of `KagNet`.
        graph_in_export: bool. Whether an export holds the graph of concepts as constants, finds
            graphs in it, and takes strings alone; or takes packed graphs, too. None for the first
            if the graph is small enough: `max_hops` of 1 or 2, 4,000,000 edges in both directions
            and 250 MB.
        backbone, **arguments: see `MultipleChoice`.

    Raw data are those of `MultipleChoice`, whose graphs are found as they are read, or with a
    column `graphs`: for each choice the packed graph that `find_graphs` returns. A preset or a
    `.keras` file names the folder of the graph of concepts, and does not hold it: where that folder
    is not, the task takes packed graphs.

    An export takes `text` and `choices`; see `graph_in_export`. With packed graphs, it also takes
    `graphs`: strings, [None, None]. A `.tflite` always takes their numbers, as `preprocess` returns
    them, since LiteRT has no kernels to decode strings (`DecodeBase64`) or to look words
    (`LookupTableFindV2`) and edges (`LowerBound`, `UpperBound`) up.

    Call: `task(inputs)` takes packed inputs (B, C, S) and `graphs` (B, C, L), int32, filled up with
    zeros, and returns logits (B, C), float32. All graphs of a batch become one, without padding.

    Raises:
        ValueError: if an argument is out of range, the model has no head for classification, or
            `graph_in_export` is True and the graph is too large for that.

    Example:

        graphs = keras_lm.knowledge.SchemaGraphs("conceptnet", "conceptnet-trans-e")
        task = keras_lm.tasks.GraphChoice.from_preset(SOURCE, graphs=graphs)
        data = {"text": ["What is ice?"], "choices": [["slippery", "a song"]]}
        task.fit(data, [0])
        task.choose(data)  # {"labels": [0], "scores": [[0.9, 0.1]]}
        task.explain(data)[0]["choices"][0]["pairs"][0]["paths"]

    Source: Lin et al. 2019, https://arxiv.org/abs/1909.02151; INK-USC/KagNet, whose loss is the
    default. Its text encoder is BERT, and its vector goes to KagNet without a layer between.
    """

    rows = ChoicesWithGraphs()
    preprocessor_class = GraphPreprocessor
    row_names = ("graphs",)
    FRESH = ("kagnet/",)

    def __init__(
        self,
        backbone: Backbone,
        graphs: SchemaGraphs,
        text_dim: int = 128,
        concept_dim: int | None = None,
        relation_dim: int | None = None,
        pair_dim: int = 128,
        path_dim: int = 128,
        graph_hidden_dim: int = 50,
        graph_dim: int = 25,
        bidirectional: bool = False,
        graph_dropout: float = 0.1,
        graph_in_export: bool | None = None,
        **arguments: Any,
    ):
        require_tensorflow("GraphChoice")
        super(MultipleChoice, self).__init__(backbone, **arguments)
        self.fine_tuning = None
        # Of a preset: what described the graphs, which may not be on this machine.
        self.source = graphs if isinstance(graphs, dict) else None
        self.graphs = graphs if self.source is None else SchemaGraphs.from_source(graphs)
        self.graph_in_export, self._search = graph_in_export, None
        if graph_in_export and self.graphs is not None and (why := why_too_large(self.graphs)):
            raise ValueError(f"graph_in_export=True: {why}.")
        sizes = self.source or vars(self.graphs.store)
        trans_e = None if self.graphs is None else self.graphs.finder.trans_e
        width = 100 if trans_e is None else trans_e.entities.shape[1]
        self.head_arguments: dict[str, Any] = {
            "concept_dim": width if concept_dim is None else concept_dim,
            "relation_dim": width if relation_dim is None else relation_dim,
            "pair_dim": pair_dim,
            "path_dim": path_dim,
            "graph_hidden_dim": graph_hidden_dim,
            "graph_dim": graph_dim,
            "bidirectional": bidirectional,
        }
        self.text_dim, self.graph_dropout = text_dim, graph_dropout
        self.head = self.add_head("classification", num_classes=text_dim)
        self.kagnet = KagNet(
            sizes["num_concepts"],
            sizes["num_relations"],
            **self.head_arguments,
            dropout=graph_dropout,
            name="kagnet",
            dtype=self.dtype_policy,
        )
        self.kagnet.build((None, text_dim))
        if trans_e is not None and concept_dim is None and relation_dim is None:
            self._begin_with(trans_e)
        self._finish()

    def _begin_with(self, trans_e):
        """Set the tables of concepts and relations; an inverse relation goes the other way."""
        relations = trans_e.relations  # number 0 stands for no relation
        self.kagnet.concepts.embeddings.assign(trans_e.entities)
        self.kagnet.relations.embeddings.assign(np.concatenate([relations, -relations[1:]]))

    @classmethod
    def arguments_from_checkpoint(cls, labels: Any) -> dict[str, Any] | None:
        return None

    def get_arguments(self) -> dict[str, Any]:
        source = self.source if self.graphs is None else self.graphs.describe_source()
        own = {"graphs": source, "text_dim": self.text_dim, "graph_dropout": self.graph_dropout}
        own["graph_in_export"] = self.graph_in_export
        return super(MultipleChoice, self).get_arguments() | self.head_arguments | own

    def default_loss(self) -> Any:
        return MarginRanking()

    def compile(self, *args: Any, jit_compile: bool | str = False, **kwargs: Any) -> None:
        if jit_compile:
            raise ValueError(
                f"jit_compile={jit_compile!r}: XLA needs tensors of known sizes, and graphs have "
                "any: leave it out."
            )
        super().compile(*args, jit_compile=False, **kwargs)

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Any:
        return self.packer.join(self.read_graphs(inputs, training)["logits"], inputs)

    def read_graphs(
        self, inputs: dict[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        """Return what `KagNet` returns for packed inputs."""
        if "graphs" not in inputs:
            raise ValueError(
                "inputs has no graphs: pass what preprocess returns for texts and choices."
            )
        rows = self.packer.flatten(inputs)
        graphs = rows.pop("graphs")  # (R, L)
        rows = rows | self.backbone.complete(self.backbone.select_inputs(rows))
        text = self.head(self._encode(rows, training), rows, training=training)
        return self.kagnet(text, joined(graphs), training=training)

    # === Strings ===

    def find_graphs(self, texts: Tensor, choices: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return the packed graph of each choice: a list of str for each text.

        Args:
            texts: list of str.
            choices: list of lists of str.

        Raises:
            ValueError: if the graph of concepts is not on this machine.
        """
        self.require_graphs()
        return self.graphs.pack(texts, choices)

    def require_graphs(self) -> None:
        """Raise a ValueError if the graph of concepts is not on this machine."""
        if self.graphs is None:
            raise ValueError(
                f"The graph of concepts, {self.source['store']}, is not on this machine: pass "
                "graphs=keras_lm.knowledge.SchemaGraphs(…) to from_preset, or a column graphs with "
                "a packed graph for each choice."
            )

    def preprocessing(self) -> dict[str, Any]:
        return super().preprocessing() | {"pack_graphs": self.packed_graphs}

    def packed_graphs(self, texts: Tensor, choices: Sequence[Sequence[str]]) -> np.ndarray:
        """Return what `find_graphs` does for arrays of bytes, (B,) and (B, C): (B, C)."""
        graphs = self.find_graphs(
            [text.decode("utf-8", "replace") for text in texts.tolist()],
            [[choice.decode("utf-8", "replace") for choice in row] for row in choices.tolist()],
        )
        return np.array(graphs, "S").reshape(choices.shape)

    # === Answers ===

    def explain(self, x: RawTexts, batch_size: int = 32) -> list[dict[str, Any]]:
        """Return what each choice was scored by: pairs of concepts and their paths.

        Args:
            x: raw texts and choices, as in `choose`, no dataset.
            batch_size: int.

        Returns:
            a dict for each text: `text`, `label`, the position of the best choice, and `choices`, a
            dict for each of these: `choice`, `score` and `pairs`, sorted by their `attention`, see
            `SchemaGraphs.describe`.

        Raises:
            ValueError: if the graph of concepts is not on this machine.
        """
        columns, explanations = self.columns(x), []
        self.require_graphs()
        for start in range(0, len(columns["text"]), batch_size):
            batch = {name: column[start : start + batch_size] for name, column in columns.items()}
            packed = self.preprocess(batch)
            outputs = self.read_graphs(packed)
            scores = tf.nn.softmax(self.packer.join(outputs["logits"], packed)).numpy()
            attentions = [np.asarray(outputs[f"{of}_attention"]) for of in ("pair", "path")]
            for row, text in enumerate(batch["text"].numpy()):
                choices = []
                for column, choice in enumerate(batch["choices"][row].numpy()):
                    graph = unpack_graph(packed["graphs"][row, column].numpy())
                    own = []
                    for of, name in enumerate(("pair_nodes", "path_pairs")):
                        own.append(attentions[of][: len(graph[name])])
                        attentions[of] = attentions[of][len(graph[name]) :]
                    if choice:
                        choices.append(
                            {
                                "choice": choice.decode("utf-8", "replace"),
                                "score": float(scores[row, column]),
                                "pairs": self.graphs.describe(graph, *own),
                            }
                        )
                label = int(scores[row].argmax())
                text = text.decode("utf-8", "replace")
                explanations.append({"text": text, "label": label, "choices": choices})
        return explanations

    @property
    def signatures(self) -> GraphSignatures:
        return GraphSignatures(self)

    @property
    def lookups(self) -> list[Any]:
        return [*super().lookups, *([] if self._search is None else [self._search])]

    def graph_search(self) -> GraphSearch | None:
        """Return what finds graphs in exports, None if they take packed ones."""
        if self.graph_in_export is False or (self.graph_in_export is None and self._is_too_large()):
            return None
        if self._search is None:
            self.require_graphs()
            self._search = GraphSearch(self.graphs)
        return self._search

    def _is_too_large(self):
        return self.graphs is None or bool(why_too_large(self.graphs))
