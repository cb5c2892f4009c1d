"""F1 of entities. Shapes: B batch, S sequence, C classes."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_lm.objectives import IGNORED
from keras_lm.published.tag_schemes import (
    OUTSIDE,
    is_plain,
    marks_entities,
    parts_of,
    scheme_of,
)
from keras_lm.tensorflow import tf


@keras.saving.register_keras_serializable("keras_lm")
class EntityF1(keras.metrics.Metric):
    """The F1 of named entities, from 0 to 1: an entity is right if its class and both ends are.

    It is the micro-average over all entities, as in the CoNLL evaluation; see
    `keras_lm.published.tag_schemes.entity_spans` for how labels mark an entity.

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

    def __init__(
        self,
        class_names: Sequence[str],
        strict: bool = False,
        name: str = "entity_f1",
        **kwargs: Any,
    ):
        super().__init__(name=name, **kwargs)
        self.class_names = list(class_names)
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
        self.types = sorted(set(types) | {""})
        self._types = np.array([self.types.index(name) for name in types], "int32")
        self._opens = np.array([prefix in tuple("BI") for prefix, *_ in parts]) & (self._types > 0)
        self._continues = np.array([prefix in tuple("IEL") for prefix, *_ in parts])
        # With `strict`: the classes that may begin an entity, and those that may end one.
        ends = "ELSU" if scheme_of(class_names) == "BIOES" else "BI"
        self._begins, self._ends = (
            np.array([not strict or prefix in tuple(found) for prefix, *_ in parts])
            for found in ("BSU", ends)
        )
        # The number of entities of each type.
        self.right, self.found, self.marked = (
            self.add_weight((len(self.types),), "zeros", name=name)
            for name in ("right", "found", "marked")
        )

    def update_state(self, labels, logits, sample_weight=None):
        if sample_weight is not None:
            raise ValueError("EntityF1 takes no weights: name it in metrics, not weighted_metrics.")
        labels = tf.cast(labels, tf.int32)
        # Words first: later pieces of a word and special tokens are not part of the sequence.
        is_word = labels != IGNORED
        order = tf.argsort(tf.cast(~is_word, tf.int32), axis=1, stable=True)
        is_word = tf.gather(is_word, order, batch_dims=1)
        marked, found = (
            self._entities(tf.gather(classes, order, batch_dims=1), is_word)
            for classes in (labels, tf.argmax(logits, axis=-1, output_type=tf.int32))
        )
        both = tf.sets.intersection(marked[tf.newaxis], found[tf.newaxis]).values
        for count, entities in ((self.right, both), (self.found, found), (self.marked, marked)):
            types = tf.cast(entities % len(self._types), tf.int32)
            number = len(self.types)
            count.assign_add(tf.math.bincount(types, None, number, number, tf.float32))

    def _entities(self, classes, is_word):
        """Return entities (N,), each encoded as one number: row, ends and type; sorted."""
        classes = tf.where(is_word, classes, 0)
        types = tf.where(is_word, tf.gather(self._types, classes), 0)
        opens, continues = tf.gather(self._opens, classes), tf.gather(self._continues, classes)
        same = opens[:, :-1] & continues[:, 1:] & (types[:, :-1] == types[:, 1:])
        same &= types[:, 1:] > 0
        first = tf.where((types > 0) & ~tf.pad(same, [[0, 0], [1, 0]]))  # (N, 2)
        last = tf.where((types > 0) & ~tf.pad(same, [[0, 0], [0, 1]]))
        is_whole = tf.gather(self._begins, tf.gather_nd(classes, first))
        is_whole &= tf.gather(self._ends, tf.gather_nd(classes, last))
        first, last = tf.boolean_mask(first, is_whole), tf.boolean_mask(last, is_whole)
        length = tf.shape(classes, tf.int64)[1]
        number = (first[:, 0] * length + first[:, 1]) * length + last[:, 1]
        return number * len(self._types) + tf.cast(tf.gather_nd(types, first), tf.int64)

    def result(self):
        right, found, marked = map(keras.ops.sum, (self.right, self.found, self.marked))
        return keras.ops.divide_no_nan(2 * right, found + marked)

    def scores(self) -> Any:
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

    def get_config(self):
        return super().get_config() | {"class_names": self.class_names, "strict": self.strict}


def _ratios(right, found, marked):
    return {
        "precision": float(right / found) if found else 0.0,
        "recall": float(right / marked) if marked else 0.0,
        "f1": float(2 * right / (found + marked)) if found or marked else 0.0,
    }
