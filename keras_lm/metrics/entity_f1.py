"""F1 of entities. Shapes: B batch, S sequence, C classes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_lm.datasets.tag_schemes import (
    OUTSIDE,
    is_plain,
    marks_entities,
    parts_of,
    scheme_of,
)
from keras_lm.objectives import IGNORED
from keras_lm.utils.argument_types import Tensor
from keras_lm.utils.user_arguments import checks_flags


class Entities(NamedTuple):
    """The entities of rows, (B, S) each; `start` and `types` hold where `is_end` is True."""

    is_end: Any
    start: Any
    types: Any


@keras.saving.register_keras_serializable("keras_lm")
class EntityF1(keras.metrics.Metric):
    """The F1 of named entities, from 0 to 1: an entity is right if its class and both ends are.

    It is the micro-average over all entities, as in the CoNLL evaluation; see
    `keras_lm.datasets.tag_schemes.entity_spans` for how labels mark an entity.

    Args:
        class_names: list of str such as `["O", "B-PER", "I-PER"]`, in the order of the logits.
        strict: bool. If True, only entities that are complete in their scheme count, as in
            seqeval's strict mode; the scheme is BIO, or BIOES if a class marks the end of entities.
            If False, an entity may also begin with `I-PER`, as in the CoNLL evaluation.

    Call: `update_state(labels, logits)`, (B, S) int and (B, S, C) float. Labels that are `IGNORED`
    are left out.

    Classes without `B-` and `I-`, such as `["O", "PER", "LOC"]`, are the entities themselves: a run
    of one class is one entity, strict or not.

    Raises:
        ValueError: if no class marks an entity.

    Example:

        task.compile(metrics=["accuracy", keras_lm.metrics.EntityF1(task.class_names)])

    Source: Tjong Kim Sang and De Meulder 2003, https://aclanthology.org/W03-0419.
    """

    @checks_flags
    def __init__(
        self,
        class_names: Sequence[str],
        strict: bool = False,
        name: str = "entity_f1",
        **kwargs: Any,
    ):
        super().__init__(name=name, **kwargs)
        self.class_names: list[str] = list(class_names)
        self.strict = strict
        plain = is_plain(class_names)
        strict = strict and not plain
        tags = [f"I-{name}" if plain and name != OUTSIDE else name for name in class_names]
        parts = [parts_of(tag) for tag in tags]
        types = [name for _, name in parts]
        if not marks_entities(class_names):
            raise ValueError(
                f"class_names={class_names} mark no entity: use O, B-X and I-X, or O and X."
            )
        # For each class: the number of its type (0 outside), and whether the next class, or this
        # one, may continue an entity.
        self.types: list[str | Any] = sorted(set(types) | {""})
        self._types = np.array([self.types.index(name) for name in types], "int32")
        self._opens = np.array([prefix in tuple("BI") for prefix, *_ in parts]) & (self._types > 0)
        self._continues = np.array([prefix in tuple("IEL") for prefix, *_ in parts])
        # With `strict`: the classes that may begin an entity, and those that may end one.
        ends = "ELSU" if scheme_of(class_names) == "BIOES" else "BI"
        self._begins, self._ends = (
            np.array([not strict or prefix in tuple(letters) for prefix, *_ in parts])
            for letters in ("BSU", ends)
        )
        # The number of entities of each type.
        shape = (len(self.types),)
        self.right: keras.Variable = self.add_weight(shape, "zeros", name="right")
        self.found: keras.Variable = self.add_weight(shape, "zeros", name="found")
        self.marked: keras.Variable = self.add_weight(shape, "zeros", name="marked")

    def update_state(
        self, labels: Any, logits: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        if sample_weight is not None:
            raise ValueError("EntityF1 takes no weights: name it in metrics, not weighted_metrics.")
        labels, logits = ops.cast(labels, "int32"), ops.convert_to_tensor(logits)
        # Words first: later pieces of a word and special tokens are not part of the sequence.
        is_word = labels != IGNORED
        order = _first(is_word)
        is_word = ops.take_along_axis(is_word, order, axis=1)
        marked, predicted = (
            self._entities(ops.take_along_axis(classes, order, axis=1), is_word)
            for classes in (labels, ops.argmax(logits, axis=-1))
        )
        # An entity is known by its last word: where it starts, and its type.
        is_right = marked.is_end & predicted.is_end & (marked.start == predicted.start)
        is_right &= marked.types == predicted.types
        for count, is_counted, types in (
            (self.right, is_right, marked.types),
            (self.found, predicted.is_end, predicted.types),
            (self.marked, marked.is_end, marked.types),
        ):
            counted = (
                ops.one_hot(types, len(self.types)) * ops.cast(is_counted, "float32")[..., None]
            )
            count.assign(count + ops.sum(counted, axis=(0, 1)))

    def _entities(self, classes, is_word):
        classes = ops.where(is_word, ops.cast(classes, "int32"), 0)
        types = ops.where(is_word, ops.take(self._types, classes), 0)
        opens, continues = ops.take(self._opens, classes), ops.take(self._continues, classes)
        same = opens[:, :-1] & continues[:, 1:] & (types[:, :-1] == types[:, 1:])
        same &= types[:, 1:] > 0
        is_first = (types > 0) & ~ops.pad(same, [[0, 0], [1, 0]])
        is_end = (types > 0) & ~ops.pad(same, [[0, 0], [0, 1]])
        number = ops.maximum(ops.cumsum(ops.cast(is_first, "int32"), axis=1) - 1, 0)
        start = ops.take_along_axis(_first(is_first), number, axis=1)
        first_class = ops.take_along_axis(classes, start, axis=1)
        is_end &= ops.take(self._begins, first_class) & ops.take(self._ends, classes)
        return Entities(is_end, start, types)

    def result(self) -> Tensor:
        right, predicted, marked = map(keras.ops.sum, (self.right, self.found, self.marked))
        return keras.ops.divide_no_nan(2 * right, predicted + marked)

    def scores(self) -> dict[str, Any]:
        """Return `precision`, `recall` and `f1`, and in `classes` the same for each entity type.

        A type also has its number of `entities` in the labels; types that do not occur are left
        out.
        """
        counts = np.stack([np.asarray(count) for count in (self.right, self.found, self.marked)])
        classes = {
            name: _ratios(*counts[:, i]) | {"entities": int(counts[2, i])}
            for i, name in enumerate(self.types)
            if counts[:, i].any()
        }
        return _ratios(*counts.sum(axis=1)) | {"classes": classes}

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"class_names": self.class_names, "strict": self.strict}


def _first(is_first):
    """Return the places (B, S) of rows in another order: first those that are marked."""
    length = ops.shape(is_first)[1]
    places = ops.arange(length, dtype="int32")
    return ops.argsort(ops.where(is_first, places, length + places), axis=1)


def _ratios(right, predicted, marked):
    return {
        "precision": float(right / predicted) if predicted else 0.0,
        "recall": float(right / marked) if marked else 0.0,
        "f1": float(2 * right / (predicted + marked)) if predicted or marked else 0.0,
    }
