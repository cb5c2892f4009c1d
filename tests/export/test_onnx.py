"""An `.onnx` takes ids or bytes, has ONNX's own operators alone, and answers as its task does."""

import json
import sys

import numpy as np
import pytest
import tensorflow as tf
import texts_in_bytes as answers
import tiny
from texts_in_bytes import HARD, MASKED, TASKS, columns_of, encoded, texts_with_masks

from keras_lm import export, tasks
from keras_lm.export import check
from keras_lm.litert import in_bytes
from keras_lm.tokenizers import SubwordTokenizer, strings

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
pytest.importorskip("tf2onnx", reason="needs the extra onnx")

from keras_lm.export import onnx_model  # noqa: E402
from keras_lm.layers.tensorflow import for_lite  # noqa: E402

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
    monkeypatch.setitem(onnx_model.HANDLERS, "Erfc", lambda *_: None)  # stays as it is
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
        ({}, r"tokenizer=None or tokenizer='bytes' with format='onnx'"),
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
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"onnxruntime.*pip install 'keras-lm\[onnx\]'"):
        critic.export(path, tokenizer="bytes")
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
    "SparseEncoder": ["embedding"],
    "MultiVectorEncoder": ["embedding", "mask"],
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


# === Bytes of texts ===


def assert_answers_texts(session, task, rows, sizes=(1, 3, 32)):
    """Compare answers to texts with those of the task, in batches of several sizes."""
    outputs = [value.name for value in session.get_outputs()]
    for size in (*sizes, len(rows)):
        columns = columns_of(task, np.resize(encoded(rows), size))
        served = dict(zip(outputs, session.run(None, in_bytes(columns)), strict=True))
        left_out = () if task.joins_pieces else answers.STRINGS
        answers.assert_answers(served, task, columns, left_out)


def as_bytes(columns):
    return in_bytes({name: np.array(x, object) for name, x in columns.items()})


@pytest.fixture(scope="module")
def bytes_path(critic, tmp_path_factory):
    return critic.export(tmp_path_factory.mktemp("onnx") / "bytes.onnx", tokenizer="bytes")


@pytest.mark.eager
def test_bytes_of_texts_are_answered_as_by_the_task(critic, bytes_path):
    session = session_of(bytes_path)
    inputs = {value.name: (value.type, value.shape) for value in session.get_inputs()}
    assert inputs == {
        "text": ("tensor(uint8)", ["text_bytes"]),
        "text_ends": ("tensor(int32)", ["batch"]),
    }
    assert [value.name for value in session.get_outputs()] == ["labels", "scores"]
    assert_answers_texts(session, critic, {"text": HARD})
    # What follows the last end does not count.
    text = np.frombuffer(b"the film was good\0\0\xff song", np.uint8)
    given = session.run(["scores"], {"text": text, "text_ends": np.array([8, 17], np.int32)})[0]
    expected = session.run(["scores"], as_bytes({"text": ["the film", " was good"]}))[0]
    np.testing.assert_array_equal(given, expected)
    none = {"text": np.zeros(0, np.uint8), "text_ends": np.zeros(0, np.int32)}
    assert session.run(["scores"], none)[0].shape == (0, 2)
    model = onnx.load(bytes_path)
    onnx.checker.check_model(model, full_check=True)
    assert {node.domain for node in onnx_model._nodes(model.graph)} == {""}
    assert {node.op_type for node in onnx_model._nodes(model.graph)} >= {"ScatterElements", "Loop"}
    assert "text_ends" in model.doc_string or '_ends"' in model.doc_string
    stated = {each.key: each.value for each in model.metadata_props}
    assert json.loads(stated["class_names"]) == ["bad", "good"]


@pytest.mark.slow
def test_a_file_of_bytes_is_compared_in_a_fresh_process(critic, bytes_path):
    result = check(bytes_path, critic, TEXTS, batch_size=2)
    assert result.num_texts == len(TEXTS) and max(result.differences.values()) <= 1e-5
    assert {*result.differences} == {"labels", "scores"}


@pytest.mark.slow
def test_another_tokenizer_is_noticed(critic, tmp_path, monkeypatch):
    """As if an operator were wrong, so that no file with such a tokenizer is written."""
    path = tmp_path / "m.onnx"
    path.write_text("old")
    monkeypatch.delitem(onnx_model.HANDLERS, "ScatterNd")
    with pytest.raises(ValueError, match="TextClassifier does not run in ONNX: "):
        critic.export(path, tokenizer="bytes")
    assert path.read_text() == "old"


@pytest.mark.slow
def test_terms_of_packed_rows(make_backbone, tokenizer, tmp_path):
    task = tasks.SparseEncoder(make_backbone(), tokenizer=tokenizer, top_k=3)
    session = session_of(task.export(tmp_path / "m.onnx", tokenizer=None))
    assert sorted(value.name for value in session.get_outputs()) == ["term_ids", "weights"]
    assert_answers(session, task, {"text": TEXTS})


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("case", TASKS)
def test_every_task_answers_bytes(case, make_backbone, tokenizer, tmp_path):
    task = TASKS[case](make_backbone(), tokenizer=tokenizer)
    session = session_of(task.export(tmp_path / "m.onnx", tokenizer="bytes"))
    assert_answers_texts(session, task, HARD)


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("name", MASKED)
def test_masks_are_filled(name, tokenizer_of, backbone_of, tmp_path):
    tokenizer = tokenizer_of(MASKED[name])
    task = tasks.MaskedLM(backbone_of(name), tokenizer=tokenizer)
    path = task.export(tmp_path / "m.onnx", tokenizer="bytes")
    onnx.checker.check_model(onnx.load(path), full_check=True)
    rows = texts_with_masks(tokenizer.special_tokens["mask"])
    assert_answers_texts(session_of(path), task, rows)


TOKENIZERS = ["wordpiece", "bytebpe-roberta", "bpe-gpt1", "sentencepiece-albert", "words"]
SCRIPTS = [(32, 127), (0xA0, 0x250), (0x370, 0x600), (0x900, 0xE80), (0x3040, 0x3100)]
SCRIPTS += [(0x4E00, 0x5000), (0xAC00, 0xAD00), (0x1F300, 0x1F650), (0xFF00, 0xFFEF)]


def lines(number):
    """Yield lines of several scripts, some of them with bytes that are not UTF-8."""
    random = np.random.default_rng(0)
    for _ in range(number):
        words = []
        for _ in range(random.integers(1, 12)):
            low, high = SCRIPTS[random.integers(len(SCRIPTS)) * random.integers(2)]
            codes = random.integers(low, high, random.integers(1, 9))
            words.append("".join(map(chr, codes)).encode())
            words += [random.bytes(2)] * (random.random() < 0.05)
        yield b" ".join(words)


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_a_tokenizer_in_onnx_makes_the_same_ids(kind, tokenizer_of):
    tokenizer = tokenizer_of(kind)

    def tokens(text, text_ends):
        with for_lite(), strings.without_text_operations():
            ids = tokenizer.tokenize_lite(strings.from_bytes(text, text_ends))
            return {"ids": strings.padded(ids, -1)}

    specs = {name: tf.TensorSpec([None], tf.uint8, name) for name in ("text", "text_ends")}
    specs["text_ends"] = tf.TensorSpec([None], tf.int32, "text_ends")
    traced = tf.function(tokens, autograph=False).get_concrete_function(**specs)
    session = onnxruntime.InferenceSession(onnx_model._converted(traced).SerializeToString())
    texts = [text.encode() if isinstance(text, str) else text for text in HARD]
    texts += [*lines(2000), b" ".join([b"word", "stra\u00dfe".encode()] * 2500)]
    for start in range(0, len(texts), 64):
        batch = texts[start : start + 64]
        expected = tokenizer(tf.constant(batch)).to_tensor(-1)
        (ids,) = session.run(["ids"], as_bytes({"text": batch}))
        np.testing.assert_array_equal(ids, expected)


MODELS_OF_TEXTS = ("RobertaBackbone", "GPTBackbone", "AlbertBackbone", "T5EncoderBackbone")
MODELS_OF_TEXTS += ("TransformerXLBackbone", "ElmoBackbone", "ModernBertBackbone")


@pytest.mark.eager
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow if n in MODELS_OF_TEXTS else pytest.mark.thorough)
        for n in tiny.MODELS
        if n != "ReformerBackbone"
    ],
)
def test_every_model_answers_bytes(name, tokenizer_of, backbone_of, tmp_path):
    tokenizer = tokenizer_of(tiny.MODELS[name][0])
    task = tasks.TextClassifier(
        backbone_of(name), num_classes=3, multi_label=True, tokenizer=tokenizer
    )
    path = task.export(tmp_path / "m.onnx", tokenizer="bytes")
    assert_answers_texts(session_of(path), task, HARD)


def test_what_takes_no_bytes_is_refused_by_name(make_backbone, tokenizer, tmp_path):
    backbone = make_backbone()
    subwords = SubwordTokenizer([*"ab_", "[CLS]", "[SEP]"], None, None)
    critic = tasks.TextRegressor(backbone, tokenizer=tokenizer)
    for task, words in [
        (tasks.TextRegressor(make_backbone(), tokenizer=subwords), "SubwordTokenizer cannot"),
        (tasks.TextRegressor(backbone), "has no tokenizer"),
        (tasks.MultiTask({"critic": critic}), r"export those of \['critic'\] one by one"),
    ]:
        with pytest.raises(ValueError, match=words):
            task.export(tmp_path / "m.onnx", tokenizer="bytes")
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_tasks_that_write_take_no_bytes(backbone_of, tokenizer_of, tmp_path):
    writer = tasks.CausalLM(backbone_of("GPT2Backbone"), tokenizer=tokenizer_of("bytebpe-gpt2"))
    with pytest.raises(ValueError, match="CausalLM writes text"):
        writer.export(tmp_path / "m.onnx", tokenizer="bytes")


@pytest.mark.thorough
def test_a_branch_without_a_kernel_is_noticed_from_texts(backbone_of, tokenizer_of, tmp_path):
    task = tasks.TextClassifier(
        backbone_of("ReformerBackbone"),
        num_classes=2,
        tokenizer=tokenizer_of(tiny.MODELS["ReformerBackbone"][0]),
    )
    with pytest.raises(ValueError, match=r"does not run in ONNX: .*reformer.* MatMul"):
        task.export(tmp_path / "m.onnx", tokenizer="bytes")


def converted(function, *specs):
    """Return a function of arrays that runs a function of tensors in ONNX Runtime."""
    names = [f"x{n}" for n in range(len(specs))]
    specs = {n: tf.TensorSpec(s.shape, s.dtype, n) for n, s in zip(names, specs, strict=True)}
    traced = tf.function(
        lambda **x: {"y": function(*x.values())}, autograph=False
    ).get_concrete_function(**specs)
    session = onnxruntime.InferenceSession(onnx_model._converted(traced).SerializeToString())
    return lambda *arrays: session.run(["y"], dict(zip(names, arrays, strict=True)))[0]


def test_integers_are_computed_exactly():
    """What tf2onnx or ONNX Runtime rounds, or keeps one of several of, without these handlers."""
    row, long = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int64)
    place, value = np.array([1, 1, 2], "int32"), np.array([5, 3, 2**31 - 7], "int32")
    add = converted(lambda at, x: tf.scatter_nd(at[:, None], x, [4]), row, row)
    np.testing.assert_array_equal(add(place, value), [0, 8, 2**31 - 7, 0])
    rows = converted(lambda at: tf.scatter_nd(at[:, None], tf.ones([3, 2]), [4, 2]), row)
    np.testing.assert_array_equal(rows(place), [[0, 0], [2, 2], [1, 1], [0, 0]])
    least = converted(lambda at, x: tf.math.unsorted_segment_min(x, at, 4), row, row)
    np.testing.assert_array_equal(least(place, value), [2**31 - 1, 3, 2**31 - 7, 2**31 - 1])
    big = np.array([2**24, 2**24 + 1], "int32")
    for compare, expected in [
        (lambda x: x < 2**24 + 1, [True, False]),
        (lambda x: x > 2**24, [False, True]),
        (lambda x: x <= 2**24, [True, False]),
        (lambda x: x >= 2**24 + 1, [False, True]),
    ]:
        np.testing.assert_array_equal(converted(compare, row)(big), expected)
    total = converted(lambda x: tf.reduce_sum(x[:, None] + [[0, 1]], 1), long)
    np.testing.assert_array_equal(total(np.array([2**59], "int64")), [2**60 + 1])
    total = converted(lambda x: tf.reduce_sum(x[:, None] + [[0, 1]], -1, keepdims=True), long)
    np.testing.assert_array_equal(total(np.array([2**59], "int64")), [[2**60 + 1]])
    added = converted(lambda x, y: tf.add_n([x, y, x]), row, row)
    np.testing.assert_array_equal(added(big, big), 3 * big)
    chosen = converted(lambda x: tf.where(x > 1, x > 2, x < 1), row)
    np.testing.assert_array_equal(chosen(np.arange(4, dtype="int32")), [1, 0, 0, 1])
    small = converted(lambda x: tf.cast(x, tf.uint8) < 200, row)
    np.testing.assert_array_equal(small(np.array([199, 200], "int32")), [True, False])


# === OpenVINO ===


# What OpenVINO does not compile, and what it answers with other places, as docs/onnx.md says.
REFUSED = ("special tokens", "masks")
NOT_THERE = ("questions", *REFUSED)


class OpenVinoSession:
    """A file in OpenVINO, asked as a session of ONNX Runtime."""

    def __init__(self, path):
        openvino = pytest.importorskip("openvino")
        settings = {"INFERENCE_PRECISION_HINT": "f32"}
        self._network = openvino.Core().compile_model(str(path), "CPU", settings)
        self.get_outputs = session_of(path).get_outputs

    def run(self, names, inputs):
        outputs = self._network(inputs)
        names = names or [value.name for value in self.get_outputs()]
        return [outputs[name].copy() for name in names]


@pytest.mark.eager
def test_openvino_answers_as_the_task(critic, path, bytes_path):
    assert_answers(OpenVinoSession(path), critic, {"text": TEXTS})
    assert_answers_texts(OpenVinoSession(bytes_path), critic, {"text": HARD})


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("case", [case for case in TASKS if case not in NOT_THERE])
def test_openvino_answers_bytes_of_every_task(case, make_backbone, tokenizer, tmp_path):
    task = TASKS[case](make_backbone(), tokenizer=tokenizer)
    path = task.export(tmp_path / "m.onnx", tokenizer="bytes")
    assert_answers_texts(OpenVinoSession(path), task, HARD)


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_openvino_refuses_files_that_find_special_tokens(case, make_backbone, tokenizer, tmp_path):
    task = TASKS[case](make_backbone(), tokenizer=tokenizer)
    path = task.export(tmp_path / "m.onnx", tokenizer="bytes")
    with pytest.raises(RuntimeError, match="Check"):
        OpenVinoSession(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", OUTPUTS)
def test_openvino_answers_packed_rows_of_every_task(name, make_backbone, tokenizer, tmp_path):
    arguments, columns = tiny.TASKS[name]
    task = getattr(tasks, name)(make_backbone(), tokenizer=tokenizer, **arguments)
    path = task.export(tmp_path / "m.onnx", tokenizer=None)
    assert_answers(OpenVinoSession(path), task, columns)


@pytest.mark.parametrize("name", MODELS)
def test_openvino_answers_packed_rows_of_every_model(name, tokenizer_of, backbone_of, tmp_path):
    tokenizer = tokenizer_of(tiny.MODELS[name][0])
    task = tasks.TextClassifier(backbone_of(name), num_classes=3, tokenizer=tokenizer)
    path = task.export(tmp_path / "m.onnx", tokenizer=None)
    if name != "ErnieBackbone":  # whose entities come from a linker
        assert_answers(OpenVinoSession(path), task, {"text": TEXTS})
