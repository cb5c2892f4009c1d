"""Learning which texts belong together: what the tasks that do so have in common.

Shapes: B examples, T texts of each, S sequence, D width.
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.feeding.datasets import is_stream
from keras_lm.feeding.feed import Feed, TaskLabels, names_in_table
from keras_lm.objectives.embeddings import (
    LABELS,
    EmbeddingLoss,
    Examples,
    InBatchNegatives,
    normalized,
)
from keras_lm.objectives.late_interaction import max_sim
from keras_lm.packers import AnchoredTexts, Texts
from keras_lm.tasks.feature_extractor import EncoderPreprocessor
from keras_lm.tasks.runtime import IS_TENSORFLOW, outputs_of
from keras_lm.tasks.task import checked_prompt
from keras_lm.tasks.text_model import Batch, Computed
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.utils.argument_types import RawLabels, RawTexts, Tensor


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
        if getattr(self.loss, "are_cosines", False) and not (np.abs(labels) <= 1).all():
            raise ValueError(
                f"labels has {labels[np.abs(labels) > 1][0]}: {loss}() compares them with cosines, "
                "-1 to 1. Divide them, or compile with CoSENT(), which takes any scale."
            )
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


class PairLearning:
    """What a task over a `FeatureExtractor`'s parts needs to learn which texts belong together.

    A subclass sets `prompts`, and comes before `FeatureExtractor` among its bases. See
    `SentenceEncoder` for the data.
    """

    rows = Texts(text_pair=False, takes_words=True)
    labels_class = SentenceLabels
    preprocessor_class = SentencePreprocessor
    row_names = ("text_keys", "is_text")
    compares_rows = True
    # How vectors are compared: `"cosine"` or `"dot"`.
    similarity = "cosine"
    # Names of prompts that say in which role texts are read, with a prompt or without one.
    roles: tuple[str, ...] = ()
    # The role of texts that are embedded without the name of a prompt.
    usual_role: str | None = None
    _reads_pairs = False

    @staticmethod
    def checked_prompts(prompts: Mapping[str, str] | None) -> dict[str, str]:
        """Return `prompts` as a dict; raise a ValueError if they are not strings by name."""
        if not isinstance(prompts, Mapping | None):
            raise ValueError(f"prompts={prompts!r}: pass a dict of a name → what to put before.")
        return {str(name): checked_prompt(text) for name, text in (prompts or {}).items()}

    def check_without_words(self) -> None:
        """Raise a ValueError if there are prompts, and the tokenizer reads lists of words."""
        if any(self.prompts.values()) and self.packer.takes_words:
            raise ValueError(
                f"prompts={self.prompts!r} with {type(self.tokenizer).__name__}: it reads lists of "
                "words, too, so leave them out."
            )

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
            if not isinstance(x.element_spec, tuple):
                return x.map(self._with_itself)
            return x.map(lambda texts, *rest: (self._with_itself(texts), *rest))
        names = [*x] if isinstance(x, dict) else names_in_table(x)
        if names and "text" not in names:
            raise ValueError(
                f"x has the columns {names}: call those of pairs 'anchor' and 'positive', with "
                "'negative' for texts that do not fit; a column of texts alone is 'text'."
            )
        texts = x["text"] if names else x
        return {"anchor": texts, "positive": texts}

    def _read(self, x):
        """Return data, and their form: `"pairs"`, `"texts"` or `"packed"`."""
        is_rows = isinstance(x, (list, np.ndarray)) and len(x) > 0
        if is_rows and all(isinstance(row, (list, tuple, np.ndarray)) for row in x):
            lengths = {len(row) for row in x}
            if lengths in ({2}, {3}):
                x = tuple(list(column) for column in zip(*x, strict=True))
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
            self._warn_of_single_examples(x, kwargs.get("batch_size", *args[:1]))
            return super().fit(x, y, *args, **kwargs)

    def _warn_of_single_examples(self, x, batch_size=None):
        """Warn if each batch is one example, and the loss compares those of a batch."""
        loss = self.labels.loss
        names = [*x] if isinstance(x, dict) else names_in_table(x) or ()
        if not getattr(loss, "compares_examples", False) or "negative" in names:
            return
        column = x[names[0]] if names else x[0] if isinstance(x, tuple) else x
        is_whole = isinstance(column, (list, tuple, np.ndarray))
        if batch_size == 1 or (is_whole and len(column) == 1):
            warnings.warn(
                f"each batch has one example, and loss={type(loss).__name__}() compares those of a "
                "batch, so that nothing is learned: pass more examples and a batch_size of 2 or "
                "more.",
                stacklevel=3,
            )

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

    def with_labels(self, x: RawTexts, y: RawLabels) -> tuple[Any, Any]:
        with self._reading(x) as x:
            return super().with_labels(x, y)

    def first_batches(self, x: RawTexts, *args: Any, **kwargs: Any) -> Any:
        with self._reading(x) as x:
            return super().first_batches(x, *args, **kwargs)

    def maker_of_batches(
        self,
        x: RawTexts,
        y: RawLabels,
        batch_size: int,
        class_weight: Mapping[Any, float] | None = None,
    ) -> Callable[[int], Any]:
        def make(seed):
            with self._reading(x) as texts:
                make = super(PairLearning, self).maker_of_batches
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
            return super(PairLearning, self).call(chosen, training)

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

        A `SparseEncoder` returns (B, V), of which `top_k` leaves the K largest numbers in each row;
        most are 0: `scipy.sparse.csr_array(embedding)` takes less memory. A `MultiVectorEncoder`
        returns (B, S, D) and `mask` (B, S), see its `decode`.

        Args:
            x: list of str, or as `predict` takes them.
            batch_size, verbose: see `Task.answer_all`.
            prompt_name: name of one of `prompts`, such as `"query"`; None for `prompt`, or
                for the prompt `"document"` of a `MultiVectorEncoder`.

        Raises:
            ValueError: if there is no such prompt.
        """
        return self.answer_in_role(self.whole_embedding, x, batch_size, verbose, prompt_name)

    def whole_embedding(self, outputs: Any, packed: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what `embed` does, for the outputs of the network."""
        return self.decode(outputs, packed)

    def answer_in_role(
        self,
        decode: Callable[[Any, dict[str, Tensor]], Any],
        x: RawTexts,
        batch_size: int,
        verbose: int | str,
        prompt_name: str | None,
    ) -> dict[str, Any]:
        """Return what `decode` makes of outputs for raw texts; see `embed` for the others."""
        self.check_prompt_name(prompt_name)
        role = prompt_name or self.usual_role

        def answer(columns):
            return decode(*self._embedded(columns, role))

        answer.__name__ = f"{decode.__name__} of {role}"
        x = [*x] if isinstance(x, tuple) else x
        return self.answer_all(x, batch_size, lambda c: self.in_graph(answer, c), verbose)

    def similarities(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return how similar vectors are, as `similarity` says, (B, N) float32.

        Args:
            first, second: what `embed` returns as `embedding`, (B, D) and (N, D); of a
                `MultiVectorEncoder` (B, Q, D) of queries and (N, S, D) of documents.

        Example:

            a, b = (encoder.embed(texts)["embedding"] for texts in (questions, answers))
            encoder.similarities(a, b)
        """
        first, second = (ops.convert_to_tensor(x, "float32") for x in (first, second))
        if self.similarity == "max_sim":
            return ops.convert_to_numpy(max_sim(first, second))
        if self.similarity == "cosine":
            first, second = normalized(first), normalized(second)
        return ops.convert_to_numpy(ops.matmul(first, ops.transpose(second)))

    def check_prompt_name(self, name: str | None) -> None:
        """Raise a ValueError if neither `prompts` nor `roles` have such a name."""
        names = sorted({*self.prompts, *self.roles})
        if name is not None and name not in names:
            raise ValueError(f"prompt_name={name!r}: use one of {names}.")

    def _embedded(self, columns, prompt_name, tokenize=None):
        """Return the vectors of texts after one of the prompts, or the usual one, and packed."""
        prompt = self.prompts.get(prompt_name, self.prompt)
        preprocessor = dataclasses.replace(self.preprocessor, prompt=prompt)
        packed = preprocessor(columns, tokenize)
        return outputs_of(self, packed), packed
