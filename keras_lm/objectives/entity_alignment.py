"""ERNIE's objective for entities. Shapes: B batch, S sequence, C candidates, N = B · S places."""

from typing import Any

import keras
from keras import ops

from keras_lm.layers.masks import IGNORED
from keras_lm.objectives.objective import (
    Draws,
    MaskedAccuracy,
    MaskedCrossentropy,
    Objective,
    register_objective,
)
from keras_lm.utils.argument_types import Tensor

NO_ENTITY = -1
NO_CANDIDATE = -2
LAST = 2**31 - 1  # sorted after all entities


@register_objective
class EntityAlignment(Objective):
    """Say which entity a token mentions, after some are hidden: ERNIE's denoising auto-encoder.

    Of the entities beside the tokens 5 % become another one of the batch, 15 % are taken away, and
    the others stay. The head then chooses, at each token that had an entity, among the different
    entities of the batch; "none", the zero vector, is a candidate that is never right, as in the
    authors' code. Each replica chooses among those of its own rows.

    Rows need `entity_ids`, which an `EntityTokenizer` gives, and the backbone a table of entities.

    Args:
        replaced_share, dropped_share: floats with a sum of at most 1.
        seed: int, for training; evaluation always hides the same for the same batch shape.

    Raises:
        ValueError: if a share is negative, or their sum exceeds 1; or if the backbone has no table.

    Source: Zhang et al. 2019, https://arxiv.org/abs/1905.07129, section 3.4; thunlp/ERNIE,
    `run_pretrain.py`.
    """

    heads = {"entity_logits": "entity"}
    row_names = ("candidate_ids", "candidate_embeddings")

    def __init__(
        self, replaced_share: float = 0.05, dropped_share: float = 0.15, seed: int | None = None
    ):
        if min(replaced_share, dropped_share) < 0 or replaced_share + dropped_share > 1:
            raise ValueError(
                f"replaced_share={replaced_share} and dropped_share={dropped_share}: pass numbers "
                "from 0 with a sum of at most 1."
            )
        self.replaced_share, self.dropped_share = replaced_share, dropped_share
        self.seed_generator = keras.random.SeedGenerator(seed)

    def set_backbone(self, backbone: keras.Model) -> None:
        if getattr(backbone, "entity_table", None) is None:
            raise ValueError(
                f"{type(backbone).__name__} has no table of entities, which EntityAlignment "
                "chooses from: pass the backbone that its with_entities(vectors) returns."
            )

    def corrupt(
        self, inputs: dict[str, Tensor], training: bool | None = True
    ) -> tuple[dict[str, Tensor], Any]:
        """Hide entities; return `candidate_ids` (B, C) beside them, and labels (B, S) among these.

        All rows of the candidates are equal. Labels are the original entities, or `IGNORED`.

        Raises:
            ValueError: if the rows have no entities.
        """
        if "entity_ids" not in inputs:
            raise ValueError(
                "inputs lacks 'entity_ids': give the task an EntityTokenizer, or pass them."
            )
        ids = ops.cast(inputs["entity_ids"], "int32")
        candidates, number = _different(ids)
        is_entity = ids > NO_ENTITY
        places = ops.searchsorted(candidates, ops.reshape(ids, (-1,)))
        places = ops.reshape(ops.cast(places, "int32"), ops.shape(ids))
        labels = ops.where(is_entity, places, IGNORED)

        draws = Draws(self.seed_generator if training else None)
        fate, chance = draws.uniform(ops.shape(ids)), draws.uniform(ops.shape(ids))
        # Not the first candidate, which stands for no entity.
        another = 1 + ops.cast(chance * ops.cast(number - 1, "float32"), "int32")
        another = ops.take(candidates, ops.minimum(another, number - 1))
        hidden = ops.where(fate < self.replaced_share + self.dropped_share, NO_ENTITY, ids)
        hidden = ops.where(fate < self.replaced_share, another, hidden)
        if not isinstance(ops.shape(candidates)[0], int):  # else shapes have to stay static
            candidates = candidates[:number]
        candidates = ops.where(candidates == LAST, NO_CANDIDATE, candidates)
        shape = (ops.shape(ids)[0], ops.shape(candidates)[0])
        rows = {
            "entity_ids": ops.where(is_entity, hidden, ids),
            "candidate_ids": ops.broadcast_to(ops.expand_dims(candidates, 0), shape),
        }
        return inputs | rows, labels

    def loss(self) -> MaskedCrossentropy:
        return MaskedCrossentropy()

    def metrics(self) -> list[keras.metrics.Metric]:
        return [MaskedAccuracy()]


def _different(ids):
    """Return `NO_ENTITY`, the different entities, sorted, and `LAST`s, (N + 1,); their number."""
    none = ops.full((1,), NO_ENTITY, "int32")
    ordered = ops.sort(ops.concatenate([none, ops.reshape(ids, (-1,))], axis=0))
    is_new = ops.concatenate([none < 0, ordered[1:] > ordered[:-1]], axis=0)
    different = ops.sort(ops.where(is_new, ordered, LAST))
    return different, ops.sum(ops.cast(is_new, "int32"))
