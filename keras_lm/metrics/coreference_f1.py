"""Scores of coreference clusters, as in the CoNLL-2012 shared task."""

import collections
from typing import Any

import keras
import numpy as np

from keras_lm.utils.argument_types import Tensor
from keras_lm.utils.optional_dependencies import require

PARTS = ("muc", "b_cubed", "ceaf_phi4")


@keras.saving.register_keras_serializable("keras_lm")
class CoreferenceF1(keras.metrics.Metric):
    """The CoNLL F1 of clusters of mentions: the mean of the F1 of MUC, B³ and CEAF-φ4, from 0 to 1.

    MUC counts the links within clusters, B³ for each mention the share of its cluster that is
    right, and CEAF-φ4 the similarity of clusters under the best one-to-one alignment. All counts
    are summed over documents. Clusters of a single mention count as others do; OntoNotes has none.
    It is computed in Python, with scipy (the extra `coreference`).

    Call: `update_state(labels, clusters)`, gold and predicted clusters: for each document a list of
    clusters, each a list of mentions, which are pairs `(start, end)` or dicts with both keys.

    Raises:
        ImportError: if scipy is missing.
        ValueError: if the numbers of documents differ, or a mention is in two clusters.

    Example:

        metric = keras_lm.metrics.CoreferenceF1()
        metric.update_state([[[(0, 1), (3, 4)]]], [[[(0, 1), (3, 4), (6, 7)]]])
        metric.result()  # 0.755…

    Source: Pradhan et al. 2014, https://aclanthology.org/P14-2006; Vilain et al. 1995,
    https://aclanthology.org/M95-1005; Bagga and Baldwin 1998, B³; Luo 2005,
    https://aclanthology.org/H05-1004.
    """

    def __init__(self, name: str = "conll_f1", **kwargs: Any):
        self._align = require("scipy.optimize", "CoreferenceF1").linear_sum_assignment
        super().__init__(name=name, **kwargs)
        # For each of the three metrics: recall's numerator and denominator, then precision's.
        self.counts: keras.Variable = self.add_weight(
            (len(PARTS), 2, 2), "zeros", dtype="float64", name="counts"
        )

    def update_state(self, labels: Any, clusters: Any, sample_weight: Tensor | None = None) -> None:
        if sample_weight is not None:
            raise ValueError("CoreferenceF1 takes no weights: leave sample_weight out.")
        if len(labels) != len(clusters):
            raise ValueError(
                f"labels has {len(labels)} documents, but clusters has {len(clusters)}: pass the "
                "clusters of the same documents."
            )
        for gold, answer in zip(labels, clusters, strict=True):
            gold, answer = _sets("labels", gold), _sets("clusters", answer)
            similar = _ceaf_phi4(gold, answer, self._align)
            parts = [
                [_muc(gold, answer), _muc(answer, gold)],
                [_b_cubed(gold, answer), _b_cubed(answer, gold)],
                [(similar, len(gold)), (similar, len(answer))],
            ]
            self.counts.assign_add(np.array(parts, "float64"))

    def result(self) -> Tensor:
        return self.scores()["conll_f1"]

    def scores(self) -> dict[str, Any]:
        """Return `conll_f1`, and for each of the three a dict of `precision`, `recall`, `f1`."""
        right, number = np.moveaxis(self.counts.numpy(), 2, 0)
        ratios = np.divide(right, number, out=np.zeros_like(right), where=number > 0)
        scores = {}
        for name, (recall, precision) in zip(PARTS, ratios.tolist(), strict=True):
            both = recall + precision
            f1 = 2 * recall * precision / both if both else 0.0
            scores[name] = {"precision": precision, "recall": recall, "f1": f1}
        mean = sum(scores[name]["f1"] for name in PARTS) / len(PARTS)
        return scores | {"conll_f1": mean}


def _sets(name, clusters):
    """Return clusters as sets of pairs, without empty clusters."""
    sets = []
    for cluster in clusters:
        pairs = [(m["start"], m["end"]) if isinstance(m, dict) else tuple(m) for m in cluster]
        sets += [set(pairs)] if pairs else []
    if sum(map(len, sets)) > len(set().union(*sets)):
        raise ValueError(
            f"{name}: a mention is in two clusters of a document: leave it in one of them."
        )
    return sets


def _cluster_of(clusters):
    return {mention: number for number, cluster in enumerate(clusters) for mention in cluster}


def _muc(clusters, others):
    """Return how many links of the clusters the others have, too, and the number of links."""
    there, right = _cluster_of(others), 0
    for cluster in clusters:
        parts = {there.get(mention, mention) for mention in cluster}
        right += len(cluster) - len(parts)
    return right, sum(len(cluster) - 1 for cluster in clusters)


def _b_cubed(clusters, others):
    """Return B³'s sum over mentions: the share of a mention's cluster that others share."""
    there, right = _cluster_of(others), 0.0
    for cluster in clusters:
        parts = collections.Counter(there[mention] for mention in cluster if mention in there)
        right += sum(count**2 for count in parts.values()) / len(cluster)
    return right, sum(map(len, clusters))


def _ceaf_phi4(clusters, others, align):
    """Return the summed similarity of clusters in their best alignment."""
    if not clusters or not others:
        return 0.0
    alike = [[2 * len(a & b) / (len(a) + len(b)) for b in others] for a in clusters]
    alike = np.array(alike)
    return alike[align(alike, maximize=True)].sum()
