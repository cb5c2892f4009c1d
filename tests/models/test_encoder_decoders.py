"""What holds for every encoder-decoder. A new one joins by a line in tiny.py."""

import json

import keras
import numpy as np
import pytest
import tiny
from tiny import ENCODER_DECODERS

from keras_lm import models
from keras_lm.models import Backbone
from keras_lm.models.sizes import estimate
from keras_lm.tasks import Seq2SeqLM, TextClassifier
from keras_lm.utils.registry import BACKBONES

SOURCE = np.array([[4, 7, 9, 11, 23, 8], [31, 2, 2, 40, 5, 17]])
TARGET = np.array([[0, 3, 9, 12], [0, 44, 8, 8]])


# These share their code with another line.
THOROUGH = ("Tensor2TensorBackbone with more", "RNNEncoderDecoderBackbone of one direction")
NAMES = [
    pytest.param(name, marks=[pytest.mark.thorough] * (name in THOROUGH))
    for name in ENCODER_DECODERS
]


@pytest.fixture(scope="module", params=NAMES)
def backbone(request):
    backbone = ENCODER_DECODERS[request.param]()
    for weight in backbone.trainable_weights:
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.2))
    return backbone


def inputs(source=SOURCE, target=TARGET, **others):
    return {"encoder_token_ids": source, "decoder_token_ids": target} | others


@pytest.fixture(scope="module")
def expected(backbone):
    """What a backbone returns for `inputs()`."""
    return backbone(inputs())


def test_every_model_is_listed():
    ours = {name for name, c in BACKBONES.items() if issubclass(c, models.EncoderDecoderBackbone)}
    ours -= {"EncoderDecoderBackbone", "CachedEncoderDecoderBackbone"}
    ours -= {name for name in ours if name.endswith("EncoderBackbone")}
    assert ours == {name.split(" ")[0] for name in ENCODER_DECODERS}


def test_padding_changes_nothing_on_either_side(backbone, expected):
    for before in (0, 2):
        width = [(0, 0), (before, 2 - before)]
        padded = {}
        for half, ids in (("encoder", SOURCE), ("decoder", TARGET)):
            padded[f"{half}_token_ids"] = np.pad(ids, width, constant_values=13)
            padded[f"{half}_padding_mask"] = np.pad(np.ones_like(ids), width)
        outputs = backbone(padded)
        for name, length in (("encoder_sequence_output", 6), ("sequence_output", 4)):
            actual = outputs[name][:, before : before + length]
            np.testing.assert_allclose(actual, expected[name], atol=2e-5)


def test_a_target_token_sees_the_source_and_none_after_it(backbone, expected):
    expected = expected["sequence_output"]
    other = TARGET.copy()
    other[:, 2] = 30
    actual = backbone(inputs(target=other))["sequence_output"]
    np.testing.assert_allclose(actual[:, :2], expected[:, :2], atol=1e-6)
    assert np.abs(actual[:, 2:] - expected[:, 2:]).max() > 1e-3
    actual = backbone(inputs(source=SOURCE[::-1]))["sequence_output"]
    assert np.abs(actual - expected).max(axis=-1).min() > 1e-3


@pytest.mark.parametrize("parts", [[2, 1, 1], [1, 3]])
def test_a_target_in_parts(backbone, expected, parts):
    actual, rest, name = [], TARGET, backbone.state_name
    outputs = {}
    for number in parts:
        here, rest = rest[:, :number], rest[:, number:]
        if not outputs:
            outputs = backbone(inputs(target=here))
        else:
            outputs = backbone({"decoder_token_ids": here, name: outputs[name]})
        actual.append(outputs["sequence_output"])
    np.testing.assert_allclose(
        np.concatenate(actual, axis=1), expected["sequence_output"], atol=2e-5
    )
    for key, array in outputs[name]["fixed"].items():
        np.testing.assert_array_equal(array, expected[name]["fixed"][key])
    if name == "cache":
        assert outputs[name]["length"].numpy().tolist() == [4, 4]


def test_a_row_of_padding_gives_finite_numbers(backbone):
    mask = np.ones_like(SOURCE)
    mask[1] = 0
    for training in (False, True):
        outputs = backbone(inputs(encoder_padding_mask=mask), training=training)
        assert all(np.isfinite(x).all() for x in keras.tree.flatten(outputs))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ENCODER_DECODERS if " " not in name])
def test_the_encoder_is_a_model_of_its_own(name, tmp_path):
    backbone = ENCODER_DECODERS[name]()
    encoder = backbone.encoder_backbone()
    assert type(encoder) is backbone.encoder_class
    for model in (backbone, encoder):
        expected = tiny.tasks_in_the_table(type(model).__name__)
        assert [*tiny.tasks_over(model)] == expected, "run: python docs/tables.py"
    actual, expected = encoder({"token_ids": SOURCE}), backbone(inputs())
    np.testing.assert_array_equal(actual["sequence_output"], expected["encoder_sequence_output"])
    assert set(actual) == {"sequence_output"}
    hidden_states = keras.Model(encoder.inputs, encoder.hidden_states)
    np.testing.assert_array_equal(
        hidden_states(encoder.complete({"token_ids": SOURCE}))[-1], actual["sequence_output"]
    )
    paths = {weight.path for weight in backbone.trainable_weights}
    own = {weight.path for weight in encoder.trainable_weights}
    assert own < paths and not any("decoder" in path for path in own)

    # A task over it, from what was saved of the whole task.
    Seq2SeqLM(backbone).save_to_preset(tmp_path / "whole")
    with pytest.warns(UserWarning, match="new and random") as said:
        task = TextClassifier.from_preset(tmp_path / "whole", num_classes=2, tokenizer=None)
    assert not any("left over" in str(each.message) for each in said)
    assert type(task.backbone) is type(encoder)
    output = task.backbone({"token_ids": SOURCE})["sequence_output"]
    np.testing.assert_array_equal(output, actual["sequence_output"])
    with pytest.raises(ValueError, match="has no head for kind='seq2seq_lm'"):
        Seq2SeqLM(encoder)
    with pytest.raises(ValueError, match=r"unknown keys \['encoder_token_ids'\]"):
        encoder({"token_ids": SOURCE, "encoder_token_ids": SOURCE})


def test_files(backbone, expected, request, tmp_path):
    backbone.save_to_preset(tmp_path / "preset")
    results = [Backbone.from_preset(tmp_path / "preset")]
    if " " not in request.node.callspec.params["backbone"]:  # once a class
        backbone.save(tmp_path / "backbone.keras")
        results.append(keras.saving.load_model(tmp_path / "backbone.keras"))
    json.dumps(backbone.get_config())
    for again in results:
        assert type(again) is type(backbone)
        assert again.get_config() == backbone.get_config()
        outputs = again(inputs())
        np.testing.assert_array_equal(outputs["sequence_output"], expected["sequence_output"])


def test_estimate_equals_a_model_that_is_built(backbone):
    sizes = estimate(type(backbone), **backbone.config)
    assert sizes["parameters"] == backbone.count_params()


def test_bad_inputs(backbone, expected):
    with pytest.raises(ValueError, match="lacks 'encoder_token_ids'"):
        backbone({"decoder_token_ids": TARGET})
    with pytest.raises(ValueError, match="lacks 'decoder_token_ids'"):
        backbone({"encoder_token_ids": SOURCE})
    with pytest.raises(ValueError, match=r"unknown keys \['token_ids'\]"):
        backbone(inputs(token_ids=SOURCE))
    state = {backbone.state_name: expected[backbone.state_name]}
    with pytest.raises(ValueError, match=r"unknown keys \['encoder_token_ids'\]"):
        backbone(inputs(**state))
    with pytest.raises(ValueError, match=r"no head for kind='classification'.*encoder_backbone"):
        TextClassifier(backbone, num_classes=2)
    with pytest.raises(ValueError, match="has no head for kind='seq2seq_lm'"):
        Seq2SeqLM(models.BertBackbone(50, 1, 2, 16, 24))


# What these have more computes in no precision of its own.
SAME_PRECISION = (*THOROUGH, "TransformerBackbone with more", "MarianBackbone with more")


@pytest.mark.parametrize(
    "policy", [pytest.param("mixed_bfloat16", marks=pytest.mark.thorough), "mixed_float16"]
)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.thorough] * (name in SAME_PRECISION))
        for name in ENCODER_DECODERS
    ],
)
def test_mixed_precision(name, policy):
    keras.config.set_dtype_policy(policy)
    try:
        backbone = ENCODER_DECODERS[name]()
        task = Seq2SeqLM(backbone)
    finally:
        keras.config.set_dtype_policy("float32")
    assert backbone(inputs())["sequence_output"].dtype == policy.removeprefix("mixed_")
    assert {weight.dtype for weight in backbone.trainable_weights} == {"float32"}
    looked_at = [task(inputs())]
    if "attention_contexts" in backbone.symbolic:
        looked_at += backbone.attention_probabilities(inputs())
    if backbone.config.get("attention", "of a Transformer") is not None:
        looked_at += backbone.cross_attention_probabilities(inputs())
    for actual in looked_at:
        assert actual.dtype == "float32"
        assert np.isfinite(actual).all()


@pytest.mark.eager
@pytest.mark.parametrize("name", NAMES)
def test_all_weights_learn(name):
    task = Seq2SeqLM(ENCODER_DECODERS[name]())
    before = [weight.numpy() for weight in task.trainable_weights]
    task.compile(optimizer=keras.optimizers.SGD(1.0))
    labels = np.array([[3, 9, 12, 1], [44, 8, 8, -100]])
    task.train_on_batch(inputs(), labels)
    for weight, old in zip(task.trainable_weights, before, strict=True):
        assert np.abs(weight.numpy() - old).max() > 0, weight.path
