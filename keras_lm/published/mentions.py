"""Mentions of a text's clusters, as labels state them: places in its words."""

import numpy as np


def mentions_of(clusters):
    """Return the mentions of a text's clusters: start, end, and the cluster's number from 1."""
    found = {}
    clusters = clusters.tolist() if hasattr(clusters, "tolist") else clusters  # of numpy
    if not isinstance(clusters, (list, tuple)):
        raise ValueError(f"{clusters!r} is no list of clusters; for none it is [].")
    for number, cluster in enumerate(clusters, start=1):
        for mention in cluster if isinstance(cluster, (list, tuple)) else [cluster]:
            if isinstance(mention, dict) and {"start", "end"} <= set(mention):
                mention = mention["start"], mention["end"]
            is_pair = isinstance(mention, (list, tuple)) and len(mention) == 2
            if not is_pair or not all(isinstance(n, (int, np.integer)) for n in mention):
                raise ValueError(
                    f"{mention!r} is no mention. A cluster is a list of pairs, (start, end), such "
                    "as in [[(0, 2), (5, 6)]], one cluster of two mentions."
                )
            mention = tuple(map(int, mention))
            if mention in found:
                raise ValueError(f"the mention {mention} is there twice.")
            found[mention] = number
    return [(*mention, number) for mention, number in found.items()]


def check_place(mention, size, unit="words", where=""):
    """Raise a ValueError if a mention is no part of a text of so many words or characters."""
    if not 0 <= mention[0] < mention[1] <= size:
        raise ValueError(
            f"{where}the mention {mention} is no part of a text of {size} {unit}: a start counts "
            "from 0, and an end is after the last one."
        )
