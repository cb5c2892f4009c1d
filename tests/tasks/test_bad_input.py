"""Errors name the value that was passed and what to pass instead."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_lm.feeding.feed import columns_from_user
from keras_lm.models import BertBackbone
from keras_lm.tasks import FeatureExtractor, MaskedLM, TextClassifier, TextRegressor
from keras_lm.tokenizers import WordPieceTokenizer

NAMES = ("text", "text_pair")


def dataset(*parts, batch=2):
    data = tf.data.Dataset.from_tensor_slices(parts[0] if len(parts) == 1 else parts)
    return data.batch(batch) if batch else data


@pytest.mark.parametrize(
    "x, message",
    [
        ("a text", r"x='a text' is a single example: pass a batch, such as \['a text'\]"),
        (b"a text", "is a single example"),
        (("a", "b"), "is a single example"),
        ({"texts": ["a"]}, r"x has the keys \['texts'\]: 'text' is needed"),
        ({"text_pair": ["a"]}, "'text' is needed"),
        ({"text": ["a"], "label": [1]}, "allowed are"),
        ((["a"], ["b"], ["c"]), "x is a tuple of 3"),
        ((["a"],), "x is a tuple of 1"),
        ((["a", "b"], ["c"]), "columns of different lengths, {'text': 2, 'text_pair': 1}"),
        (["a", None], r"text\[1\] is None, a NoneType"),
        (["a", float("nan")], r"text\[1\] is nan, a float"),
        ([1, 2], r"text\[0\] is 1, a int"),
        (np.array([1.5]), r"text\[0\] is .*1.5"),
        ((["a"], [None]), r"text_pair\[0\] is None"),
        ([("a", "b"), ("c", None)], r"text_pair\[1\] is None"),
        ([("a", "b"), "c"], r"text\[0\] is \('a', 'b'\), a tuple"),
        (42, "x is a int"),
        (None, "x is a NoneType"),
        ({"a", "b"}, "x is a set"),
        (["x" * 500, None], r"text\[1\]"),
        ([{"text": "a"}], r"list of dicts: pass pandas.DataFrame\(x\), or .*\['text'\] for row"),
    ],
)
def test_texts(x, message):
    with pytest.raises(ValueError, match=message):
        columns_from_user(x, NAMES)


def test_two_texts_are_not_one_list():
    with pytest.raises(ValueError, match=r"'context' are needed: pass {'question': \[…\], 'con"):
        columns_from_user(["a", "b", "c"], ("question", "context"), ("question", "context"))


def test_a_task_for_single_texts_takes_no_pairs():
    with pytest.raises(ValueError, match="this task takes"):
        columns_from_user((["a"], ["b"]), ("text",))


def test_missing_values_of_pandas():
    pandas = pytest.importorskip("pandas")
    for column in (["a", None], ["a", pandas.NA], ["a", float("nan")]):
        with pytest.raises(ValueError, match=r"text\[1\] is .* not a string"):
            columns_from_user(pandas.Series(column), NAMES)


def test_lone_surrogates_pass(classifier):
    assert np.isfinite(classifier.predict_on_batch(["good \ud800 film"])).all()


METHODS = ["fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"]


@pytest.mark.parametrize("method", METHODS)
def test_every_entry_point_names_the_row(classifier, method):
    y = () if "predict" in method else ([0, 1],)
    with pytest.raises(ValueError, match=r"text\[1\] is None"):
        getattr(classifier, method)(["a", None], *y)


@pytest.mark.parametrize("method", METHODS)
def test_strings_need_a_tokenizer(make, method):
    task = make(TextClassifier, tokenizer=None, num_classes=2)
    for x in (["a"], dataset(["a"])):
        if "batch" in method and isinstance(x, tf.data.Dataset):
            continue
        with pytest.raises(ValueError, match="TextClassifier has no tokenizer"):
            getattr(task, method)(x)


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
@pytest.mark.parametrize("x", [[], {"text": []}, ([], [])])
def test_empty_data(classifier, method, x):
    with pytest.raises(ValueError, match="x is empty"):
        getattr(classifier, method)(x)


def test_empty_answers_and_generators(classifier):
    with pytest.raises(ValueError, match="x is empty"):
        classifier.classify([])
    with pytest.raises(ValueError, match="without batches"):
        classifier.fit(iter(()))


@pytest.mark.parametrize(
    "labels, message",
    [
        ([0, 2], r"labels\[1\]=2, but num_classes=2"),
        ([-1, 0], r"labels\[0\]=-1"),
        ([0.5, 1], "pass one integer or class name"),
        ([[1, 0, 0], [0, 1, 0]], "pass one integer or class name"),
        ([["bad", "bad"], ["good", "bad"]], "pass one integer or class name"),
        ([0, float("nan")], "pass one integer or class name"),
        ([0], "labels has 1 rows for 2 examples"),
        ([0, 1, 0], "labels has 3 rows for 2 examples"),
        (0, "labels has 1 rows for 2 examples"),
        (["good", "fine"], r"labels\[1\]='fine' is not one of \['bad', 'good'\]"),
        (["good", None], r"labels\[1\]=None"),
        (np.array(["good", float("nan")], dtype=object), r"labels\[1\]=nan"),
    ],
)
def test_labels_of_a_classifier(make, labels, message):
    task = make(TextClassifier, class_names=["bad", "good"])
    with pytest.raises(ValueError, match=message):
        task.fit(["a", "it"], labels)


def test_string_labels_of_another_number(make):
    task = make(TextClassifier, num_classes=3)
    with pytest.raises(ValueError, match="labels holds 2 different names, but num_classes=3"):
        task.fit(["a", "it"], ["x", "y"])


@pytest.mark.parametrize(
    "labels, message",
    [
        ([["good"], ["fine"]], r"labels\[1\]='fine' is not one of"),
        ([[1, 0, 0], [0, 1, 0]], r"labels has shape \(2, 3\), but num_classes=2"),
        ([0, 1], r"labels has shape \(2,\), but num_classes=2"),
        ([[1, 0], [2, 0]], r"labels\[1\]=\[2 0\] holds more than 0 and 1"),
        ([["good"], None], r"labels\[1\]=None is not one of"),
    ],
)
def test_labels_of_many_classes(make, labels, message):
    task = make(TextClassifier, class_names=["bad", "good"], multi_label=True)
    with pytest.raises(ValueError, match=message):
        task.fit(["a", "it"], labels)


@pytest.mark.parametrize(
    "labels, message",
    [
        (["good", "bad"], "labels must be numbers"),
        ([None, 1.0], r"labels"),
        ([0.0, float("nan")], r"labels\[1\]=nan is not a finite number"),
        ([[1.0, 2.0], [3.0, 4.0]], r"labels has shape \(2, 2\): pass one number per row"),
    ],
)
def test_labels_of_a_regressor(make, labels, message):
    with pytest.raises(ValueError, match=message):
        make(TextRegressor).fit(["a", "it"], labels)


def test_sample_weights(classifier):
    with pytest.raises(ValueError, match="sample_weight is given without y"):
        classifier.fit(["a"], sample_weight=[1.0])
    with pytest.raises(ValueError, match="rows for 2 examples"):
        classifier.fit(["a", "it"], [0, 1], sample_weight=[1.0])


@pytest.mark.parametrize(
    "data, message",
    [
        (lambda: dataset(["a"], [0], batch=None), r"single examples: call .batch\(n\)"),
        (lambda: dataset([1.5], [0]), "x is a tf.data.Dataset of float32"),
        (lambda: dataset({"texts": ["a"]}), "'text' is needed"),
        (lambda: dataset({"text": ["a"], "more": ["b"]}), "allowed are"),
        (lambda: dataset((["a"], ["b"], ["c"]), [0]), "a tuple of 3 texts"),
        (lambda: dataset([["a", "b"]], [0]), r"strings of shape \(None, 2\)"),
    ],
)
def test_datasets(classifier, data, message):
    with pytest.raises(ValueError, match=message):
        classifier.fit(data())


def test_datasets_come_with_their_labels(classifier):
    with pytest.raises(ValueError, match="let it yield"):
        classifier.fit(dataset(["a"]), [0])
    with pytest.raises(ValueError, match="pass validation_data"):
        classifier.fit(dataset(["a"], [0]), validation_split=0.5)
    with pytest.raises(ValueError, match="pass validation_data"):
        classifier.fit(iter([(["a"], [0])]), validation_split=0.5)


def test_string_labels_in_a_dataset(make):
    data = dataset(["a", "it"], ["good", "fine"])
    with pytest.raises(ValueError, match="make the task with class_names"):
        make(TextClassifier, num_classes=2).fit(data)
    task = make(TextClassifier, class_names=["bad", "good"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="not one of"):
        task.fit(data, verbose=0)


@pytest.mark.parametrize("share", [1.5, -0.5, 1.0])
def test_validation_split(classifier, share):
    with pytest.raises(ValueError, match=f"validation_split={share}"):
        classifier.fit(["a", "it"], [0, 1], validation_split=share)
    with pytest.raises(ValueError, match="of 1 examples leaves a side empty"):
        classifier.fit(["a"], [0], validation_split=0.5)


@pytest.mark.parametrize(
    "cls, options, message",
    [
        (TextClassifier, {}, "num_classes and class_names are both missing"),
        (TextClassifier, {"num_classes": 0}, "num_classes=0"),
        (TextClassifier, {"num_classes": "2"}, "num_classes='2': pass an int"),
        (TextRegressor, {"tokenizer": "bert"}, "'bert' is a path: pass tokenizers.Tokenizer.from"),
        (
            TextClassifier,
            {"num_classes": 3, "class_names": ["a"]},
            "num_classes=3, but class_names",
        ),
        (TextClassifier, {"class_names": ["a", "a"]}, "names a class twice"),
        (TextClassifier, {"class_names": {"a", "b"}}, "pass a list, whose order"),
        (TextClassifier, {"class_names": "ab"}, "class_names='ab': pass a list"),
        (TextClassifier, {"class_names": ["a", float("nan")]}, "nan is not a name"),
        (TextClassifier, {"class_names": [["a"], "b"]}, r"\['a'\] is not a name"),
        (TextRegressor, {"sequence_length": 25}, "sequence_length=25, .* 24"),
        (TextRegressor, {"sequence_length": 3}, "sequence_length=3"),
        (TextRegressor, {"sequence_length": 0}, "sequence_length=0"),
        (TextRegressor, {"padding": "none"}, "padding='none'"),
        (TextRegressor, {"activation": "relu"}, "activation='relu'"),
        (TextRegressor, {"truncation": "last"}, "truncation='last'"),
        (FeatureExtractor, {"layers": "middle"}, "layers='middle'"),
        (FeatureExtractor, {"layers": 2}, "layers=2, but the backbone has 2"),
        (FeatureExtractor, {"layers": -4}, "layers=-4"),
        (FeatureExtractor, {"layers": "sum_last_four"}, "needs four blocks, the backbone has 1"),
        (FeatureExtractor, {"pooling": "median"}, "pooling='median'"),
        (FeatureExtractor, {"pooling": ["mean", "none"]}, "or a list of .'first', 'last'"),
        (FeatureExtractor, {"pooling": []}, r"pooling=\[\]"),
        (
            FeatureExtractor,
            {"pooling": "none", "projections": [{"output_dim": 2}]},
            "'none': they read one vector a text",
        ),
        (
            FeatureExtractor,
            {"projections": [{"output_dim": 0}]},
            r"projections\[0\] .*output_dim=0",
        ),
        (FeatureExtractor, {"projections": [{"output_dim": 2, "x": 1}]}, r"unknown keys \['x'\]"),
        (FeatureExtractor, {"layers": "scalar_mix", "regularization": -1}, "regularization=-1"),
        (MaskedLM, {"top_k": 0}, "top_k=0"),
        (MaskedLM, {"top_k": 10**6}, "top_k=1000000"),
    ],
)
def test_arguments(make, cls, options, message):
    with pytest.raises(ValueError, match=message):
        make(cls, **options)


def test_a_tokenizer_of_another_checkpoint(make, tokenizer):
    small = BertBackbone(20, num_layers=1, num_heads=1, hidden_dim=4, intermediate_dim=4)
    with pytest.raises(ValueError, match="but the backbone's embedding has 20 rows"):
        make(TextClassifier, small, num_classes=2)


def test_a_path_is_no_backbone():
    with pytest.raises(ValueError, match=r"'bert' is a path: call TextRegressor\.from_preset, or"):
        TextRegressor("bert")


def test_masked_lm_needs_a_mask_token(make):
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"]
    without = WordPieceTokenizer(entries, lowercase=True, mask_token=None)
    with pytest.raises(ValueError, match="mask"):
        make(MaskedLM, tokenizer=without)
    assert make(TextClassifier, tokenizer=without, num_classes=2).predict_on_batch(["good"]).shape


@pytest.mark.parametrize("method", ["fit", "evaluate", "train_on_batch"])
def test_what_has_no_labels_to_learn_from(make, method):
    extractor, masked = make(FeatureExtractor), make(MaskedLM)
    with pytest.raises(ValueError, match="FeatureExtractor has no loss to compare with: train"):
        getattr(extractor, method)(["good"], [0])
    with pytest.raises(ValueError, match="labels are missing"):
        getattr(extractor, method)(["good"])
    with pytest.raises(ValueError, match="MaskedLM learns from the texts of x alone: leave y out"):
        getattr(masked, method)(["good"], ["good"])


def test_vectors_a_token_have_no_classifier(make):
    extractor = make(FeatureExtractor, pooling="none")
    with pytest.raises(ValueError, match="pooling='none'"):
        make(TextClassifier, extractor, num_classes=2)


@pytest.fixture(scope="module")
def classifier():
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], lowercase=True)
    backbone = BertBackbone(5, num_layers=1, num_heads=2, hidden_dim=4, intermediate_dim=4)
    return TextClassifier(backbone, tokenizer=tokenizer, num_classes=2)


@pytest.mark.eager
@pytest.mark.parametrize("size", [0, -1])
@pytest.mark.parametrize("method", ["fit", "evaluate", "predict", "classify"])
def test_batches_without_rows(classifier, method, size):
    arguments = (["a", "b"], [0, 1])[: 2 if method in ("fit", "evaluate") else 1]
    with pytest.raises(ValueError, match=f"batch_size={size}: pass an int, 1 or more"):
        getattr(classifier, method)(*arguments, batch_size=size, verbose=0)


@pytest.mark.eager
@pytest.mark.parametrize("arguments", [{"epochs": -5}, {"epochs": float("nan")}])
def test_runs_without_an_end(classifier, arguments):
    with pytest.raises(ValueError, match=r"epochs=.*: pass an int, 0 or more"):
        classifier.fit(["a", "b"], [0, 1], **arguments, verbose=0)


@pytest.mark.eager
@pytest.mark.parametrize(
    "method, arguments, said",
    [
        ("fit", {"epochs": "3"}, "epochs='3': pass an int, 0 or more"),
        ("fit", {"epochs": True}, "epochs=True: pass an int"),
        ("fit", {"initial_epoch": -1}, "initial_epoch=-1: pass an int, 0 or more"),
        ("fit", {"steps_per_epoch": 1.5}, "steps_per_epoch=1.5: pass an int, 1 or more"),
        ("fit", {"validation_steps": "3"}, "validation_steps='3': pass an int, 1 or more"),
        ("fit", {"validation_freq": 0}, "validation_freq=0: pass an int, 1 or more"),
        ("fit", {"validation_freq": [1, 0.5]}, "validation_freq=0.5: pass an int, 1 or more"),
        ("fit", {"validation_split": 2}, "validation_split=2: pass a share of the rows"),
        ("fit", {"validation_split": float("nan")}, "validation_split=nan: pass a share"),
        ("fit", {"callbacks": 3}, "callbacks has 3: pass objects of keras.callbacks.Callback"),
        ("fit", {"callbacks": [None]}, "callbacks has None: pass objects"),
        ("evaluate", {"steps": float("inf")}, "steps=inf: pass an int, 1 or more"),
        ("predict", {"steps": 0}, "steps=0: pass an int, 1 or more"),
        ("predict", {"batch_size": 0.5}, "batch_size=0.5: pass an int, 1 or more"),
        ("compile", {"optimizer": {}}, "optimizer={}: pass a keras.Optimizer"),
        ("compile", {"loss": 3}, "loss=3: pass a keras.Loss"),
        ("compile", {"loss_weights": -1.0}, "loss_weights has -1.0: pass finite numbers"),
        ("compile", {"steps_per_execution": 0}, "steps_per_execution=0: pass an int"),
        ("compile", {"micro_batch_size": True}, "micro_batch_size=True"),
    ],
)
def test_arguments_of_keras(classifier, method, arguments, said):
    data = {"fit": (["a", "b"], [0, 1]), "compile": ()}.get(method, (["a", "b"],))
    with pytest.raises(ValueError, match=re.escape(said)):
        getattr(classifier, method)(*data, **arguments)


@pytest.mark.eager
def test_unknown_arguments_of_keras(classifier):
    data = (["a", "b"], [0, 1])
    with pytest.raises(TypeError, match=r"fit\(\) has no argument 'callback'. Did you mean callb"):
        classifier.fit(*data, callback=None)
    with pytest.raises(TypeError, match=r"evaluate\(\) has no argument 'step'. Did you mean steps"):
        classifier.evaluate(*data, step=3)
    with pytest.raises(TypeError, match=r"predict\(\) has no argument 'sample_weight'"):
        classifier.predict(data[0], sample_weight=[1, 1])
    with pytest.raises(TypeError, match=r"Did you mean run_eagerly"):
        classifier.compile(run_eager=True)


def test_checkpoints_that_do_not_come_back_whole_are_refused(classifier):
    if not hasattr(keras.callbacks, "OrbaxCheckpoint"):
        pytest.skip("needs a newer Keras")
    callback = object.__new__(keras.callbacks.OrbaxCheckpoint)  # without Orbax
    with pytest.raises(ValueError, match="TrainingCheckpoint"):
        classifier.fit(["a", "b"], [0, 1], callbacks=[callback], verbose=0)


@pytest.mark.eager
def test_one_callback_needs_no_list(classifier):
    stop = keras.callbacks.TerminateOnNaN()
    history = classifier.fit(["a", "b"], [0, 1], callbacks=stop, verbose=0)
    assert history.restored_epoch is None


@pytest.mark.eager
def test_validation_batches_without_rows(classifier):
    data = (["a", "b"], [0, 1])
    with pytest.raises(ValueError, match="batch_size=0: pass an int, 1 or more"):
        classifier.fit(*data, validation_data=data, validation_batch_size=0, verbose=0)


def test_a_task_is_no_layer_of_strings(classifier):
    with pytest.raises(
        ValueError, match=r"inputs is a KerasTensor.*cannot be a layer of a keras\.Sequential"
    ):
        keras.Sequential([keras.Input(shape=(), dtype="string"), classifier])


# === What `.keras` files say ===


@pytest.mark.parametrize(
    "backbone",
    [
        {"module": "keras.layers", "class_name": "TextVectorization", "config": {}},
        {"class_name": "__ellipsis__", "config": {}},
        {"module": "os", "class_name": "system", "config": "true"},
        None,
    ],
)
def test_what_is_no_backbone(classifier, backbone):
    name = backbone and backbone["class_name"]
    with pytest.raises(ValueError, match=f"names '{name}' as its backbone, which is not a"):
        TextClassifier.from_config(classifier.get_config() | {"backbone": backbone})


@pytest.mark.parametrize(
    "optimizer",
    [
        {"module": "keras.layers", "class_name": "TextVectorization", "config": {}},
        {"module": "os", "class_name": "system", "config": "true", "registered_name": "system"},
    ],
)
def test_what_is_no_optimizer(classifier, optimizer):
    with pytest.raises(ValueError, match=r"loss and metrics cannot be used.*compile=False"):
        classifier.compile_from_config({"optimizer": optimizer})


@pytest.mark.eager
@pytest.mark.parametrize("name", ["BertBackbone", "GPT2Backbone", "TransformerXLBackbone"])
def test_tasks_drop_no_inputs(name, backbone_of):
    backbone = backbone_of(name)
    ids, state = np.array([[5, 6, 7]]), backbone.state_name
    for task in tiny.tasks_over(backbone).values():
        with pytest.raises(ValueError, match=r"unknown keys \['extra'\]: it takes"):
            task({"token_ids": ids, "extra": ids})
        if state is not None:
            with pytest.raises(ValueError, match=f"inputs has '{state}'.*task.backbone"):
                task({"token_ids": ids, state: backbone.initial_state(1)})
            task.check_inputs({"token_ids": ids, state: None})
    with pytest.raises(ValueError, match="unknown keys"):
        task.predict({"token_ids": ids, "extra": ids}, verbose=0)
