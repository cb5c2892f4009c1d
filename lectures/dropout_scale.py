"""Dropout keeps the mean in training, and does nothing afterwards."""

CLAIM = "Units are set to zero with probability p, and the others multiplied by 1 / (1 - p)."
PUBLISHED = "a mean of 1, a share p of zeros, other values of 1 / (1 - p); the input itself in use"
SOURCE = "Srivastava et al. 2014, https://jmlr.org/papers/v15/srivastava14a.html"
NEEDS = ()
FOUND = "So it is, within what a million draws of one seed differ by; in use, outputs are inputs."
SHOWS = "That scaling keeps the mean. Not that it helps: that depends on the task and its size."


def run(quick=False):
    """Return a row for each share of units that are dropped."""
    import keras
    import numpy as np

    ones = np.ones((1000, 10 if quick else 1000), "float32")
    rows = []
    for share in (0.1, 0.3, 0.5, 0.8):
        dropout = keras.layers.Dropout(share, seed=0)
        trained, used = np.array(dropout(ones, training=True)), np.array(dropout(ones))
        row = {"p": share, "share of zeros": float((trained == 0).mean())}
        row |= {"other values": float(trained.max()), "mean in training": float(trained.mean())}
        rows.append(row | {"largest change in use": float(abs(used - ones).max())})
    return rows
