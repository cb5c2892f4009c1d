"""The initialiser that most models share."""

import keras


def truncated_normal(stddev=0.02):
    """A new truncated normal initialiser (google-research/bert, `modeling.py`).

    Args:
        stddev: float. Standard deviation before truncation to two of it.
    """
    return keras.initializers.TruncatedNormal(stddev=stddev)
