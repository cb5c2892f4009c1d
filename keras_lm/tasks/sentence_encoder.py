"""Embeddings that learn: texts → vectors, near each other where the texts belong together.

Shapes: B examples, T texts of each, S sequence, D width.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_lm.converters.checkpoint import Checkpoint
from keras_lm.converters.sentence_transformers import read_prompts
from keras_lm.feeding.datasets import is_stream
from keras_lm.feeding.feed import Feed, TaskLabels, names_in_table
from keras_lm.models.backbone import Backbone
from keras_lm.objectives.embeddings import (
    EmbeddingLoss,
    Examples,
    InBatchNegatives,
    normalized,
)
from keras_lm.packers import AnchoredTexts, Texts
from keras_lm.search import MOST_DOCUMENTS, Index
from keras_lm.tasks.feature_extractor import EncoderPreprocessor, FeatureExtractor
from keras_lm.tasks.runtime import IS_TENSORFLOW, outputs_of, require_tensorflow
from keras_lm.tasks.signatures import TextSignatures, plain_floats, trace
from keras_lm.tasks.task import checked_prompt
from keras_lm.tasks.text_classifier import TextClassifier
from keras_lm.tasks.text_model import Batch, Computed
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.tokenizers import strings
from keras_lm.utils.argument_types import PathLike, RawLabels, RawTexts, Tensor
from keras_lm.utils.files import export_format
from keras_lm.utils.user_arguments import check_whole

# What each loss compares vectors with, for an error.
LABELS = {
    "scores": "a score for each pair",
    "pairs": "1 for each pair that belongs together, and 0 for others",
    "classes": "a class for each text",
    "margins": "a teacher's margin for each example",
    "vectors": "a teacher's vector for each text",
}


class SentenceLabels(TaskLabels):
    """What the loss of a `SentenceEncoder` compares vectors with, if it needs labels."""

    columns = ("labels", "label", "scores", "score")

    @property
    def kind(self) -> str | None:
        """What labels are, see `EmbeddingLoss.labels_are`; None for none, or another's loss."""
        return getattr(self.loss, "labels_are", None)

    @property
    def are_needed(self) -> bool:
        return self.kind is not None or not isinstance(self.loss, EmbeddingLoss)

    @property
    def remedy(self) -> str:
        return f"pass y, {LABELS.get(self.kind, 'the labels of x')}"

    def prepare(self, labels):
        self._require_kind()
        loss, kind = type(self.loss).__name__, self.kind
        if kind == "classes" and labels.dtype.kind in "USO":
            return np.unique(labels.astype(str), return_inverse=True)[1].astype("int32")
        if kind is not None and labels.dtype.kind not in "biuf":
            raise ValueError(f"labels has dtype {labels.dtype}: {loss}() takes {LABELS[kind]}.")
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            row = int(np.argwhere(~np.isfinite(labels))[0][0])
            raise ValueError(f"labels[{row}]={labels[row]} is not finite: {loss}() compares it.")
        if kind == "pairs" and not np.isin(labels, (0, 1)).all():
            raise ValueError(f"labels has {np.unique(labels)[:5]}: {loss}() takes {LABELS[kind]}.")
        return labels.astype("int32" if kind in ("classes", "pairs") else "float32")

    def prepare_tensor(self, labels):
        self._require_kind()
        if labels.dtype == tf.string:
            raise ValueError(
                "labels of a tf.data.Dataset are strings, whose classes are not known before they "
                "are all read: let it yield an integer for each class."
            )
        return labels

    def _require_kind(self):
        """Raise a ValueError if labels are given that the loss would pass over."""
        if isinstance(self.loss, EmbeddingLoss) and self.kind is None:
            raise ValueError(
                f"y is given, and loss={type(self.loss).__name__}() learns without labels: leave "
                "it out, or compile with a loss that has labels, such as "
                "keras_lm.objectives.CoSENT() for scores."
            )

    def for_metrics(self, labels, outputs):
        return labels.labels if isinstance(labels, Examples) else labels


@dataclasses.dataclass(frozen=True, eq=False)
class SentencePreprocessor(EncoderPreprocessor):
    """An `EncoderPreprocessor` that also packs anchors with their positives and negatives.

    `prompts` are those of queries and of documents: of anchors, and of all others.
    """

    prompts: tuple[str | None, str | None] = (None, None)

    def pack(self, columns, tokenize):
        if "anchor" not in columns:
            return super().pack(columns, tokenize)
        texts = self.rows.side_by_side(columns)  # (B, T)
        asked, documents = (dataclasses.replace(self, prompt=prompt) for prompt in self.prompts)
        packed = {"text_keys": self.rows.keys(texts)}
        if not IS_INSTALLED:
            rows = [[*asked._changed(row[:1]), *documents._changed(row[1:])] for row in texts]
            ids = tokenize([text for row in rows for text in row])
            packed["is_text"] = ((texts != b"") | (np.arange(texts.shape[1]) < 2)).astype("int32")
            rows = self.packer.pack(text=ids)
            return packed | {name: x.reshape(*texts.shape, -1) for name, x in rows.items()}
        rows = [asked._changed(texts[:, 0])[:, tf.newaxis], _each(documents._changed, texts[:, 1:])]
        ids = self.packer.ids(tf.reshape(tf.concat(rows, axis=1), [-1]), tokenize)
        is_pair = tf.range(tf.shape(texts)[1]) < 2  # whose texts are there, even if they are empty
        packed["is_text"] = tf.cast((texts != "") | is_pair, tf.int32)
        for name, value in self.packer.pack(text=ids).items():
            value = tf.reshape(value, tf.concat([tf.shape(texts), tf.shape(value)[1:]], axis=0))
            packed[name] = tf.ensure_shape(value, [None, texts.shape[1], *value.shape[2:]])
        return packed


def _each(function, texts):
    """Return texts (B, T) that a function of (B,) has changed."""
    return tf.reshape(function(tf.reshape(texts, [-1])), tf.shape(texts))


class Corpus:
    """Documents in a graph, and their vectors: what `search` of an export answers from.

    Args:
        index: `keras_lm.search.Index`.
        k: int. How many documents it returns.
    """

    def __init__(self, index, k):
        check_whole("k", k, 1)
        if k > len(index.documents):
            raise ValueError(f"k={k}, and corpus has {len(index.documents)} texts: pass as many.")
        if len(index.documents) > MOST_DOCUMENTS:
            raise ValueError(
                f"corpus has {len(index.documents)} texts: an export compares {MOST_DOCUMENTS:,} "
                "at most. Ask a keras_lm.search.ApproximateIndex in Python for more."
            )
        self.k = k
        self.documents = [text.encode("utf-8", "surrogatepass") for text in index.documents]
        self.vectors = tf.Variable(index.vectors, trainable=False, name="corpus")

    def nearest(self, vectors, in_bytes):
        """Return `rows` int32, `documents` and `scores`, (B, K) each, for vectors (B, D).

        With `in_bytes`, documents are as `strings.from_bytes` returns them.
        """
        scores = tf.matmul(normalized(vectors), self.vectors, transpose_b=True)  # (B, N)
        scores, rows = tf.math.top_k(scores, self.k)
        return {"rows": rows, "documents": self._texts(rows, in_bytes), "scores": scores}

    def _texts(self, rows, in_bytes):
        if not in_bytes:  # LiteRT has no tf.gather of strings
            return tf.gather_nd(tf.constant(self.documents), rows[..., tf.newaxis])
        ends = np.cumsum([len(text) for text in self.documents]).astype("int32")
        everything = np.frombuffer(b"".join(self.documents), "uint8")
        texts = strings.from_bytes(tf.constant(everything), tf.constant(ends))
        return strings.gathered(texts, rows)


class SearchSignatures(TextSignatures):
    """Those of an encoder with a corpus: `search` beside its own."""

    def functions(self):
        search = trace(self.search, self.texts())
        return super().functions() | {"search": search}

    def search(self, **columns):
        return plain_floats(self.task.search(columns, self.tokenize))

    @property
    def further_lite(self):
        task = self.task
        return {"search": lambda columns: task.search(columns, task.tokenizer.tokenize_lite)}

    def requests(self, batch_sizes):
        yield from super().requests(batch_sizes)
        yield "search", {"text": np.full(batch_sizes[0], "a")}


@keras.saving.register_keras_serializable("keras_lm")
class SentenceEncoder(FeatureExtractor):
    """Turn texts into vectors, and learn which belong together.

    Training data are

    - pairs, `(anchors, positives)`, a list of pairs, or a dict or table with the columns `anchor`
      and `positive`: questions and their answers, sentences and paraphrases;
    - pairs with negatives, the column `negative`, a string or a list of strings for each: texts
      that do not belong to the anchor, though they resemble those that do;
    - pairs with a score each, `y`, of how similar they are;
    - texts with a class each, `y`;
    - texts alone, each its own positive under another dropout (SimCSE).

    The loss says which; `compile(loss=…)` takes one of `keras_lm.objectives`:

    | loss | data |
    |---|---|
    | `InBatchNegatives` (the default) | pairs, with or without negatives; texts alone |
    | `TripletLoss` | pairs with negatives |
    | `CoSENT`, `AnglE`, `CosineMeanSquares` | pairs with scores |
    | `ContrastiveLoss` | pairs with 0 or 1 |
    | `SupervisedContrastive` | texts with classes |
    | `MarginMeanSquares` | pairs with negatives, and a teacher's margins |
    | `VectorMeanSquares` | texts with a teacher's vectors |
    | `Matryoshka` | as the loss that it is made of |

    With `micro_batch_size` in `compile`, vectors of a batch are computed some texts at a time, and
    their gradients are cached: a batch of 1,024 pairs takes the memory of `micro_batch_size` pairs,
    and the loss is that of the whole batch. Under a strategy of `tf.distribute`, texts of all
    replicas are each other's negatives.

    Args:
        prompts: dict of what is put before texts: `"query"` before anchors and what is asked,
            `"document"` before all others. Other names are for `embed`.
        normalize: bool, True by default: see `FeatureExtractor`.
        backbone, layers, pooling, **arguments: see `FeatureExtractor`.

    Raises:
        ValueError: if `pooling` is `"none"`, or prompts come with `skipped_tokens` or a tokenizer
            that reads words.

    Example:

        encoder = keras_lm.tasks.SentenceEncoder.from_preset(SOURCE)
        encoder.fit((questions, answers), epochs=3)
        encoder.embed(["a question"], prompt_name="query")["embedding"].shape  # (1, 384)
        encoder.export("search", corpus=answers, k=3)

    Source: Reimers and Gurevych 2019, https://arxiv.org/abs/1908.10084; SimCSE, Gao et al. 2021,
    https://arxiv.org/abs/2104.08821; cached gradients, Gao et al. 2021,
    https://arxiv.org/abs/2101.06983; prompts, E5, https://arxiv.org/abs/2212.03533.
    """

    rows = Texts(text_pair=False, takes_words=True)
    labels_class = SentenceLabels
    preprocessor_class = SentencePreprocessor
    row_names = ("text_keys", "is_text")
    compares_rows = True
    _reads_pairs, _corpus = False, None

    def __init__(
        self,
        backbone: Backbone,
        layers: str | Sequence[int] = "last",
        pooling: str = "mean",
        normalize: bool = True,
        prompts: Mapping[str, str] | None = None,
        **arguments: Any,
    ):
        if pooling == "none":
            raise ValueError("pooling='none' has a vector for each token: use another pooling.")
        if not isinstance(prompts, Mapping | None):
            raise ValueError(f"prompts={prompts!r}: pass a dict of a name → what to put before.")
        if prompts and arguments.get("skipped_tokens"):
            raise ValueError(
                "prompts and skipped_tokens are given: tokens of several prompts cannot be left "
                "out of the mean. Pass one prompt, or skipped_tokens=0."
            )
        prompts = {str(name): checked_prompt(text) for name, text in (prompts or {}).items()}
        super().__init__(backbone, layers, pooling, normalize, **arguments)
        self.prompts = prompts
        if any(self.prompts.values()) and self.packer.takes_words:
            raise ValueError(
                f"prompts={self.prompts!r} with {type(self.tokenizer).__name__}: it reads lists of "
                "words, too, so leave them out."
            )

    @classmethod
    def arguments_from_modules(
        cls, checkpoint: Checkpoint, limit: int, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        stated = super().arguments_from_modules(checkpoint, limit, given)
        return stated | {"prompts": read_prompts(checkpoint)}

    @classmethod
    def from_parts(cls, backbone: Backbone, pool_prompt: bool = True, **arguments: Any) -> Self:
        if not pool_prompt and (prompts := arguments.get("prompts")):
            raise ValueError(
                f"the folder leaves prompts out of pooling (include_prompt), and has {prompts!r}, "
                "of several lengths: pass prompts={} and one prompt, such as "
                f"prompt={next(iter(prompts.values()))!r}."
            )
        return super().from_parts(backbone, pool_prompt, **arguments)

    def get_arguments(self) -> dict[str, Any]:
        return super().get_arguments() | {"prompts": self.prompts}

    def preprocessing(self) -> dict[str, Any]:
        return super().preprocessing() | {
            "prompts": tuple(self.prompts.get(name, self.prompt) for name in ("query", "document"))
        }

    def default_loss(self) -> Any:
        return InBatchNegatives()

    # === Training data ===

    @property
    def feed(self) -> Feed:
        return self.pair_feed if self._reads_pairs else super().feed

    @property
    def pair_feed(self) -> Feed:
        """As `feed`, of anchors with their positives, and negatives if there are any."""
        rows = AnchoredTexts()
        preprocessor = dataclasses.replace(
            self.preprocessor, rows=rows, packer=self.packer.with_rows(rows)
        )
        return Feed(preprocessor, self.labels, self.distribute_strategy)

    @contextlib.contextmanager
    def _reading(self, x: Any, learns: bool = True) -> Iterator[Any]:
        """A context in which data are read, pairs or single texts; it has these as x.

        Where it `learns` from texts alone, each is its own positive.
        """
        before, (x, form) = self._reads_pairs, self._read(x)
        has_loss = learns and isinstance(self.labels.loss, EmbeddingLoss)
        is_whole = not isinstance(x, keras.utils.PyDataset)
        if form == "texts" and has_loss and is_whole and not self.labels.are_needed:
            x, form = self._with_itself(x), "pairs"
        self._reads_pairs = form == "pairs"
        try:
            yield x
        finally:
            self._reads_pairs = before

    def _with_itself(self, x):
        """Return texts as pairs, each its own positive."""
        if isinstance(x, tf.data.Dataset):
            return x.map(self._with_itself)
        texts = x["text"] if isinstance(x, dict) or names_in_table(x) else x
        return {"anchor": texts, "positive": texts}

    def _read(self, x):
        """Return data, and their form: `"pairs"`, `"texts"` or `"packed"`."""
        if isinstance(x, tuple) and len(x) == 3:
            x = dict(zip(AnchoredTexts.names, x, strict=True))
        inputs = x
        if isinstance(x, tf.distribute.DistributedDataset):  # of packed batches
            return x, "packed"
        if isinstance(x, tf.data.Dataset):
            inputs = x.element_spec[0] if isinstance(x.element_spec, tuple) else x.element_spec
        elif isinstance(x, keras.utils.PyDataset):
            inputs = x[0][0] if isinstance(x[0], tuple) else x[0]
        elif is_stream(x):
            raise ValueError(
                "x is a generator: pass lists, a table, a keras.utils.PyDataset or a "
                "tf.data.Dataset of dicts with the keys 'anchor' and 'positive'."
            )
        if self.is_packed(inputs):
            return x, "packed"
        names = inputs if isinstance(inputs, dict) else names_in_table(inputs) or ()
        is_list = isinstance(inputs, (list, np.ndarray)) and len(inputs)
        of_pairs = is_list and all(isinstance(row, (list, tuple)) for row in inputs)
        is_pairs = isinstance(inputs, tuple) or "anchor" in names or of_pairs
        return x, "pairs" if is_pairs else "texts"

    def fit(
        self, x: RawTexts | None = None, y: RawLabels = None, *args: Any, **kwargs: Any
    ) -> keras.callbacks.History:
        """As `Task.fit`, on pairs and other data that the class describes."""
        with self._reading(x) as x:
            return super().fit(x, y, *args, **kwargs)

    def evaluate(
        self, x: RawTexts | None = None, y: RawLabels = None, *args: Any, **kwargs: Any
    ) -> Any:
        """As `Task.evaluate`, on the data that `fit` takes."""
        with self._reading(x) as x:
            return super().evaluate(x, y, *args, **kwargs)

    def predict(self, x: RawTexts, *args: Any, **kwargs: Any) -> Any:
        """As `Task.predict`: (B, D), or (B, T, D) for pairs, as `fit` takes them."""
        with self._reading(x, learns=False) as x:
            return super().predict(x, *args, **kwargs)

    def predict_on_batch(self, x: RawTexts) -> Any:
        with self._reading(x, learns=False) as x:
            return super().predict_on_batch(x)

    def train_on_batch(self, x: RawTexts, y: RawLabels = None, *args: Any, **kwargs: Any) -> Any:
        with self._reading(x) as x:
            return super().train_on_batch(x, y, *args, **kwargs)

    def test_on_batch(self, x: RawTexts, y: RawLabels = None, *args: Any, **kwargs: Any) -> Any:
        with self._reading(x) as x:
            return super().test_on_batch(x, y, *args, **kwargs)

    def validation_batches(self, data: Any, batch_size: int, steps: int | None = None) -> Any:
        """Return the packed batches of `validation_data`: x alone, or a tuple of x, y and weights.

        A tuple of strings is a pair, as in `fit`.
        """
        is_x = isinstance(data, tuple) and not self.labels.are_needed
        is_x = is_x and not isinstance(data[0], (tuple, dict))
        x, *rest = (data,) if is_x or not isinstance(data, tuple) else data
        with self._reading(x) as x:
            return super().validation_batches((x, *rest), batch_size, steps)

    def maker_of_batches(
        self,
        x: RawTexts,
        y: RawLabels,
        batch_size: int,
        class_weight: Mapping[Any, float] | None = None,
    ) -> Callable[[int], Any]:
        def make(seed):
            with self._reading(x) as texts:
                make = super(SentenceEncoder, self).maker_of_batches
                return make(texts, y, batch_size, class_weight)(seed)

        return make

    # === A step ===

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Any:
        name, own = next((n, own) for n, own in self.packer.inputs.items() if n in inputs)
        shape = ops.shape(inputs[name])
        if len(shape) == own.rank:
            return super().call(inputs, training)
        rows = self.backbone.select_inputs(inputs)
        rows = {name: ops.reshape(x, (-1, *ops.shape(x)[2:])) for name, x in rows.items()}
        has_any_shape = IS_TENSORFLOW and self.packer.padding == "longest" and not self.jit_compile
        if has_any_shape and "padding_mask" in rows:
            vectors = self._by_length(rows, shape[0], shape[1], training)
        else:
            vectors = super().call(rows, training)
        return ops.reshape(vectors, (-1, inputs[name].shape[1] or shape[1], vectors.shape[-1]))

    def _by_length(self, rows, number, parts, training):
        """Return the vectors of rows (B · T, S) in parts of similar length, with less padding.

        The shorter half of questions and answers has as many columns as its longest needs.
        """
        lengths = tf.reduce_sum(tf.cast(rows["padding_mask"], tf.int32), axis=1)
        order = tf.argsort(lengths, stable=True)
        own = self.packer.inputs
        is_left = self.packer.template.padding_side == "left"

        def part(first, last):
            here = order[first:last]
            width = tf.maximum(tf.reduce_max(tf.gather(lengths, here)), 1)
            chosen = {name: tf.gather(x, here) for name, x in rows.items()}
            for name, x in chosen.items():
                if name in own and own[name].rank > 1:
                    chosen[name] = x[:, -width:] if is_left else x[:, :width]
            return super(SentenceEncoder, self).call(chosen, training)

        middle = number * parts // 2
        vectors = tf.concat([part(0, middle), part(middle, None)], axis=0)
        return tf.gather(vectors, tf.argsort(order))

    def compute_batch(
        self, batch: Batch, training: bool | None, vectors: Tensor | None = None
    ) -> Computed:
        """As `TextModel.compute_batch`; `vectors` are those of the batch, if they are known."""
        vectors = self(batch.inputs, training=training) if vectors is None else vectors
        return Computed(self.examples(batch), vectors, batch.sample_weight)

    def shape_of_vectors(self, batch: Batch) -> list[int | None]:
        """Return the shape of the vectors of a batch, with None for what is not known yet."""
        own = self.packer.inputs
        name = next(name for name in own if name in batch.inputs)
        shape = batch.inputs[name].shape
        return [None, *shape[1 : len(shape) - own[name].rank + 1], self.output.shape[-1]]

    def examples(self, batch: Batch) -> Any:
        """Return labels as an `EmbeddingLoss` takes them; as they are for another's loss."""
        if not isinstance(self.labels.loss, EmbeddingLoss):
            return batch.labels
        is_text = batch.inputs.get("is_text")
        is_text = None if is_text is None else ops.cast(is_text, "bool")
        return Examples(batch.labels, is_text, batch.inputs.get("text_keys"))

    # === Answers ===

    def embed(
        self,
        x: RawTexts,
        batch_size: int = 32,
        verbose: int | str = "auto",
        prompt_name: str | None = None,
    ) -> dict[str, np.ndarray]:
        """Return `embedding` (B, D), float32, for raw texts in any form that `predict` takes.

        Args:
            x: list of str, or as `predict` takes them.
            batch_size, verbose: see `Task.answer_all`.
            prompt_name: name of one of `prompts`, such as `"query"`; None for `prompt`.

        Raises:
            ValueError: if there is no such prompt.
        """
        if prompt_name is None:
            return super().embed(x, batch_size, verbose)
        if prompt_name not in self.prompts:
            raise ValueError(f"prompt_name={prompt_name!r}: use one of {sorted(self.prompts)}.")

        def answer(columns):
            return self.decode(*self._embedded(columns, prompt_name))

        answer.__name__ = f"answer to {prompt_name}"
        return self.answer_all(x, batch_size, lambda c: self.in_graph(answer, c), verbose)

    def _embedded(self, columns, prompt_name, tokenize=None):
        """Return the vectors of texts after one of the prompts, or the usual one, and packed."""
        prompt = self.prompts.get(prompt_name, self.prompt)
        preprocessor = dataclasses.replace(self.preprocessor, prompt=prompt)
        packed = preprocessor(columns, tokenize)
        return outputs_of(self, packed), packed

    def as_classifier(self, class_names: Sequence[str], **arguments: Any) -> TextClassifier:
        """Return a `TextClassifier` over these vectors, a linear layer that has yet to learn.

        Both share the encoder's weights. Texts are truncated as here, and have `prompt` before
        them.

        Args:
            class_names: list of str.
            **arguments: further ones of `TextClassifier`.

        Raises:
            ValueError: if the encoder lower-cases texts for a tokenizer that does not, which a
                classifier cannot; or has `skipped_tokens`.

        Example:

            classifier = encoder.as_classifier(["bad", "good"])
            classifier.fit(texts, labels)
        """
        if self.lowercase and not getattr(self.tokenizer, "lowercase", False):
            raise ValueError(
                "lowercase=True: a TextClassifier reads texts as they are. Make the encoder with "
                "lowercase=False, and pass texts in lower case."
            )
        given = {"class_names": class_names, "tokenizer": self.tokenizer, "prompt": self.prompt}
        return TextClassifier(self, **given | self.packing | arguments)

    # === Search ===

    def search(
        self, columns: dict[str, Tensor], tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Return the nearest documents of an export's corpus, in the graph; see `export`."""
        vectors, _ = self._embedded(columns, "query", tokenize)
        return self._corpus.nearest(vectors, in_bytes=strings.are_bytes(columns["text"]))

    @property
    def signatures(self) -> TextSignatures:
        return super().signatures if self._corpus is None else SearchSignatures(self)

    def trimmed(self) -> Self:
        copy = super().trimmed()
        copy._corpus = self._corpus
        return copy

    def export(
        self,
        path: PathLike,
        format: str | None = None,
        corpus: Sequence[str] | Index | None = None,
        k: int = 10,
        **options: Any,
    ) -> Path:
        """Write one artefact that takes strings, and searches a corpus if it is given one.

        With a corpus, a SavedModel and a `.tflite` also have the signature `search`: `text` (B,),
        strings, → `rows` (B, K), int32, the numbers of the nearest documents from 0; `documents`
        (B, K), strings; and `scores` (B, K), float32, their cosines, the best first. All documents
        are compared with each text. With `tokenizer="bytes"`, documents are bytes and
        `documents_ends`, as strings are there.

        Args:
            path, format, **options: see `keras_lm.export.export`.
            corpus: list of str, the documents, of which vectors are made now; or a
                `keras_lm.search.Index`, which has them.
            k: int, K. How many documents `search` returns.

        Raises:
            ValueError: if `k` is more than the corpus has, or `freeze` or a `format` or `tokenizer`
                is given that has no signature for it; and as `keras_lm.export.export` does.
        """
        if corpus is None:
            return super().export(path, format, **options)
        if export_format(path, format) not in ("saved_model", "litert") or (
            options.get("tokenizer", "graph") not in ("graph", "bytes")
        ):
            raise ValueError(
                f"corpus with format={format!r} and tokenizer={options.get('tokenizer')!r}: only a "
                "SavedModel, or a .tflite with its tokenizer in the graph, searches."
            )
        if options.get("freeze"):
            raise ValueError("corpus with freeze=True: leave freeze out.")
        require_tensorflow("An export")
        index = corpus if isinstance(corpus, Index) else Index(self, corpus)
        self._corpus = Corpus(index, k)
        try:
            return super().export(path, format, **options)
        finally:
            self._corpus = None
