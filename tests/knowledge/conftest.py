"""A small graph of concepts, and a dump that it could come from."""

import json

import pytest

from keras_lm.knowledge import ConceptStore
from keras_lm.knowledge.conceptnet import RELATIONS

# ice – slippery – fall – injury – hospital, a cycle ice – cold – snow – ice, and a far island.
EDGES = [
    ("ice", "HasProperty", "slippery", 2.0),
    ("slippery", "Causes", "fall", 1.0),
    ("fall", "Causes", "injury", 1.0),
    ("injury", "AtLocation", "hospital", 1.0),
    ("ice", "HasProperty", "cold", 1.0),
    ("cold", "RelatedTo", "snow", 1.0),
    ("snow", "RelatedTo", "ice", 0.5),
    ("snow", "MadeOf", "ice", 1.0),
    ("ice_cream", "IsA", "dessert", 1.0),
    ("sing", "RelatedTo", "song", 1.0),
    ("ice", "HasContext", "sport", 1.0),
    ("hospital", "HasContext", "sport", 1.0),
]


def numbered(edges):
    return [(head, RELATIONS.index(kind) + 1, tail, weight) for head, kind, tail, weight in edges]


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    return ConceptStore.build(numbered(EDGES), tmp_path_factory.mktemp("knowledge") / "winter")


@pytest.fixture
def dump(tmp_path):
    """Write rows of (relation, start, end, weight) as ConceptNet's dump, and return its path."""

    def write(rows, name="dump.csv"):
        lines = [
            "\t".join(["/a/", f"/r/{kind}", start, end, json.dumps({"weight": weight})])
            for kind, start, end, weight in rows
        ]
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path / name

    return write
