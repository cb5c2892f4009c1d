"""The initialisation that most of the family shares."""

import keras


def truncated_normal():
    """A fresh truncated normal of standard deviation 0.02 (google-research/bert, `modeling.py`)."""
    return keras.initializers.TruncatedNormal(stddev=0.02)
