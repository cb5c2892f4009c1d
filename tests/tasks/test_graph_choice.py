"""Multiple choice with a graph: what the text cannot know is learnt, saved, exported, explained."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_lm
from keras_lm.export.fresh_process import load_tflite
from keras_lm.knowledge import ConceptStore, SchemaGraphs, TransE, pack_graph
from keras_lm.models import join_graphs
from keras_lm.tasks import GraphChoice
from keras_lm.tasks.graph_choice import joined

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
            vector = task.head(task.backbone(packed), packed)
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


def test_graphs_are_joined_as_by_numpy(task):
    packed = task.preprocess(DATA)["graphs"]
    found = joined(tf.reshape(packed, (9, -1)))
    pairs = [(text, choice) for text, row in zip(*DATA.values()) for choice in [*row, ""][:3]]
    expected = join_graphs([task.graphs.find(*pair) for pair in pairs])
    assert len(expected["path_pairs"]) and len(expected["pair_nodes"]) > len(expected["path_pairs"])
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    # All are empty.
    nothing = joined(tf.zeros((2, 5), tf.int32))
    assert {len(value) for value in nothing.values()} == {0}


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
    # Another graph is in its place.
    ConceptStore.build(EDGES[1:], tmp_path / "nowhere", ["IsA", "UsedFor"])
    with pytest.raises(ValueError, match=r"is another graph than the task was trained with"):
        keras_lm.tasks.Task.from_preset(tmp_path / "preset")


def test_export(task, tmp_path):
    data = DATA | {"graphs": task.find_graphs(DATA["text"], DATA["choices"])}
    folder = task.export(tmp_path / "exported", texts=DATA)
    signatures = tf.saved_model.load(str(folder)).signatures
    expected = task.predict(DATA, verbose=0)
    padded = {
        name: tf.constant(values) if name == "text" else tf.ragged.constant(values).to_tensor("")
        for name, values in data.items()
    }
    answer = signatures["serving_default"](**padded)
    np.testing.assert_array_equal(answer["labels"], expected.argmax(axis=1))
    packed = task.preprocess(DATA)
    names = signatures["tokens"].structured_input_signature[1]
    found = signatures["tokens"](**{name: packed[name] for name in names})
    np.testing.assert_allclose(found["logits"], expected, atol=1e-5)


@pytest.mark.slow
def test_lite_takes_the_numbers_of_graphs(task, tmp_path):
    path = task.export(tmp_path / "task.tflite", format="litert", texts=DATA)
    serve, _ = load_tflite(str(path))
    packed = task.preprocess(DATA)
    columns = {"text": DATA["text"], "choices": tf.ragged.constant(DATA["choices"]).to_tensor("")}
    columns = {name: np.array(value, "S") for name, value in columns.items()}
    answer = serve(**columns, graphs=packed["graphs"].numpy())
    expected = task.predict(DATA, verbose=0)
    np.testing.assert_array_equal(answer["labels"], expected.argmax(axis=1))


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
