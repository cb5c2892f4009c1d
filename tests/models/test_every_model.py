"""What holds for every model, whatever its weights. A new model joins by a line in tiny.py."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from tiny import BAD, GOOD, MODELS

from keras_lm import tasks
from keras_lm.export import tflite
from keras_lm.export.fresh_process import load_tflite
from keras_lm.models import Backbone
from keras_lm.models.backbone import are_random
from keras_lm.models.sizes import estimate
from keras_lm.utils.registry import BACKBONES

TEXTS = [*GOOD, "", "\U0001f600 " * 20]
# The networks and tokenizers of others.
ALIKE = ("SpanBertBackbone", "TinyBertBackbone", "GPT3Backbone", "GPTNeoBackbone")


@pytest.fixture(scope="module", params=MODELS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(name, tokenizer_of):
    return tokenizer_of(MODELS[name][0])


@pytest.fixture(scope="module")
def backbone(name, backbone_of):
    """As different from others as a trained one; read only."""
    return backbone_of(name)


WRONG = {
    "vocabulary_size": [-1, 1.5, "9", True],
    "num_layers": [-1, 0, None, float("inf")],
    "num_heads": [0],
    "hidden_dim": [0, 2.0],
    "intermediate_dim": [[24]],
    "embedding_dim": [0],
    "num_highways": [-1],
    "filters": [[[1, 0]], [[1]], "ab", None],
    "characters_per_word": [10**7],
    "dropout": [-0.1, 2, float("nan"), "0.1"],
    "activation": [{"class_name": "Dense", "config": {}}, "no_such", ["gelu"], None],
    "max_sequence_length": [0],
    "layer_norm_epsilon": [float("nan"), 0.0, -1e-5, "1e-5", None],
    "cell_clip": [float("nan"), -1],
    "activation_penalty": [float("inf")],
    **{key: ["no", 2, []] for key in ("pre_norm", "causal", "same_length", "scale_embedding")},
}


def test_wrong_arguments_are_named_before_anything_is_built(backbone):
    config = backbone.get_config()
    tried = [(name, value) for name in WRONG if name in config for value in WRONG[name]]
    assert tried
    for name, value in tried:
        with pytest.raises(ValueError, match=rf"^{name}=.*: pass "):
            type(backbone).from_config(config | {name: value})


def pack(backbone, tokenizer, texts, side="right"):
    template = dataclasses.replace(backbone.TEMPLATE, padding_side=side)
    packer = backbone.packer_class(template, tokenizer, sequence_length=16)
    packed = packer({"text": tf.constant(texts)})
    return {key: packed[key].numpy() for key in backbone.input_names if key in packed}


@pytest.fixture(scope="module")
def inputs(backbone, tokenizer):
    """Four rows."""
    return pack(backbone, tokenizer, GOOD)


@pytest.fixture(scope="module")
def outputs(backbone, inputs):
    return backbone(inputs)


def test_every_model_is_listed():
    ours = {name for name, cls in BACKBONES.items() if cls.__module__.startswith("keras_lm.models")}
    bases = {"Backbone", "CachedBackbone", "CausalBackbone", "EncoderDecoderBackbone"}
    bases |= {"CachedEncoderDecoderBackbone", "EncoderHalf", "WordBackbone", "FeatureBackbone"}
    bases |= {"PairBackbone", "SparseBackbone", "TokenVectorBackbone"}
    listed = {name.split(" ")[0] for name in tiny.ENCODER_DECODERS}
    assert ours - bases == {*MODELS, *tiny.PARTS} | listed


def test_random_weights_are_told_from_others(name, tokenizer, backbone):
    new = tiny.make_backbone(name, tokenizer.vocabulary_size, spread=False)
    has_own_rate = type(new).learning_rate is not Backbone.learning_rate
    assert are_random(new.weights) or has_own_rate
    assert not are_random(backbone.weights) or has_own_rate
    assert (new.learning_rate > backbone.learning_rate) == (not has_own_rate)


def test_padding_changes_nothing_on_either_side(backbone, tokenizer, outputs):
    alone = backbone(pack(backbone, tokenizer, GOOD[1:2]))["sequence_output"]
    left = backbone(pack(backbone, tokenizer, GOOD, "left"))
    for padded, columns in (
        (outputs, slice(None, alone.shape[1])),
        (left, slice(-alone.shape[1], None)),
    ):
        assert padded["sequence_output"].shape[1] > alone.shape[1]
        np.testing.assert_allclose(padded["sequence_output"][1:2, columns], alone, atol=2e-5)


def test_a_row_of_padding_gives_finite_numbers(backbone, inputs):
    mask = inputs["padding_mask"].copy()
    mask[1:] = 0
    inputs = inputs | {"padding_mask": mask}
    for outputs in (backbone(inputs), backbone(inputs, training=True)):
        assert all(np.isfinite(x).all() for x in keras.tree.flatten(outputs))


def models(names, mark=(), otherwise=pytest.mark.thorough):
    """Parametrize by all models; those that are not named have another mark."""
    marks = dict.fromkeys(MODELS, otherwise) | dict.fromkeys(names, mark)
    params = [pytest.param(name, marks=marks[name]) for name in MODELS]
    return pytest.mark.parametrize("name", params, indirect=True, scope="module")


def assert_same(again, backbone, inputs, outputs):
    assert type(again) is type(backbone)
    assert again.get_config() == backbone.get_config()
    own = again(inputs)
    assert set(own) == set(outputs)
    np.testing.assert_array_equal(own["sequence_output"], outputs["sequence_output"])


def test_preset(backbone, inputs, outputs, tmp_path):
    json.dumps(backbone.get_config())
    backbone.save_to_preset(tmp_path / "preset")
    assert_same(Backbone.from_preset(tmp_path / "preset"), backbone, inputs, outputs)


@models([*tiny.REPRESENTATIVES, "TagLMBackbone"])  # which holds another
def test_keras_file(backbone, inputs, outputs, tmp_path):
    backbone.save(tmp_path / "backbone.keras")
    again = keras.saving.load_model(tmp_path / "backbone.keras")
    assert_same(again, backbone, inputs, outputs)


def test_bad_inputs(backbone, inputs):
    first = backbone.input_names[0]
    with pytest.raises(ValueError, match=r"unknown keys \['padding_maks'\]"):
        backbone(inputs | {"padding_maks": inputs["padding_mask"]})
    with pytest.raises(ValueError, match=f"lacks '{first}'"):
        backbone({"padding_mask": inputs["padding_mask"]})
    with pytest.raises(ValueError, match=rf"takes a dict with the keys \['{first}'"):
        backbone([[1, 2]])
    if backbone.max_sequence_length is not None:
        with pytest.raises(ValueError, match="33 columns, but max_sequence_length=32"):
            backbone({first: np.ones((1, 33), "int32")})


PRECISIONS = [
    pytest.param(
        name,
        policy,
        # The others' layers are the same.
        marks=[pytest.mark.thorough]
        * (name in ALIKE or (policy != "mixed_float16" and name not in tiny.REPRESENTATIVES)),
    )
    for name in MODELS
    for policy in ("mixed_bfloat16", "mixed_float16", "float64")
]


@pytest.mark.parametrize(("name", "policy"), PRECISIONS, indirect=["name"])
def test_other_precision(name, tokenizer, policy):
    keras.config.set_dtype_policy(policy)
    try:
        backbone = tiny.make_backbone(name, tokenizer.vocabulary_size, spread=False)
        task = tasks.TextClassifier(backbone, num_classes=2)
    finally:
        keras.config.set_dtype_policy("float32")
    wide = "float64" if policy == "float64" else "float32"  # of weights and logits
    inputs = pack(backbone, tokenizer, GOOD)
    x = backbone(inputs)["sequence_output"]
    assert keras.backend.standardize_dtype(x.dtype) in (policy.removeprefix("mixed_"), wide)
    assert {weight.dtype for weight in task.trainable_weights} == {wide}
    if "attention_contexts" in backbone.symbolic:
        assert backbone.attention_probabilities(inputs)[0].dtype == "float32"
    logits = task(inputs)
    assert logits.dtype == wide
    assert np.isfinite(logits).all()


def test_estimate_equals_a_model_that_is_built(backbone):
    counted = sum(np.prod(weight.shape) for weight in backbone.trainable_weights)
    if not type(backbone).SIZES:
        with pytest.raises(ValueError, match="there are estimates of"):
            estimate(type(backbone), **backbone.config)
        return
    assert estimate(type(backbone), **backbone.config)["parameters"] == counted


@pytest.fixture(scope="module")
def made(backbone, tokenizer):
    """All tasks that there are over a model; read only."""
    return tiny.tasks_over(backbone, tokenizer)


def test_the_table_has_every_task(name, made):
    assert [*made] == tiny.tasks_in_the_table(name), "run: python docs/tables.py"


# What these do takes long, and depends on the numbers of tokens alone.
OF_WORDS = ("ConstituencyParser", "CoreferenceResolver")


def assert_answers(made, kinds):
    for kind in kinds:
        _, x = tiny.TASKS[kind]
        outputs = keras.tree.flatten(made[kind](made[kind].preprocess(made[kind].columns(x))))
        assert all(len(output) == 4 and np.isfinite(output).all() for output in outputs), kind


@pytest.mark.eager
@models(tiny.REPRESENTATIVES)
def test_tasks_of_words(made):
    assert_answers(made, [kind for kind in OF_WORDS if kind in made])


@pytest.mark.eager
@models([name for name in MODELS if name not in ALIKE])
def test_other_tasks(name, made, tokenizer):
    assert_answers(made, [kind for kind in made if kind not in OF_WORDS])
    if name not in tiny.REPRESENTATIVES:
        return
    if "QuestionAnswerer" in made:
        answers = made["QuestionAnswerer"].answer({"question": GOOD, "context": BAD}, top_k=1)
        assert all(text[a["start"] : a["end"]] == a["text"] for text, (a,) in zip(BAD, answers))
    if "MaskedLM" in made:
        mask = tokenizer.special_tokens["mask"]
        assert made["MaskedLM"].fill_mask([f"great {mask}"])["tokens"].shape == (1, 1, 5)
    for kind in {"MaskedLM", "CausalLM"} & {*made}:
        assert np.isfinite(made[kind].evaluate(GOOD, verbose=0, return_dict=True)["loss"])


@pytest.fixture(scope="module")
def classifier(name, tokenizer):
    """A task that has learnt a little."""
    backbone = tiny.make_backbone(name, tokenizer.vocabulary_size, spread=False)
    task = tasks.TextClassifier(backbone, class_names=["bad", "good"], tokenizer=tokenizer)
    task.compile(optimizer=keras.optimizers.Adam(0.02))
    labels = ["good"] * 4 + ["bad"] * 4
    task.losses_of_fit = task.fit(GOOD + BAD, labels, epochs=20, verbose=0).history["loss"]
    return task


# By default, tests/tasks and tests/export show each part of it by a BERT.
WHOLE_WAY = ["BertBackbone", "ElmoBackbone"]


@pytest.mark.eager
@models(WHOLE_WAY, pytest.mark.slow)
def test_a_classifier_learns_and_goes_into_files(classifier, tokenizer, tmp_path):
    losses = classifier.losses_of_fit
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
    answer = classifier.classify(TEXTS)

    classifier.save_to_preset(tmp_path / "preset")
    again = tasks.Task.from_preset(tmp_path / "preset")
    assert type(again.tokenizer) is type(tokenizer)
    np.testing.assert_array_equal(again.classify(TEXTS)["scores"], answer["scores"])

    served = tf.saved_model.load(str(classifier.export(tmp_path / "export")))
    actual = served.signatures["serving_default"](text=tf.constant(TEXTS))
    np.testing.assert_allclose(actual["scores"], answer["scores"], atol=1e-5)
    assert actual["labels"].numpy().tolist() == [label.encode() for label in answer["labels"]]


@pytest.mark.eager
@models(WHOLE_WAY, pytest.mark.slow)
def test_a_classifier_runs_in_litert(classifier, tmp_path):
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    path = classifier.export(tmp_path / "model.tflite", format="litert")
    operations = {operation for operation, _ in tflite._custom_operations(path.read_bytes())}
    assert operations <= tflite.TEXT_OPERATIONS
    serve, _ = load_tflite(str(path))
    for texts in (TEXTS, TEXTS[-1:]):
        actual = serve(text=np.array([text.encode() for text in texts], object))
        expected = classifier.answer_lite({"text": tf.constant(texts)})
        np.testing.assert_allclose(actual["scores"], expected["scores"], atol=1e-4)
        np.testing.assert_array_equal(actual["labels"], expected["labels"].numpy())
