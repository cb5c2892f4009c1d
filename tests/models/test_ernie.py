"""ERNIE of Tsinghua University: equal to its authors' code; what its folders may hold."""

import json

import numpy as np
import pytest

from keras_lm import tasks
from keras_lm.converters import open_checkpoint
from keras_lm.converters.checked_files import write_safetensors
from keras_lm.models import Backbone, BertBackbone, ErnieBackbone
from keras_lm.objectives import IGNORED, MaskedLanguageModel, NextSentence

RENAMED = {
    "input_ids": "token_ids",
    "token_type_ids": "segment_ids",
    "attention_mask": "padding_mask",
    "input_ent": "entity_embeddings",
    "ent_mask": "entity_mask",
}


class Entities(NextSentence):
    """The labels of entities come with the data."""

    heads = {"entity_logits": "entity"}
    uses_pooler = False


TINY = {"num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24, "max_sequence_length": 12}


@pytest.fixture(scope="module")
def reference(goldens):
    arrays = np.load(goldens("thu-ernie") / "expected.npz")
    return {name: arrays[name] for name in arrays}


@pytest.fixture(scope="module")
def inputs(reference):
    return {ours: reference[f"in.{theirs}"] for theirs, ours in RENAMED.items()}


@pytest.mark.eager
def test_all_outputs_of_pretraining(goldens, reference, inputs, tmp_path, assert_equal):
    objectives = [MaskedLanguageModel(), NextSentence(), Entities()]
    task = tasks.Pretrainer.from_preset(goldens("thu-ernie"), objectives=objectives)
    backbone = task.backbone
    assert type(backbone) is ErnieBackbone
    assert backbone.config["layer_types"] == ["sim", "mix", "norm", "norm"]
    computed = backbone.compute(inputs)
    assert_equal(np.stack(computed["hidden_states"][1:]), reference["out.layers"])
    assert_equal(np.stack(computed["entity_hidden_states"][1:]), reference["out.entity_layers"])
    assert_equal(computed["pooled_output"], reference["out.pooled"])
    candidates = reference["in.candidate"].reshape(3, 2, 100)
    outputs = task(inputs | {"candidate_embeddings": candidates})
    assert_equal(outputs["token_logits"], reference["out.mlm_logits"])
    assert_equal(outputs["next_sentence_logits"], reference["out.nsp_logits"])
    assert_equal(outputs["entity_logits"], reference["out.entity_logits"])
    assert task(inputs)["entity_logits"].shape == (3, 12, 0)
    labels = {
        "token_labels": reference["in.masked_lm_labels"],
        "next_sentence_labels": reference["in.next_sentence_label"],
        "entity_labels": reference["in.ent_labels"],
    }
    labels = {name: np.where(each < 0, IGNORED, each) for name, each in labels.items()}
    metrics = task.evaluate(
        inputs | {"candidate_embeddings": candidates}, labels, verbose=0, return_dict=True
    )
    np.testing.assert_allclose(metrics["loss"], reference["out.loss"], rtol=1e-5)

    task.save_to_preset(tmp_path / "preset")
    again = tasks.Task.from_preset(tmp_path / "preset", objectives=objectives)
    np.testing.assert_array_equal(again(inputs)["token_logits"], outputs["token_logits"])


@pytest.mark.eager
def test_older_spelling_and_no_stated_types(goldens, tmp_path, reference, inputs, assert_equal):
    """The published folder has TensorFlow's names of norms."""

    def rename(name):
        old = name.replace("weight", "gamma").replace("bias", "beta")
        return old if "LayerNorm" in name else name

    config = json.loads((goldens("thu-ernie") / "ernie_config.json").read_text())
    del config["layer_types"]
    (tmp_path / "ernie_config.json").write_text(json.dumps(config))
    tensors = open_checkpoint(goldens("thu-ernie")).tensors
    write_safetensors(tmp_path, {rename(name): tensors[name] for name in tensors}, 10**9)
    backbone = Backbone.from_preset(tmp_path)
    assert type(backbone) is ErnieBackbone
    assert_equal(backbone(inputs)["sequence_output"], reference["out.layers"][-1])


def test_blocks_that_the_types_do_not_reach_are_berts():
    assert ErnieBackbone(50, 12, **TINY, entity_dim=8).layer_types == (
        ["sim"] * 5 + ["mix"] + ["norm"] * 6
    )
    backbone = ErnieBackbone(50, 3, **TINY, entity_dim=8, layer_types=["sim", "mix"])
    assert backbone.layer_types == ["sim", "mix", "sim"]
    student = backbone.with_layers([1, 2])
    assert student.layer_types == ["mix", "sim"]
    plain = ErnieBackbone(50, 2, **TINY, layer_types=["sim", "sim"])
    bert = BertBackbone(50, 2, **TINY)
    assert plain.count_params() == bert.count_params()


def test_entities_change_what_tokens_are():
    backbone = ErnieBackbone(50, 2, **TINY, entity_dim=8)
    for weight in backbone.weights:
        weight.assign(np.random.normal(size=weight.shape, scale=0.3))
    tokens = {"token_ids": np.array([[2, 7, 9, 3]])}
    plain = backbone(tokens)["sequence_output"]
    entities = np.zeros((1, 4, 8), "float32")
    entities[0, 1] = 1
    none = {"entity_embeddings": entities, "entity_mask": np.array([[1, 0, 0, 0]])}
    np.testing.assert_allclose(backbone(tokens | none)["sequence_output"], plain, atol=1e-6)
    one = {"entity_embeddings": entities, "entity_mask": np.array([[1, 1, 0, 0]])}
    assert np.abs(backbone(tokens | one)["sequence_output"] - plain).max() > 1e-3


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"layer_types=.*'fused'.*pass a list of 'sim'"):
        ErnieBackbone(50, 2, **TINY, layer_types=["sim", "fused"])
    with pytest.raises(ValueError, match="layer_types has 3 entries for num_layers=2"):
        ErnieBackbone(50, 2, **TINY, layer_types=["sim", "mix", "norm"])
    with pytest.raises(ValueError, match="num_entity_heads=4 does not divide entity_dim=10"):
        ErnieBackbone(50, 2, **TINY, entity_dim=10)


# === A table of entities ===


@pytest.mark.eager
def test_a_table_beside_the_checkpoint(goldens, tmp_path, reference, inputs, assert_equal):
    """The vectors of the reference's entities, as files: ids give what the vectors give."""
    vectors, mask = inputs["entity_embeddings"], inputs["entity_mask"]
    is_entity = (mask > 0) & (np.arange(mask.shape[1]) > 0)
    # The reference has a vector at the first token, too, which a table does not.
    plain = vectors * is_entity[:, :, None]
    ids = np.where(is_entity, is_entity.cumsum().reshape(mask.shape) - 1, -1)
    table = vectors[is_entity]
    for name in ("pytorch_model.bin", "ernie_config.json"):
        (tmp_path / name).write_bytes((goldens("thu-ernie") / name).read_bytes())
    (tmp_path / "kg_embed").mkdir()
    rows = "".join("\t".join(map(repr, row.tolist())) + "\n" for row in table)
    (tmp_path / "kg_embed/entity2vec.vec").write_text(rows)
    lines = "".join(f"Q{i}\t{i}\n" for i in range(len(table)))
    (tmp_path / "kg_embed/entity2id.txt").write_text(f"{len(table)}\n{lines}")
    backbone = Backbone.from_preset(tmp_path)
    assert backbone.config["num_entities"] == len(table)
    tokens = {name: inputs[name] for name in ("token_ids", "segment_ids", "padding_mask")}
    actual = backbone(tokens | {"entity_ids": ids})
    without = Backbone.from_preset(goldens("thu-ernie"))
    first = np.where(np.arange(mask.shape[1]) == 0, 1, mask)
    expected = without(tokens | {"entity_embeddings": plain, "entity_mask": first})
    assert_equal(actual["sequence_output"], expected["sequence_output"].numpy())
    assert_equal(backbone(tokens)["sequence_output"], without(tokens)["sequence_output"].numpy())

    copy = without.with_entities(table)
    assert_equal(
        copy(tokens | {"entity_ids": ids})["sequence_output"], actual["sequence_output"].numpy()
    )
    copy.save_to_preset(tmp_path / "preset")
    again = Backbone.from_preset(tmp_path / "preset")
    np.testing.assert_array_equal(again.entity_table.embeddings, table)

    (tmp_path / "kg_embed/entity2vec.vec").write_text("1\t2\n" * len(table))
    with pytest.raises(ValueError, match="the vectors of entities are 2 wide"):
        Backbone.from_preset(tmp_path)


@pytest.mark.eager
def test_the_table_stays_as_it_is():
    backbone = ErnieBackbone(50, 2, **TINY, entity_dim=8).with_entities(np.ones((3, 8)))
    backbone.trainable = False
    backbone.trainable = True
    assert "entity_table/embeddings" not in [v.path for v in backbone.trainable_weights]
    task = tasks.TextClassifier(backbone, num_classes=2)
    x = {"token_ids": np.array([[2, 7, 9, 3]] * 4), "entity_ids": np.array([[-1, 2, -1, -1]] * 4)}
    task.fit(x, [0, 1, 0, 1], verbose=0)
    np.testing.assert_array_equal(backbone.entity_table.embeddings, np.ones((3, 8)))
    # An entity in padding does not count.
    mask = {"padding_mask": np.array([[1, 1, 0, 0]])}
    row = {"token_ids": x["token_ids"][:1]} | mask
    padded = [{"entity_ids": np.array([[-1, 2, n, n]])} for n in (-1, 1)]
    one, other = (backbone(row | each)["sequence_output"][:, :2] for each in padded)
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_vectors_of_another_width():
    backbone = ErnieBackbone(50, 2, **TINY, entity_dim=8)
    with pytest.raises(ValueError, match=r"shape \(3, 6\), but the model reads entity_dim=8"):
        backbone.with_entities(np.ones((3, 6)))
