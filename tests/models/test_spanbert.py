"""SpanBERT: equal to its authors' code, its head, and how it is distinguished from BERT."""

import json

import numpy as np
import pytest
from tiny import inputs_of

from keras_lm import tasks
from keras_lm.models import Backbone, BertBackbone, SpanBertBackbone
from keras_lm.models.sizes import estimate
from keras_lm.objectives import IGNORED


@pytest.fixture(scope="module")
def reference(goldens):
    arrays = np.load(goldens("spanbert") / "expected.npz")
    return {name: arrays[name] for name in arrays}


@pytest.fixture(scope="module")
def inputs(reference):
    return inputs_of(reference)


def known(labels):
    """Their padding of labels is 0, which is no token that is predicted."""
    return np.where(labels > 0, labels, IGNORED).astype("int32")


@pytest.mark.eager
def test_both_heads(goldens, reference, inputs, tmp_path, assert_equal, hidden_states):
    task = tasks.Pretrainer.from_preset(goldens("spanbert"))
    assert type(task.backbone) is SpanBertBackbone
    assert task.backbone.config["max_span_length"] == 5
    assert set(task.backbone(inputs)) == {"sequence_output"}
    assert_equal(hidden_states(task.backbone, inputs)[1:], reference["out.layers"])
    outputs = task(inputs | {"span_boundaries": reference["in.pairs"].astype("int32")})
    assert_equal(outputs["token_logits"], reference["out.lm_logits"])
    pairs = np.reshape(outputs["span_boundary_logits"], reference["out.pair_logits"].shape)
    assert_equal(pairs, reference["out.pair_logits"])
    metrics = task.evaluate(
        inputs | {"span_boundaries": reference["in.pairs"].astype("int32")},
        {
            "token_labels": known(reference["in.lm_target"]),
            "span_boundary_labels": known(reference["in.pair_targets"]),
        },
        verbose=0,
        return_dict=True,
    )
    assert_equal(metrics["loss"], reference["out.loss"])
    assert task(inputs)["span_boundary_logits"].shape == (3, 0, 5, 150)
    assert set(task.predict(inputs, verbose=0)) == {"token_logits"}  # nothing is asked of the other

    task.save_to_preset(tmp_path / "preset")
    again = tasks.Task.from_preset(tmp_path / "preset")
    assert type(again.backbone) is SpanBertBackbone
    np.testing.assert_array_equal(again(inputs)["token_logits"], outputs["token_logits"])


@pytest.mark.filterwarnings("ignore:.*left over in the checkpoint")
def test_a_folder_without_the_head_is_berts_unless_asked_for(variant, reference, inputs):
    folder = variant("spanbert", rename=lambda name: None if "pair_target" in name else name)
    assert type(Backbone.from_preset(folder)) is BertBackbone
    backbone = SpanBertBackbone.from_preset(folder)
    assert backbone.config["max_span_length"] == 20
    np.testing.assert_allclose(
        backbone(inputs)["sequence_output"], reference["out.layers"][-1], rtol=1e-5, atol=5e-5
    )
    stated = json.loads((folder / "config.json").read_text()) | {"model_type": "bert"}
    (folder / "config.json").write_text(json.dumps(stated))
    assert type(Backbone.from_preset(folder)) is BertBackbone
    assert type(SpanBertBackbone.from_preset(folder)) is SpanBertBackbone


def test_sizes_are_berts_without_pooler():
    for size in ("base_en", "large_en"):
        bert = estimate(BertBackbone, **BertBackbone.SIZES[f"bert_{size}"])["parameters"]
        arguments = SpanBertBackbone.SIZES[f"span_bert_{size}"]
        width = arguments["hidden_dim"]
        actual = estimate(SpanBertBackbone, **arguments)["parameters"]
        assert actual == bert - (width + 1) * width
        with pytest.raises(ValueError, match="published at hf://SpanBERT/spanbert-"):
            Backbone.from_preset(f"span_bert_{size}")
