"""TinyBERT: general and distilled for a task, equal to its authors' code."""

import numpy as np
import pytest
from tiny import inputs_of

from keras_lm import tasks
from keras_lm.converters import open_checkpoint
from keras_lm.models import Backbone, BertBackbone, TinyBertBackbone
from keras_lm.models.sizes import estimate


@pytest.fixture(scope="module")
def reference(goldens):
    arrays = np.load(goldens("tinybert-loss") / "expected.npz")
    return {name: arrays[name] for name in arrays}


@pytest.fixture(scope="module")
def inputs(reference):
    return inputs_of(reference)


def test_general(goldens, reference, inputs, assert_equal, hidden_states):
    folder = goldens("tinybert-loss") / "general_student"
    task = tasks.Pretrainer.from_preset(folder)  # all is loaded but `fit_dense`, without a warning
    assert type(task.backbone) is TinyBertBackbone
    tensors = open_checkpoint(folder).tensors
    kernel, bias = (np.asarray(tensors[f"fit_dense.{leaf}"]) for leaf in ("weight", "bias"))
    states = hidden_states(task.backbone, inputs)
    assert_equal(states @ kernel.T + bias, reference["out.general.student_reps_projected"])
    real = inputs["padding_mask"] > 0
    expected = reference["out.general.student_scores"]  # (layers, B, N, S, T)
    for block, x, scores in zip(task.backbone.blocks, states, expected, strict=False):
        actual = np.asarray(block.attention_scores(x)).transpose(0, 3, 1, 2)
        assert_equal(actual[real], scores.transpose(0, 3, 1, 2)[real])


@pytest.mark.eager
def test_distilled_for_a_task(goldens, reference, inputs, tmp_path, assert_equal):
    task = tasks.Task.from_preset(goldens("tinybert-loss") / "task_student")
    assert [type(task), type(task.backbone)] == [tasks.TextClassifier, TinyBertBackbone]
    assert_equal(task(inputs), reference["out.task.student_logits"])
    task.save_to_preset(tmp_path / "preset")
    again = tasks.Task.from_preset(tmp_path / "preset")
    np.testing.assert_array_equal(again(inputs), task(inputs))


def test_plain_bert_is_another_classifier(goldens, variant, inputs):
    folder = variant(
        "tinybert-loss/task_student",
        rename=lambda name: None if "fit_dense" in name else f"{name}",
    )
    bert, tiny = (
        tasks.TextClassifier(cls.from_preset(folder), num_classes=3)
        for cls in (BertBackbone, TinyBertBackbone)
    )
    assert [type(bert.backbone), type(tiny.backbone)] == [BertBackbone, TinyBertBackbone]
    for ours, theirs in zip(tiny.head.weights, bert.head.weights, strict=True):
        ours.assign(theirs)
    assert np.abs(np.asarray(bert(inputs)) - tiny(inputs)).max() > 1e-4


# As published: 14.5 and 67 million in the paper, with the pooler.
@pytest.mark.parametrize(
    "size, parameters",
    [
        ("tiny_bert_4_layers_en_uncased", 14_350_248),
        ("tiny_bert_6_layers_en_uncased", 66_955_008),
    ],
)
def test_sizes(size, parameters):
    assert estimate(TinyBertBackbone, **TinyBertBackbone.SIZES[size])["parameters"] == parameters
    with pytest.raises(ValueError, match="published at hf://huawei-noah/TinyBERT_General"):
        Backbone.from_preset(size)
