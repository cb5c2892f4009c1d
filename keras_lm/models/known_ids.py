"""Ids that a model has no embedding for: Keras would take the last rows for negative ones."""

import math
from typing import Any

import keras
import numpy as np

from keras_lm.layers.backend import known_array


def id_limit(model: keras.Model, name: str) -> float | None:
    """Return how many ids an input of a model may have, infinity if any; None if it has no ids.

    Args:
        model: a backbone.
        name: str, of the input.
    """
    config = model.config
    if name == "decoder_token_ids" and config.get("decoder_vocabulary_size"):
        return config["decoder_vocabulary_size"]
    if name.endswith("token_ids") or name == "character_ids":
        return model.vocabulary_size or math.inf
    return config.get("num_segments") or math.inf if name == "segment_ids" else None


def check_ids(model: keras.Model, inputs: dict[str, Any]) -> None:
    """Raise a ValueError if a backbone's inputs have ids that are none of its own.

    Tensors of a graph that is traced have no values yet; see `keras_lm.feeding.datasets`.
    """
    for name, value in inputs.items():
        limit = id_limit(model, name)
        array = None if limit is None else known_array(value)
        if array is None or not array.size:
            continue
        for wrong in (array.min(), array.max()):
            if not 0 <= wrong < limit:
                row = np.argwhere(array == wrong)[0][:1]
                raise ValueError(
                    f"{name} has {wrong} in row {row[0] if len(row) else 0}: "
                    f"{allowed_ids(model, limit)}."
                )


def allowed_ids(model: keras.Model, limit: float) -> str:
    """Return what the ids of an input may be, for an error."""
    most = "0 or more" if limit == math.inf else f"from 0 to {limit - 1}"
    return f"ids of this {type(model).__name__} are {most}"
