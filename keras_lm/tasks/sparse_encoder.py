"""Sparse vectors of texts, a weight for each entry of the vocabulary (SPLADE).

Shapes: B examples, V vocabulary, K terms.
"""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.converters.checkpoint import Checkpoint
from keras_lm.converters.sentence_transformers import (
    read_inputs,
    read_prompts,
    read_sparse_head,
    write_sparse_modules,
)
from keras_lm.models.backbone import Backbone
from keras_lm.models.sparse_backbone import SparseBackbone, TokenWeights
from keras_lm.objectives.sparse_embeddings import SpladeLoss
from keras_lm.tasks.feature_extractor import FeatureExtractor
from keras_lm.tasks.pair_learning import PairLearning
from keras_lm.tasks.roles import QUERY, QuerySignatures, RolePreprocessor
from keras_lm.tasks.signatures import TextSignatures
from keras_lm.tasks.task import Task, checked_prompt
from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import PathLike, RawTexts, Tensor
from keras_lm.utils.processes import as_array
from keras_lm.utils.user_arguments import check_whole


@keras.saving.register_keras_serializable("keras_lm")
class SparseEncoder(PairLearning, FeatureExtractor):
    """Turn texts into sparse vectors: weights of words that a text has, or that would fit (SPLADE).

    The logits of a masked language model's head at each token become log(1 + relu(logits)), and the
    largest of a text is the weight of an entry of the vocabulary. Texts are compared by the dot
    product of such vectors, which an inverted index computes. `fit` takes the data that
    `SentenceEncoder` takes, and learns by `SpladeLoss` of pairs; texts alone are pairs with
    themselves.

    Args:
        pooling: `"max"`, or `"sum"` over the tokens of a text (SPLADE's first version).
        activation: `"relu"`, or `"log1p_relu"` for a second logarithm, as OpenSearch's models have.
        static_queries: bool. Whether queries have a weight for each of their tokens, from a table,
            and no network reads them (SPLADE-doc). Queries are anchors, and what is embedded with
            `prompt_name="query"`.
        freeze_queries: bool. Whether this table stays as it is in training.
        top_k: int, K. Of each text, only the K terms with the highest weights count, and answers
            are these terms. With None, all count, and answers are whole vectors.
        prompts, prompt, lowercase: see `SentenceEncoder`.
        backbone, **arguments: see `Task`.

    Call: `task(inputs)` returns (B, V), float32.

    Raises:
        ValueError: if the backbone has no head of masked language models, or an argument has
            another value.

    Example:

        encoder = keras_lm.tasks.SparseEncoder.from_preset("hf://naver/splade-v3")
        encoder.fit((questions, answers), epochs=3)
        encoder.embed(["a question"])["embedding"].shape  # (1, 30522)
        encoder.expand(["a question"], k=3)  # {"terms": [["question", …]], "weights": [[2.1, …]]}
        encoder.export("terms")

    Source: Formal et al. 2021, https://arxiv.org/abs/2107.05720; 2022,
    https://arxiv.org/abs/2205.04733; two logarithms, https://arxiv.org/abs/2504.14839.
    """

    pretraining_head = "token"
    row_names = ("text_keys", "is_text", "is_query")
    FRESH = WRITTEN_APART = ("query_weights/",)
    similarity = "dot"
    published_class = "SparseEncoder"

    def __init__(
        self,
        backbone: Backbone,
        pooling: str = "max",
        activation: str = "relu",
        static_queries: bool = False,
        freeze_queries: bool = False,
        top_k: int | None = None,
        prompts: Mapping[str, str] | None = None,
        prompt: str | None = None,
        lowercase: bool = False,
        **arguments: Any,
    ):
        Task.__init__(self, backbone, **arguments)  # without the features of hidden states
        if top_k is not None:
            size = self.backbone.vocabulary_size
            check_whole("top_k", top_k, 1, size, ", the number of tokens")
        self.features = SparseBackbone(self.backbone, pooling, activation)
        self.head_kinds.append("token")
        self.static_queries, self.freeze_queries = static_queries, freeze_queries
        if static_queries:
            size = self.backbone.vocabulary_size
            self.query_weights = TokenWeights(size, name="query_weights")
            self.query_weights.trainable = not freeze_queries
            self.preprocessor_class = RolePreprocessor
        self.top_k = top_k
        self.prompt, self.lowercase = checked_prompt(prompt), lowercase
        self.prompts = self.checked_prompts(prompts)
        self._finish()
        self.check_without_words()

    @property
    def roles(self) -> tuple[str, ...]:
        return (QUERY,) if self.static_queries else ()

    activation = property(lambda self: self.features.activation, doc="See the class.")

    def get_arguments(self) -> dict[str, Any]:
        own = {"prompt": self.prompt, "lowercase": self.lowercase, "top_k": self.top_k}
        own |= {"static_queries": self.static_queries, "freeze_queries": self.freeze_queries}
        return super().get_arguments() | own

    def preprocessing(self) -> dict[str, Any]:
        if not self.static_queries:
            return super().preprocessing()
        queries = copy.copy(self.packer)  # without special tokens
        queries.template = dataclasses.replace(queries.template, single="$A:0", pair="$A:0 $B:0")
        if self.tokenizer is not None:
            queries.read_vocabulary(self.tokenizer)
        return super().preprocessing() | {"queries": queries}

    def default_loss(self) -> Any:
        return SpladeLoss()

    # === Files ===

    @classmethod
    def arguments_from_modules(
        cls, checkpoint: Checkpoint, limit: int, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        stated = read_inputs(checkpoint, limit) | {"prompts": read_prompts(checkpoint)}
        return stated | read_sparse_head(checkpoint)

    def published_labels(self) -> Any:
        return None

    def write_modules(self, folder: PathLike) -> None:
        weights = None
        if self.static_queries:
            weights = as_array(self.query_weights.token_weights)
        width, inputs = self.backbone.vocabulary_size, self.written_inputs()
        write_sparse_modules(folder, self.get_arguments(), width, inputs, weights)

    # === A step ===

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Any:
        if not self.static_queries or len(inputs["token_ids"].shape) == 2:
            return super().call(inputs, training)
        rows = {name: inputs[name] for name in self.backbone.select_inputs(inputs)}
        asked = self.query_weights(rows["token_ids"][:, 0], rows["padding_mask"][:, 0])
        told = super().call({name: x[:, 1:] for name, x in rows.items()}, training)
        return ops.concatenate([asked[:, None], told], axis=1)

    # === Answers ===

    def decode(self, outputs: Any, packed: dict[str, Tensor]) -> Any:
        """Return `embedding` (B, V); with `top_k`, `terms`, `weights` and `token_ids` (B, K).

        Terms are from the highest weight to the lowest; one whose weight is 0 is not the text's.
        """
        return self._decoded(outputs, self.top_k)

    def _decoded(self, outputs, k):
        if k is None:
            return {"embedding": outputs}
        weights, ids = tf.math.top_k(outputs, k)
        return {"terms": self.tokenizer.tokens(ids), "weights": weights, "token_ids": ids}

    def decode_packed(self, outputs: Any, packed: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what `decode` does, without strings; ids of terms are `term_ids`.

        An .onnx has one set of names for inputs and outputs, and `token_ids` is an input.
        """
        if self.top_k is None:
            return {"embedding": outputs}
        weights, ids = tf.math.top_k(outputs, self.top_k)
        return {"weights": weights, "term_ids": ids}

    def single_output(self) -> Any:
        return ("embedding", None) if self.top_k is None else None

    def whole_embedding(self, outputs: Any, packed: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.top_k is not None:
            least = tf.math.top_k(outputs, self.top_k).values[:, -1:]
            outputs = tf.where(outputs >= least, outputs, 0.0)
        return {"embedding": outputs}

    def expand(
        self,
        x: RawTexts,
        k: int = 32,
        batch_size: int = 32,
        verbose: int | str = "auto",
        prompt_name: str | None = None,
    ) -> dict[str, np.ndarray]:
        """Return `terms`, `weights` and `token_ids` (B, K) of raw texts; see `decode`.

        Args:
            x, batch_size, verbose, prompt_name: see `embed`.
            k: int, K; all entries of the vocabulary, if these are fewer.
        """
        check_whole("k", k, 1)
        k = min(k, self.backbone.vocabulary_size)

        def decode(outputs, packed):
            return self._decoded(outputs, k)

        decode.__name__ = f"{k} terms"
        return self.answer_in_role(decode, x, batch_size, verbose, prompt_name)

    def _embedded(self, columns, prompt_name, tokenize=None):
        if prompt_name not in self.roles:
            return super()._embedded(columns, prompt_name, tokenize)
        prompt = self.prompts.get(QUERY, self.prompt)
        preprocessor = dataclasses.replace(self.preprocessor, prompt=prompt, is_query=True)
        packed = preprocessor(columns, tokenize)
        return self.query_weights(packed["token_ids"], packed["padding_mask"]), packed

    def answer_query(self, columns: dict[str, Tensor], tokenize: Any = None) -> Any:
        """Return the answer for named strings that are queries, in the graph; see `answer`."""
        return self.decode(*self._embedded(columns, QUERY, tokenize))

    @property
    def signatures(self) -> TextSignatures:
        return QuerySignatures(self) if self.static_queries else super().signatures
