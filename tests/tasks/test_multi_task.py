"""Several tasks over one encoder: what each batch trains, files, and one artefact for all."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_lm.tasks import MultiTask, Task, TextClassifier, TextRegressor, TokenClassifier
from keras_lm.training import enable_adapters, load_adapters, save_adapters

NAMES = ["bad", "good"]


@pytest.fixture
def tasks(make, make_backbone):
    backbone = make_backbone()
    for variable in backbone.trainable_variables:
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.3))
    return {
        "feeling": make(TextClassifier, backbone, class_names=NAMES),
        "likeness": make(TextRegressor, backbone),
        "words": make(TokenClassifier, backbone, class_names=["O", "GOOD"]),
    }


@pytest.fixture
def data(texts, labels):
    words = [text.split() for text in texts]
    return {
        "feeling": (texts, [NAMES[label] for label in labels]),
        "likeness": ((texts[:4], texts[1:5]), [1.0, 2.0, 3.0, 4.0]),
        "words": (words, [["GOOD" if w in ("good", "nice") else "O" for w in t] for t in words]),
    }


def values(variables):
    return [variable.numpy() for variable in variables]


def heads(task):
    below = {id(variable) for variable in task.backbone.weights}
    return [variable for variable in task.weights if id(variable) not in below]


@pytest.mark.parametrize(
    "eagerly",
    [pytest.param(True, marks=pytest.mark.eager), pytest.param(False, marks=pytest.mark.thorough)],
)
def test_all_learn_together(tasks, data, eagerly):
    task = MultiTask({name: tasks[name] for name in ("likeness", "words")})
    task.compile(optimizer=keras.optimizers.Adam(0.01), run_eagerly=eagerly)
    shown, held_out = {name: data[name] for name in task.tasks}, {"words": data["words"]}
    history = task.fit(shown, batch_size=4, epochs=3, validation_data=held_out, verbose=0).history
    assert task.optimizer.iterations == 3 * (1 + 3)  # every batch of each task once an epoch
    for name in task.tasks:
        assert history[f"{name}_loss"][-1] < history[f"{name}_loss"][0]
    # The mean over all rows, of which the first task has fewer.
    means = [history[f"{name}_loss"][0] for name in task.tasks]
    assert history["loss"][0] == pytest.approx(np.average(means, weights=[4, 10]), rel=1e-4)
    alone = tasks["words"].evaluate(*data["words"], 4, verbose=0, return_dict=True)
    assert history["val_words_accuracy"][-1] == alone["accuracy"]
    outputs = task.predict({"likeness": data["likeness"][0]}, verbose=0)
    assert outputs["likeness"].shape == (4, 1)


@pytest.mark.slow
@pytest.mark.eager
def test_a_batch_changes_the_weights_of_its_task_alone(tasks, data):
    task = MultiTask(tasks)
    task.compile(optimizer=keras.optimizers.Adam(0.01), run_eagerly=True)
    task.fit({name: data[name] for name in ("feeling", "words")}, batch_size=5, verbose=0)
    other, words = values(heads(tasks["likeness"])), values(heads(tasks["words"]))
    encoder = values(task.backbone.weights)
    task.fit({"feeling": data["feeling"]}, batch_size=5, verbose=0)
    # Not even by the momentum that an optimizer keeps of a head.
    for old, new in [(other, tasks["likeness"]), (words, tasks["words"])]:
        assert all(map(np.array_equal, old, values(heads(new))))
    assert not all(map(np.array_equal, encoder, values(task.backbone.weights)))


@pytest.mark.eager
def test_a_task_keeps_its_loss_and_micro_batches(tasks, data):
    """A step of a task in parts, by the common optimizer, is that of the whole batch."""
    one = tasks["feeling"]
    kept = values(one.weights)

    def weights_after(micro_batch_size):
        for variable, value in zip(one.weights, kept, strict=True):
            variable.assign(value)
        one.compile(run_eagerly=True, micro_batch_size=micro_batch_size)
        task = MultiTask({"feeling": one})
        task.compile(optimizer=keras.optimizers.SGD(0.1), run_eagerly=True)
        task.fit({"feeling": data["feeling"]}, batch_size=10, verbose=0)
        return values(one.weights)

    whole, parts = weights_after(None), weights_after(3)
    assert not all(map(np.array_equal, whole, kept))
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.eager
def test_preset(tasks, data, tmp_path):
    MultiTask(tasks).save_to_preset(tmp_path / "preset")
    loaded = Task.from_preset(tmp_path / "preset")
    assert isinstance(loaded, MultiTask)
    assert loaded.tasks["feeling"].class_names == NAMES
    assert loaded.tasks["words"].backbone is loaded.tasks["likeness"].backbone
    for name, task in tasks.items():
        expected = task.predict_on_batch(data[name][0])
        actual = loaded.tasks[name].predict_on_batch(data[name][0])
        np.testing.assert_allclose(actual, expected, atol=1e-6)
    loaded.tasks["feeling"].save_to_preset(tmp_path / "one")
    assert type(Task.from_preset(tmp_path / "one")) is TextClassifier
    with pytest.raises(ValueError, match="holds no MultiTask"):
        MultiTask.from_preset(tmp_path / "one")


@pytest.mark.eager
def test_keras_file(tasks, data, tmp_path):
    tasks["likeness"].compile(loss="mae")
    MultiTask(tasks).save(tmp_path / "tasks.keras")
    loaded = keras.saving.load_model(tmp_path / "tasks.keras")
    assert loaded.tokenizer is loaded.tasks["words"].tokenizer is loaded.tasks["feeling"].tokenizer
    assert loaded.tasks["words"].backbone is loaded.backbone is loaded.tasks["feeling"].backbone
    assert loaded.tasks["likeness"].get_compile_config()["loss"] == "mae"
    for name, task in tasks.items():
        expected = task.predict_on_batch(data[name][0])
        actual = loaded.tasks[name].predict_on_batch(data[name][0])
        np.testing.assert_allclose(actual, expected, atol=1e-6)
    loaded.fit(data, verbose=0)
    assert (
        keras.saving.load_model(tmp_path / "tasks.keras", compile=False).tasks.keys()
        == tasks.keys()
    )


@pytest.mark.eager
def test_adapters_for_all_tasks(tasks, data, tmp_path):
    """The file holds every head, under the name of its task."""
    names = ("feeling", "likeness")
    MultiTask(tasks).save_to_preset(tmp_path / "preset")
    task = MultiTask({name: tasks[name] for name in names})
    enable_adapters(task, 2)
    for variable in task.trainable_variables:
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.3))
    save_adapters(task, tmp_path / "update")
    loaded = Task.from_preset(tmp_path / "preset").tasks
    other = MultiTask({name: loaded[name] for name in names})
    load_adapters(other, tmp_path / "update")
    for name in names:
        x = tasks[name].preprocess(data[name][0])
        np.testing.assert_allclose(other.tasks[name](x), tasks[name](x), atol=1e-6)


@pytest.mark.slow
@pytest.mark.eager
def test_one_artefact(tasks, texts, tmp_path):
    """Every task answers under its name, and the encoder's weights are there once."""
    task = MultiTask({name: tasks[name] for name in ("feeling", "likeness")})
    folder = task.export(tmp_path / "all")
    serve = tf.saved_model.load(str(folder)).signatures
    assert {"feeling", "feeling_classify", "likeness", "likeness_tokens"} <= set(serve)
    answer = serve["feeling"](text=tf.constant(texts))
    expected = tasks["feeling"].classify(texts)
    np.testing.assert_allclose(answer["scores"], expected["scores"], atol=1e-5)
    actual = serve["likeness"](text=tf.constant(texts))["scores"]
    np.testing.assert_allclose(actual, tasks["likeness"].regress(texts)["scores"], atol=1e-5)
    stored = sum(
        np.prod(shape) for _, shape in tf.train.list_variables(f"{folder}/variables/variables")
    )
    weights = [w for w in {id(w): w for w in task.weights}.values() if "seed" not in w.path]
    assert stored <= sum(np.prod(weight.shape) for weight in weights) + 10  # and the save counter
    meta_graph = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    methods = {n: s.method_name for n, s in meta_graph.meta_graphs[0].signature_def.items()}
    assert methods["feeling_classify"].endswith("/classify")
    assert methods["likeness_regress"].endswith("/regress")
    assert methods["likeness"].endswith("/predict")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "litert"}, "one by one"),
        ({"freeze": True}, "once for each task"),
        ({"texts": ["a"]}, "a dict with texts for each of the tasks"),
    ],
)
@pytest.mark.slow
def test_exports_that_are_refused(tasks, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        MultiTask(tasks).export(tmp_path / "model", **options)
    assert not (tmp_path / "model").exists()


def test_tasks_that_do_not_go_together(tasks, make, tokenizer):
    with pytest.raises(ValueError, match="one or more"):
        MultiTask({})
    with pytest.raises(ValueError, match="small letters"):
        MultiTask({"A task": tasks["feeling"]})
    with pytest.raises(ValueError, match=r"tasks\['b'\] has another backbone than tasks\['a'\]"):
        MultiTask({"a": tasks["feeling"], "b": make(TextRegressor)})
    with pytest.raises(ValueError, match="twice"):
        MultiTask({"a": tasks["feeling"], "b": tasks["feeling"]})
    with pytest.raises(ValueError, match="is a str"):
        MultiTask({"a": "task"})


@pytest.mark.eager
def test_data_that_do_not_fit(tasks, data):
    task = MultiTask(tasks)
    for wrong in ({}, {"feelings": data["feeling"]}, data["feeling"]):
        with pytest.raises(ValueError, match="some of the tasks"):
            task.fit(wrong)
    endless = tf.data.Dataset.from_tensors(data["likeness"]).repeat()
    with pytest.raises(ValueError, match="unknown number of batches"):
        task.fit({"likeness": endless})
