"""TransE: a relation is a translation from the vector of its head to that of its tail.

Shapes: N triples, E entities, D width.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np

from keras_lm.knowledge.triples import checked_triples
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import as_local, check_sums, on_disk, replacing, write_sums

DESCRIPTION = "trans_e.json"
PARTS = ("entities", "relations")
HITS = 10  # "hits@10"


class TransE:
    """Vectors of entities and relations, so that head + relation is near the tail.

    They are learnt by gradient descent on a ranking with a margin: a triple shall be nearer than
    the same with a random head or tail. Vectors of entities have length 1. It is numpy alone, as
    each step changes but a few rows of the tables.

    Args:
        num_entities, num_relations: int.
        dim: int, D.
        margin: float. By how much a corrupted triple shall be farther.
        norm: 1 or 2. The distance: the sum of absolute differences, or the Euclidean one.
        seed: int, of the first vectors and of `fit`.

    Attributes:
        entities, relations: float32 arrays, a row for each.
        folder: path that it was loaded from or saved to, or None.

    Raises:
        ValueError: if a number is out of range.

    Example:

        triples = [[0, 0, 1], [1, 0, 2], [2, 0, 3]]  # head, relation, tail
        trans_e = keras_lm.knowledge.TransE(num_entities=4, num_relations=1, dim=16)
        trans_e.fit(triples, epochs=20)
        trans_e.evaluate([[0, 0, 1]], known=triples)["filtered_mean_rank"]

    Source: Bordes et al. 2013, "Translating Embeddings for Modeling Multi-relational Data",
    https://papers.nips.cc/paper/5071, algorithm 1 and section 4; scores of triples: INK-USC/KagNet,
    `pathfinder/path_scoring.py`.
    """

    def __init__(
        self,
        num_entities: int,
        num_relations: int,
        dim: int = 100,
        margin: float = 1.0,
        norm: int = 1,
        seed: int = 0,
    ):
        sizes = {"num_entities": num_entities, "num_relations": num_relations, "dim": dim}
        for name, value in sizes.items():
            if value < 1:
                raise ValueError(f"{name}={value}: pass 1 or more.")
        if margin <= 0:
            raise ValueError(f"margin={margin}: pass a number above 0.")
        if norm not in (1, 2):
            raise ValueError(f"norm={norm!r}: pass 1 or 2.")
        self.margin, self.norm = margin, norm
        self.folder: Path | None = None
        self._draws = np.random.default_rng(seed)
        bound = 6 / math.sqrt(dim)
        self.entities: np.ndarray
        self.relations: np.ndarray
        self.entities, self.relations = (
            _unit(self._draws.uniform(-bound, bound, (rows, dim)).astype("float32"))
            for rows in (num_entities, num_relations)
        )

    def fit(
        self,
        triples: Any,
        epochs: int = 10,
        batch_size: int = 1024,
        learning_rate: float = 0.01,
        report: Callable[[int, float], Any] | None = None,
    ) -> list[float]:
        """Learn from triples (N, 3), integers: head, relation, tail.

        Args:
            triples: array or list.
            epochs, batch_size: int.
            learning_rate: float. A vector that several triples of a batch have moves by the mean
                of what each asks for, however many these are.
            report: function that is called with the number of an epoch, from 1, and its mean loss.

        Returns:
            list of the mean loss of each epoch.

        Raises:
            FloatingPointError: if the loss is no longer a number.
            ValueError: if there is no triple, or one has a number out of range.
        """
        triples = checked_triples(triples, len(self.entities), len(self.relations))
        if not len(triples):
            raise ValueError("triples is empty: pass at least one.")
        losses = []
        for epoch in range(1, epochs + 1):
            order = self._draws.permutation(len(triples))
            total = sum(
                self._step(triples[order[start : start + batch_size]], learning_rate)
                for start in range(0, len(triples), batch_size)
            )
            losses.append(total / len(triples))
            if not math.isfinite(losses[-1]):
                raise FloatingPointError(
                    f"the mean loss of epoch {epoch} is {losses[-1]}, and so are vectors: make a "
                    f"new TransE, with a lower learning_rate than {learning_rate:g}."
                )
            if report is not None:
                report(epoch, losses[-1])
        self.entities[:] = _unit(self.entities)
        return losses

    def _step(self, right, rate):
        """Take one step, and return the sum of the losses of some triples."""
        wrong = right.copy()
        column = 2 * self._draws.integers(0, 2, len(right))  # the head, or the tail
        drawn = self._draws.integers(0, len(self.entities), len(right))
        wrong[np.arange(len(right)), column] = drawn
        touched = np.unique(np.concatenate([right[:, [0, 2]], wrong[:, [0, 2]]]))
        self.entities[touched] = _unit(self.entities[touched])
        near, far = self._differences(right), self._differences(wrong)  # (N, D)
        losses = self.margin + self._length(near) - self._length(far)
        counts = losses > 0
        rows, slopes = [], []  # of a difference: + for the head and the relation, - for the tail
        for triples, differences, sign in ((right, near, 1), (wrong, far, -1)):
            triples, differences = triples[counts], differences[counts]
            if self.norm == 1:
                slope = np.sign(differences)
            else:
                slope = _unit(differences)
            rows.append(triples)
            slopes.append(sign * rate * slope)
        rows, slopes = np.concatenate(rows), np.concatenate(slopes)
        _add(self.entities, rows[:, [0, 2]].T.reshape(-1), np.concatenate([-slopes, slopes]))
        _add(self.relations, rows[:, 1], -slopes)
        return float(losses[counts].sum())

    def _differences(self, triples):
        head, relation, tail = triples.T
        return self.entities[head] + self.relations[relation] - self.entities[tail]

    def _length(self, differences):
        return np.linalg.norm(differences, self.norm, axis=-1)

    def distances(self, triples: Any) -> np.ndarray:
        """Return the distance of head + relation and tail of each triple, (N,) float32."""
        triples = checked_triples(triples, len(self.entities), len(self.relations))
        return self._length(self._differences(triples))

    def scores(self, triples: Any) -> np.ndarray:
        """Return how well the relation points from head to tail, (N,) from 0 to 1.

        It is `(1 + cosine) / 2` of the relation and of tail - head; paths are pruned by it.
        """
        head, relation, tail = checked_triples(triples, len(self.entities), len(self.relations)).T
        cosines = np.sum(
            _unit(self.relations[relation]) * _unit(self.entities[tail] - self.entities[head]), -1
        )
        return (1 + cosines) / 2

    def evaluate(self, triples: Any, known: Any = ()) -> dict[str, float]:
        """Rank the right head and the right tail of triples among all entities.

        Args:
            triples: (N, 3), held out.
            known: (M, 3), all triples that are right. In the filtered measures, other right
                answers to a question are left out.

        Returns:
            dict of `mean_rank` and `hits@10`, a share, raw, with `filtered_` in front, and with
            `random_` by chance (`filtered_random_…` among fewer candidates).

        Raises:
            ValueError: if there is no triple, or one has a number out of range.
        """
        sizes = len(self.entities), len(self.relations)
        triples = checked_triples(triples, *sizes)
        if not len(triples):
            raise ValueError("triples is empty: pass at least one.")
        known = checked_triples(np.asarray(known, "int64").reshape(-1, 3), *sizes)
        right = {}  # (place that is asked for, relation, the other entity) → right answers
        for head, relation, tail in np.concatenate([known, triples]).tolist():
            right.setdefault((2, relation, head), set()).add(tail)
            right.setdefault((0, relation, tail), set()).add(head)
        raw, filtered = [], []  # a rank, and the number of candidates
        for head, relation, tail in triples.tolist():
            for place, other, answer in ((2, head, tail), (0, tail, head)):
                sign = 1 if place == 2 else -1
                at = self.entities[other] + sign * self.relations[relation]
                lengths = self._length(self.entities - at)  # (E,)
                raw.append((_rank(lengths, lengths[answer]), sizes[0]))
                others = sorted(right[place, relation, other] - {answer})
                rank = raw[-1][0] - _rank(lengths[others], lengths[answer], 0)
                filtered.append((rank, sizes[0] - len(others)))
        measures = {}
        for prefix, ranks in (("", raw), ("filtered_", filtered)):
            rank, number = np.array(ranks).T
            measures[f"{prefix}mean_rank"] = float(rank.mean())
            measures[f"{prefix}hits@10"] = float((rank <= HITS).mean())
            measures[f"{prefix}random_mean_rank"] = float(((number + 1) / 2).mean())
            measures[f"{prefix}random_hits@10"] = float(np.minimum(HITS / number, 1).mean())
        return measures

    def save(self, folder: PathLike) -> None:
        """Write the vectors to a folder, in one step: `entities.npy`, `relations.npy`."""
        folder = on_disk(folder)
        with replacing(folder) as new:
            new.mkdir()
            for name in PARTS:
                np.save(new / f"{name}.npy", getattr(self, name))
            text = json.dumps({"margin": self.margin, "norm": self.norm})
            (new / DESCRIPTION).write_text(text, encoding="utf-8")
            write_sums(new, [path.name for path in new.iterdir()])
        self.folder = folder

    @classmethod
    def load(cls, folder: PathLike) -> Self:
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: if there is none.
            ValueError: if a file is damaged; it is named.
        """
        folder = as_local(folder)
        arguments = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        tables = []
        for name in PARTS:
            path = folder / f"{name}.npy"
            try:
                tables.append(np.load(path, allow_pickle=False))
            except (EOFError, ValueError) as error:
                raise ValueError(f"{path} is damaged, train and save it again: {error}") from error
        check_sums(folder, "copy the folder again, or train and save it again")
        trans_e = cls(1, 1, tables[0].shape[1], **arguments)
        trans_e.entities, trans_e.relations = tables
        trans_e.folder = folder
        return trans_e


def _unit(x):
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


def _add(table, rows, updates):
    """Add to rows of a table; one that is there several times moves by the mean.

    A batch has thousands of triples, and a graph few relations: their sums would overshoot.
    """
    if not len(rows):
        return
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    counts = np.diff(starts, append=len(rows))
    table[rows[starts]] += np.add.reduceat(updates[order], starts, axis=0) / counts[:, None]


def _rank(lengths, own, first=1):
    """Return how many are nearer, with half of those as near as the answer; itself is first."""
    ties = np.sum(lengths == own) - first
    return first + np.sum(lengths < own) + ties / 2
