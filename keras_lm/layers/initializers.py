"""The initialisation that most of the family shares."""

import keras


def truncated_normal(stddev=0.02):
    """A fresh truncated normal (google-research/bert, `modeling.py`).

    Args:
        stddev: float. Standard deviation, before what lies beyond two of it is drawn again.
    """
    return keras.initializers.TruncatedNormal(stddev=stddev)
