"""KagNet, against its authors' network; and graphs that are empty, cyclic or padded."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from keras_lm.models import BertBackbone, KagNet, join_graphs
from keras_lm.objectives import MarginRanking

GOLDEN = Path(__file__).parents[1] / "goldens" / "kagnet"
TOLERANCE = {"atol": 5e-5, "rtol": 1e-5}
SIZES = {"num_concepts": 9, "num_relations": 5, "concept_dim": 6, "relation_dim": 4}
SIZES |= {"pair_dim": 5, "path_dim": 6, "graph_hidden_dim": 4, "graph_dim": 3}


def expected():
    with np.load(GOLDEN / "expected.npz") as arrays:
        return dict(arrays)


def golden_graph(reference):
    """The graphs in the authors' form as the one graph that the layer takes."""
    graphs = json.loads((GOLDEN / "graphs.json").read_text())
    graph = {name: [] for name in KagNet.PARTS}
    graph["node_concepts"] = reference["in.cncpt_ids"]
    graph["edges"] = np.stack([reference["in.edge_src"], reference["in.edge_dst"]], axis=1)
    for text, pairs in enumerate(graphs["qa_pairs"]):
        nodes = {int(key): node for key, node in graphs["concept_mapping"][text].items()}
        for question, answer in pairs:
            graph["pair_texts"].append(text)
            graph["pair_concepts"].append([question, answer])
            graph["pair_nodes"].append([nodes.get(question, -1), nodes.get(answer, -1)])
            for path, relations in zip(
                graphs["cpt_paths"][text], graphs["rel_paths"][text], strict=True
            ):
                if (path[0], [concept for concept in path if concept][-1]) == (question, answer):
                    graph["path_pairs"].append(len(graph["pair_texts"]) - 1)
                    graph["path_concepts"].append(path)
                    graph["path_nodes"].append([nodes.get(concept, -1) for concept in path])
                    graph["path_relations"].append(relations)
    return {name: np.asarray(value, "int32") for name, value in graph.items()}


def golden_network():
    sizes = json.loads((GOLDEN / "config.json").read_text())
    network = KagNet(
        num_concepts=sizes["concept_num"],
        num_relations=sizes["relation_num"],
        concept_dim=sizes["concept_dim"],
        relation_dim=sizes["relation_dim"],
        pair_dim=sizes["qas_encoded_dim"],
        path_dim=sizes["lstm_dim"],
        graph_hidden_dim=sizes["graph_hidden_dim"],
        graph_dim=sizes["graph_output_dim"],
        bidirectional=sizes["bidirect"],
    )
    network.build((None, sizes["sent_dim"]))
    tensors = load_file(GOLDEN / "model.safetensors")
    dense = {
        "graph_encoder.gcn1.apply_mod.linear": network.convolutions[0],
        "graph_encoder.gcn2.apply_mod.linear": network.convolutions[1],
        "qas_encoder.0": network.pair_layers[0],
        "qas_encoder.3": network.pair_layers[1],
        "qas_pathlstm_att": network.path_query,
        "sent_ltrel_att": network.pair_query,
        "hidden2output.0": network.logits,
    }
    for name, layer in dense.items():
        layer.kernel.assign(tensors.pop(f"{name}.weight").T)
        layer.bias.assign(tensors.pop(f"{name}.bias"))
    network.concepts.embeddings.assign(tensors.pop("concept_emd.weight"))
    network.relations.embeddings.assign(tensors.pop("relation_emd.weight"))
    network.lstm.kernel.assign(tensors.pop("lstm.weight_ih_l0").T)
    network.lstm.recurrent_kernel.assign(tensors.pop("lstm.weight_hh_l0").T)
    network.lstm.bias.assign(tensors.pop("lstm.bias_ih_l0") + tensors.pop("lstm.bias_hh_l0"))
    assert list(tensors) == ["graph_encoder.concept_emd.weight"]  # the same table
    return network


@pytest.fixture(scope="module")
def golden():
    reference = expected()
    return golden_network(), reference["in.statement_vecs"], golden_graph(reference), reference


def test_equals_the_authors(golden):
    network, text, graph, reference = golden
    results = {name: np.asarray(value) for name, value in network(text, graph).items()}
    scores = np.asarray(keras.ops.sigmoid(results["logits"]))
    np.testing.assert_allclose(scores, reference["out.probs"], **TOLERANCE)
    np.testing.assert_allclose(results["node_states"], reference["out.node_states"], **TOLERANCE)
    of_texts = [reference[f"out.pair_attention.{i}"] for i in range(10)]
    of_texts = [of_texts[i] for i in range(10) if i in graph["pair_texts"]]
    of_pairs = [reference[f"out.path_attention.{i}"] for i in range(len(graph["pair_texts"]))]
    np.testing.assert_allclose(results["pair_attention"], np.concatenate(of_texts), **TOLERANCE)
    np.testing.assert_allclose(results["path_attention"], np.concatenate(of_pairs), **TOLERANCE)
    loss = MarginRanking()(np.array([0, 1]), results["logits"].reshape(2, 5))
    np.testing.assert_allclose(loss, reference["out.loss"], rtol=1e-5)


@pytest.mark.eager
def test_padding_of_the_graph_is_left_out(golden):
    network, text, graph, _ = golden
    ends = dict.fromkeys(KagNet.PARTS, -1) | {"path_concepts": 0, "path_relations": 0}
    padded = {
        name: np.pad(value, [(0, 3)] + [(0, 0)] * (value.ndim - 1), constant_values=ends[name])
        for name, value in graph.items()
    }
    compiled = tf.function(network.call, jit_compile=True)
    for call in (network, compiled):
        actual, wanted = call(tf.constant(text), padded), network(text, graph)
        for name, value in wanted.items():
            np.testing.assert_allclose(actual[name][: len(value)], value, atol=1e-5)


def graph_of(nodes, edges=(), pairs=(), paths=()):
    """A graph whose concepts are its nodes' numbers and one; paths have the pair in front."""
    concepts = np.asarray(nodes, "int32")
    pairs = np.asarray(pairs, "int32").reshape(-1, 2)
    steps = np.asarray([path for _, path in paths], "int32").reshape(-1, 3)
    return {
        "node_concepts": concepts,
        "edges": edges,
        "pair_concepts": concepts[pairs],
        "pair_nodes": pairs,
        "path_pairs": [pair for pair, _ in paths],
        "path_concepts": np.where(steps < 0, 0, concepts[steps] if len(steps) else 0),
        "path_nodes": steps,
        "path_relations": np.where(steps < 0, 0, 1),
    }


CYCLE = graph_of([3, 4, 5], [(0, 1), (1, 2), (2, 0)], [(0, 2)], [(0, (0, 1, 2)), (0, (0, 2, -1))])
EMPTY = graph_of([])
NO_PATH = graph_of([7, 8], [], [(0, 1)])


def test_texts_do_not_depend_on_their_neighbours():
    network = KagNet(**SIZES)
    text = np.random.default_rng(0).normal(size=(4, 7)).astype("float32")
    graphs = [CYCLE, EMPTY, NO_PATH, CYCLE]
    together = network(text, join_graphs(graphs))
    assert np.isfinite(together["logits"]).all()
    for i, graph in enumerate(graphs):
        alone = network(text[i : i + 1], join_graphs([graph]))["logits"]
        np.testing.assert_allclose(alone, together["logits"][i : i + 1], atol=1e-6)
    np.testing.assert_allclose(together["pair_attention"], [1, 1, 1])
    assert network(text, join_graphs([EMPTY] * 4))["node_states"].shape == (0, 3)


def test_learns_over_a_backbone_and_is_saved(tmp_path):
    keras.utils.set_random_seed(0)
    backbone = BertBackbone(20, 1, 2, 8, 16, max_sequence_length=8)
    network = KagNet(**SIZES, bidirectional=True)
    tokens = {"token_ids": np.ones((2, 4), "int32")}  # the texts are the same
    graph = join_graphs([CYCLE, graph_of([6, 4, 5], *[CYCLE["edges"], [(0, 2)], [(0, (0, 1, 2))]])])
    optimizer, loss = keras.optimizers.Adam(0.05), MarginRanking()
    outputs = backbone(tokens)
    network(outputs, graph)
    optimizer.build(network.trainable_variables)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            logits = network(outputs, graph, training=True)["logits"]
            value = loss(np.array([1]), keras.ops.reshape(logits, (1, 2)))
        variables = network.trainable_variables
        gradients = tape.gradient(value, [variable.value for variable in variables])
        optimizer.apply(gradients, variables)
        return value

    losses = [float(step()) for _ in range(40)]
    assert losses[-1] < losses[0] / 4
    inputs = {
        name: keras.Input(batch_shape=(None, *value.shape[1:]), dtype="int32", name=name)
        for name, value in graph.items()
    }
    text = {"sequence_output": keras.Input((None, 8), name="sequence_output")}
    model = keras.Model([text, inputs], network(text, inputs))  # reads the first token
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    text = {"sequence_output": np.asarray(outputs["sequence_output"])}
    actual = copy([text, graph])
    for name, value in network(text, graph).items():
        np.testing.assert_allclose(actual[name], value, atol=1e-6)
        assert copy.output[name].dtype == keras.backend.standardize_dtype(value.dtype)


def test_errors():
    with pytest.raises(ValueError, match=r"graph lacks \['edges'\]"):
        parts = join_graphs([CYCLE])
        parts.pop("edges")
        KagNet(**SIZES)(np.ones((1, 7), "float32"), parts)
    with pytest.raises(ValueError, match="path_dim=7: pass an even number"):
        KagNet(9, 5, path_dim=7, bidirectional=True)
    with pytest.raises(ValueError, match="graphs is empty"):
        join_graphs([])
    with pytest.raises(ValueError, match=r"graph lacks \['path_pairs'\]"):
        join_graphs([{name: value for name, value in CYCLE.items() if name != "path_pairs"}])
    with pytest.raises(ValueError, match="graph 1 has 3 in edges: pass numbers below 3"):
        join_graphs([CYCLE, CYCLE | {"edges": [(0, 3)]}])
    longer = CYCLE | {n: np.ones((2, 5)) for n in CYCLE if n in ("path_concepts", "path_nodes")}
    with pytest.raises(ValueError, match=r"paths of \[3, 5\] concepts"):
        join_graphs([CYCLE, longer])
