"""Exports with smaller weights: their size, their answers, and that they are refused in time."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import models, tasks
from keras_lm.export import ExportCheckError
from keras_lm.export.contents import inspect_saved_model
from keras_lm.layers import tensorflow_products
from keras_lm.tasks import signatures
from keras_lm.tokenizers import BytePairTokenizer
from keras_lm.utils import files

SHARES = {"float16": 0.5, "int8": 17 / 64}


def load(folder):
    return tf.saved_model.load(str(folder)).signatures


@pytest.mark.parametrize("weights", SHARES)
def test_files_are_smaller_and_answers_are_as_the_tasks(weights, stored, texts):
    def size(weights):
        return files.size(stored[weights].folder / "variables")

    task, folder, functions = stored[weights]

    assert size(weights) == pytest.approx(SHARES[weights] * size("float32"), rel=0.03)
    actual = functions["serving_default"](text=tf.constant(texts))
    expected = task.classify(texts)
    difference = np.abs(actual["scores"] - expected["scores"]).max()
    assert 0 < difference < {"float16": 0.001, "int8": 0.02}[weights]
    described = inspect_saved_model(folder, [])
    assert described["parameters"] == task.count_params()
    assert weights in described["dtype"]


def test_models_loaded_side_by_side_keep_their_weights(stored, texts):
    loaded, again = load(stored["int8"].folder), load(stored["int8"].folder)

    def scores(signatures):
        return signatures["serving_default"](text=tf.constant(texts))["scores"].numpy()

    both = [scores(loaded), scores(stored["float16"].signatures)]
    assert np.abs(both[0] - both[1]).max() > 0
    del loaded
    np.testing.assert_array_equal(scores(again), both[0])


@pytest.mark.eager
@pytest.mark.usefixtures("checked_here")
def test_what_moves_answers_too_far_stays_invisible(wide_task, texts, tmp_path):
    words = r"scores differs by .*tolerance=1e-09.*weights='int8'.*larger tolerance"
    with pytest.raises(ExportCheckError, match=words):
        wide_task.export(tmp_path / "models", weights="int8", texts=texts, tolerance=1e-9)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.eager
def test_frozen_weights_answer_as_the_task_does(make_backbone, tokenizer, texts, tmp_path):
    task = tasks.TextClassifier(
        make_backbone(), class_names=["bad", "good"], tokenizer=tokenizer, text_pair=True
    )
    folder = task.export(tmp_path, freeze=True)
    functions = load(folder)
    pairs = {"text": texts, "text_pair": texts[::-1]}
    actual = functions["serving_default"](**{name: tf.constant(pairs[name]) for name in pairs})
    np.testing.assert_allclose(actual["scores"], task.classify(pairs)["scores"], atol=1e-6)
    assert set(functions) == {"serving_default", "tokenize", "classify"}
    assert not any(function.variables for function in functions.values())
    assert files.size(folder / "variables") < 2000
    described = inspect_saved_model(folder, [])
    assert described["parameters"] == task.count_params()
    assert described["dtype"] == "float32, frozen"
    example = tf.train.Example()
    for name in ("text", "text_pair"):
        example.features.feature[name].bytes_list.value.append(b"the film")
    actual = functions["classify"](inputs=tf.constant([example.SerializeToString()]))
    expected = task.classify((["the film"], ["the film"]))["scores"]
    np.testing.assert_allclose(actual["scores"], expected, atol=1e-6)
    task.backbone.weights[0].assign_add(task.backbone.weights[0])  # does not move what is frozen
    after = functions["serving_default"](
        text=tf.constant(["the film"]), text_pair=tf.constant(["the film"])
    )
    np.testing.assert_allclose(after["scores"], expected, atol=1e-6)


def test_what_cannot_be_frozen_is_refused_before_anything_is_written(
    wide_task, tmp_path, monkeypatch
):
    for options, words in (
        ({"weights": "float16"}, "freeze=True with weights='float16'"),
        ({"format": "litert"}, "weights of a .tflite are always constants"),
        ({"weights": "bfloat16", "freeze": False}, "a frozen SavedModel.* pass freeze=True"),
        ({"weights": "bfloat16", "format": "litert"}, "a frozen SavedModel.* no .tflite"),
    ):
        with pytest.raises(ValueError, match=words):
            wide_task.export(tmp_path / "model", **{"freeze": True} | options)
    monkeypatch.setattr(signatures, "LARGEST_GRAPH", 1000)
    with pytest.raises(ValueError, match=r"freeze=True puts the weights .* take 0.0 GB"):
        wide_task.export(tmp_path / "model", freeze=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("int8_products")
def test_int8_matrices_of_more_than_a_graph_may_have_are_refused(wide_task, tmp_path, monkeypatch):
    monkeypatch.setattr(signatures, "LARGEST_GRAPH", wide_task.count_params() // 2)
    with pytest.raises(ValueError, match=r"freeze=True puts the weights .* take 0.0 GB"):
        wide_task.export(tmp_path / "model", weights="int8", freeze=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("int8_products")
def test_frozen_int8_weights_are_multiplied_in_int8(stored, texts, tmp_path):
    task = stored["float32"].task
    folder = task.export(tmp_path, weights="int8", freeze=True)
    functions = load(folder)
    answer = functions["serving_default"]
    actual = answer(text=tf.constant(texts))["scores"]
    difference = np.abs(actual - task.classify(texts)["scores"]).max()
    assert 1e-5 < difference < 0.05
    alone = [answer(text=tf.constant([text]))["scores"][0] for text in texts]
    np.testing.assert_allclose(alone, actual, atol=1e-6)  # whatever else is in the batch
    assert set(functions) == {"serving_default", "tokenize", "classify"}
    described = inspect_saved_model(folder, [])
    assert described["parameters"] == pytest.approx(task.count_params(), abs=2)
    assert files.size(folder) < 0.5 * files.size(stored["float32"].folder)
    products = [
        node
        for function in answer.graph.as_graph_def().library.function
        for node in function.node_def
        if node.op == "QuantizedMatMulWithBias"
    ]
    # Of attention three, as only the first token of the last block has a query; of feed-forward
    # two, and the pooler's.
    assert len(products) == 6


@pytest.mark.slow
@pytest.mark.usefixtures("checked_here")
def test_frozen_bfloat16_weights_are_multiplied_in_bfloat16(stored, texts, tmp_path):
    task = stored["float32"].task
    folder = task.export(tmp_path, weights="bfloat16", freeze=True, texts=texts)
    functions = load(folder)
    answer = functions["serving_default"]
    actual = answer(text=tf.constant(texts))["scores"]
    assert actual.dtype == tf.float32
    difference = np.abs(actual - task.classify(texts)["scores"]).max()
    assert 1e-6 < difference < 0.01
    assert set(functions) == {"serving_default", "tokenize", "classify"}
    described = inspect_saved_model(folder, [])
    assert described["parameters"] == pytest.approx(task.count_params(), abs=2)
    assert described["dtype"] == "bfloat16, float16, float32"
    assert files.size(folder) < 0.6 * files.size(stored["float32"].folder)
    products = [
        node.attr["T"].type
        for function in answer.graph.as_graph_def().library.function
        for node in function.node_def
        if "MatMul" in node.op
    ]
    # Those of attention, three, as above, and of feed-forward, two, the pooler's, and two within
    # attention; the head is small, and stays as it is.
    assert sorted(products) == [tf.float32.as_datatype_enum] + [tf.bfloat16.as_datatype_enum] * 8


def test_int8_products_without_onednn_are_refused(wide_task, tmp_path, monkeypatch):
    def missing(*_):
        raise tf.errors.InternalError(None, None, "Missing 0-th output")

    monkeypatch.setattr(tensorflow_products, "_multiply_int8", missing)
    with pytest.raises(ValueError, match=r"oneDNN, which is off .* TF_ENABLE_ONEDNN_OPTS=1"):
        wide_task.export(tmp_path / "model", weights="int8", freeze=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_the_same_of_a_tflite(wide_task, texts, tmp_path):
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    path = tmp_path / "model.tflite"
    sizes, graph = {}, 600_000
    for weights in ("float32", *SHARES):
        wide_task.export(path, format="litert", weights=weights, texts=texts, tolerance=0.05)
        sizes[weights] = path.stat().st_size - graph
    assert sizes["float16"] < 0.6 * sizes["float32"]
    assert sizes["int8"] < 0.4 * sizes["float32"]
    before = path.read_bytes()
    with pytest.raises(ExportCheckError, match="larger tolerance"):
        wide_task.export(path, format="litert", weights="int8", texts=texts, tolerance=1e-9)
    assert path.read_bytes() == before


@pytest.fixture
def gpt2(goldens):
    """A GPT-2 and its tokenizer, which has lookup tables."""
    tokenizer = BytePairTokenizer.from_files(goldens("tokenizers") / "bytebpe-gpt2")
    backbone = models.GPT2Backbone(tokenizer.vocabulary_size, 1, 2, 64, 64, max_sequence_length=32)
    return backbone, tokenizer


@pytest.mark.eager
def test_a_tokenizers_tables_remain_in_a_frozen_graph(gpt2, tmp_path):
    backbone, tokenizer = gpt2
    task = tasks.TextClassifier(backbone, num_classes=2, tokenizer=tokenizer)
    frozen = load(task.export(tmp_path / "frozen", freeze=True))["serving_default"]
    texts = ["un 中 able", "a b"]
    actual, expected = frozen(text=tf.constant(texts)), task.classify(texts)
    np.testing.assert_allclose(actual["scores"], expected["scores"], atol=1e-6)
    with pytest.raises(ValueError, match="a CausalLM has several signatures"):
        tasks.CausalLM(backbone, tokenizer=tokenizer).export(tmp_path / "lm", freeze=True)
    assert not (tmp_path / "lm").exists()


@pytest.mark.thorough
@pytest.mark.eager
def test_a_loop_reads_stored_weights_too(gpt2, tmp_path):
    backbone, tokenizer = gpt2
    task = tasks.CausalLM(backbone, tokenizer=tokenizer)
    before = [weight.numpy() for weight in task.weights]
    folder = task.export(tmp_path, weights="int8")
    for weight, values in zip(task.weights, before, strict=True):
        np.testing.assert_array_equal(weight, values)
    ids = tf.constant([[5, 6, 7]])
    actual = load(folder)["tokens"](token_ids=ids, padding_mask=tf.ones_like(ids))["logits"]
    expected = task({"token_ids": ids, "padding_mask": tf.ones_like(ids)})
    np.testing.assert_allclose(actual, expected, atol=0.02)
    answer = load(folder)["serving_default"](prompt=tf.constant(["a song", "the"]))
    assert answer["num_tokens"].shape == (2,)
    saved = dict(tf.train.list_variables(str(folder / "variables" / "variables")))
    tables = [shape for shape in saved.values() if shape[1:] == [64]]
    assert len(tables) == 6  # tokens, positions, and four matrices of a block


def test_mistakes_have_clear_words(wide_task, tmp_path):
    with pytest.raises(ValueError, match=r"weights='int4': use one of \['float32', 'float16', "):
        wide_task.export(tmp_path / "models", weights="int4")
    with pytest.raises(ValueError, match="needs texts"):
        wide_task.export(tmp_path / "models", weights="int8", tolerance=0.1)
    assert list(tmp_path.iterdir()) == []
