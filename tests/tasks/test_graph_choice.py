"""Multiple choice with a graph: what the text cannot know is learnt, saved, exported, explained."""

import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

import keras_lm
from keras_lm.export import tflite
from keras_lm.export.fresh_process import load_tflite
from keras_lm.knowledge import ConceptStore, SchemaGraphs, TransE, pack_graph
from keras_lm.models import join_graphs
from keras_lm.packers.graph_rows import joined
from keras_lm.tasks import GraphChoice
from keras_lm.tasks.signatures import trace

# film – song – story is a way from "film" to "story"; "cast" – "dull" are apart, "nice" in a cycle.
EDGES = [
    ("film", 1, "song", 1.0),
    ("song", 2, "story", 2.0),
    ("story", 1, "film", 1.0),
    ("nice", 2, "great", 1.0),
    ("cast", 1, "dull", 1.0),
]
DATA = {
    "text": ["the film was", "a nice cast", "so"],
    "choices": [["great", "a story"], ["a film", "dull", "great"], ["so", "the song"]],
}
LABELS = [1, 2, 0]
NASTY = {
    "text": [b"\xff FILM's \xe2\x82", "a\0film [SEP]", "\u2028 ni\u0301ce 中", "film " * 50],
    "choices": [["a STORY", b"song\xf0", ""], ["so\0ng"], ["great [MASK]", "42"], ["story"] * 3],
}
SIZES = dict.fromkeys(("concept_dim", "relation_dim", "pair_dim", "path_dim"), 8)
SIZES |= {"text_dim": 6, "graph_hidden_dim": 7, "graph_dim": 5}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    store = ConceptStore.build(EDGES, folder / "store", ["IsA", "UsedFor"])
    return SchemaGraphs(store, max_hops=2, cache=folder / "paths.sqlite")


@pytest.fixture(scope="module")
def task(make, graphs):
    """A task for tests that only read it, with weights that tell choices apart."""
    keras.utils.set_random_seed(3)
    task = make(GraphChoice, graphs=graphs, **SIZES)
    for weight in task.trainable_weights:
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.3))
    return task


def logits_one_by_one(task, data):
    rows = []
    for text, choices in zip(data["text"], data["choices"], strict=True):
        row = []
        for choice in choices:
            packed = task.packer.pack(
                text=task.tokenizer([text]), text_pair=task.tokenizer([choice])
            )
            vector = task.head(task.backbone(task.backbone.select_inputs(packed)), packed)
            graph = join_graphs([task.graphs.find(text, choice)])
            row.append(float(task.kagnet(vector, graph)["logits"][0, 0]))
        rows.append(row)
    return rows


@pytest.mark.eager
def test_a_choice_is_read_with_its_graph(task):
    logits = task.predict(DATA, verbose=0, batch_size=2)
    for row, expected in zip(logits, logits_one_by_one(task, DATA), strict=True):
        np.testing.assert_allclose(row[: len(expected)], expected, atol=1e-5)
        assert (row[len(expected) :] < -1e8).all()
    assert task.choose(DATA)["labels"].tolist() == logits.argmax(axis=1).tolist()
    packed = task.find_graphs(DATA["text"], DATA["choices"])
    assert packed[0] == [
        pack_graph(task.graphs.find("the film was", c)) for c in DATA["choices"][0]
    ]
    np.testing.assert_allclose(
        task.predict(DATA | {"graphs": packed}, verbose=0), logits, atol=1e-6
    )
    dataset = tf.data.Dataset.from_tensors({**DATA, "choices": tf.ragged.constant(DATA["choices"])})
    np.testing.assert_allclose(task.predict(dataset, verbose=0), logits, atol=1e-6)


@pytest.mark.thorough
@pytest.mark.eager
@pytest.mark.parametrize(
    "name",
    [
        "XLNetBackbone",  # reads a text by its last token
        "AlbertBackbone",
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in ("RobertaBackbone", "GPT2Backbone", "DistilBertBackbone")
        ),
    ],
)
def test_over_other_models(name, tokenizer_of, graphs, tmp_path):
    """Whatever makes the text's vector, from whichever token, gets the graph beside it."""
    tokenizer = tokenizer_of(tiny.MODELS[name][0])
    backbone = tiny.make_backbone(name, tokenizer.vocabulary_size)
    task = GraphChoice(backbone, graphs, tokenizer=tokenizer, **SIZES)
    task.compile(run_eagerly=True, optimizer=keras.optimizers.SGD(0.5))
    for weight in task.kagnet.trainable_weights:
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.3))
    before = [weight.numpy() for weight in backbone.trainable_weights]
    assert np.isfinite(task.train_on_batch(DATA, LABELS)).all()
    is_moved = [(old != new).any() for old, new in zip(before, backbone.trainable_weights)]
    assert np.mean(is_moved) > 0.5
    logits = task.predict(DATA, verbose=0, batch_size=2)
    for row, expected in zip(logits, logits_one_by_one(task, DATA), strict=True):
        np.testing.assert_allclose(row[: len(expected)], expected, atol=1e-4)
    bare = task.predict(DATA | {"graphs": [["", "", ""]] * 3}, verbose=0)
    is_changed = np.abs(bare - logits) > 1e-6
    # "so" and the missing choice have neither a concept nor a pair.
    assert is_changed.tolist() == [[True, True, False], [True, True, True], [False, False, False]]
    task.save_to_preset(tmp_path / "preset")
    again = keras_lm.tasks.Task.from_preset(tmp_path / "preset")
    np.testing.assert_allclose(again.predict(DATA, verbose=0, batch_size=2), logits, atol=1e-5)


@pytest.mark.slow
@pytest.mark.eager
def test_an_empty_graph_and_a_choice_without_a_concept(task):
    nothing = {"text": ["so it was", ""], "choices": [["it", "so"], ["42", "!"]]}
    half = {"text": ["the film was", "so"], "choices": [["it", "a story"], ["a story", "it"]]}
    for data in (nothing, half):
        logits = task.predict(data, verbose=0)
        for row, expected in zip(logits, logits_one_by_one(task, data), strict=True):
            np.testing.assert_allclose(row, expected, atol=1e-5)
        counts = [
            [len(choice["pairs"]) for choice in explained["choices"]]
            for explained in task.explain(data)
        ]
        assert counts == ([[0, 0], [0, 0]] if data is nothing else [[0, 1], [0, 0]])
        assert np.isfinite(task.evaluate(data, [0, 1], verbose=0, return_dict=True)["loss"])


def test_graphs_are_joined_as_by_numpy(task):
    packed = task.preprocess(DATA)["graphs"]
    actual = joined(tf.reshape(packed, (9, -1)))
    pairs = [(text, choice) for text, row in zip(*DATA.values()) for choice in [*row, ""][:3]]
    expected = join_graphs([task.graphs.find(*pair) for pair in pairs])
    assert len(expected["path_pairs"]) and len(expected["pair_nodes"]) > len(expected["path_pairs"])
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)
    # All are empty.
    nothing = joined(tf.zeros((2, 5), tf.int32))
    assert {len(value) for value in nothing.values()} == {0}


@pytest.mark.thorough
def test_it_learns_what_the_text_does_not_say(make, graphs):
    """Which answer is right depends on the paths that lead there."""
    keras.utils.set_random_seed(0)
    task = make(GraphChoice, graphs=graphs, in_graph=True, **SIZES)
    task.backbone.trainable = False
    task.compile(optimizer=keras.optimizers.Adam(0.02))
    data = {name: 25 * values[:2] for name, values in DATA.items()}
    (loss,) = task.fit(data, 25 * LABELS[:2], batch_size=2, verbose=0).history["loss"]
    assert loss < 0.15  # the mean over all steps; 0.2 at the beginning
    logits = task(task.preprocess({name: values[:2] for name, values in DATA.items()}))
    assert logits.numpy().argmax(axis=1).tolist() == LABELS[:2]


@pytest.mark.eager
def test_files(task, tmp_path):
    expected = task.predict(DATA, verbose=0)
    task.save_to_preset(tmp_path / "preset")
    task.save(tmp_path / "task.keras")
    preset = keras_lm.tasks.Task.from_preset(tmp_path / "preset")
    for other in (preset, keras.saving.load_model(tmp_path / "task.keras")):
        assert type(other) is GraphChoice
        np.testing.assert_allclose(other.predict(DATA, verbose=0), expected, atol=1e-6)
    text = (tmp_path / "preset" / "keras_lm.json").read_text()
    # Where the graph is not, packed graphs are taken.
    away = text.replace(str(task.graphs.store.folder), str(tmp_path / "nowhere"))
    (tmp_path / "preset" / "checksums.json").unlink()  # older presets have none
    (tmp_path / "preset" / "keras_lm.json").write_text(away)
    other = keras_lm.tasks.Task.from_preset(tmp_path / "preset")
    packed = DATA | {"graphs": task.find_graphs(DATA["text"], DATA["choices"])}
    np.testing.assert_allclose(other.predict(packed, verbose=0), expected, atol=1e-6)
    for ask in (other.choose, other.explain):
        with pytest.raises(ValueError, match=r"nowhere, is not on this machine"):
            ask({name: values[:1] for name, values in DATA.items()})
    assert other.get_arguments() == preset.get_arguments() | {
        "graphs": preset.get_arguments()["graphs"] | {"store": str(tmp_path / "nowhere")}
    }
    again = keras_lm.tasks.Task.from_preset(tmp_path / "preset", graphs=task.graphs)
    np.testing.assert_allclose(again.predict(DATA, verbose=0), expected, atol=1e-6)
    # It was cut in the middle.
    cut = tmp_path / "nowhere"
    shutil.copytree(task.graphs.store.folder, cut)
    (cut / "targets.npy").write_bytes((cut / "targets.npy").read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"targets.npy has \d+ bytes, .* the store is cut"):
        keras_lm.tasks.Task.from_preset(tmp_path / "preset")
    # Another graph is in its place.
    ConceptStore.build(EDGES[1:], tmp_path / "nowhere", ["IsA", "UsedFor"])
    with pytest.raises(ValueError, match=r"is another graph than the task was trained with"):
        keras_lm.tasks.Task.from_preset(tmp_path / "preset")


def tensors(data):
    return {
        name: tf.constant(values) if name == "text" else tf.ragged.constant(values).to_tensor("")
        for name, values in data.items()
    }


@pytest.mark.slow
def test_an_export_finds_graphs_itself(task, checked_here, tmp_path):
    folder = task.export(tmp_path / "exported", texts=DATA)  # compares
    signatures = tf.saved_model.load(str(folder)).signatures
    expected = task.predict(DATA, verbose=0)
    answer = signatures["serving_default"](**tensors(DATA))
    np.testing.assert_array_equal(answer["labels"], expected.argmax(axis=1))
    np.testing.assert_allclose(answer["scores"], tf.nn.softmax(expected), atol=1e-5)
    nasty = tensors(NASTY)
    answer_of_nasty = signatures["serving_default"](**nasty)["scores"]
    np.testing.assert_allclose(answer_of_nasty, task.answer(nasty)["scores"], atol=1e-5)
    pieces = signatures["tokenize"](**tensors(DATA))
    assert set(pieces) == {"tokens", "token_ids"}

    # What each choice was scored by, as data.
    results = {name: x.numpy() for name, x in signatures["explain"](**tensors(DATA)).items()}
    np.testing.assert_allclose(results["scores"], answer["scores"], atol=1e-6)
    for row, explained in enumerate(task.explain(DATA)):
        for column, choice in enumerate(explained["choices"]):
            at = {name: value[row, column] for name, value in results.items() if value.ndim > 2}
            pairs = {(p["question"], p["answer"]): p["attention"] for p in choice["pairs"]}
            names = [tuple(name.decode() for name in pair) for pair in at["pairs"] if pair[0]]
            assert (names and set(names) == set(pairs)) or (not pairs and not names)
            for name, weight in zip(names, at["pair_weights"]):
                assert weight == pytest.approx(pairs[name], abs=1e-5)
            shown = {
                (tuple(path["concepts"]), tuple(path["relations"])): (
                    pair["attention"] * path["attention"]
                )
                for pair in choice["pairs"]
                for path in pair["paths"]
            }
            for concepts, relations, weight in zip(
                at["paths"], at["relations"], at["path_weights"], strict=True
            ):
                way = (words_of(concepts), words_of(relations))
                assert weight == (pytest.approx(shown.pop(way), abs=1e-5) if way[0] else 0)
            assert not shown


def words_of(strings):
    return tuple(string.decode() for string in strings if string)


@pytest.mark.slow
def test_an_export_takes_packed_graphs(make, graphs, checked_here, tmp_path):
    task = make(GraphChoice, graphs=graphs, graph_in_export=False, **SIZES)
    data = DATA | {"graphs": task.find_graphs(DATA["text"], DATA["choices"])}
    folder = task.export(tmp_path / "exported", texts=DATA)
    signatures = tf.saved_model.load(str(folder)).signatures
    assert "explain" not in signatures
    expected = task.predict(DATA, verbose=0)
    answer = signatures["serving_default"](**tensors(data))
    np.testing.assert_array_equal(answer["labels"], expected.argmax(axis=1))
    packed = task.preprocess(DATA)
    names = signatures["tokens"].structured_input_signature[1]
    actual = signatures["tokens"](**{name: packed[name] for name in names})
    np.testing.assert_allclose(actual["logits"], expected, atol=1e-5)


@pytest.mark.slow
def test_lite_takes_the_numbers_of_graphs(task, tmp_path, monkeypatch):
    path = task.export(tmp_path / "task.tflite", format="litert", texts=DATA)
    serve, _ = load_tflite(str(path))
    packed = task.preprocess(DATA)
    columns = {"text": DATA["text"], "choices": tf.ragged.constant(DATA["choices"]).to_tensor("")}
    columns = {name: np.array(value, "S") for name, value in columns.items()}
    answer = serve(**columns, graphs=packed["graphs"].numpy())
    expected = task.predict(DATA, verbose=0)
    np.testing.assert_array_equal(answer["labels"], expected.argmax(axis=1))

    # It cannot find them: these are what hinders, and the error names them.
    hindering = {"LookupTableFindV2", "LowerBound", "UpperBound"}
    search = trace(task.graph_search(), task.packer.specs())
    model, _ = tflite._convert({"serving_default": search}, "float32")
    assert hindering <= {operation for operation, _ in tflite._custom_operations(model)}
    monkeypatch.setattr(task, "graph_in_export", True)
    with pytest.raises(ValueError, match=r"graph_in_export=True.* cannot find graphs") as caught:
        task.export(tmp_path / "task.tflite", format="litert")
    assert hindering <= set(re.findall(r"\w+", str(caught.value)))


@pytest.mark.eager
def test_attention_explains(task):
    first, second, _ = task.explain(DATA, batch_size=2)
    assert first["label"] == task.choose(DATA)["labels"][0]
    great, story = first["choices"]
    assert (great["choice"], great["pairs"][0]["paths"]) == ("great", [])
    assert story["score"] == pytest.approx(task.choose(DATA)["scores"][0, 1], abs=1e-5)
    (pair,) = story["pairs"]
    assert (pair["question"], pair["answer"], pair["attention"]) == ("film", "story", 1.0)
    ways = {tuple(path["concepts"]): path["relations"] for path in pair["paths"]}
    assert ways == {("film", "story"): ["-IsA"], ("film", "song", "story"): ["IsA", "UsedFor"]}
    assert sum(path["attention"] for path in pair["paths"]) == pytest.approx(1, abs=1e-5)
    assert len(second["choices"]) == 3
    for choice in second["choices"]:
        attention = [pair["attention"] for pair in choice["pairs"]]
        assert attention == sorted(attention, reverse=True)
        assert sum(attention) == pytest.approx(1, abs=1e-5)


@pytest.mark.eager
def test_tables_begin_with_trans_e(make, graphs, tmp_path):
    store = graphs.store
    trans_e = TransE(store.num_concepts, len(store.relations) + 1, dim=4)
    pruned = SchemaGraphs(store, trans_e, threshold=0.0)
    task = make(GraphChoice, graphs=pruned)
    np.testing.assert_array_equal(task.kagnet.concepts.embeddings, trans_e.entities)
    relations = np.asarray(task.kagnet.relations.embeddings)
    np.testing.assert_array_equal(relations[3:], -relations[1:3])
    with pytest.raises(ValueError, match=r"trans_e was not saved.*trans_e.save\(folder\)"):
        task.save_to_preset(tmp_path / "preset")
    trans_e.save(tmp_path / "vectors")
    task.save_to_preset(tmp_path / "preset")
    again = keras_lm.tasks.Task.from_preset(tmp_path / "preset")
    np.testing.assert_array_equal(again.graphs.finder.trans_e.entities, trans_e.entities)


@pytest.mark.eager
def test_errors(task):
    with pytest.raises(ValueError, match=r"graphs has the shape \(3, 1\), and choices \(3, 3\)"):
        task.predict(DATA | {"graphs": [[""], [""], [""]]}, verbose=0)
    with pytest.raises(ValueError, match="jit_compile=True: XLA needs tensors of known sizes"):
        task.compile(jit_compile=True)
    packed = dict(task.preprocess(DATA))
    packed.pop("graphs")
    with pytest.raises(ValueError, match="inputs has no graphs"):
        task(packed)
    far = SchemaGraphs(task.graphs.store, max_hops=3)
    with pytest.raises(ValueError, match="graph_in_export=True: max_hops=3, and a search in const"):
        GraphChoice(task.backbone, far, tokenizer=task.tokenizer, graph_in_export=True, **SIZES)
