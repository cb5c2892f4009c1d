"""An `.onnx` takes ids, has ONNX's own operators alone, and answers as its task does."""

import json
import sys

import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_lm import export, tasks
from keras_lm.export import check

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
pytest.importorskip("tf2onnx", reason="needs the extra onnx")

from keras_lm.export import onnx_model  # noqa: E402

TEXTS = ["the film was good", "", "a very nice cast, good", "bad " * 50, "Ünïcode 中文 \x00!"]


def session_of(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def critic(make_backbone, tokenizer):
    return tasks.TextClassifier(make_backbone(), class_names=["bad", "good"], tokenizer=tokenizer)


@pytest.fixture(scope="module")
def path(critic, tmp_path_factory):
    return critic.export(tmp_path_factory.mktemp("onnx") / "critic.onnx", tokenizer=None)


def assert_answers(session, task, columns, sizes=(1, 3, 32)):
    """Compare answers in batches of several sizes, whose rows have several lengths."""
    offer = task.packed_signatures
    rows = len(next(iter(columns.values())))
    for size in sizes:
        taken = np.arange(size) % rows
        packed = offer.rows({name: np.array(x, object)[taken] for name, x in columns.items()})
        expected = offer.answer()(**{name: tf.constant(x) for name, x in packed.items()})
        served = session.run([*expected], packed)
        for name, value in zip(expected, served, strict=True):
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-5)
            assert value.dtype == expected[name].dtype.as_numpy_dtype


def test_a_classifier_answers_as_the_task(critic, path):
    session = session_of(path)
    assert [value.name for value in session.get_outputs()] == ["scores"]
    inputs = {value.name: (value.type, value.shape) for value in session.get_inputs()}
    expected = ("tensor(int32)", ["batch", "sequence"])
    assert inputs == dict.fromkeys(["token_ids", "segment_ids", "padding_mask"], expected)
    assert_answers(session, critic, {"text": TEXTS})
    packed = critic.packed_signatures.rows({"text": np.array(TEXTS, object)})
    (scores,) = session.run(["scores"], packed)
    assert [critic.class_names[n] for n in scores.argmax(1)] == critic.classify(TEXTS)[
        "labels"
    ].tolist()


def test_padding_changes_nothing(critic, path):
    session = session_of(path)
    packed = critic.packed_signatures.rows({"text": np.array(TEXTS[:2], object)})
    wider = {name: np.pad(x, [(0, 1), (0, 3)]) for name, x in packed.items()}  # and an empty row
    (expected,), (actual,) = session.run(None, packed), session.run(None, wider)
    np.testing.assert_allclose(actual[:2], expected, atol=1e-6)
    assert np.isfinite(actual).all()


def test_the_file_says_what_it_is(path):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert [(each.domain, each.version) for each in model.opset_import if not each.domain] == [
        ("", onnx_model.OPSET)
    ]
    assert {node.domain for node in onnx_model._nodes(model.graph)} == {""}
    stated = {each.key: each.value for each in model.metadata_props}
    assert stated["task"] == "TextClassifier"
    assert stated["sequence_length"] == "24"
    assert json.loads(stated["class_names"]) == ["bad", "good"]
    assert "`TextClassifier`" in model.doc_string
    kinds = {node.op_type for node in model.graph.node}
    assert "LayerNormalization" in kinds and "InstanceNormalization" not in kinds


@pytest.mark.slow
def test_texts_are_compared_in_a_fresh_process(critic, path, tmp_path):
    assert check(path, critic, TEXTS, batch_size=2).differences["scores"] <= 1e-5
    reports = []
    new = critic.export(tmp_path / "m.onnx", tokenizer=None, texts=TEXTS, report=reports.append)
    assert new.stat().st_size == pytest.approx(path.stat().st_size, rel=0.01)
    assert reports[0].num_texts == len(TEXTS)


@pytest.mark.slow
def test_what_differs_is_not_written(critic, tmp_path, monkeypatch):
    from keras_lm.tasks import packed_signatures

    monkeypatch.setattr(packed_signatures, "SIZES", ((1, 2),))
    (tmp_path / "m.onnx").write_text("old")
    monkeypatch.setattr(onnx_model, "_erfc", lambda graph, node, *_: None)  # stays as it is
    with pytest.raises(ValueError, match=r"no operator for Erfc, in layer .*intermediate"):
        critic.export(tmp_path / "m.onnx", tokenizer=None)
    monkeypatch.undo()

    def wrong(self):
        return lambda **packed: {"scores": tf.cast(packed["token_ids"], tf.float32)}

    function = critic.packed_signatures.function()
    model = onnx_model._converted(function).SerializeToString()
    monkeypatch.setattr(type(critic.packed_signatures), "answer", wrong)
    other = critic.packed_signatures
    assert "scores has the shape" in onnx_model._failure(model, other.function(), other)
    assert (tmp_path / "m.onnx").read_text() == "old"


def test_mistakes_have_clear_words(critic, tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    for arguments, words in [
        ({}, r"or tokenizer=None with format='onnx'"),
        ({"tokenizer": "metadata"}, r"format='litert'"),
        ({"tokenizer": None, "freeze": True}, "leave it out"),
        ({"tokenizer": None, "weights": "int8"}, "quantize_dynamic"),
    ]:
        with pytest.raises(ValueError, match=words):
            critic.export(path, **arguments)
    with pytest.raises(ValueError, match=r"tokenizer=None needs an \.onnx: pass format='onnx'"):
        critic.export(tmp_path / "saved", tokenizer=None)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        export.export(critic, tmp_path, format="onnx", tokenizer=None)
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'keras-lm\[onnx\]'"):
        critic.export(path, tokenizer=None)
    assert not path.exists()


def test_other_normalisations_stay_as_they_are():
    """Of another axis, without a scale, or one whose parts are read elsewhere, too."""
    vector = tf.constant(np.linspace(1, 2, 4, dtype="float32"))

    def normalized(x, axis=-1, scale=vector, offset=vector):
        centred = x - tf.reduce_mean(x, axis, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis, keepdims=True)
        return centred * tf.math.rsqrt(variance + 1e-3) * scale + offset

    def actual(function):
        spec = tf.TensorSpec([None, None, 4], tf.float32, "x")
        traced = tf.function(lambda x: {"y": function(x)}).get_concrete_function(x=spec)
        model = onnx_model._converted(traced)
        x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
        session = onnxruntime.InferenceSession(model.SerializeToString())
        np.testing.assert_allclose(session.run(None, {"x": x})[0], function(x), atol=1e-5)
        return [node.op_type for node in model.graph.node].count("LayerNormalization")

    assert actual(normalized) == 1
    assert actual(lambda x: normalized(x, offset=x)) == 1
    assert actual(lambda x: normalized(x, axis=2)) == 1
    assert actual(lambda x: normalized(x, axis=1)) == 0
    assert actual(lambda x: normalized(x, scale=2.0, offset=0.0)) == 0


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_quotients_are_rounded_down(dtype):
    x = np.array([-7, -6, -1, 0, 5, 6], dtype)
    for y in (3, -3):
        spec = tf.TensorSpec([None], dtype, "x")
        traced = tf.function(
            lambda x, y=y: {
                "whole": x // tf.constant(y, x.dtype),
                "rest": x % tf.constant(y, dtype),
            }
        ).get_concrete_function(x=spec)
        model = onnx_model._converted(traced).SerializeToString()
        whole, rest = onnxruntime.InferenceSession(model).run(["whole", "rest"], {"x": x})
        np.testing.assert_array_equal(whole, x // np.array(y, dtype))
        np.testing.assert_array_equal(rest, x % np.array(y, dtype))


OTHERS = ("XLNetBackbone", "DebertaV3Backbone", "ModernBertBackbone", "TransformerXLBackbone")
MODELS = [
    pytest.param(name, marks=pytest.mark.slow if name in OTHERS else pytest.mark.thorough)
    for name in tiny.MODELS
    if name != "ReformerBackbone"
]


@pytest.mark.parametrize("name", MODELS)
def test_every_model_answers_as_its_task(name, tokenizer_of, backbone_of, tmp_path):
    tokenizer = tokenizer_of(tiny.MODELS[name][0])
    task = tasks.TextClassifier(
        backbone_of(name), num_classes=3, multi_label=True, tokenizer=tokenizer
    )
    path = task.export(tmp_path / "m.onnx", tokenizer=None)
    if name != "ErnieBackbone":  # whose entities come from a linker
        assert_answers(session_of(path), task, {"text": TEXTS})


@pytest.mark.thorough
def test_what_has_no_kernel_is_refused(backbone_of, tmp_path):
    task = tasks.TextClassifier(backbone_of("ReformerBackbone"), num_classes=2)
    with pytest.raises(
        ValueError, match=r"TextClassifier does not run in ONNX: .*reformer.* MatMul"
    ):
        task.export(tmp_path / "m.onnx", tokenizer=None)
    assert not [*tmp_path.iterdir()]


OUTPUTS = {
    "TextRegressor": ["scores"],
    "TokenClassifier": ["scores"],
    "MultipleChoice": ["labels", "scores"],
    "QuestionAnswerer": ["end_logits", "start_logits"],
    "MaskedLM": ["logits"],
    "FeatureExtractor": ["embedding"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OUTPUTS)
def test_every_task_answers_packed_rows(name, make_backbone, tokenizer, tmp_path):
    arguments, columns = tiny.TASKS[name]
    task = getattr(tasks, name)(make_backbone(), tokenizer=tokenizer, **arguments)
    session = session_of(task.export(tmp_path / "m.onnx", tokenizer=None))
    assert sorted(value.name for value in session.get_outputs()) == OUTPUTS[name]
    assert_answers(session, task, columns)


@pytest.mark.slow
def test_a_tied_table_is_stored_once(make_backbone, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_model, "LARGE", 16)
    task = tasks.MaskedLM(make_backbone(hidden_dim=64, intermediate_dim=8), tokenizer=tokenizer)
    path = task.export(tmp_path / "m.onnx", tokenizer=None)
    sizes = [64, tokenizer.vocabulary_size]
    tables = [x for x in onnx.load(path).graph.initializer if {*sizes} <= {*x.dims}]
    assert len(tables) == 1
    assert_answers(session_of(path), task, {"text": TEXTS})


def test_tasks_without_such_an_answer_are_refused(make_backbone, tokenizer, tmp_path):
    backbone = make_backbone()
    critic = tasks.TextClassifier(backbone, class_names=["bad", "good"], tokenizer=tokenizer)
    tagger = tasks.TokenClassifier(backbone, class_names=["O", "X"], crf=True, tokenizer=tokenizer)
    for task, words in [
        (tagger, "crf=True compares the labels of words"),
        (tasks.MultiTask({"critic": critic}), r"export those of \['critic'\] one by one"),
        (tasks.Ensemble([critic, critic]), "each member of an ensemble"),
    ]:
        with pytest.raises(ValueError, match=words):
            task.export(tmp_path / "m.onnx", tokenizer=None)
    half = tasks.TextRegressor(make_backbone(dtype="mixed_bfloat16"), tokenizer=tokenizer)
    with pytest.raises(ValueError, match="computes in bfloat16"):
        half.export(tmp_path / "m.onnx", tokenizer=None)


@pytest.mark.slow
def test_tasks_that_write_are_refused(backbone_of, tokenizer_of, tmp_path):
    writer = tasks.CausalLM(backbone_of("GPT2Backbone"), tokenizer=tokenizer_of("bytebpe-gpt2"))
    with pytest.raises(ValueError, match="CausalLM writes text"):
        writer.export(tmp_path / "m.onnx", tokenizer=None)
