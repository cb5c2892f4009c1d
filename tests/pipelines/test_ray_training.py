"""Training by Ray's trainers: what two of its workers learn is what one process learns."""

import json
import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

TEXTS = ["a good film", "a bad film", "the song was good", "bad , bad !", "good", "a bad song"] * 4
LABELS = ["good", "bad"] * 12
EPOCHS, BATCH_SIZE = 3, 4
STEPS = EPOCHS * len(TEXTS) // BATCH_SIZE

pytestmark = pytest.mark.slow


def batches():
    """Return the batches of all epochs, in an order that no other iteration changes."""
    import tensorflow as tf

    rows = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS))
    return rows.shuffle(24, 1, reshuffle_each_iteration=False).repeat(EPOCHS).batch(BATCH_SIZE)


def new_task():
    import keras_lm

    keras.utils.set_random_seed(1)
    words = ["a", "the", "film", "song", "was", "good", "bad", ",", "!"]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = keras_lm.tokenizers.WordPieceTokenizer([*special, *words], lowercase=True)
    size = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
    backbone = keras_lm.models.BertBackbone(
        tokenizer.vocabulary_size, **size, max_sequence_length=16, dropout=0, attention_dropout=0
    )
    task = keras_lm.tasks.TextClassifier(
        backbone,
        tokenizer=tokenizer,
        class_names=["bad", "good"],
        sequence_length=16,
        padding="fixed",
    )
    schedule = keras_lm.training.WarmupLinearDecay(1e-2, total_steps=STEPS)
    task.compile(optimizer=keras_lm.training.AdamW(schedule))
    return task


def train(config):
    """What a worker does. The last one kills itself in the middle of the run, once."""
    import ray.train
    import tensorflow as tf

    import keras_lm

    context = ray.train.get_context()
    rank = context.get_world_rank()
    folder = Path(config["folder"])
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        task = new_task()
    saved = keras_lm.training.TrainingCheckpoint(folder / "run.safetensors", minutes=0)
    done = saved.restore(task)

    def die(step, logs):
        mark = folder / "killed"
        if rank == 1 and step == 7 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    death = keras.callbacks.LambdaCallback(on_train_batch_end=die)
    task.fit(batches().skip(done), verbose=0, callbacks=[saved, death])
    checkpoint = None
    if rank == 0:
        task.save_to_preset(folder / "critic")
        checkpoint = ray.train.Checkpoint.from_directory(folder / "critic")
    scores = task.classify(TEXTS[:6])["scores"]
    ray.train.report({"done": done, "scores": scores.tolist()}, checkpoint=checkpoint)


def train_on_jax(config):
    """What a worker does on JAX; each writes how many processes there are, and what it learned."""
    import jax

    distribution = keras.distribution
    devices = distribution.list_devices()
    distribution.set_distribution(distribution.DataParallel(devices=devices))
    task = new_task()
    whole = batches().unbatch().batch(BATCH_SIZE, drop_remainder=True)
    losses = task.fit(whole, verbose=0).history["loss"]
    scores = task.classify(TEXTS[:6])["scores"]
    answer = [jax.process_count(), *losses, *scores.ravel().tolist()]
    Path(config["folder"], f"{jax.process_index()}.json").write_text(json.dumps(answer))


@pytest.fixture
def ray(monkeypatch, tmp_path):
    """Ray, started here, whose workers get this module's functions by their code."""
    ray = pytest.importorskip("ray", reason="needs: pip install 'ray[train]'")
    pytest.importorskip("ray.train", reason="needs: pip install 'ray[train]'")
    monkeypatch.setenv("RAY_worker_niceness", "0")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()
    ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_tensorflow_trainer_learns_as_one_process_though_a_worker_dies(ray, tmp_path):
    import ray.train.tensorflow

    import keras_lm

    trainer = ray.train.tensorflow.TensorflowTrainer(
        train,
        train_loop_config={"folder": str(tmp_path)},
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(
            storage_path=str(tmp_path / "runs"),
            failure_config=ray.train.FailureConfig(max_failures=1),
        ),
    )
    result = trainer.fit()
    assert (tmp_path / "killed").exists()
    assert 0 < result.metrics["done"] < STEPS

    alone = new_task()
    alone.fit(batches(), verbose=0)
    expected = alone.classify(TEXTS[:6])["scores"]
    np.testing.assert_allclose(result.metrics["scores"], expected, rtol=1e-5)
    with result.checkpoint.as_directory() as folder:
        loaded = keras_lm.tasks.TextClassifier.from_preset(folder)
    np.testing.assert_allclose(loaded.classify(TEXTS[:6])["scores"], expected, rtol=1e-5)


def test_jax_trainer_learns_on_two_workers_as_on_one(ray, tmp_path):
    import ray.train
    from ray.train.v2.jax import JaxConfig, JaxTrainer

    def answers(number):
        folder = tmp_path / str(number)
        folder.mkdir()
        environment = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
        JaxTrainer(
            train_on_jax,
            train_loop_config={"folder": str(folder)},
            jax_config=JaxConfig(use_tpu=True),
            scaling_config=ray.train.ScalingConfig(num_workers=number),
            run_config=ray.train.RunConfig(
                storage_path=str(tmp_path / "runs"),
                worker_runtime_env={"env_vars": environment},
            ),
        ).fit()
        return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]

    (alone,) = answers(1)
    both = answers(2)
    assert alone[0] == 1 and [each[0] for each in both] == [2, 2]
    for each in both:
        np.testing.assert_allclose(each[1:], alone[1:], rtol=1e-5)
