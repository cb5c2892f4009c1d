"""Late interaction: a vector for each token of a text, compared token by token (ColBERT).

Shapes: B examples, T texts of each, S sequence, D width, N documents.
"""

import copy
import dataclasses
import string
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_lm.converters.checkpoint import Checkpoint
from keras_lm.converters.multi_vector_files import (
    is_authors,
    read_multi_vector,
    write_multi_vector,
)
from keras_lm.converters.sentence_transformers import check_modules
from keras_lm.layers.positions import CountedPositionEmbedding
from keras_lm.models.backbone import Backbone
from keras_lm.models.token_vectors import TokenVectorBackbone
from keras_lm.objectives.embeddings import EmbeddingLoss
from keras_lm.objectives.late_interaction import MaxSimNegatives
from keras_lm.tasks.feature_extractor import FeatureExtractor
from keras_lm.tasks.pair_learning import PairLearning
from keras_lm.tasks.roles import DOCUMENT, QUERY, QuerySignatures, RolePreprocessor
from keras_lm.tasks.runtime import outputs_of
from keras_lm.tasks.signatures import TextSignatures
from keras_lm.tasks.task import Task
from keras_lm.tasks.text_model import Batch
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.vocabulary import strings_of
from keras_lm.utils.argument_types import PathLike, Tensor
from keras_lm.utils.user_arguments import check_whole, list_of_texts

AT_ONCE = 64  # documents whose tokens are compared together


@keras.saving.register_keras_serializable("keras_lm")
class MultiVectorEncoder(PairLearning, FeatureExtractor):
    """Turn each token of a text into a vector, and compare texts token by token (ColBERT).

    The score of a query and a document is the sum over the query's tokens of the highest cosine to
    a token of the document. A query is expanded by mask tokens to `query_length` tokens, whose
    vectors count as the others; of a document, the vectors of `skipped_words` do not count.
    Vectors that do not count are zeros. `fit` takes the pairs that `SentenceEncoder` takes, with or
    without negatives, and learns by `MaxSimNegatives`.

    Args:
        projections: list of dict, see `FeatureExtractor`: dense layers on each token's vector.
            None for one of 128 units without a bias.
        normalize: bool. Scale each vector to length 1.
        query_length: int. How many tokens a query has; longer ones are truncated. None for as many
            as `sequence_length` allows, if queries are not expanded.
        expand_queries: bool. Whether shorter queries are expanded by mask tokens.
        attend_to_expansion: bool. Whether other tokens attend to these.
        skipped_words: list of str. Entries of the vocabulary that do not count in documents.
        prompts: dict of what is put before texts: `"query"` before anchors and what is asked, and
            `"document"` before all others, such as `{"query": "[Q] ", "document": "[D] "}`. If they
            are special tokens of the tokenizer, they have to be in `parse_special`.
        lowercase: see `FeatureExtractor`.
        backbone, **arguments: see `Task`.

    Call: `task(inputs)` returns (B, S, D), float32.

    Raises:
        ValueError: if the backbone reads no tokens, as ELMo; positions of it are counted without
            tokens that none attends to; or queries are to be expanded and there is no
            `query_length`, or the tokenizer has no mask token or pads on the left.

    Example:

        encoder = keras_lm.tasks.MultiVectorEncoder.from_preset("hf://colbert-ir/colbertv2.0")
        encoder.fit((questions, answers), epochs=3)
        encoder.embed(["a document"])["embedding"].shape  # (1, 5, 128)
        encoder.score(["a question"], answers)  # (1, N)
        encoder.export("colbert")  # serving_default for documents, and query

    Source: Khattab and Zaharia 2020, https://arxiv.org/abs/2004.12832; Santhanam et al. 2021,
    https://arxiv.org/abs/2112.01488.
    """

    preprocessor_class = RolePreprocessor
    row_names = ("text_keys", "is_text", "is_query")
    similarity = "max_sim"
    roles = (QUERY, DOCUMENT)
    usual_role = DOCUMENT
    published_class = "MultiVectorEncoder"
    predicts_sequences = True

    def __init__(
        self,
        backbone: Backbone,
        projections: Sequence[Mapping[str, Any]] | None = None,
        normalize: bool = True,
        query_length: int | None = 32,
        expand_queries: bool = True,
        attend_to_expansion: bool = False,
        skipped_words: Sequence[str] = tuple(string.punctuation),
        prompts: Mapping[str, str] | None = None,
        lowercase: bool = False,
        **arguments: Any,
    ):
        Task.__init__(self, backbone, **arguments)  # without the features of hidden states
        backbone = self.backbone
        if getattr(backbone, "pooling", "none") != "none":
            raise ValueError(
                "backbone is a FeatureExtractor or a SentenceEncoder, which has one vector for "
                "each text: pass its network, encoder.backbone."
            )
        if "token_ids" not in backbone.input_fields:
            raise ValueError(
                f"backbone is of the class {type(backbone).__name__}, which takes no token_ids: "
                "pass one that reads tokens, such as a BertBackbone."
            )
        if expand_queries or query_length is not None:
            check_whole("query_length", query_length, 1, backbone.max_sequence_length)
        layers = (layer for layer in backbone._flatten_layers())
        counts = any(isinstance(layer, CountedPositionEmbedding) for layer in layers)
        if expand_queries and not attend_to_expansion and counts:
            raise ValueError(
                f"attend_to_expansion=False: {type(backbone).__name__} counts positions by the "
                "tokens that others attend to. Pass True, or expand_queries=False."
            )
        if projections is None:
            projections = [{"output_dim": 128, "use_bias": False}]
        self.features = TokenVectorBackbone(backbone, [*projections], normalize)
        self.query_length, self.expand_queries = query_length, expand_queries
        self.attend_to_expansion = attend_to_expansion
        self.skipped_words = strings_of("skipped_words", skipped_words)
        self.prompt, self.lowercase = None, lowercase
        self.prompts = self.checked_prompts(prompts)
        self._finish()
        self.check_without_words()
        self._check_expansion()

    def _check_expansion(self):
        """Raise a ValueError if the tokenizer cannot expand queries."""
        if not self.expand_queries or self.tokenizer is None:
            return
        if "mask" not in self.tokenizer.special_tokens or self.template.padding_side != "right":
            raise ValueError(
                f"expand_queries=True: {type(self.tokenizer).__name__} has no mask_token, or pads "
                "on the left. Pass expand_queries=False."
            )

    def use_tokenizer(self, tokenizer: Any) -> None:
        super().use_tokenizer(tokenizer)
        self._check_expansion()

    @classmethod
    def from_parts(cls, backbone: Backbone, markers: Sequence[str] = (), **arguments: Any) -> Self:
        """Return a task; `markers` are prompts that are single tokens if the vocabulary has them.

        See `Task.from_parts` for the others.
        """
        tokenizer = arguments.get("tokenizer")
        if tokenizer is not None and arguments.get("parse_special") is None:
            known = {*tokenizer.vocabulary}
            tokens = [text if text in known else text.split(" ")[0] for text in markers]
            tokens = [t for t in tokens if t in known and t not in tokenizer.all_special_tokens]
            if tokens:
                tokenizer = tokenizer.with_special_tokens(tokens)
            texts = (arguments.get("prompts") or {}).values()
            spelled = [t for t in tokenizer.all_special_tokens if any(t in text for text in texts)]
            arguments |= {"tokenizer": tokenizer, "parse_special": spelled or None}
        return super().from_parts(backbone, **arguments)

    def get_arguments(self) -> dict[str, Any]:
        arguments = super().get_arguments()
        del arguments["prompt"]
        return arguments | {
            "query_length": self.query_length,
            "expand_queries": self.expand_queries,
            "attend_to_expansion": self.attend_to_expansion,
            "skipped_words": self.skipped_words,
        }

    def preprocessing(self) -> dict[str, Any]:
        queries = self.packer
        if self.query_length is not None:
            queries = copy.copy(self.packer)
            queries.sequence_length = self.query_length
        if self.expand_queries:
            queries = queries.with_padding("fixed")
        has_mask = self.expand_queries and self.tokenizer is not None
        return super().preprocessing() | {
            "prompt": self.prompts.get(DOCUMENT),
            "queries": queries,
            "mask_id": self.tokenizer.special_id("mask") if has_mask else None,
            "attends": self.attend_to_expansion,
        }

    def default_loss(self) -> Any:
        return MaxSimNegatives()

    def compile(
        self, optimizer: Any = "auto", loss: Any = "auto", *args: Any, **kwargs: Any
    ) -> None:
        """As `TextModel.compile`.

        Raises:
            ValueError: if the loss compares one vector of each text; and as there.
        """
        if isinstance(loss, EmbeddingLoss) and not isinstance(loss, MaxSimNegatives):
            raise ValueError(
                f"loss={type(loss).__name__}() compares one vector of each text, and a "
                "MultiVectorEncoder has one for each token: pass MaxSimNegatives()."
            )
        super().compile(optimizer, loss, *args, **kwargs)

    # === Files ===

    @classmethod
    def states_modules(cls, checkpoint: Checkpoint) -> bool:
        return checkpoint.has_modules or is_authors(checkpoint)

    @classmethod
    def arguments_from_modules(
        cls, checkpoint: Checkpoint, limit: int, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        return read_multi_vector(checkpoint, limit)

    def published_labels(self) -> Any:
        check_modules("mean", self.features.get_arguments()["projections"])
        return None

    def write_modules(self, folder: PathLike) -> None:
        layers, inputs = self.written_layers(), self.written_inputs()
        write_multi_vector(folder, self.get_arguments(), layers, inputs)

    # === A step ===

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Any:
        shape = ops.shape(inputs["token_ids"])
        rows = self.backbone.complete(self.backbone.select_inputs(inputs))
        rows = {
            name: ops.reshape(x, (-1, *ops.shape(x)[len(shape) - 1 :])) for name, x in rows.items()
        }
        (vectors,) = self.features(rows, training=training).values()
        counted = self._counted(rows, inputs.get("is_query"))
        vectors *= ops.cast(counted, vectors.dtype)[..., None]
        return ops.reshape(vectors, (*shape, vectors.shape[-1]))

    def _counted(self, rows, is_query):
        """Return which tokens (B, S) count; texts are documents where it is not known."""
        ids = rows["token_ids"]
        is_real = ops.cast(rows["padding_mask"], "bool")
        counted = is_real
        for id in self._skipped_ids():
            counted = ops.logical_and(counted, ids != id)
        if is_query is None:
            return counted
        of_queries = is_real
        if self.expand_queries:
            of_queries = ops.arange(ops.shape(ids)[1])[None] < self.query_length
        return ops.where(ops.reshape(is_query, (-1, 1)) > 0, of_queries, counted)

    def _skipped_ids(self):
        if self.tokenizer is None:
            return []
        known = {*self.tokenizer.vocabulary}
        return [self.tokenizer.token_to_id(word) for word in self.skipped_words if word in known]

    def shape_of_vectors(self, batch: Batch) -> list[int | None]:
        shape = batch.inputs["token_ids"].shape
        return [None, *shape[1:-1], None, self.output.shape[-1]]

    # === Answers ===

    def decode(self, outputs: Any, packed: dict[str, Tensor]) -> Any:
        """Return `embedding` (B, S, D), and `mask` (B, S), int32, 1 for vectors that count."""
        counts = tf.reduce_any(tf.not_equal(outputs, 0.0), axis=-1)
        return {"embedding": outputs, "mask": tf.cast(counts, tf.int32)}

    def _embedded(self, columns, prompt_name, tokenize=None):
        prompt, is_query = self.prompts.get(prompt_name), prompt_name == QUERY
        preprocessor = dataclasses.replace(self.preprocessor, prompt=prompt, is_query=is_query)
        packed = preprocessor(columns, tokenize)
        return outputs_of(self, packed), packed

    def score(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        batch_size: int = 32,
        verbose: int | str = "auto",
    ) -> np.ndarray:
        """Return the scores of queries and documents, (B, N) float32.

        Args:
            queries, documents: list of str.
            batch_size, verbose: see `embed`.
        """
        queries = list_of_texts(queries, "queries")
        documents = list_of_texts(documents, "documents")
        asked = self.embed(queries, batch_size, verbose, QUERY)["embedding"]
        told = self.embed(documents, batch_size, verbose, DOCUMENT)
        parts = [np.zeros((len(asked), 0), "float32")]
        for start in range(0, len(told["mask"]), AT_ONCE):
            vectors = told["embedding"][start : start + AT_ONCE]  # (N, S, D)
            is_token = told["mask"][start : start + AT_ONCE] > 0
            rows = []
            for query in asked:
                similar = np.where(is_token[..., None], vectors @ query.T, -np.inf)  # (N, S, Q)
                counts = np.any(query != 0, axis=-1)
                rows.append(similar.max(axis=1)[:, counts].sum(axis=1))
            parts.append(np.stack(rows) if rows else np.zeros((0, len(vectors)), "float32"))
        return np.concatenate(parts, axis=1).astype("float32")

    # === Exports ===

    def answer_query(self, columns: dict[str, Tensor], tokenize: Any = None) -> Any:
        """Return the answer for named strings that are queries, in the graph; see `answer`."""
        return self.decode(*self._embedded(columns, QUERY, tokenize))

    @property
    def signatures(self) -> TextSignatures:
        return QuerySignatures(self)
