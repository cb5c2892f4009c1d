"""F1 of constituents, computed as the program EVALB does."""

import collections
from typing import Any

import keras
import numpy as np

from keras_lm.datasets.trees import read_tree
from keras_lm.utils.argument_types import Tensor

# EVALB's parameter file COLLINS.prm: ignored tags, ignored labels, and labels that are equal.
LEFT_OUT = ("TOP", ",", ":", "``", "''", ".")
ALIKE = {"PRT": "ADVP"}


@keras.saving.register_keras_serializable("keras_lm")
class ConstituentF1(keras.metrics.Metric):
    """The labelled F1 of constituents, from 0 to 1, as EVALB computes it with COLLINS.prm.

    A constituent is right if the gold tree has one with the same label over the same words, counted
    with multiplicity. Punctuation, according to the gold tags, is ignored, as are constituents that
    consist of it; `PRT` counts as `ADVP`. It is the micro-average over all sentences, except those
    of punctuation alone.

    Call: `update_state(labels, trees)`: gold and predicted trees of the same words, lists of
    strings; see `keras_lm.data.read_tree`. It is computed in Python, so it is not for `compile`.

    Raises:
        ValueError: if two trees differ in their number of words, or a string is not a tree; the
            message names the row.

    Example:

        metric = keras_lm.metrics.ConstituentF1()
        metric.update_state(["(S (NP (NN it)) (VP (VB is)))"], ["(S (NP (NN it)) (NP (VB is)))"])
        metric.result()  # 0.667
        metric.scores()["complete_match"]  # 0.0, the share of sentences without errors

    Source: Black et al. 1991, https://aclanthology.org/H91-1060; Collins 1997,
    https://aclanthology.org/P97-1003, section 4; https://nlp.cs.nyu.edu/evalb.
    """

    def __init__(self, name: str = "f1", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        # Counts of constituents and of sentences.
        self.right: keras.Variable = self.add_weight((), "zeros", name="right")
        self.found: keras.Variable = self.add_weight((), "zeros", name="found")
        self.marked: keras.Variable = self.add_weight((), "zeros", name="marked")
        self.complete: keras.Variable = self.add_weight((), "zeros", name="complete")
        self.sentences: keras.Variable = self.add_weight((), "zeros", name="sentences")

    def update_state(self, labels: Any, trees: Any, sample_weight: Tensor | None = None) -> None:
        if sample_weight is not None:
            raise ValueError("ConstituentF1 takes no weights: every constituent counts the same.")
        counts = np.zeros(5)
        for row, (label, text) in enumerate(zip(labels, trees, strict=True)):
            right, parsed = (
                _tree(x, row, name) for x, name in ((label, "labels"), (text, "trees"))
            )
            if len(right.words) != len(parsed.words):
                raise ValueError(
                    f"trees[{row}] has {len(parsed.words)} words, but labels[{row}] has "
                    f"{len(right.words)}: parse the words of the right tree."
                )
            is_word = [tag not in LEFT_OUT for tag in right.tags]
            if any(is_word):
                right, parsed = _counted(right, is_word), _counted(parsed, is_word)
                both = (right & parsed).total()
                counts += [both, parsed.total(), right.total(), right == parsed, 1]
        names = (self.right, self.found, self.marked, self.complete, self.sentences)
        for count, number in zip(names, counts, strict=True):
            count.assign_add(number)

    def result(self) -> Tensor:
        return keras.ops.divide_no_nan(2 * self.right, self.found + self.marked)

    def scores(self) -> dict[str, float]:
        """Return `precision`, `recall`, `f1` and `complete_match`, from 0 to 1."""
        ratios = {
            "precision": (self.right, self.found),
            "recall": (self.right, self.marked),
            "f1": (2 * self.right, self.found + self.marked),
            "complete_match": (self.complete, self.sentences),
        }
        return {name: float(keras.ops.divide_no_nan(*ratio)) for name, ratio in ratios.items()}


def _tree(text, row, name):
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    try:
        return read_tree(text or "()")
    except ValueError as error:
        raise ValueError(f"{name}[{row}]={text[:60]!r}: {error}") from error


def _counted(tree, is_word):
    """Return a count of each (label, start, end), in words without punctuation."""
    places = np.concatenate([[0], np.cumsum(is_word, dtype=int)])
    spans = ((ALIKE.get(n, n), int(places[start]), int(places[end])) for n, start, end in
             tree.constituents)  # fmt: skip
    return collections.Counter(
        span for span in spans if span[1] < span[2] and span[0] not in LEFT_OUT
    )
