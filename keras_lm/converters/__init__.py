"""Published checkpoints: from a folder to the variables of a model.

1. `checkpoint.py` finds in a table which format a folder is of (`formats.py` has the rarer ones),
   and opens it: its configuration, and a mapping of its tensors' names to arrays, read on access.
2. A model's file has a `Converter` for each format (`converter.py`): how its checkpoints are
   recognised, how their configuration maps to its arguments, and a `NameTable`.
3. The table (`names.py`) has the name of the tensor for each of our variables.
"""

import warnings

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.checkpoint import Checkpoint, find_folder, open_checkpoint
from keras_lm.converters.converter import STATED, Converter, match_score
from keras_lm.converters.entity_files import Entities, read_entities, read_entity_names
from keras_lm.converters.word_vector_files import read_word_vectors

__all__ = [
    "STATED",
    "Checkpoint",
    "CheckpointError",
    "Converter",
    "Entities",
    "find_folder",
    "match_score",
    "open_checkpoint",
    "read_entities",
    "read_entity_names",
    "read_word_vectors",
]


def __getattr__(name):
    if name == "signs":
        warnings.warn("signs is deprecated: use match_score.", DeprecationWarning, stacklevel=2)
        return match_score
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
