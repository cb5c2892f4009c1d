"""Concepts of texts, paths between them, and the graphs that these make."""

import contextlib
import itertools
import json
import shutil
import sqlite3
import time
import unicodedata

import numpy as np
import pytest

from keras_lm.knowledge import Concepts, ConceptStore, PathFinder, SchemaGraphs, TransE
from keras_lm.models import join_graphs


def names(store, concepts):
    return [store.name(concept) for concept in concepts]


def test_concepts_are_found_by_lemmas(store):
    concepts = Concepts(store)
    assert names(store, concepts.of("She FELL on slippery Ice!")) == ["fall", "slippery", "ice"]
    # Spans overlap; a stop word does not count, even alone.
    assert names(store, concepts.of("two ice creams")) == ["ice", "ice_cream"]
    assert concepts.of("") == concepts.of("the of, 42 — 雪") == []
    question, answer = concepts.of_choice("Does ice make you sing songs?", "a song")
    assert (names(store, question), names(store, answer)) == (["ice", "sing"], ["song"])


def test_shortest_names_of_the_same_lemmas(tmp_path):
    edges = [(name, 1, "run", 1.0) for name in ("walks", "walking", "walked", "walk_s")]
    store = ConceptStore.build(edges, tmp_path / "store")
    actual = names(store, Concepts(store).of("they walk"))
    assert actual == ["walks", "walked", "walking"]  # at most three
    store = ConceptStore.build([*edges, ("walk", 1, "run", 1.0)], tmp_path / "store")
    assert names(store, Concepts(store).of("they walk")) == ["walk"]


def test_digits_are_part_of_words(tmp_path):
    """`fru3` was found as `fru`, which is what `fru0`, `fru1` and `fru2` were, too."""
    edges = [(f"fru{i}", 1, "b_2_b", 1.0) for i in range(12)] + [("1984", 1, "½_cup", 1.0)]
    concepts = Concepts(ConceptStore.build(edges, tmp_path / "store"))
    store = concepts.store
    for i in range(12):
        assert names(store, concepts.of(f"a fru{i}, FRU{i}")) == [f"fru{i}"]
    assert concepts.of("a fru, fru12, fru 3") == []
    assert names(store, concepts.of("b 2 b in 1984: ½ cup")) == ["b_2_b", "1984", "½_cup"]
    assert concepts.of("b b in 19 84, cup") == []


def test_letters_and_their_accents(tmp_path):
    """An accent that stands after its letter, as in names of files on macOS, ended the word."""
    edges = [("éclair", 1, "crème_brûlée", 1.0), ("eclair", 1, "film", 1.0)]
    concepts = Concepts(ConceptStore.build(edges, tmp_path / "store"))
    for form in ("NFC", "NFD"):
        text = unicodedata.normalize(form, "An ÉCLAIR, a Crème-Brûlée")
        assert names(concepts.store, concepts.of(text)) == ["éclair", "crème_brûlée"]
    assert names(concepts.store, concepts.of("an eclair")) == ["eclair"]


def test_a_store_is_read_with_the_lemmatizer_that_made_it(store, tmp_path):
    import simplemma

    installed = f"simplemma {simplemma.__version__}"
    stated = json.loads((store.folder / "store.json").read_text())
    assert stated["lemmatizer"] == store.lemmatizer == installed
    other = shutil.copytree(store.folder, tmp_path / "other")
    (other / "checksums.json").unlink()
    (other / "store.json").write_text(json.dumps(stated | {"lemmatizer": "simplemma 0.9.1"}))
    opened = ConceptStore(other)  # names and edges need no lemmas
    assert opened.name(opened.find("ice")) == "ice"
    remedy = rf"simplemma 0.9.1 made .* {installed} makes others.* pip install simplemma==0.9.1"
    for make in (Concepts, SchemaGraphs):
        with pytest.raises(ValueError, match=remedy):
            make(opened)
    old = {key: value for key, value in stated.items() if key != "lemmatizer"}
    (other / "store.json").write_text(json.dumps(old))
    opened = ConceptStore(other)
    with pytest.warns(UserWarning, match=f"does not state .* {installed} may make others") as said:
        assert SchemaGraphs(opened).find("cold ice", "song") and Concepts(opened).of("ice")
    assert len(said) == 1


def paths_by_name(store, finder, *ends):
    return [tuple(names(store, path)) for path in finder.find(*map(store.find, ends))]


def test_paths_are_found_from_both_ends(store):
    finder = PathFinder(store)
    expected = {
        ("ice", "slippery"): [("ice", "slippery")],
        ("fall", "ice"): [("fall", "slippery", "ice")],
        ("ice", "injury"): [("ice", "slippery", "fall", "injury")],
        ("hospital", "ice"): [("hospital", "injury", "fall", "slippery", "ice")],
        ("snow", "hospital"): [],  # five edges
        ("ice", "snow"): [("ice", "snow"), ("ice", "cold", "snow")],  # a cycle ends
        ("ice", "sport"): [],  # HasContext is not followed
        ("ice", "song"): [],
    }
    for ends, paths in expected.items():
        assert paths_by_name(store, finder, *ends) == paths
    assert finder.find(store.find("ice"), store.find("ice")) == finder.find(0, 3) == []
    assert paths_by_name(store, PathFinder(store, max_hops=3), "hospital", "ice") == []
    assert paths_by_name(store, PathFinder(store, max_paths=1), "ice", "snow") == [("ice", "snow")]
    (path,) = finder.find(store.find("fall"), store.find("ice"))
    kinds = [store.relation_name(kind) for kind in finder.relations(path)]
    assert kinds == ["-Causes", "-HasProperty"]


def test_all_paths_of_a_random_graph(tmp_path):
    draws = np.random.default_rng(0)
    edges = {tuple(sorted(draws.choice(14, 2, replace=False).tolist())) for _ in range(24)}
    letters = "abcdefghijklmn"
    store = ConceptStore.build([(letters[a], 1, letters[b], 1.0) for a, b in edges], tmp_path / "s")
    near = {a: {b for edge in edges for b in edge if a in edge and b != a} for a in range(14)}
    finder = PathFinder(store, max_paths=10_000)
    for start, end in itertools.permutations(range(14), 2):
        expected, ways = set(), [(start,)]
        for _ in range(4):
            ways = [(*way, one) for way in ways for one in near[way[-1]] if one not in way]
            expected |= {way for way in ways if way[-1] == end}
        actual = paths_by_name(store, finder, letters[start], letters[end])
        assert [len(path) for path in actual] == sorted(map(len, actual))
        assert {tuple(map(letters.index, path)) for path in actual} == expected
        assert len(actual) == len(expected)


def test_a_hub_does_not_explode(tmp_path):
    def name(number):  # of few words, whose lemmas are looked up once
        letters = [chr(97 + (number // 26**place) % 26) for place in range(4)]
        return "{}{}_{}{}".format(*letters)

    # Two relations to each: 100,000 edges.
    edges = [("hub", kind, f"x_{name(i)}", 1.0) for i in range(50_000) for kind in (1, 2)]
    edges += [("center", 1, f"x_{name(i)}", 1.0) for i in range(50_000)]
    edges += [("far", 1, "near", 1.0), ("near", 1, f"x_{name(7)}", 5.0)]
    store = ConceptStore.build(edges, tmp_path / "store")
    assert len(store.edges_of(store.find("hub"))[0]) == 100_000
    finder = PathFinder(store)
    start = time.process_time()
    assert len(paths_by_name(store, finder, "hub", "center")) == 100
    assert paths_by_name(store, finder, "hub", "far") == [("hub", f"x_{name(7)}", "near", "far")]
    actual = paths_by_name(store, finder, f"x_{name(1)}", f"x_{name(2)}")
    assert len(actual) == 100 and len(actual[1]) == 3
    assert time.process_time() - start < 5


def test_unlikely_paths_are_pruned(store):
    trans_e = TransE(store.num_concepts, len(store.relations) + 1, dim=8)
    finder = PathFinder(store, trans_e, threshold=0)
    ends = store.find("ice"), store.find("snow")
    scores = [finder.score(path) for path in finder.find(*ends)]
    assert len(scores) == 2 and all(0 <= score <= 1 for score in scores)
    direct = store.relations_between(*ends)  # both are inverse
    triples = [(ends[1], kind - 17, ends[0]) for kind in direct]
    assert scores[0] == pytest.approx(trans_e.scores(triples).max())
    between = PathFinder(store, trans_e, threshold=sum(scores) / 2).find(*ends)
    assert between == [finder.find(*ends)[int(np.argmax(scores))]]
    with pytest.raises(ValueError, match=r"trans_e has \(3, 1\) entities and relations, and the"):
        PathFinder(store, TransE(3, 1))


def test_a_graph_of_a_question_and_an_answer(store, tmp_path):
    graphs = SchemaGraphs(store, max_hops=2, cache=tmp_path / "paths.sqlite")
    graph = graphs.find("Is snow and cold ice here?", "Fall.")
    assert names(store, graph["node_concepts"]) == ["cold", "fall", "ice", "slippery", "snow"]
    pairs = [tuple(names(store, pair)) for pair in graph["pair_concepts"]]
    assert pairs == [("snow", "fall"), ("cold", "fall"), ("ice", "fall")]
    assert graph["path_pairs"].tolist() == [2]
    assert names(store, graph["path_concepts"][0]) == ["ice", "slippery", "fall"]
    kinds = graph["path_relations"][0].tolist()
    assert [store.relation_name(kind) for kind in kinds[:2]] == ["HasProperty", "Causes"]
    assert kinds[2] == 0
    edges = {tuple(names(store, graph["node_concepts"][list(edge)])) for edge in graph["edges"]}
    wanted = [("ice", "slippery"), ("slippery", "fall"), ("cold", "ice"), ("cold", "snow")]
    wanted += [("ice", "snow")]
    assert edges == {*wanted, *((b, a) for a, b in wanted)}
    # A choice without a concept, one without a path to the question, and what was found before.
    nothing, apart = graphs.find("cold ice", "42"), graphs.find("ice", "song")
    assert len(nothing["pair_concepts"]) == 0 and len(nothing["node_concepts"]) == 2
    assert len(apart["path_pairs"]) == 0 and len(apart["edges"]) == 2  # the pair is an edge
    again = SchemaGraphs(store, max_hops=2, cache=tmp_path / "paths.sqlite")
    again.finder.find = None  # is not asked
    for name, value in again.find("Is snow and cold ice here?", "Fall.").items():
        np.testing.assert_array_equal(value, graph[name])
    with contextlib.closing(sqlite3.connect(tmp_path / "paths.sqlite")) as kept:
        assert kept.execute("pragma journal_mode").fetchone() == ("wal",)  # no pair waits for it
    joined = join_graphs([graph, nothing, apart])
    assert joined["path_concepts"].shape == (1, 3)
    (tmp_path / "other").write_text("no cache of paths, but some text of more bytes" * 50)
    with pytest.raises(ValueError, match="is not a cache of paths"):
        SchemaGraphs(store, cache=tmp_path / "other")
