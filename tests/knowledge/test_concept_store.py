"""The store: what a dump becomes, what is found in it, and what is refused."""

import gzip
import json

import numpy as np
import pytest

from keras_lm.knowledge import ConceptStore, lemmas, read_conceptnet
from keras_lm.knowledge.concept_store import PARTS
from keras_lm.knowledge.conceptnet import MERGED, RELATIONS
from keras_lm.utils import optional_dependencies

ROWS = [
    ("IsA", "/c/en/ice_cream/n/wn/food", "/c/en/dessert/n", 2.0),
    ("HasA", "/c/en/Car", "/c/en/wheel", 1.0),  # turned around: part of
    ("MotivatedByGoal", "/c/en/run", "/c/en/health", 1.0),
    ("Synonym", "/c/en/car", "/c/en/automobile", 1.0),
    ("SimilarTo", "/c/en/car", "/c/en/automobile", 3.0),  # the same relation: the heavier one
    ("Synonym", "/c/en/car", "/c/fr/voiture", 9.0),
    ("ExternalURL", "/c/en/car", "/c/en/wheel", 9.0),
    ("IsA", "/c/en/mp3", "/c/en/music", 9.0),  # not letters alone
    ("IsA", "/c/en/car", "/c/en/car/n", 9.0),  # itself
    ("IsA", "/c/en/in_car", "/c/en/person", 9.0),  # a stop word, and too general
]


def edges_by_name(store):
    results = []
    for head, kind, tail in store.triples().tolist():
        weight = dict(zip(*store.edges_of(head)[::2]))[tail]
        names = (store.name(head), store.relation_name(kind), store.name(tail))
        results.append((*names, float(weight)))
    return sorted(results)


def test_merged_relations_are_17():
    assert len(RELATIONS) == 17
    merged = [name.lstrip("-") for names in MERGED.values() for name in names.split()]
    assert len(merged) == len(set(merged)) == 31


@pytest.mark.parametrize("is_packed", [False, True])
def test_from_a_dump(dump, tmp_path, is_packed):
    path = dump(ROWS)
    if is_packed:
        packed = tmp_path / "dump.csv.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path = packed
    store = ConceptStore.build(read_conceptnet(path), tmp_path / "store")
    assert edges_by_name(store) == [
        ("car", "RelatedTo", "automobile", 3.0),
        ("health", "Causes", "run", 1.0),
        ("ice_cream", "IsA", "dessert", 2.0),
        ("wheel", "PartOf", "car", 1.0),
    ]
    assert (store.num_concepts, store.num_relations, store.num_edges) == (8, 35, 8)
    car, wheel = store.find("car"), store.find("wheel")
    (kind,) = store.relations_between(car, wheel)
    assert (kind, store.relation_name(kind)) == (17 + RELATIONS.index("PartOf") + 1, "-PartOf")
    assert store.find_key("ice_cream") == [store.find("ice_cream")]


def test_what_is_found(store):
    names = [store.name(number) for number in range(store.num_concepts)]
    assert names[0] == "" and names == sorted(names)
    assert [store.find(name) for name in names[1:]] == list(range(1, len(names)))
    assert store.find("icecream") == store.find("zzz") == store.find("") == 0
    snow, ice = store.find("snow"), store.find("ice")
    kinds = [store.relation_name(kind) for kind in store.relations_between(snow, ice)]
    assert kinds == ["MadeOf", "RelatedTo"]  # the heavier first
    assert store.relations_between(snow, store.find("song")) == []
    targets, _, _ = store.edges_of(ice)
    assert (np.diff(targets) >= 0).all()
    assert len(store.edges_of(0)[0]) == 0


def test_a_cut_store_is_refused_by_name(store, tmp_path):
    for part in PARTS:
        folder = tmp_path / part
        folder.mkdir()
        for file in store.folder.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        path = folder / f"{part}.npy"
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(ValueError, match=rf"{part}.npy has \d+ bytes, and was written with"):
            ConceptStore(folder)
    path.unlink()
    with pytest.raises(ValueError, match=rf"{part}.npy has 0 bytes"):
        ConceptStore(folder)
    with pytest.raises(FileNotFoundError, match=r"no store.json. Build one with keras-lm know"):
        ConceptStore(tmp_path)
    stated = json.loads((folder / "store.json").read_text())
    (folder / "store.json").write_text(json.dumps(stated | {"format_version": 99}))
    with pytest.raises(ValueError, match="format_version is 99"):
        ConceptStore(folder)


def test_building_leaves_what_was_there_if_it_fails(store, tmp_path):
    ConceptStore.build([("a", 1, "b", 1.0)], tmp_path / "store")

    def edges():
        yield ("c", 1, "d", 1.0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ConceptStore.build(edges(), tmp_path / "store")
    assert ConceptStore(tmp_path / "store").find("a")
    with pytest.raises(ValueError, match="edges is empty"):
        ConceptStore.build([], tmp_path / "store")
    with pytest.raises(ValueError, match=r"\('a', 18, 'b'\): relations have the numbers from 1"):
        ConceptStore.build([("a", 18, "b", 1.0)], tmp_path / "store")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize(
    "edge",
    [
        *(("", 1, "b", 1.0), ("a", 1, "\ud800", 1.0), (b"a", 1, "b", 1.0), ("a", 1, None, 1.0)),
        *(("a", "IsA", "b", 1.0), ("a", 1.0, "b", 1.0), ("a", 1, "b"), 7),
        *(("a", 1, "b", float("nan")), ("a", 1, "b", "1"), ("a", 1, "b", float("inf"))),
    ],
)
def test_edges_of_another_form_are_named(tmp_path, edge):
    """An empty name was number 0, which stands for no concept; a weight of NaN has no length."""
    with pytest.raises(ValueError, match=r"edges has .*: pass \(head, relation, tail, weight\)"):
        ConceptStore.build([("a", 1, "b", 1.0), edge], tmp_path / "store")


def test_lines_that_are_wrong_are_named(dump, tmp_path):
    path = dump(ROWS[:1] * 8)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:6], "/a/\t/r/IsA\t/c/en/ice", *lines[7:]]))
    with pytest.raises(ValueError, match=r"dump.csv, line 7: '/a/.*ice' has 3 fields, not 5"):
        list(read_conceptnet(path))
    path.write_text("\n".join([*lines[:6], lines[6].replace("weight", "w"), *lines[7:]]))
    with pytest.raises(ValueError, match=r"dump.csv, line 7: .* has no weight"):
        list(read_conceptnet(path))
    packed = tmp_path / "cut.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes())[:-20])
    with pytest.raises(ValueError, match=r"cut.csv.gz, after line \d+: the file is cut"):
        list(read_conceptnet(packed))
    with pytest.raises(FileNotFoundError, match="curl -LO https://"):
        list(read_conceptnet(tmp_path / "none.csv.gz"))


def test_without_simplemma_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(
        optional_dependencies.importlib,
        "import_module",
        lambda name: (_ for _ in ()).throw(ImportError(name)),
    )
    lemmas._lemmatizer.cache_clear()
    with pytest.raises(ImportError, match=r"pip install 'keras-lm\[knowledge\]'"):
        lemmas._lemmatizer()
