"""The search of an export finds the graphs that Python finds, on any text and on any graph."""

import base64

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.knowledge import ConceptStore, SchemaGraphs, TransE, graph_constants
from keras_lm.packers.graph_search import GraphSearch

EDGES = [
    # A cycle, an edge to itself, and one that is not followed.
    ("film", 1, "song", 1.0),
    ("song", 3, "story", 2.0),
    ("story", 1, "film", 1.0),
    ("film", 1, "film", 1.0),
    ("song", 2, "music", 1.0),
    # Concepts in concepts, several with the same lemmas, and lemmas that are wrong.
    ("ice_cream", 1, "dessert", 1.0),
    ("ice", 3, "cold", 1.0),
    ("ice_cream", 1, "ice", 0.5),
    *((name, 1, "run", 1.0) for name in ("walks", "walking", "walked", "walk_s")),
    ("baker", 1, "bake", 1.0),
    ("bread", 3, "bake", 1.0),
    ("bak", 3, "bread", 1.0),
    # Other letters, and a hyphen.
    ("x-ray", 1, "film", 1.0),
    ("straße", 1, "city", 1.0),
    ("éclair", 1, "dessert", 2.0),
    ("中", 1, "city", 1.0),
    ("οδος", 1, "city", 1.0),
    # A letter whose capital is another one's: simplemma finds "ı" as "I".
    ("i_2", 1, "city", 1.0),
]
NASTY = {
    "the films were sung": ["songs", "stories", "", "film", "music"],
    "ICE CREAM's İce   creams é": ["dessert", "cold ices", "cream"],
    "": ["so"],
    "a\0b X-RAY film": ["film", "x ray"],
    "ba\u0301ker's walking; bakers bread baked bak": ["baker", "bakes", "bread baker"],
    "STRASSE Straße ÉCLAIR e\u0301clair éclairs 中 \U0001f6ac Ⅷ²": [
        "city",
        "dessert éclair 中",
        "dessert e\u0301clair",
    ],
    "ΟΔΟΣ οδοσ donʼt film's filmʼs story_song": ["film stories", "songs", "city"],
    "ı 2, ı-2 and ﬁlm": ["cities", "ı", "ı2"],
    "film " * 50: ["story song city film"],
    "42 ! ": ["the of", "42"],
}


def numbers(packed):
    return np.frombuffer(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), "<i4")


def check(graphs, asked):
    """Compare the graphs of texts and their choices; return the share with a path."""
    search = tf.function(GraphSearch(graphs), autograph=False)
    choices = tf.ragged.constant([*asked.values()], dtype=tf.string).to_tensor("")
    actual = search(tf.constant([*asked]), choices).numpy()
    paths = []
    for text, choices, row in zip(asked, asked.values(), actual, strict=True):
        expected = [numbers(packed) for packed in graphs.pack([text], [choices])[0]]
        expected += [np.zeros(0)] * (len(row) - len(expected))
        for choice, wanted, graph in zip([*choices, *row], expected, row, strict=False):
            np.testing.assert_array_equal(graph[: len(wanted)], wanted, f"{text!r}: {choice!r}")
            assert not graph[len(wanted) :].any()
            paths.append(len(wanted) and wanted[4] > 0)
    return np.mean(paths)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search") / "store"
    return ConceptStore.build(EDGES, folder, ["IsA", "HasContext", "UsedFor"])


@pytest.mark.eager
def test_nasty_texts(store):
    assert check(SchemaGraphs(store, max_hops=2), NASTY) > 0.2
    search = GraphSearch(SchemaGraphs(store, max_hops=2))
    for texts, choices in (([], np.zeros((0, 3), "S")), (["a"], np.zeros((1, 0), "S"))):
        match = search(tf.constant(texts, tf.string), tf.constant(choices, tf.string))
        assert match.shape[:2] == choices.shape
    match = search(tf.constant([b"\xff film \xe2\x82"]), tf.constant([[b"song\xf0"]]))
    packed = SchemaGraphs(store, max_hops=2).pack(["\ufffd film \ufffd"], [["song\ufffd"]])
    np.testing.assert_array_equal(match[0, 0], numbers(packed[0][0]))


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("options", [{"max_hops": 1}, {"max_paths": 2}, {"threshold": 0.2}])
def test_random_graphs(tmp_path, options):
    draws = np.random.default_rng(0)
    words = [
        "ice",
        "cold",
        "snow",
        "film",
        "song",
        "story",
        "run",
        "bake",
        "city",
        "car",
        "dog",
        "cat",
        "house",
        "tree",
        "bird",
    ]
    names = [*words, *(f"{a}_{b}" for a, b in draws.choice(words, (20, 2))), "baker", "running"]
    ends, kinds = draws.choice(names, (150, 2)), draws.integers(1, 4, 150)
    weights = draws.choice([0.5, 1.0, 2.0], 150).tolist()
    edges = zip(ends[:, 0].tolist(), kinds.tolist(), ends[:, 1].tolist(), weights, strict=True)
    store = ConceptStore.build(edges, tmp_path / "store", ["IsA", "HasContext", "UsedFor"])
    trans_e = TransE(store.num_concepts, 4, dim=6) if "threshold" in options else None
    said = [*words, "the", "dogs", "runs", "zzz", "of"]
    asked = {
        " ".join(draws.choice(said, draws.integers(1, 12))): [
            " ".join(draws.choice(said, draws.integers(0, 4))) for _ in range(draws.integers(1, 5))
        ]
        for _ in range(30)
    }
    assert check(SchemaGraphs(store, trans_e, **{"max_hops": 2} | options), asked) > 0.1


@pytest.mark.thorough
@pytest.mark.eager
def test_a_hub_of_100_000_edges(tmp_path):
    letters = "abcdefghijklmnopqrstuvwxyz"
    # Of few words, whose lemmas are looked up once.
    words = [a + b for a in letters for b in letters]
    names = [f"x{a}_y{b}" for a in words for b in words]
    edges = [("hub", 1, name, 1.0) for name in names[:100_000]]
    edges += [("center", 1, name, 1.0 + (name == "xaa_yac")) for name in names[:50_000]]
    graphs = SchemaGraphs(ConceptStore.build(edges, tmp_path / "store"), max_hops=2, max_paths=3)
    asked = {"the hub": ["center", "xaa yab", "42"], "xaa yab xaa yac": ["xaa yad"]}
    assert check(graphs, asked) > 0.3


@pytest.mark.slow
@pytest.mark.eager
def test_what_is_too_large(store, monkeypatch):
    with pytest.raises(ValueError, match=r"max_hops=3, and a search in constants goes 2 hops"):
        GraphSearch(SchemaGraphs(store, max_hops=3))
    graphs = SchemaGraphs(store, max_hops=2)
    for name, reason in (("EDGES", "42 edges in both directions"), ("BYTES", r"[\d,]+ bytes")):
        with monkeypatch.context() as patch:
            patch.setattr(graph_constants, f"MOST_{name}", 10)
            with pytest.raises(ValueError, match=rf"store has {reason}, and constants hold 10"):
                GraphSearch(graphs)
    # A text that asks for too much fails by itself, not with the memory of the server.
    monkeypatch.setattr("keras_lm.packers.graph_search.MOST_STEPS", 5)
    asked = tf.constant(["film song story"]), tf.constant([["ice cream, bread"]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="5 pairs and neighbours are looked"):
        GraphSearch(graphs)(*asked)
