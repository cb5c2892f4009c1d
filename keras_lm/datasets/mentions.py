"""Labels of coreference: clusters of mentions, which are (start, end) in words."""

import numpy as np


def mentions_of(clusters):
    """Return the mentions in a text's clusters as (start, end, number of the cluster from 1)."""
    found = {}
    clusters = clusters.tolist() if hasattr(clusters, "tolist") else clusters  # numpy's arrays
    if not isinstance(clusters, (list, tuple)):
        raise ValueError(f"{clusters!r} is not a list of clusters; if there are none, pass [].")
    for number, cluster in enumerate(clusters, start=1):
        for mention in cluster if isinstance(cluster, (list, tuple)) else [cluster]:
            if isinstance(mention, dict) and {"start", "end"} <= set(mention):
                mention = mention["start"], mention["end"]
            is_pair = isinstance(mention, (list, tuple)) and len(mention) == 2
            if not is_pair or not all(isinstance(n, (int, np.integer)) for n in mention):
                raise ValueError(
                    f"{mention!r} is not a mention. A cluster is a list of pairs (start, end): "
                    "[[(0, 2), (5, 6)]] is one cluster of two mentions."
                )
            mention = tuple(map(int, mention))
            if mention in found:
                raise ValueError(f"the mention {mention} occurs twice: leave it in one cluster.")
            found[mention] = number
    return [(*mention, number) for mention, number in found.items()]


def check_place(mention, size, unit="words", where=""):
    """Raise a ValueError if a mention is outside of a text of `size` words or characters."""
    if not 0 <= mention[0] < mention[1] <= size:
        raise ValueError(
            f"{where}the mention {mention} is not within the text of {size} {unit}: a start counts "
            "from 0, and an end is exclusive."
        )
