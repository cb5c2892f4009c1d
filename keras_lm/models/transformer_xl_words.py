"""Words in clusters: adaptive embedding and softmax, whose rare words have narrow vectors.

Shapes: B batch, S sequence, N tokens, C clusters, D hidden, E width of a cluster, V vocabulary.
"""

import keras
from keras import ops

from keras_lm.layers import truncated_normal
from keras_lm.layers.backend import in_some_rows
from keras_lm.layers.basic import make_dense
from keras_lm.layers.masks import IGNORED


class Cluster(keras.layers.Layer):
    """Words of similar frequency: their vectors (V, E), projected to D; or what a softmax adds.

    Args:
        embeddings, projection: shapes (V, E) and (D, E), or None for none.
        bias: int, or None for none. V.
    """

    def __init__(self, embeddings=None, projection=None, bias=None, **kwargs):
        super().__init__(**kwargs)
        self.shapes = {"embeddings": embeddings, "projection": projection}
        self.shapes["bias"] = None if bias is None else (bias,)

    def build(self, input_shape=None):
        for name, shape in self.shapes.items():
            weight = None
            if shape is not None:
                initializer = "zeros" if name == "bias" else truncated_normal()
                weight = self.add_weight(name=name, shape=shape, initializer=initializer)
            setattr(self, name, weight)

    def call(self, word_ids):
        x = ops.take(self.embeddings, word_ids, axis=0)  # (B, S, E)
        return x if self.projection is None else ops.matmul(x, ops.transpose(self.projection))


class AdaptiveEmbedding(keras.layers.Layer):
    """Vectors (B, S, D) of words, for rare ones from narrower tables; times √D.

    Args:
        vocabulary_size, hidden_dim: int. V and D.
        embedding_dim: int. Width of the vectors of the most frequent words.
        cutoffs: list of int. Where the next cluster of words begins, by id.
        div_val: int. Each cluster's vectors are narrower by this factor than those of the one
            before; with 1, all words are in one table.
        project_all: bool. With a `div_val` above 1, whether vectors that are D wide are projected
            like the narrower ones.

    Raises:
        ValueError: if the cutoffs do not rise from above 0 to V at most, or `div_val` leaves a
            cluster without any width.

    Source: Grave et al. 2016, https://arxiv.org/abs/1609.04309, section 4; Baevski and Auli 2018,
    https://arxiv.org/abs/1809.10853, section 3.1.
    """

    def __init__(
        self,
        vocabulary_size,
        hidden_dim,
        embedding_dim,
        cutoffs=(),
        div_val=1,
        project_all=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.input_dim, self.output_dim = vocabulary_size, hidden_dim
        self.starts, self.ends = [0, *cutoffs], [*cutoffs, vocabulary_size]
        if self.ends[0] < 1 or sorted(self.ends) != self.ends:
            raise ValueError(
                f"cutoffs={list(cutoffs)}: pass rising ids, each above 0 and at most "
                f"vocabulary_size={vocabulary_size}."
            )
        self.tables = [(0, vocabulary_size)]
        if div_val != 1:
            self.tables = list(zip(self.starts, self.ends))
        self.widths = [embedding_dim // div_val**i for i in range(len(self.tables))]
        if min(self.widths) < 1:
            raise ValueError(
                f"div_val={div_val} leaves vectors of the widths {self.widths} for cutoffs="
                f"{list(cutoffs)}: pass a smaller div_val, or fewer cutoffs."
            )
        self.clusters = [
            Cluster(
                (end - start, width),
                (hidden_dim, width)
                if width != hidden_dim or (div_val != 1 and project_all)
                else None,
                dtype=self.dtype_policy,
                name=f"cluster_{i}",
            )
            for i, ((start, end), width) in enumerate(zip(self.tables, self.widths, strict=True))
        ]

    def build(self, input_shape=None):
        for cluster in self.clusters:
            cluster.build()

    def call(self, token_ids):
        x = 0.0
        for (start, end), cluster in zip(self.tables, self.clusters, strict=True):
            if start == end:
                continue
            is_here = ops.logical_and(token_ids >= start, token_ids < end)
            vectors = cluster(ops.clip(token_ids - start, 0, end - start - 1))
            x = x + ops.where(ops.expand_dims(is_here, 2), vectors, ops.zeros_like(vectors))
        return x * self.output_dim**0.5

    def compute_output_spec(self, token_ids):
        return keras.KerasTensor((*token_ids.shape, self.output_dim), self.compute_dtype)


class AdaptiveSoftmax(keras.layers.Layer):
    """The next token's log-probabilities: that of its cluster, and that of it in its cluster.

    Args:
        token_embedding: `AdaptiveEmbedding` of the backbone, whose clusters these are.
        tie_projections: list of bool, one a cluster. Whether states are projected by the matrix of
            the embedding's cluster, and not by one of its own. None ties all but the first.
        tied: bool. Whether words have the vectors of the embedding; False for others.

    Call: `head(outputs, inputs)` → (B, S, V) float32, at each place for the next token. If `inputs`
    holds `labels` (B, S) int32, it returns their cross-entropies (B, S) float32 instead, without
    the probabilities of other words: a cluster of rare words is only computed where one of them is
    the label. At an `IGNORED` label it is 0.

    Raises:
        ValueError: if `tie_projections` has another number than there are clusters.

    Source: Grave et al. 2016, https://arxiv.org/abs/1609.04309, section 4.
    """

    # `CausalLM` gives it the labels of a batch, and compares no logits.
    computes_losses = True

    def __init__(self, token_embedding, tie_projections=None, tied=True, **kwargs):
        super().__init__(**kwargs)
        self.token_embedding = token_embedding
        number = len(token_embedding.ends)
        if tie_projections is not None and len(tie_projections) != number:
            raise ValueError(
                f"tie_projections={list(tie_projections)}: pass one bool for each of the "
                f"{number} clusters."
            )
        self.tie_projections = tie_projections or [False] + [True] * (number - 1)
        self.tied = tied

    def build(self, outputs_shape, inputs_shape=None):
        words = self.token_embedding
        self.clusters = []
        for i, _ in enumerate(words.ends):
            table = self.table_of(i)
            is_own = words.clusters[table].projection is not None and not self.tie_projections[i]
            start, end = words.tables[table]
            rows, width = end - start, words.widths[table]
            is_first = i == table  # of those that share a table
            cluster = Cluster(
                (rows, width) if is_first and not self.tied else None,
                (words.output_dim, width) if is_own else None,
                rows if is_first else None,
                dtype=self.dtype_policy,
                name=f"cluster_{i}",
            )
            cluster.build()
            self.clusters.append(cluster)
        self.others = None
        if len(words.ends) > 1:  # the clusters after the first, as if each were a word of it
            self.others = make_dense("others", len(words.ends) - 1, self.dtype_policy)
            self.others.build((None, None, words.widths[0]))

    def table_of(self, i):
        """Return the number of the table that the words of cluster `i` are in."""
        return min(i, len(self.token_embedding.tables) - 1)

    def call(self, outputs, inputs=None, training=None):
        x = outputs["sequence_output"]
        if inputs is not None and "labels" in inputs:
            return self.losses_of(x, inputs["labels"])
        # (B, S, words of the first cluster and the other clusters)
        head = ops.log_softmax(self.logits(x, 0))
        number = self.token_embedding.ends[0]
        parts = [head[..., :number]]
        for i in self.tails():
            of_cluster = head[..., number + i - 1 : number + i]  # (B, S, 1)
            parts.append(of_cluster + ops.log_softmax(self.logits(x, i)))
        return ops.concatenate(parts, axis=-1)

    def losses_of(self, x, labels):
        """Return the cross-entropies (B, S) of labels (B, S) for states (B, S, D)."""
        words, shape = self.token_embedding, ops.shape(labels)
        x = ops.reshape(x, (-1, words.output_dim))  # (N, D)
        labels = ops.reshape(ops.cast(labels, "int32"), (-1,))
        is_known = ops.not_equal(labels, IGNORED)
        labels = ops.where(is_known, labels, 0)
        cluster = ops.zeros_like(labels)
        for start in words.starts[1:]:
            cluster = cluster + ops.cast(labels >= start, "int32")
        column = ops.where(cluster > 0, words.ends[0] + cluster - 1, labels)
        losses = crossentropies(self.logits(x, 0), column)
        for i in self.tails():

            def loss(x, words_of_cluster, i=i):
                return crossentropies(self.logits(x, i), words_of_cluster)

            last = words.ends[i] - words.starts[i] - 1
            here = ops.clip(labels - words.starts[i], 0, last)
            losses = losses + in_some_rows(loss, ops.equal(cluster, i), x, here)
        return ops.reshape(ops.where(is_known, losses, 0.0), shape)

    def tails(self):
        """Return the numbers of the clusters after the first that have words."""
        words = self.token_embedding
        return [i for i in range(1, len(words.ends)) if words.starts[i] < words.ends[i]]

    def logits(self, x, i):
        """Return the logits (…, words) float32 of a cluster's words for states (…, D)."""
        words, table = self.token_embedding, self.table_of(i)
        cluster, (first, _) = words.clusters[table], words.tables[table]
        projection = self.clusters[i].projection
        projection = cluster.projection if projection is None else projection
        if projection is not None:
            x = ops.matmul(x, ops.cast(projection, x.dtype))  # (…, E)
        here = slice(words.starts[i] - first, words.ends[i] - first)
        embeddings = cluster.embeddings if self.tied else self.clusters[table].embeddings
        rows = ops.cast(embeddings[here], x.dtype)
        bias = self.clusters[table].bias[here]
        logits = ops.cast(ops.matmul(x, ops.transpose(rows)), "float32")
        logits = logits + ops.cast(bias, "float32")
        if i == 0 and self.others is not None:
            logits = ops.concatenate([logits, ops.cast(self.others(x), "float32")], axis=-1)
        return logits


def crossentropies(logits, labels):
    """Return the cross-entropies (N,) of labels (N,) for logits (N, V)."""
    return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
