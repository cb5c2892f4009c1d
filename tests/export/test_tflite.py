"""A `.tflite` takes strings, runs without Flex, and answers as its task does."""

import collections
import re
import resource
import tempfile
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

from keras_lm import tasks
from keras_lm.export import check, tflite
from keras_lm.export.fresh_process import load_tflite
from keras_lm.export.saved_model import module_of
from keras_lm.layers import PaddingBias, PostNormBlock, PreNormBlock
from keras_lm.layers.tensorflow import for_lite
from keras_lm.litert import open_interpreter
from keras_lm.tokenizers import BytePairTokenizer, SubwordTokenizer
from keras_lm.tokenizers.sentence_piece_model import BYTES

pytest.importorskip("ai_edge_litert", reason="needs the extra litert")

CASES = {
    "multi-label pairs": lambda backbone, **a: tasks.TextClassifier(
        backbone, class_names=["x", "y", "z"], multi_label=True, text_pair=True, **a
    ),
    "regressor, fixed length": lambda backbone, **a: tasks.TextRegressor(
        backbone, padding="fixed", sequence_length=9, **a
    ),
    "tagger": lambda backbone, **a: tasks.TokenClassifier(backbone, class_names=["O", "B-X"], **a),
    "vectors of every pooling": lambda backbone, **a: tasks.FeatureExtractor(
        backbone,
        pooling=["first", "max", "mean", "mean_sqrt_len", "weighted_mean", "last"],
        projections=[{"output_dim": 8, "activation": "tanh"}, {"output_dim": 4, "use_bias": False}],
        normalize=True,
        **a,
    ),
}


@pytest.mark.parametrize(
    "case",
    [
        "multi-label pairs",
        pytest.param("regressor, fixed length", marks=[pytest.mark.slow, pytest.mark.eager]),
        pytest.param("tagger", marks=[pytest.mark.slow, pytest.mark.eager]),
        pytest.param("vectors of every pooling", marks=pytest.mark.thorough),
    ],
)
def test_answers_as_the_task(case, make_backbone, tokenizer, texts, tmp_path, capfd):
    task = CASES[case](make_backbone(), tokenizer=tokenizer)
    path = task.export(tmp_path / "model.tflite", format="litert")
    assert capfd.readouterr().err == ""  # what the converter notes reads as if something lacked
    serve, _ = load_tflite(str(path))
    rows = np.array([t.encode() if isinstance(t, str) else t for t in texts], object)
    columns = {"text": rows, "text_pair": rows[::-1]} if task.text_pair else {"text": rows}
    for size in (len(rows), 1, 3):  # the batch may change its size
        batch = {name: column[:size] for name, column in columns.items()}
        tensors = {name: tf.constant(list(column)) for name, column in batch.items()}
        expected = task.answer_lite(tensors)
        actual = serve(**batch)
        assert set(actual) == set(expected)
        for name, value in expected.items():
            if value.dtype == tf.string:
                np.testing.assert_array_equal(actual[name], value.numpy())
            else:
                np.testing.assert_allclose(actual[name], value, atol=1e-4)


@pytest.mark.parametrize("block_class", [PostNormBlock, PreNormBlock])
def test_a_block_has_no_operations_for_shapes_around_its_products(block_class):
    """LiteRT prepares each operation in each call, which takes a fifth of that of a short text."""
    block = block_class(num_heads=2, intermediate_dim=8, activation="relu")
    block.build((None, None, 4))
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    bias = PaddingBias()(np.array([[1, 1, 1], [1, 0, 0]]))
    specs = tf.TensorSpec([None, None, 4]), tf.TensorSpec([None, 1, 1, None])
    with for_lite():
        traced = tf.function(lambda x, bias: block(x, bias), autograph=False)
        function = traced.get_concrete_function(*specs)
    module = module_of(function)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], module)
    model, _ = tflite._converted(converter, "float32")
    root = schema.Model.GetRootAs(model, 0)
    graph = root.Subgraphs(0)
    codes = [graph.Operators(i).OpcodeIndex() for i in range(graph.OperatorsLength())]
    kinds = collections.Counter(root.OperatorCodes(code).BuiltinCode() for code in codes)
    names = schema.BuiltinOperator
    assert kinds[names.FULLY_CONNECTED] == 4
    assert kinds[names.SPLIT] == 1  # queries, keys and values
    assert kinds[names.RESHAPE] == kinds[names.SHAPE] == kinds[names.PACK] == 2  # of heads

    runner = open_interpreter(bytes(model)).get_signature_runner()
    for rows in (2, 1):
        (actual,) = runner(x=x[:rows], bias=bias[:rows].numpy()).values()
        np.testing.assert_allclose(actual, block(x[:rows], bias[:rows]), atol=1e-5)


@pytest.mark.parametrize("really", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_full_disk_is_no_matter_of_the_model(
    really, make_backbone, tokenizer, tmp_path, monkeypatch
):
    """By a limit to the size of files: of the temporary ones, and of the result."""
    if not really:
        monkeypatch.setattr(tflite, "_convert", lambda *_: (None, "no signature"))
    task = tasks.TextClassifier(
        make_backbone(), class_names=["bad", "good"], tokenizer=tokenizer, padding="fixed"
    )
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    (tmp_path / "model.tflite").write_text("old")
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match=r"disk is full .*" + re.escape(tempfile.gettempdir())):
            task.export(tmp_path / "model.tflite", format="litert")
        monkeypatch.setattr(tflite, "_working_model", lambda *_: bytes(1000))
        with pytest.raises(OSError, match=r"disk is full .*model\.tflite"):
            task.export(tmp_path / "model.tflite", format="litert")
        if really:
            with pytest.raises(OSError, match=r"disk is full .*saved"):
                task.export(tmp_path / "saved")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["model.tflite"]
    assert (tmp_path / "model.tflite").read_text() == "old"


@pytest.mark.slow
@pytest.mark.eager
def test_classifier_in_a_fresh_process(make_backbone, tokenizer, texts, tmp_path):
    task = tasks.TextClassifier(make_backbone(), class_names=["bad", "good"], tokenizer=tokenizer)
    packer = task.packer
    path = tmp_path / "new" / "model.tflite"
    path.parent.mkdir()
    path.write_text("is replaced")
    assert task.export(path, format="litert") == path
    with zipfile.ZipFile(path) as archive:  # which interpreters pass over
        assert "`TextClassifier`" in archive.read("README.md").decode()
    assert [p.name for p in path.parent.iterdir()] == ["model.tflite"]
    assert task.packer is packer

    report = check(path, task, texts, batch_size=4)
    assert report.differences["labels"] == 0
    assert report.differences["scores"] <= 1e-4
    assert report.num_bytes == path.stat().st_size

    operations = {operation for operation, _ in tflite._custom_operations(path.read_bytes())}
    assert operations == {"TFText>ByteSplitWithOffsets"}


@pytest.mark.slow
def test_byte_level_bpe(make_backbone, texts, tmp_path):
    special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    vocabulary = [*special.values(), *BYTES.values(), "Ġt", "he", "Ġthe"]
    tokenizer = BytePairTokenizer(vocabulary, ["Ġ t", "h e", "Ġt he"], **special)
    backbone = make_backbone(vocabulary_size=len(vocabulary))
    task = tasks.TextClassifier(backbone, class_names=["bad", "good"], tokenizer=tokenizer)
    path = task.export(tmp_path / "model.tflite", format="litert")
    operations = {operation for operation, _ in tflite._custom_operations(path.read_bytes())}
    assert operations == {"TFText>ByteSplitWithOffsets"}

    rows = [text.encode() if isinstance(text, str) else text for text in texts]
    expected = task.answer({"text": tf.constant(rows)})  # by other operations
    actual = load_tflite(str(path))[0](text=np.array(rows, object))
    np.testing.assert_array_equal(actual["labels"], expected["labels"].numpy())
    np.testing.assert_allclose(actual["scores"], expected["scores"], atol=1e-4)


def test_length_that_cannot_vary_is_fixed(make_backbone, tokenizer, tmp_path, monkeypatch):
    task = tasks.TextRegressor(make_backbone(), tokenizer=tokenizer)

    def convert(functions, weights):
        padding = task.packer.padding
        return (None, "no kernel") if padding == "longest" else (padding.encode(), None)

    monkeypatch.setattr(tflite, "_convert", convert)
    monkeypatch.setattr(tflite, "_missing", lambda model, task, allowed: "")
    monkeypatch.setattr(tflite, "_failure", lambda model, specs: None)
    path = task.export(tmp_path / "model.tflite", format="litert")
    with zipfile.ZipFile(path) as archive:  # the card, which follows
        assert path.read_bytes()[: archive.infolist()[0].header_offset] == b"fixed"
    assert task.packer.padding == "longest"


def test_mistakes_have_clear_words(make_backbone, tokenizer, tmp_path):
    def export(task, path=tmp_path / "model.tflite"):
        task.export(path, format="litert")

    masked = tasks.MaskedLM(make_backbone(), tokenizer=tokenizer, padding="fixed")
    with pytest.raises(ValueError, match=r"MaskedLM's `text` \(UnsortedSegmentJoin.*'bytes'"):
        export(masked)
    with pytest.raises(IsADirectoryError, match="pass a file"):
        export(masked, tmp_path)
    half = tasks.TextRegressor(make_backbone(dtype="mixed_bfloat16"), tokenizer=tokenizer)
    with pytest.raises(ValueError, match=r"computes in bfloat16.*dtype='float32'"):
        export(half)
    subwords = tasks.TextRegressor(
        make_backbone(), tokenizer=SubwordTokenizer([*"ab_", "[CLS]", "[SEP]"], None, None)
    )
    with pytest.raises(
        ValueError, match=r"SubwordTokenizer .* regular expressions, which neither Li"
    ):
        export(subwords)
    with pytest.raises(ValueError, match="no tokenizer"):
        export(tasks.TextRegressor(make_backbone()))
    assert list(tmp_path.iterdir()) == []
