"""Losses of vectors that a `SentenceEncoder` learns with.

Shapes: B examples, T texts of each, D width, A examples of all replicas, C candidates.

An example is a text, a pair (an anchor and its positive) or a pair with negatives. With
`micro_batch_size` and over replicas, each loss is that of the whole batch.
"""

from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_lm.layers.tensorflow import first_row_of_replica, gathered_from_replicas
from keras_lm.objectives.objective import MeanLoss
from keras_lm.utils.argument_types import Tensor

LOWEST = -1e12  # a logit that counts for nothing
SIMILARITIES = ("cosine", "dot")
DISTANCES = ("euclidean", "cosine", "manhattan")
LABELS = {  # what each kind of them is
    "scores": "a score for each pair",
    "pairs": "1 for each pair that belongs together, and 0 for others",
    "classes": "a class for each text",
    "margins": "a teacher's margin for each negative",
    "vectors": "a teacher's vector for each text, as wide as the encoder's",
}
# What torch.nn.functional.pairwise_distance adds to each difference.
OFFSET = 1e-6


class Examples(NamedTuple):
    """What a loss knows of the texts of a batch, beside their vectors.

    Args:
        labels: as the loss takes them, or None.
        is_text: (B, T) bool, False for a negative that an example lacks; None if there are all.
        keys: (B, T, 2) int32, equal for equal texts; None if they are unknown.
    """

    labels: Any = None
    is_text: Any = None
    keys: Any = None


def normalized(vectors: Tensor) -> Tensor:
    """Return vectors (…, D) of length 1; those of length 0 stay."""
    squares = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    return vectors * ops.rsqrt(ops.maximum(squares, 1e-24))


def paired_cosines(first: Tensor, second: Tensor) -> Tensor:
    """Return the cosine of each vector (…, D) and its partner: (…,)."""
    return ops.sum(normalized(first) * normalized(second), axis=-1)


def paired_distances(first: Tensor, second: Tensor, distance: str) -> Tensor:
    """Return how far each vector (…, D) is from its partner by one of `DISTANCES`: (…,)."""
    if distance == "cosine":
        return 1 - paired_cosines(first, second)
    difference = first - second + OFFSET
    if distance == "manhattan":
        return ops.sum(ops.abs(difference), axis=-1)
    return ops.sqrt(ops.sum(ops.square(difference), axis=-1))


def paired_angles(first: Tensor, second: Tensor) -> Tensor:
    """Return AnglE's similarity of each vector (…, D) and its partner: (…,).

    The halves of a vector are the real and imaginary parts of D / 2 complex numbers. Those of the
    first are divided by those of the second; the absolute value of the sum of all parts is
    returned, as sentence-transformers does, and not that of the paper, which has none.
    """
    half = first.shape[-1] // 2
    a, b = first[..., :half], first[..., half:]
    c, d = second[..., :half], second[..., half:]
    # Divided by the squared length of the second, and by the ratio of the two lengths.
    lengths = [
        ops.sqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True))
        for vectors in (first, second)
    ]
    scale = 1 / (lengths[0] * lengths[1])
    real, imaginary = (a * c + b * d) * scale, (b * c - a * d) * scale
    return ops.abs(ops.sum(real + imaginary, axis=-1))


class EmbeddingLoss(MeanLoss):
    """The mean of losses of a batch of vectors; a subclass computes one for each example.

    Call: `loss(labels, vectors, sample_weight=None)`, float vectors (B, T, D), or (B, D) of single
    texts; labels as the loss needs them, alone or in `Examples`; and a weight for each example.

    Attributes:
        labels_are: what labels are: None for none, `"scores"`, `"pairs"` (0 or 1), `"classes"`,
            `"margins"` or `"vectors"`.
        least_texts: how many texts an example has at least; 1 for single texts.
        are_cosines: whether labels are cosines, from −1 to 1.
        compares_examples: whether a batch of one example has a loss that is always 0; of pairs, if
            they have no negatives.
    """

    labels_are: str | None = None
    least_texts = 2
    are_cosines = False
    compares_examples = False

    def losses(self, vectors: Tensor, examples: Examples) -> tuple[Tensor, Tensor]:
        """Return the loss of each example, and how much it counts: float32 (B,) each."""
        raise NotImplementedError(f"{type(self).__name__} must define losses.")

    def sum_and_count(
        self, labels: Any, outputs: Tensor, sample_weight: Tensor | None = None
    ) -> tuple[Any, Any]:
        examples = labels if isinstance(labels, Examples) else Examples(labels)
        vectors = ops.convert_to_tensor(outputs, "float32")
        self._check(vectors)
        examples = examples._replace(labels=self._fitting(examples.labels, vectors))
        losses, counted = self.losses(vectors, examples)
        if sample_weight is not None:
            counted *= ops.reshape(ops.cast(sample_weight, "float32"), (-1,))
        return ops.sum(losses * counted), ops.sum(counted)

    def _fitting(self, labels, vectors):
        """Return labels in the shape that the loss takes; a ValueError if they have another."""
        rank = len(getattr(labels, "shape", ()))
        if labels is None or self.labels_are is None or not rank:
            return labels
        width = labels.shape[1] if rank == 2 else 1
        if self.labels_are == "vectors":
            wanted = vectors.shape[-1]
        elif self.labels_are == "margins":
            wanted = vectors.shape[1] and vectors.shape[1] - 2
        else:
            wanted = 1
        if rank > 2 or (None not in (width, wanted) and width != wanted):
            raise ValueError(
                f"labels has the shape {tuple(labels.shape)}: loss={type(self).__name__}() takes "
                f"{wanted or 'some'} for each example, {LABELS[self.labels_are]}."
            )
        return ops.reshape(labels, (-1,)) if wanted == 1 and rank == 2 else labels

    def _check(self, vectors):
        has = vectors.shape[1] if len(vectors.shape) == 3 else 1
        if has is None:  # with lists of negatives
            return
        if has < self.least_texts or (self.least_texts == 1 and has > 1):
            what = {
                1: "single texts",
                2: "pairs, an anchor and a positive",
                3: "triples, an anchor, a positive and a negative",
            }
            raise ValueError(
                f"loss={type(self).__name__}() compares {what[self.least_texts]}, and an example "
                f"of x has {has}: pass such examples, or compile with another loss."
            )


def _all(vectors):
    """Return that each example counts for 1: (B,)."""
    return ops.ones_like(ops.sum(vectors, axis=tuple(range(1, len(vectors.shape)))))


def _check_choice(name, value, choices):
    if value not in choices:
        raise ValueError(f"{name}={value!r}: use one of {choices}.")
    return value


def _check_positive(name, value):
    if not value > 0:
        raise ValueError(f"{name}={value!r}: pass a number above 0.")
    return value


@keras.saving.register_keras_serializable("keras_lm")
class InBatchNegatives(EmbeddingLoss):
    """Which of all texts in the batch belongs to an anchor? Cross-entropy over their similarities.

    The candidates for an anchor are the positives and negatives of all examples, those of other
    replicas included. A candidate that equals the anchor or its positive, letter by letter, is no
    wrong answer and does not count; sentence-transformers' loss counts it, so that batches without
    such texts give the same number.

    Args:
        scale: float, by which similarities are multiplied: the inverse of a temperature.
        similarity: `"cosine"` or `"dot"`.
        symmetric: bool. Take the mean with the loss of the other direction, which of all anchors
            belongs to a positive.

    Example:

        encoder.compile(loss=keras_lm.objectives.InBatchNegatives(scale=50.0))
        encoder.fit((questions, answers))

    Source: Henderson et al. 2017, https://arxiv.org/abs/1705.00652, section 4.4; InfoNCE, van den
    Oord et al. 2018, https://arxiv.org/abs/1807.03748, equation 4. sentence-transformers'
    `MultipleNegativesRankingLoss` and `MultipleNegativesSymmetricRankingLoss`.
    """

    compares_examples = True

    def __init__(
        self,
        scale: float = 20.0,
        similarity: str = "cosine",
        symmetric: bool = False,
        name: str = "in_batch_negatives",
    ):
        super().__init__(name)
        self.scale = _check_positive("scale", scale)
        self.similarity = _check_choice("similarity", similarity, SIMILARITIES)
        self.symmetric = symmetric

    def losses(self, vectors: Tensor, examples: Examples) -> tuple[Tensor, Tensor]:
        if self.similarity == "cosine":
            vectors = normalized(vectors)
        everything = gathered_from_replicas(vectors)  # (A, T, D)
        number, texts = ops.shape(everything)[:2]
        right = ops.arange(ops.shape(vectors)[0]) + first_row_of_replica(vectors)  # (B,)
        candidates = _in_columns(everything[:, 1:])  # (A · (T − 1), D)
        logits = self.scale * self.scores(vectors[:, 0], candidates)  # (B, C)
        is_right = _one_hot(right, number * (texts - 1))
        allowed = self._allowed(examples, is_right)
        losses = _crossentropy(logits, is_right, allowed)
        if self.symmetric:
            back = self.scale * self.scores(vectors[:, 1], everything[:, 0])
            is_right = _one_hot(right, number)
            losses = (losses + _crossentropy(back, is_right, self._back(examples, is_right))) / 2
        return losses, _all(vectors)

    def scores(self, queries: Tensor, candidates: Tensor) -> Tensor:
        """Return the similarity of each query (B, D) and candidate (C, D): (B, C)."""
        return ops.matmul(queries, ops.transpose(candidates))

    def _allowed(self, examples, is_right):
        """Return which candidates count for an anchor, (B, C) bool, or None for all."""
        allowed = None
        if examples.keys is not None:
            keys = _in_columns(gathered_from_replicas(examples.keys)[:, 1:])
            same = _equal(examples.keys[:, 0], keys) | _equal(examples.keys[:, 1], keys)
            allowed = ops.logical_or(is_right, ops.logical_not(same))
        if examples.is_text is not None:
            is_text = ops.cast(examples.is_text, "int32")
            there = _in_columns(gathered_from_replicas(is_text)[:, 1:, None])[:, 0] > 0
            allowed = there[None] if allowed is None else ops.logical_and(allowed, there[None])
        return allowed

    def _back(self, examples, is_right):
        """The same of anchors for a positive."""
        if examples.keys is None:
            return None
        keys = gathered_from_replicas(examples.keys)[:, 0]
        same = _equal(examples.keys[:, 0], keys) | _equal(examples.keys[:, 1], keys)
        return ops.logical_or(is_right, ops.logical_not(same))

    def get_config(self) -> dict[str, Any]:
        own = {"scale": self.scale, "similarity": self.similarity, "symmetric": self.symmetric}
        return super().get_config() | own


def _in_columns(values):
    """Return (A, T, …) as (T · A, …): all first texts, then all second ones."""
    values = ops.moveaxis(values, 1, 0)
    return ops.reshape(values, (-1, *ops.shape(values)[2:]))


def _one_hot(right, number):
    return ops.arange(number)[None] == right[:, None]


def _equal(keys, others):
    """Return which of the texts of two lists are equal: (B, 2) and (C, 2) → (B, C) bool."""
    return ops.all(keys[:, None] == others[None], axis=-1)


def _crossentropy(logits, is_right, allowed):
    """Return the cross-entropy of rows (B, C) with one right column, over those allowed: (B,)."""
    if allowed is not None:
        logits = ops.where(allowed, logits, LOWEST)
    right = ops.sum(ops.where(is_right, logits, 0.0), axis=-1)
    return ops.logsumexp(logits, axis=-1) - right


@keras.saving.register_keras_serializable("keras_lm")
class TripletLoss(EmbeddingLoss):
    """How much less than a margin an anchor is nearer to its positive than to its negative.

    Of several negatives of an example, each counts once.

    Args:
        margin: float, of the distance.
        distance: `"euclidean"`, `"cosine"` (one minus the cosine) or `"manhattan"`.

    Source: Schroff et al. 2015 (FaceNet), https://arxiv.org/abs/1503.03832, equation 3;
    sentence-transformers' `TripletLoss`.
    """

    least_texts = 3

    def __init__(
        self, margin: float = 5.0, distance: str = "euclidean", name: str = "triplet_loss"
    ):
        super().__init__(name)
        self.margin = margin
        self.distance = _check_choice("distance", distance, DISTANCES)

    def losses(self, vectors: Tensor, examples: Examples) -> tuple[Tensor, Tensor]:
        near = paired_distances(vectors[:, :1], vectors[:, 1:2], self.distance)  # (B, 1)
        far = paired_distances(vectors[:, :1], vectors[:, 2:], self.distance)  # (B, T − 2)
        losses = ops.relu(near - far + self.margin)
        counted = ops.ones_like(losses)
        if examples.is_text is not None:
            counted = ops.cast(examples.is_text[:, 2:], "float32")
        number = ops.sum(counted, axis=-1)
        return ops.divide_no_nan(ops.sum(losses * counted, axis=-1), number), number

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"margin": self.margin, "distance": self.distance}


@keras.saving.register_keras_serializable("keras_lm")
class ContrastiveLoss(EmbeddingLoss):
    """Half the squared distance of pairs that belong together; others are pushed to a margin.

    Labels are 1 for pairs that belong together, 0 for others.

    Args:
        margin: float. Pairs that do not belong together and are farther apart do not count.
        distance: see `TripletLoss`.

    Source: Hadsell et al. 2006, "Dimensionality Reduction by Learning an Invariant Mapping",
    equation 4; sentence-transformers' `ContrastiveLoss`.
    """

    labels_are = "pairs"

    def __init__(
        self, margin: float = 0.5, distance: str = "cosine", name: str = "contrastive_loss"
    ):
        super().__init__(name)
        self.margin = margin
        self.distance = _check_choice("distance", distance, DISTANCES)

    def losses(self, vectors: Tensor, examples: Examples) -> tuple[Tensor, Tensor]:
        belongs = ops.cast(examples.labels, "float32")
        apart = paired_distances(vectors[:, 0], vectors[:, 1], self.distance)
        pushed = ops.square(ops.relu(self.margin - apart))
        return (belongs * ops.square(apart) + (1 - belongs) * pushed) / 2, _all(vectors)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"margin": self.margin, "distance": self.distance}


@keras.saving.register_keras_serializable("keras_lm")
class CosineMeanSquares(EmbeddingLoss):
    """The squared difference of a pair's cosine and its score.

    Labels are scores from −1 to 1, as cosines are.

    Source: Reimers and Gurevych 2019, https://arxiv.org/abs/1908.10084, section 3, "Regression
    Objective Function"; sentence-transformers' `CosineSimilarityLoss`.
    """

    labels_are = "scores"
    are_cosines = True

    def __init__(self, name: str = "cosine_mean_squares"):
        super().__init__(name)

    def losses(self, vectors: Tensor, examples: Examples) -> tuple[Tensor, Tensor]:
        cosines = paired_cosines(vectors[:, 0], vectors[:, 1])
        return ops.square(cosines - ops.cast(examples.labels, "float32")), _all(vectors)


@keras.saving.register_keras_serializable("keras_lm")
class CoSENT(EmbeddingLoss):
    """Of each two pairs, the one with the higher score should have the higher similarity.

    The loss is log(1 + Σ exp(λ (s_i − s_j))) over all two pairs of the batch, those of other
    replicas included, of which j has the higher score. Scores may have any scale.

    Args:
        scale: float, λ.

    Source: Su Jianlin 2022, https://kexue.fm/archives/8847; sentence-transformers' `CoSENTLoss`.
    """

    labels_are = "scores"
    compares_examples = True
    similarity = staticmethod(paired_cosines)

    def __init__(self, scale: float = 20.0, name: str = "cosent"):
        super().__init__(name)
        self.scale = _check_positive("scale", scale)

    def losses(self, vectors: Tensor, examples: Examples) -> tuple[Tensor, Tensor]:
        counted = _all(vectors)
        vectors = gathered_from_replicas(vectors)
        scores = gathered_from_replicas(ops.cast(examples.labels, "float32"))
        logits = self.scale * self.similarity(vectors[:, 0], vectors[:, 1])  # (A,)
        differences = logits[:, None] - logits[None]
        differences = ops.where(scores[:, None] < scores[None], differences, LOWEST)
        everything = ops.append(ops.reshape(differences, (-1,)), ops.zeros((1,)))
        return ops.logsumexp(everything) * counted, counted

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"scale": self.scale}


@keras.saving.register_keras_serializable("keras_lm")
class AnglE(CoSENT):
    """`CoSENT` on the angle of complex vectors, which has a gradient where cosines have none.

    Args:
        scale: float, λ.

    Raises:
        ValueError: in training, if vectors have an odd width.

    Source: Li and Li 2023, https://arxiv.org/abs/2309.12871, section 3.4; sentence-transformers'
    `AnglELoss`, whose similarity is an absolute value: see `paired_angles`.
    """

    similarity = staticmethod(paired_angles)

    def __init__(self, scale: float = 20.0, name: str = "angle"):
        super().__init__(scale, name)

    def losses(self, vectors: Tensor, examples: Examples) -> tuple[Tensor, Tensor]:
        if vectors.shape[-1] % 2:
            raise ValueError(
                f"loss=AnglE() reads the halves of vectors, and these have {vectors.shape[-1]} "
                "numbers: compile with CoSENT()."
            )
        return super().losses(vectors, examples)


@keras.saving.register_keras_serializable("keras_lm")
class SupervisedContrastive(EmbeddingLoss):
    """Texts of one class should be more similar than those of two.

    For each text, the mean cross-entropy of finding another of its class among all others of the
    batch, those of other replicas included. A text without another of its class does not count.

    Labels are classes, integers or strings.

    Args:
        temperature: float, by which cosines are divided.

    Source: Khosla et al. 2020, https://arxiv.org/abs/2004.11362, equation 2.
    """

    labels_are = "classes"
    least_texts = 1
    compares_examples = True

    def __init__(self, temperature: float = 0.1, name: str = "supervised_contrastive"):
        super().__init__(name)
        self.temperature = _check_positive("temperature", temperature)

    def losses(self, vectors: Tensor, examples: Examples) -> tuple[Tensor, Tensor]:
        vectors = normalized(vectors)
        classes = ops.cast(examples.labels, "int32")
        everything = gathered_from_replicas(vectors)
        logits = ops.matmul(vectors, ops.transpose(everything)) / self.temperature
        own = ops.arange(ops.shape(vectors)[0]) + first_row_of_replica(vectors)
        is_own = _one_hot(own, ops.shape(everything)[0])
        logits = ops.where(is_own, LOWEST, logits)
        same = classes[:, None] == gathered_from_replicas(classes)[None]
        same = ops.cast(ops.logical_and(same, ops.logical_not(is_own)), "float32")
        number = ops.sum(same, axis=-1)
        chances = ops.where(is_own, 0.0, ops.log_softmax(logits, axis=-1))
        losses = -ops.divide_no_nan(ops.sum(same * chances, axis=-1), number)
        return losses, ops.cast(number > 0, "float32")

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"temperature": self.temperature}


@keras.saving.register_keras_serializable("keras_lm")
class MarginMeanSquares(EmbeddingLoss):
    """The squared difference of two margins: how much better a positive fits than a negative.

    Labels are a teacher's: the score of the anchor's positive minus that of its negative, (B,), or
    of each of its negatives, (B, T − 2).

    Args:
        similarity: `"dot"` or `"cosine"`, of which the margin is.

    Source: Hofstätter et al. 2020, https://arxiv.org/abs/2010.02666, equation 3;
    sentence-transformers' `MarginMSELoss`.
    """

    labels_are = "margins"
    least_texts = 3

    def __init__(self, similarity: str = "dot", name: str = "margin_mean_squares"):
        super().__init__(name)
        self.similarity = _check_choice("similarity", similarity, SIMILARITIES)

    def losses(self, vectors: Tensor, examples: Examples) -> tuple[Tensor, Tensor]:
        vectors = normalized(vectors) if self.similarity == "cosine" else vectors
        scores = ops.sum(vectors[:, :1] * vectors[:, 1:], axis=-1)  # (B, T − 1)
        margins = scores[:, :1] - scores[:, 1:]
        wanted = ops.reshape(ops.cast(examples.labels, "float32"), (ops.shape(margins)[0], -1))
        squares = ops.square(margins - wanted)
        counted = ops.ones_like(squares)
        if examples.is_text is not None:
            counted = ops.cast(examples.is_text[:, 2:], "float32")
        number = ops.sum(counted, axis=-1)
        return ops.divide_no_nan(ops.sum(squares * counted, axis=-1), number), number

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"similarity": self.similarity}


@keras.saving.register_keras_serializable("keras_lm")
class VectorMeanSquares(EmbeddingLoss):
    """The mean squared difference of a text's vector and a teacher's.

    Labels are the teacher's vectors, (B, D).

    Source: Reimers and Gurevych 2020, https://arxiv.org/abs/2004.09813, equation 1;
    sentence-transformers' `MSELoss`.
    """

    labels_are = "vectors"
    least_texts = 1

    def __init__(self, name: str = "vector_mean_squares"):
        super().__init__(name)

    def losses(self, vectors: Tensor, examples: Examples) -> tuple[Tensor, Tensor]:
        wanted = ops.cast(examples.labels, "float32")
        return ops.mean(ops.square(vectors - wanted), axis=-1), _all(vectors)


@keras.saving.register_keras_serializable("keras_lm")
class Matryoshka(EmbeddingLoss):
    """A loss of vectors and of their first numbers, so that shortened vectors are good, too.

    Each part is scaled to length 1 first, as sentence-transformers does: a margin of distances
    above 2 is never reached.

    Args:
        loss: another loss of this module, or its configuration.
        sizes: list of int, how many numbers are kept, the width of the vectors among them or not.
        weights: list of float, of each part in the sum; 1 each by default.

    Example:

        loss = keras_lm.objectives.Matryoshka(InBatchNegatives(), sizes=[384, 128, 64])

    Raises:
        ValueError: if `weights` has another length than `sizes`, a size is no int of 1 or more, or
            the loss compares vectors with a teacher's.

    Source: Kusupati et al. 2022, https://arxiv.org/abs/2205.13147, equation 1;
    sentence-transformers' `MatryoshkaLoss`.
    """

    def __init__(
        self,
        loss: EmbeddingLoss,
        sizes: Sequence[int],
        weights: Sequence[float] | None = None,
        name: str = "matryoshka",
    ):
        super().__init__(name)
        if isinstance(loss, dict):
            loss = keras.saving.deserialize_keras_object(loss)
        if not isinstance(loss, EmbeddingLoss) or loss.labels_are == "vectors":
            raise ValueError(
                f"loss={loss!r}: pass a loss of texts, such as InBatchNegatives(), whose vectors "
                "can be shortened."
            )
        sizes = [*sizes]
        if not sizes or not all(isinstance(size, Integral) and size >= 1 for size in sizes):
            raise ValueError(f"sizes={sizes!r}: pass a list of int, 1 or more each.")
        weights = [1.0] * len(sizes) if weights is None else weights
        if len(weights) != len(sizes):
            raise ValueError(f"weights={weights!r}: pass one for each of sizes={sizes!r}.")
        self.loss, self.sizes, self.weights = loss, [*map(int, sizes)], [*map(float, weights)]
        self.labels_are, self.least_texts = loss.labels_are, loss.least_texts
        self.are_cosines, self.compares_examples = loss.are_cosines, loss.compares_examples

    def losses(self, vectors: Tensor, examples: Examples) -> tuple[Tensor, Tensor]:
        if max(self.sizes) > vectors.shape[-1]:
            raise ValueError(
                f"sizes={self.sizes} of Matryoshka: vectors have {vectors.shape[-1]} numbers, so "
                "pass as many or fewer."
            )
        total = 0.0
        for size, weight in zip(self.sizes, self.weights, strict=True):
            losses, counted = self.loss.losses(normalized(vectors[..., :size]), examples)
            total += weight * losses
        return total, counted

    def get_config(self) -> dict[str, Any]:
        loss = keras.saving.serialize_keras_object(self.loss)
        return super().get_config() | {"loss": loss, "sizes": self.sizes, "weights": self.weights}
