"""A loss that is not a number ends training, and weights that are none are not written."""

import os
import re
import resource

import keras
import numpy as np
import pytest

from keras_lm.feeding import datasets
from keras_lm.tasks import Distiller, MultiTask, TextClassifier, TextRegressor
from keras_lm.training import TrainingCheckpoint, enable_lora, save_lora
from keras_lm.training.windows import fit_epochs
from keras_lm.utils.user_arguments import is_finite

TEXTS, LABELS = ["the film was good", "bad"], [1, 0]


def broken(task):
    """Return a task with one number of one weight that is NaN."""
    weight = next(w for w in task.weights if w.path.endswith("kernel"))
    values = weight.numpy()
    values[-1, 0] = np.nan
    weight.assign(values)
    return task


def grows(task, **options):
    """Compile a task so that its weights overflow after some steps."""
    task.compile(optimizer=keras.optimizers.SGD(1e30), **options)
    return task


@pytest.mark.eager
def test_every_task_stops(every_task, make):
    cls, options, y = every_task
    if not make(cls, **options).trainable_weights or not hasattr(cls, "default_loss"):
        return
    task = broken(make(cls, **options))
    if task.default_loss() is None:
        return
    task.compile(run_eagerly=True)
    x = (TEXTS, TEXTS[::-1]) if cls.__name__ == "Pretrainer" else TEXTS
    with pytest.raises(
        FloatingPointError, match=r"loss is nan in step 1 of epoch 1.*learning_rate"
    ):
        task.fit(x, y, batch_size=1, verbose=0)


@pytest.mark.parametrize("options", [{}, {"micro_batch_size": 1}])
def test_the_first_step_is_named(make, options):
    task = grows(make(TextRegressor), **options)
    seen = []
    watch = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(logs))
    with pytest.raises(
        FloatingPointError, match=r"loss is (nan|inf) in step \d+ of epoch"
    ) as error:
        task.fit(TEXTS * 4, LABELS * 4, batch_size=2, epochs=9, callbacks=watch, verbose=0)
    assert all(np.isfinite(logs["loss"]) for logs in seen)
    step, epoch = re.search(r"step (\d+) of epoch (\d+)", str(error.value)).groups()
    assert 4 * (int(epoch) - 1) + int(step) == len(seen) + 1


def test_terminate_on_nan_ends_without_an_error(make):
    task = broken(make(TextClassifier, num_classes=2))
    stop = keras.callbacks.TerminateOnNaN()
    history = task.fit(TEXTS, LABELS, epochs=3, callbacks=[stop], verbose=0)
    assert np.isnan(history.history["loss"]).tolist() == [True]


def test_callbacks_of_a_run_of_several_calls(make):
    task = broken(make(TextClassifier, num_classes=2))

    def batches(epoch, first):
        return datasets.batches(task.feed, TEXTS, LABELS)

    with pytest.raises(FloatingPointError):
        fit_epochs(task, batches, 1, 2, 0, None, [], verbose=0)


@pytest.mark.eager
def test_several_tasks_and_students(make, make_backbone, tokenizer):
    backbone = make_backbone()
    tasks = {
        "one": TextClassifier(backbone, tokenizer=tokenizer, num_classes=2),
        "two": broken(TextRegressor(backbone, tokenizer=tokenizer)),
    }
    several = MultiTask(tasks)
    several.compile(run_eagerly=True)
    with pytest.raises(FloatingPointError, match="of epoch 1"):
        several.fit({"two": (TEXTS, LABELS)}, verbose=0)
    teacher = make(TextClassifier, num_classes=2)
    with pytest.raises(FloatingPointError, match="of epoch 1"):
        Distiller(broken(make(TextClassifier, num_classes=2)), teacher).fit(TEXTS, verbose=0)


WRITERS = {
    "preset": lambda task, path, **options: task.save_to_preset(path, **options),
    "backbone": lambda task, path, **options: task.backbone.save_to_preset(path, **options),
    "huggingface": lambda task, path, **options: task.save_to_huggingface(path, **options),
    "google": lambda task, path, **options: task.save_to_google(path, **options),
    "keras_hub": lambda task, path, **options: task.save_to_keras_hub(path, **options),
    "keras": lambda task, path, **options: task.save(path.with_suffix(".keras"), **options),
    "weights": lambda task, path, **o: task.save_weights(path.with_suffix(".weights.h5"), **o),
    "network": lambda task, path, **o: task.backbone.save(path.with_suffix(".keras"), **o),
}


@pytest.mark.eager
@pytest.mark.parametrize("writer", WRITERS)
def test_weights_that_are_no_numbers_are_not_written(make, make_backbone, tmp_path, writer):
    backbone = make_backbone(activation="gelu_tanh")  # which all formats know
    task = make(TextClassifier, backbone, class_names=["bad", "good"])
    weight, write = backbone.weights[0], WRITERS[writer]
    for value in (np.nan, np.inf, -np.inf):
        weight.assign(np.concatenate([[np.full(weight.shape[1], value)], weight[1:]]))
        with pytest.raises(ValueError, match=r"NaN or infinite, in token_emb.*allow_nan=True"):
            write(task, tmp_path / "out")
        assert list(tmp_path.iterdir()) == []
    write(task, tmp_path / "out", allow_nan=True)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.eager
def test_nor_exports_adapters_checkpoints_and_several(make, tmp_path):
    task = make(TextClassifier, class_names=["bad", "good"])
    enable_lora(task, 2)
    broken(task)
    lora = next(w for w in task.weights if "lora" in w.path)
    lora.assign(np.full(lora.shape, np.nan))
    for name in ("exported", "phone.tflite"):
        with pytest.raises(ValueError, match="NaN or infinite"):
            task.export(tmp_path / name)
    with pytest.raises(ValueError, match="NaN or infinite"):
        save_lora(task, tmp_path / "lora.safetensors")
    checkpoint = TrainingCheckpoint(tmp_path / "run.safetensors")
    checkpoint.set_model(task)
    with pytest.raises(ValueError, match="NaN or infinite"):
        checkpoint.save()
    with pytest.raises(ValueError, match="NaN or infinite"):
        MultiTask({"only": task}).save_to_preset(tmp_path / "several")
    assert list(tmp_path.iterdir()) == []


def test_large_numbers_are_finite():
    assert is_finite(np.full(9, 3e38, "float32")) and is_finite(np.array([3]))
    assert is_finite(np.array([], "float32"))
    for dtype in ("float16", "float32", "float64", "bfloat16"):
        assert is_finite(np.ones(9).astype(dtype))
        assert not is_finite(np.array([1, np.nan]).astype(dtype))


# === Whole files ===


@pytest.mark.eager
def test_a_file_of_keras_is_whole_or_not_there(make, tmp_path):
    """By a limit to the size of files, which has the same effect as a full disk."""
    task = make(TextClassifier, class_names=["bad", "good"])
    task.save(tmp_path / "old.keras")
    before = (tmp_path / "old.keras").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        for name in ("old.keras", "new.keras"):
            with pytest.raises(OSError, match="disk is full"):
                task.save(tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == ["old.keras"]
    assert (tmp_path / "old.keras").read_bytes() == before


@pytest.mark.eager
def test_what_keras_saves_otherwise(make, tmp_path):
    task = make(TextClassifier, class_names=["bad", "good"])
    task.save(tmp_path / "folder", zipped=False)
    task.save(str(tmp_path / "task.keras"))
    task.save(str(tmp_path / "task.keras"), overwrite=True)
    task.save_weights(tmp_path / "all.weights.h5")
    task.save_weights(tmp_path / "parts.weights.json", max_shard_size=1)
    again = keras.models.load_model(tmp_path / "task.keras")
    again.load_weights(tmp_path / "all.weights.h5")
    np.testing.assert_array_equal(again.predict_on_batch(TEXTS), task.predict_on_batch(TEXTS))
    with pytest.raises(ValueError, match="extension"):
        task.save(tmp_path / "task.bin")
