"""Queries and documents that are read in two ways.

Shapes: B examples, T texts of each, S sequence.
"""

import dataclasses

import numpy as np

from keras_lm.packers import Packer
from keras_lm.tasks.pair_learning import SentencePreprocessor
from keras_lm.tasks.signatures import TextSignatures, plain_floats, trace
from keras_lm.tensorflow import require_installed, tf

QUERY, DOCUMENT = "query", "document"


@dataclasses.dataclass(frozen=True, eq=False)
class RolePreprocessor(SentencePreprocessor):
    """A `SentencePreprocessor` that says which rows are queries, and expands these.

    `queries` packs queries, `mask_id` is what they are expanded by, or None, and `is_query` is of
    single texts.
    """

    queries: Packer | None = None
    mask_id: int | None = None
    attends: bool = False
    is_query: bool = False

    def pack(self, columns, tokenize):
        require_installed("An encoder that reads queries in another way")
        if "anchor" not in columns:
            return self._single(columns["text"], self.prompt, self.is_query, tokenize)
        texts = self.rows.side_by_side(columns)  # (B, T)
        rows, others = tf.shape(texts)[0], texts.shape[1] - 1
        asked = self._single(texts[:, 0], self.prompts[0], True, tokenize)
        told = self._single(tf.reshape(texts[:, 1:], [-1]), self.prompts[1], False, tokenize)
        width = tf.maximum(*(tf.shape(part["token_ids"])[1] for part in (asked, told)))
        packed = {}
        for name in asked:
            fill = self.packer.inputs[name].fill if name in self.packer.inputs else 0
            parts = []
            for part, number in ((asked, 1), (told, others)):
                value = part[name]
                if name != "is_query":
                    missing = [[0, 0], [0, width - tf.shape(value)[1]]]
                    value = tf.pad(value, missing, constant_values=fill)
                parts.append(tf.reshape(value, [rows, number, tf.shape(value)[1]]))
            packed[name] = tf.concat(parts, axis=1)  # (B, T, S)
            packed[name] = tf.ensure_shape(packed[name], [None, others + 1, None])
        packed["is_query"] = packed["is_query"][..., 0]
        is_pair = tf.range(others + 1) < 2  # whose texts are there, even if they are empty
        packed["is_text"] = tf.cast((texts != "") | is_pair, tf.int32)
        return packed | {"text_keys": self.rows.keys(texts)}

    def _single(self, text, prompt, is_query, tokenize):
        """Return the packed rows (B, S) of texts (B,) in one role."""
        one = dataclasses.replace(self, prompt=prompt)
        packer = self.queries if is_query else self.packer
        packed = packer.pack(text=packer.ids(one._changed(text), tokenize))
        if is_query and self.mask_id is not None:
            is_free = packed["padding_mask"] == 0
            packed["token_ids"] = tf.where(is_free, self.mask_id, packed["token_ids"])
            if self.attends:
                packed["padding_mask"] = tf.ones_like(packed["padding_mask"])
        rows = tf.shape(packed["token_ids"])[:1]
        packed["is_query"] = tf.fill(tf.concat([rows, [1]], 0), int(is_query))
        return packed


class QuerySignatures(TextSignatures):
    """Those of an encoder, of documents, and `query` for what is asked."""

    def functions(self):
        return super().functions() | {QUERY: trace(self.query, self.texts())}

    def query(self, **columns):
        return plain_floats(self.task.answer_query(columns, self.tokenize))

    @property
    def further_lite(self):
        task = self.task
        tokenize = task.preprocessor.tokenize_lite
        return {QUERY: lambda columns: task.answer_query(columns, tokenize)}

    def requests(self, batch_sizes):
        yield from super().requests(batch_sizes)
        yield QUERY, {"text": np.full(batch_sizes[0], "a")}
