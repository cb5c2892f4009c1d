"""Embeddings that learn: texts → vectors, near each other where the texts belong together.

Shapes: B examples, T texts of each, S sequence, D width.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np

from keras_lm.converters.checkpoint import Checkpoint
from keras_lm.converters.sentence_transformers import read_prompts, read_similarity
from keras_lm.models.backbone import Backbone
from keras_lm.objectives.embeddings import (
    SIMILARITIES,
    InBatchNegatives,
    normalized,
)
from keras_lm.search import MOST_DOCUMENTS, Index
from keras_lm.tasks.feature_extractor import FeatureExtractor
from keras_lm.tasks.pair_learning import PairLearning
from keras_lm.tasks.runtime import require_tensorflow
from keras_lm.tasks.signatures import TextSignatures, plain_floats, trace
from keras_lm.tasks.text_classifier import TextClassifier
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings
from keras_lm.utils.argument_types import PathLike, Tensor
from keras_lm.utils.files import export_format
from keras_lm.utils.user_arguments import check_whole

AGAIN = 100  # documents that are compared a second time, more exactly
LARGEST = 127  # of an int8


class Corpus:
    """Documents in a graph, and their vectors: what `search` of an export answers from.

    Vectors are int8 in two levels, with steps of a row's largest number / 127, and of that / 254.
    All documents are compared by the first, and the best again by both, which are the vectors but
    for 0.002 % of their largest number.

    Args:
        index: `keras_lm.search.Index`.
        k: int. How many documents it returns; all of them, if there are fewer.
    """

    def __init__(self, index, k):
        check_whole("k", k, 1)
        if len(index.documents) > MOST_DOCUMENTS:
            raise ValueError(
                f"corpus has {len(index.documents)} texts: an export compares {MOST_DOCUMENTS:,} "
                "at most. Ask a keras_lm.search.ApproximateIndex in Python for more."
            )
        self.k = min(k, len(index.documents))
        self.is_cosine = getattr(index.encoder, "similarity", "cosine") == "cosine"
        self.documents = [text.encode("utf-8", "surrogatepass") for text in index.documents]
        first, second, scales = _in_levels(index.vectors)
        self.levels = [tf.Variable(x, trainable=False) for x in (first, second, scales)]
        self.vectors = tf.Variable(first * scales, trainable=False, name="corpus")
        self.vectors.stored = self.levels[0], self.levels[2]

    def nearest(self, vectors, in_bytes):
        """Return `rows` int32, `documents` and `scores`, (B, K) each, for vectors (B, D).

        With `in_bytes`, documents are as `strings.from_bytes` returns them.
        """
        vectors = normalized(vectors) if self.is_cosine else vectors
        scores = tf.matmul(vectors, self.vectors, transpose_b=True)  # (B, N)
        rows, scores = self._compared_again(vectors, scores)
        return {"rows": rows, "documents": self._texts(rows, in_bytes), "scores": scores}

    def _compared_again(self, vectors, scores):
        """Return rows and scores (B, K) of the best by both levels, out of those by the first."""
        number = min(max(AGAIN, 2 * self.k), len(self.documents))
        rows = -tf.math.top_k(-tf.math.top_k(scores, number).indices, number).values  # in order
        first, second, scales = (tf.gather(level, rows) for level in self.levels)  # (B, C, D or 1)
        documents = tf.cast(first, tf.float32) + tf.cast(second, tf.float32) / (2 * LARGEST)
        scores = tf.reduce_sum(documents * vectors[:, tf.newaxis], axis=-1) * scales[..., 0]
        scores, places = tf.math.top_k(scores, self.k)  # of equal ones, the first
        return tf.gather(rows, places, batch_dims=1), scores

    def _texts(self, rows, in_bytes):
        if not in_bytes:  # LiteRT has no tf.gather of strings
            return tf.gather_nd(tf.constant(self.documents), rows[..., tf.newaxis])
        ends = np.cumsum([len(text) for text in self.documents]).astype("int32")
        everything = np.frombuffer(b"".join(self.documents), "uint8")
        texts = strings.from_bytes(tf.constant(everything), tf.constant(ends))
        return strings.gathered(texts, rows)


def _in_levels(vectors):
    """Return int8 (N, D) twice, and float32 scales (N, 1): (first + second / 254) · scales."""
    scales = np.abs(vectors).max(axis=1, keepdims=True) / LARGEST
    scales[scales == 0] = 1
    first = np.round(vectors / scales)
    second = np.round((vectors / scales - first) * 2 * LARGEST)
    return first.astype("int8"), second.astype("int8"), scales


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
        return {"search": lambda columns: task.search(columns, task.preprocessor.tokenize_lite)}

    def requests(self, batch_sizes):
        yield from super().requests(batch_sizes)
        yield "search", {"text": np.full(batch_sizes[0], "a")}


@keras.saving.register_keras_serializable("keras_lm")
class SentenceEncoder(PairLearning, FeatureExtractor):
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

    With `similarity="dot"`, the default loss is of dot products, too.

    With `micro_batch_size` in `compile`, vectors of a batch are computed some texts at a time, and
    their gradients are cached: a batch of 1,024 pairs takes the memory of `micro_batch_size` pairs,
    and the loss is that of the whole batch. Under a strategy of `tf.distribute`, texts of all
    replicas are each other's negatives.

    Args:
        prompts: dict of what is put before texts: `"query"` before anchors and what is asked,
            `"document"` before all others. Other names are for `embed`.
        normalize: bool, True by default: see `FeatureExtractor`.
        similarity: `"cosine"`, or `"dot"` for dot products: how a search and evaluations compare
            vectors. It makes a difference with `normalize=False` alone.
        backbone, layers, pooling, **arguments: see `FeatureExtractor`.

    Raises:
        ValueError: if `pooling` is `"none"`, `similarity` has another value, or prompts come with
            `skipped_tokens` or a tokenizer that reads words.

    Example:

        encoder = keras_lm.tasks.SentenceEncoder.from_preset(SOURCE)
        encoder.fit((questions, answers), epochs=3)
        encoder.embed(["a question"], prompt_name="query")["embedding"].shape  # (1, 384)
        encoder.export("search", corpus=answers, k=3)

    Source: Reimers and Gurevych 2019, https://arxiv.org/abs/1908.10084; SimCSE, Gao et al. 2021,
    https://arxiv.org/abs/2104.08821; cached gradients, Gao et al. 2021,
    https://arxiv.org/abs/2101.06983; prompts, E5, https://arxiv.org/abs/2212.03533.
    """

    _corpus = None

    def __init__(
        self,
        backbone: Backbone,
        layers: str | Sequence[int] = "last",
        pooling: str = "mean",
        normalize: bool = True,
        prompts: Mapping[str, str] | None = None,
        similarity: str = "cosine",
        **arguments: Any,
    ):
        if similarity not in SIMILARITIES:
            raise ValueError(f"similarity={similarity!r}: use one of {SIMILARITIES}.")
        if pooling == "none":
            raise ValueError("pooling='none' has a vector for each token: use another pooling.")
        prompts = self.checked_prompts(prompts)
        if prompts and arguments.get("skipped_tokens"):
            raise ValueError(
                "prompts and skipped_tokens are given: tokens of several prompts cannot be left "
                "out of the mean. Pass one prompt, or skipped_tokens=0."
            )
        super().__init__(backbone, layers, pooling, normalize, **arguments)
        self.prompts, self.similarity = prompts, similarity
        self.check_without_words()

    def get_arguments(self) -> dict[str, Any]:
        return super().get_arguments() | {"similarity": self.similarity}

    def written_inputs(self) -> dict[str, Any]:
        return super().written_inputs() | {"similarity": self.similarity}

    def default_loss(self) -> Any:
        return super().default_loss() if self.similarity == "cosine" else InBatchNegatives(1, "dot")

    @classmethod
    def arguments_from_modules(
        cls, checkpoint: Checkpoint, limit: int, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        stated = super().arguments_from_modules(checkpoint, limit, given)
        stated |= {"prompts": read_prompts(checkpoint)}
        return stated | (
            {} if "similarity" in given else {"similarity": read_similarity(checkpoint)}
        )

    @classmethod
    def from_parts(cls, backbone: Backbone, pool_prompt: bool = True, **arguments: Any) -> Self:
        if not pool_prompt and (prompts := arguments.get("prompts")):
            raise ValueError(
                f"the folder leaves prompts out of pooling (include_prompt), and has {prompts!r}, "
                "of several lengths: pass prompts={} and one prompt, such as "
                f"prompt={next(iter(prompts.values()))!r}."
            )
        return super().from_parts(backbone, pool_prompt, **arguments)

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
        (B, K), strings; and `scores` (B, K), float32, their cosines or dot products, the best
        first, and of equal ones the first document. All documents are compared with each text, by
        vectors in int8, and the best 100, or twice K, again by vectors of 16 bits in all.
        With `tokenizer="bytes"`, documents are bytes and `documents_ends`, as strings are there.

        Args:
            path, format, **options: see `keras_lm.export.export`.
            corpus: list of str, the documents, of which vectors are made now; or a
                `keras_lm.search.Index`, which has them.
            k: int, K. How many documents `search` returns; all of them, if there are fewer.

        Raises:
            ValueError: if the index is of vectors of another width, or `freeze` or a `format` or
                `tokenizer` is given that has no signature for it; and as `keras_lm.export.export`
                does.
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
        index.check_width(self.output.shape[-1])
        self._corpus = Corpus(index, k)
        try:
            return super().export(path, format, **options)
        finally:
            self._corpus = None
