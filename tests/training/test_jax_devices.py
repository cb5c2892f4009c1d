"""On JAX, several devices and several processes learn what one device learns, of any batches.

A process has one backend, so that of JAX runs this file as a script.
"""

import contextlib
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

V = 18
SIZE = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16, "dropout": 0.1}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["good", "bad", "film", "story", "a", "was", *"bcdefgh"]
# Batches of 4 leave one row, which no number of devices divides.
TEXTS = [*["good film", "bad story", "a good story was bad", "good good"] * 2, "a film"]
LABELS = [1, 0, 1, 1] * 2 + [0]
COMMAND = Path(sys.executable).with_name("keras-lm")


def learned(folder=None):
    """Return what tasks learn, and answer, with the same seed and the current distribution."""
    import keras

    import keras_lm
    from keras_lm import models, tasks, training

    keras.utils.set_random_seed(1)
    tokenizer = keras_lm.tokenizers.WordPieceTokenizer([*SPECIAL, *WORDS], lowercase=True)
    results = {}
    task = tasks.TextClassifier(models.BertBackbone(V, **SIZE), tokenizer=tokenizer, num_classes=2)
    task.compile(optimizer=training.AdamW(0.01, global_clipnorm=0.1))
    held_out = TEXTS[:3], LABELS[:3]
    fitted = task.fit(TEXTS, LABELS, batch_size=4, epochs=2, verbose=0, validation_data=held_out)
    results["classifier"] = fitted.history
    results["evaluate"] = task.evaluate(TEXTS, LABELS, batch_size=4, verbose=0)
    results["predict"] = task.predict(TEXTS, batch_size=4, verbose=0).tolist()
    results["one batch"] = task.train_on_batch(TEXTS[:3], LABELS[:3])
    masked = tasks.MaskedLM(models.BertBackbone(V, **SIZE), tokenizer=tokenizer)
    masked.compile(optimizer=training.AdamW(0.01))
    results["masked"] = masked.fit(TEXTS, batch_size=4, epochs=2, verbose=0).history
    causal = tasks.CausalLM(models.GPT2Backbone(V, **SIZE), tokenizer=None)
    causal.compile(optimizer=training.AdamW(0.01))
    ids = np.random.default_rng(0).integers(5, V, (7, 6)).astype("int32")
    mask = np.ones_like(ids)
    results["causal"] = causal.fit(
        {"token_ids": ids, "padding_mask": mask}, batch_size=4, verbose=0
    ).history
    new = causal.generate({"token_ids": ids[:3], "padding_mask": mask[:3]}, max_new_tokens=4)
    results["generate"] = [[int(i) for i in row] for row in new]
    results["t5"], _ = learned_by_t5()
    if folder is not None:
        masked.save_to_preset(folder)
        loaded = tasks.MaskedLM.from_preset(folder)
        results["loaded"] = loaded.predict(TEXTS[:2], verbose=0).tolist()
    return results


def learned_by_t5():
    import keras

    from keras_lm import models, tasks, training

    keras.utils.set_random_seed(1)
    task = tasks.Seq2SeqLM(models.T5Backbone(V, **SIZE), tokenizer=None)
    task.compile(optimizer=training.AdamW(0.01))
    ids = np.random.default_rng(0).integers(5, V, (7, 6)).astype("int32")
    inputs = {f"{side}_token_ids": ids for side in ("encoder", "decoder")}
    inputs |= {name.replace("token_ids", "padding_mask"): np.ones_like(ids) for name in inputs}
    history = task.fit(inputs, ids, batch_size=4, epochs=2, verbose=0).history
    kernels = [w.value for w in task.weights if "/attention/query_key_value/" in w.path]
    return history, [kernel.addressable_shards[0].data.shape for kernel in kernels]


class Stop(Exception):
    """Ends a run in its middle."""


def resumed(file, distributions):
    """Train in turns with distributions, each from where the last one stopped; the losses."""
    for distribution in distributions[:-1]:
        turn(file, distribution, stops=True)
    return turn(file, distributions[-1], stops=False)


def turn(file, distribution, stops):
    """Go on with the run of a file, perhaps for three steps alone; its last loss and weights."""
    import keras
    import tensorflow as tf

    from keras_lm import models, tasks, training
    from keras_lm.utils.processes import as_array

    windows = np.random.default_rng(0).integers(5, V, (10, 7)).astype("int32")
    windows = tf.data.Dataset.from_tensor_slices(windows)
    keras.distribution.set_distribution(distribution)
    keras.utils.set_random_seed(1)
    task = tasks.CausalLM(models.GPT2Backbone(V, **SIZE), sequence_length=6)
    optimizer = keras.optimizers.Adam(0.01, gradient_accumulation_steps=2, name="adam")
    task.compile(optimizer=optimizer)
    steps, history = itertools.count(1), None

    def stop(batch, logs):
        if next(steps) == 3 and stops:  # in the middle of an epoch, and of an update
            raise Stop

    with contextlib.suppress(Stop):
        history = training.fit_windows(
            task,
            windows,
            batch_size=3,
            epochs=3,
            verbose=0,
            checkpoint=file,
            minutes=0,  # after each step
            callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=stop)],
        )
    weights = {w.path: as_array(w).tolist() for w in task.weights}
    return history and history["loss"][-1], weights


def on_processes(when, kind, name, folder):
    """One turn of a run with a checkpoint of that name, on as many processes as there are."""
    import keras

    from keras_lm import training
    from keras_lm.training import checkpointing

    checkpointing.STEPS_TO_ASK = 1  # whether to save, of several processes
    distribution = None
    if kind != "one":
        is_data = kind == "data"
        distribution = keras.distribution.DataParallel() if is_data else training.model_parallel()
    loss, weights = turn(Path(folder, name), distribution, stops=when == "stop")
    learned = Path(folder, f"{when}-{os.getpid()}.json")  # lines of two processes would mix
    learned.write_text(json.dumps({"loss": loss, "weights": weights}))
    print(json.dumps([when, {"file": str(learned)}]), flush=True)


def refused():
    """What is said where something would be wrong, and that a task keeps its weights after it."""
    import keras

    from keras_lm import models, tasks, training

    task = tasks.TextClassifier(models.BertBackbone(V, **SIZE), num_classes=2)
    packed = {"token_ids": np.array([[5, 6, 7]] * 3), "padding_mask": np.ones((3, 3), int)}
    before = task.predict(packed, verbose=0)

    def fail(batch, logs=None):
        raise Stop

    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_begin=fail)]
    with pytest.raises(Stop):
        task.fit(packed, [0, 1, 1], verbose=0, callbacks=callbacks)
    np.testing.assert_array_equal(task.predict(packed, verbose=0), before)
    with pytest.raises(ValueError, match="does not divide the 4 devices"):
        training.model_parallel(3)


def main(kind, folder):
    import keras

    from keras_lm import training

    workers = training.start_processes()
    if kind.startswith(("stop", "end")):
        on_processes(*kind.split("-"), folder)
        return
    if workers.number > 1:
        everywhere = keras.distribution.DataParallel()
        divided = training.model_parallel()  # among the devices of both processes
        keras.distribution.set_distribution(everywhere if kind == "data" else divided)
        print(json.dumps([kind, learned(Path(folder, "preset"))]), flush=True)
        return
    devices = keras.distribution.list_devices()
    assert len(devices) == 4
    if kind == "one":
        print(json.dumps(["one", learned()]), flush=True)
        return
    keras.distribution.set_distribution(training.model_parallel(2))
    print(json.dumps(["model", learned(Path(folder, "preset"))]), flush=True)
    assert learned_by_t5()[1] == [(8, 12)] * 2  # of (8, 24)
    refused()
    on_two = keras.distribution.DataParallel(devices=devices[:2])
    changing = [None, on_two, training.model_parallel(2)]
    loss, weights = resumed(Path(folder, "run"), changing)
    expected, expected_weights = resumed(Path(folder, "whole"), [None])
    assert loss == pytest.approx(expected, rel=1e-5)
    for path, weight in expected_weights.items():
        np.testing.assert_allclose(weights[path], weight, atol=1e-5)


if __name__ == "__main__":
    main(*sys.argv[1:])


def run(command, folder, **flags):
    """Run this file, and return what it prints by its name, for each process."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("needs jax")
    flags |= {"KERAS_BACKEND": "jax", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(
        [*command, folder],
        env=os.environ | flags,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    lines = re.findall(r'^(?:\[(\d)\] )?(\["\w+", \{.*\}\])$', done.stdout, re.M)
    return [(process, *json.loads(line)) for process, line in lines]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    ((_, _, results),) = run(
        [sys.executable, __file__, "one"], tmp_path_factory.getbasetemp(), **flags
    )
    return results


def check(actual, expected):
    assert {*actual} - {"loaded"} == {*expected}
    for name, values in expected.items():
        if isinstance(values, dict):
            assert actual[name] == {k: pytest.approx(v, rel=1e-5) for k, v in values.items()}, name
        else:
            np.testing.assert_allclose(actual[name], values, rtol=1e-5, atol=1e-6, err_msg=name)
    assert "loaded" in actual


@pytest.mark.slow
def test_weights_are_divided_and_runs_change_devices(expected, tmp_path):
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    ((_, kind, actual),) = run([sys.executable, __file__, "all"], tmp_path, **flags)
    assert kind == "model"
    check(actual, expected)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("data", marks=pytest.mark.slow),
        pytest.param("model", marks=pytest.mark.thorough),
    ],
)
def test_two_processes_learn_as_one(kind, expected, tmp_path):
    command = [COMMAND, *("launch", "--processes", "2", "--devices-per-process", "2", "--")]
    results = run([*command, __file__, kind], tmp_path)
    assert sorted(process for process, _, _ in results) == ["0", "1"]
    for _, _, actual in results:
        check(actual, expected)


ONE = (sys.executable,)
TWO = (COMMAND, "launch", "--processes", "2", "--devices-per-process", "2", "--")
FOUR = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}


TURNS = {
    "processes": [(ONE, "stop-one"), (TWO, "stop-data"), (ONE, "end-one")],
    "layouts": [(TWO, "stop-model"), (ONE, "end-data")],
}
SAVED = {
    ("processes", "run.safetensors"): pytest.mark.slow,
    ("layouts", "run.orbax"): pytest.mark.slow,
    ("layouts", "run.safetensors"): pytest.mark.thorough,
    ("processes", "run.orbax"): pytest.mark.thorough,
}


@pytest.mark.parametrize(
    ("turns", "name"), [pytest.param(*case, marks=mark) for case, mark in SAVED.items()]
)
def test_a_run_goes_on_with_other_processes(turns, name, tmp_path):
    """From one process to two and back, and from divided weights to whole ones."""
    (tmp_path / "whole").mkdir()
    ((_, _, whole),) = run([*ONE, __file__, f"end-one-{name}"], tmp_path / "whole")
    expected = json.loads(Path(whole["file"]).read_text())
    for command, kind in TURNS[turns]:
        flags = FOUR if kind == "end-data" else {}
        results = run([*command, __file__, f"{kind}-{name}"], tmp_path, **flags)
        assert len(results) == 1 + (command is TWO)
    for _, _, last in results:
        actual = json.loads(Path(last["file"]).read_text())
        assert actual["loss"] == pytest.approx(expected["loss"], rel=1e-5)
        assert {*actual["weights"]} == {*expected["weights"]}
        for path, weight in expected["weights"].items():
            np.testing.assert_allclose(actual["weights"][path], weight, atol=1e-5, err_msg=path)
