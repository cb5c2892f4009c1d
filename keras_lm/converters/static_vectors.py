"""Static vectors of tokens: sentence-transformers' `StaticEmbedding`, and model2vec's files.

Both have a vector for each token of a tokenizer.json. model2vec may have fewer vectors, a `mapping`
from token to vector, and `weights` of the tokens; `StaticEmbedding` reads these as one table, and
so it is done here.

Shapes: V tokens, U vectors, E width.
"""

import numpy as np

from keras_lm.converters.checked_files import CheckpointError, Entry

TABLE = "embedding"
TENSOR = f"{TABLE}.weight"  # (V, E)
VECTORS, MAPPING, WEIGHTS = "embeddings", "mapping", "weights"  # (U, E), (V,), (V,)


def are_all(tensors) -> bool:
    """Whether static vectors are all that a checkpoint holds."""
    return {*tensors} == {TENSOR}


def as_table(folder, tensors: dict[str, Entry]) -> dict[str, Entry]:
    """Return the entries of a file with vectors, with model2vec's tensors as one table.

    Args:
        folder: path, for errors.
        tensors: dict of name → (shape, function that reads it).

    Raises:
        CheckpointError: if their shapes do not belong together.
    """
    if not tensors.keys() <= {VECTORS, MAPPING, WEIGHTS}:
        return tensors
    shape, rows = tensors[VECTORS][0], {tensors[name][0] for name in tensors.keys() - {VECTORS}}
    lengths = rows if MAPPING in tensors else rows | {shape[:1]}
    if len(shape) != 2 or len(lengths) > 1 or any(len(one) != 1 for one in rows):
        shapes = {name: entry[0] for name, entry in tensors.items()}
        raise CheckpointError(
            f"{folder} has tensors of the shapes {shapes}, and model2vec's are a table of vectors, "
            "and a number for each token: copy or download it again."
        )
    number = next(iter(lengths))[0]
    return {TENSOR: ((number, shape[1]), lambda: _folded(folder, tensors))}


def _folded(folder, tensors):
    """Return the table (V, E): the vector of each token, times its weight."""
    vectors = tensors[VECTORS][1]()
    if vectors.dtype.kind not in "fV":
        raise CheckpointError(
            f"{folder} has vectors of the type {vectors.dtype}, whose scale no file states: save "
            "the model without quantizing it to integers."
        )
    if MAPPING in tensors:
        mapping = tensors[MAPPING][1]()
        if mapping.dtype.kind not in "iu" or (
            mapping.size and not 0 <= mapping.min() <= mapping.max() < len(vectors)
        ):
            raise CheckpointError(
                f"{folder} has a mapping from tokens to {len(vectors)} vectors with other numbers "
                "than theirs: copy or download it again."
            )
        vectors = vectors[mapping]
    if WEIGHTS in tensors:
        vectors = vectors.astype("float32") * tensors[WEIGHTS][1]()[:, np.newaxis]
    return vectors.astype("float32")
