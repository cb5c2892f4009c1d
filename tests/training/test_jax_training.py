"""Tasks train with Keras's JAX backend as with TensorFlow's, on one device and on two.

A process has one backend, so that of JAX runs this file as a script.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

V, ROWS, LENGTH = 18, 4, 12
SIZE = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16, "dropout": 0.0}
TEXTS = ["good film", "bad story", "a good story was bad", "good good"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["good", "bad", "film", "story", "a", "was", *"bcdefgh"]
NAMES = ["masked_lm", "causal_lm"]
# What each kind of distribution trains: the other task by the same code is thorough.
QUICK = {"one": "masked_lm", "data": "causal_lm", "model": "masked_lm"}
OTHER = {"one": "causal_lm", "data": "masked_lm", "model": "causal_lm"}


def make(name, **options):
    import keras_lm
    from keras_lm import models, tasks

    tokenizer = keras_lm.tokenizers.WordPieceTokenizer([*SPECIAL, *WORDS], lowercase=True)
    if name == "masked_lm":
        return tasks.MaskedLM(models.BertBackbone(V, **SIZE | options), tokenizer=tokenizer)
    return tasks.CausalLM(models.GPT2Backbone(V, **SIZE))


def batches(name):
    """Six batches, masked beforehand, as random numbers of backends differ."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    ids = random.integers(5, V, (6 * ROWS, LENGTH)).astype("int32")
    mask = np.ones_like(ids)
    mask[::3, 9:] = ids[::3, 9:] = 0
    inputs = {"token_ids": ids, "padding_mask": mask}
    if name == "causal_lm":
        return tf.data.Dataset.from_tensor_slices((inputs,)).batch(ROWS)
    places = np.stack([random.permutation(9)[:3] for _ in ids]).astype("int32")
    labels = np.take_along_axis(ids, places, axis=1)
    labels[::5, 1:] = -100
    np.put_along_axis(ids, places, 4, axis=1)
    inputs["mask_positions"] = places
    return tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(ROWS)


def trained(name, folder, **options):
    """Return the losses of a task that goes on from the weights in a folder, and the task."""
    from keras_lm import tasks, training

    task = tasks.Task.from_preset(folder / name, **({} if name == "masked_lm" else NO_TOKENIZER))
    task.compile(optimizer=training.AdamW(0.01, global_clipnorm=0.1), **options)
    history = task.fit(batches(name), epochs=2, verbose=0).history
    results = {key: values[-1] for key, values in history.items()}
    results |= {"first": history["loss"][0]}
    measured = task.evaluate(batches(name), verbose=0, return_dict=True)
    results |= {f"evaluate {key}": value for key, value in measured.items()}
    return results, task


NO_TOKENIZER = {"tokenizer": None}


def several_networks(folder):
    """Return the losses of a student and of ELECTRA with its generator.

    The latter fills in its likeliest tokens, and masks depend on the text, as random numbers of
    backends differ. It begins with the weights in the folder, or makes them.
    """
    import keras

    from keras_lm import models, objectives, tasks

    class Likeliest(objectives.ReplacedByGenerator):
        def sample(self, logits, training=True):
            return keras.ops.cast(keras.ops.argmax(logits, axis=-1), "int32")

    student, teacher = (tasks.Task.from_preset(folder / name) for name in ("student", "teacher"))
    distiller = tasks.Distiller(student, teacher, temperature=2.0)
    distiller.compile("adam")
    fitted = distiller.fit(TEXTS, [1, 0, 0, 1], batch_size=2, epochs=2, shuffle=False, verbose=0)
    results = {f"student {key}": values for key, values in fitted.history.items()}

    tokenizer = student.tokenizer
    backbone = models.ElectraBackbone(V, **SIZE)
    generator = tasks.MaskedLM(backbone.make_generator(1 / 2), tokenizer=tokenizer)
    static = {"masks_per_text": 1, "seed": 3}
    masking = objectives.MaskedLanguageModel(mask_share=0.85, random_share=0.0, **static)
    objective = Likeliest(generator, masking=masking)
    task = tasks.Pretrainer(backbone, [objective], tokenizer=tokenizer)
    variables = {id(v): v for v in [*task.weights, *generator.weights]}.values()
    weights = [v for v in variables if not v.path.endswith("seed_generator_state")]
    file = folder / "electra.npz"
    if not file.exists():
        np.savez(file, *[weight.numpy() for weight in weights])
    for weight, value in zip(weights, np.load(file).values(), strict=True):
        weight.assign(value)
    before = keras.ops.convert_to_numpy(generator.weights[-1])
    task.compile(optimizer=keras.optimizers.Adam(0.01), micro_batch_size=2)
    packed = {name: np.array(value) for name, value in task.preprocess(TEXTS).items()}
    history = task.fit(packed, batch_size=4, epochs=3, shuffle=False, verbose=0).history
    assert not np.allclose(before, keras.ops.convert_to_numpy(generator.weights[-1]))
    measured = task.evaluate(packed, batch_size=4, verbose=0, return_dict=True)
    return results | {f"electra {k}": v for k, v in (history | measured).items()}


def check_cached_gradients(tokenizer):
    """Check that an encoder learns from parts of a batch what it learns from the whole."""
    import keras

    from keras_lm import models, tasks

    answers = ["good story", "bad film", "a story was a story", "film"]
    for dropout, size in ((0.0, 3), (0.3, 4)):
        results = []
        for micro_batch_size in (None, size):
            keras.utils.set_random_seed(3)
            backbone = models.BertBackbone(V, **SIZE | {"dropout": dropout})
            encoder = tasks.SentenceEncoder(backbone, tokenizer=tokenizer)
            encoder.compile(keras.optimizers.SGD(0.5), micro_batch_size=micro_batch_size)
            options = {"batch_size": 4, "shuffle": False, "epochs": 2, "verbose": 0}
            losses = encoder.fit((TEXTS, answers), **options).history["loss"]
            results.append([losses, *map(keras.ops.convert_to_numpy, encoder.trainable_weights)])
        for whole, parts in zip(*results, strict=True):
            np.testing.assert_allclose(parts, whole, atol=2e-5)


def distributions():
    import keras

    devices = keras.distribution.list_devices()
    assert len(devices) == 2
    yield "one", None
    yield "data", keras.distribution.DataParallel(devices=devices)
    mesh = keras.distribution.DeviceMesh((1, 2), ["batch", "model"], devices)
    layout = keras.distribution.LayoutMap(mesh)
    layout["token_embedding/embeddings"] = ("model", None)
    layout[".*intermediate.*kernel"] = (None, "model")
    layout[".*query_key_value.*kernel"] = (None, "model")
    yield "model", keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")


def main(folder, *names):
    import keras

    from keras_lm import models, objectives, tasks

    folder = Path(folder)
    for (kind, distribution), name in zip(distributions(), names, strict=True):
        keras.distribution.set_distribution(distribution)
        # As whole batches: three rows, then one.
        actual, task = trained(name, folder, micro_batch_size=3 if kind == "one" else None)
        if kind == "model":
            shards = {w.path: w.value.addressable_shards[0].data.shape for w in task.weights}
            embeddings = [s for path, s in shards.items() if "token_embedding" in path]
            assert embeddings == [(V // 2, 8)]
            kernels = [s for path, s in shards.items() if "query_key_value/kernel" in path]
            assert kernels == [(8, 12)]
        task.save_to_preset(folder / kind)
        print(json.dumps([kind, actual]), flush=True)
    # Text is tokenized on the host, and masks are drawn in the step, others in each.
    keras.distribution.set_distribution(None)
    task = make("masked_lm", dropout=0.1)
    seeds = [np.array(task.objective.seed_generator.state)]
    for _ in range(2):
        task.fit(TEXTS, batch_size=2, verbose=0)
        seeds.append(np.array(task.objective.seed_generator.state))
    assert len({seed.tobytes() for seed in seeds}) == 3
    assert task.predict(TEXTS, verbose=0).shape == (4, 7, V)
    check_cached_gradients(task.tokenizer)
    spans = [objectives.MaskedSpans(), objectives.SpanBoundary()]
    backbone = models.SpanBertBackbone(V, **SIZE)
    pretrainer = tasks.Pretrainer(backbone, spans, tokenizer=task.tokenizer)
    assert {*pretrainer.predict(TEXTS, verbose=0)} == {"token_logits"}
    with pytest.raises(RuntimeError, match="KERAS_BACKEND=tensorflow"):
        task.export(folder)
    with pytest.raises(ValueError, match="1 or more"):
        task.compile(micro_batch_size=0)
    if (folder / "student").exists():
        print(json.dumps(["several", several_networks(folder)]))


if __name__ == "__main__":
    main(*sys.argv[1:])


@pytest.mark.eager
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(QUICK, marks=pytest.mark.slow),
        pytest.param(OTHER, marks=pytest.mark.thorough),
    ],
    ids=["quick", "other"],
)
def test_jax_trains_as_tensorflow(names, tmp_path):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("needs jax")
    import keras
    import tensorflow as tf

    from keras_lm import models, tasks

    expected = {}
    for name in NAMES:
        make(name).save_to_preset(tmp_path / name)
        expected[name], _ = trained(name, tmp_path)
    several = None
    if names is QUICK:
        tokenizer = make("masked_lm").tokenizer
        for name in ("student", "teacher"):
            backbone = models.BertBackbone(V, **SIZE)
            task = tasks.TextClassifier(backbone, tokenizer=tokenizer, num_classes=2)
            task.save_to_preset(tmp_path / name)
        several = several_networks(tmp_path)
    flags = {"KERAS_BACKEND": "jax", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    flags["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # which take longer than such small networks
    done = subprocess.run(
        [sys.executable, __file__, tmp_path, *names.values()],
        env=os.environ | flags,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
    if several:
        _, actual = lines.pop()
        assert {*actual} == {*several}
        for name, losses in several.items():
            assert actual[name] == pytest.approx(losses, rel=1e-5), name
    assert [kind for kind, _ in lines] == [*names]
    for kind, actual in lines:
        name = names[kind]
        assert actual == pytest.approx(expected[name], rel=1e-5), (name, kind)
        options = {} if name == "masked_lm" else NO_TOKENIZER
        task = tasks.Task.from_preset(tmp_path / kind, **options)
        loss = task.evaluate(batches(name), verbose=0, return_dict=True)["loss"]
        assert loss == pytest.approx(actual["evaluate loss"], rel=1e-5)
    assert expected["masked_lm"]["loss"] < expected["masked_lm"]["first"]
    if names is OTHER:
        return
    # What JAX trained, TensorFlow serves.
    task = tasks.Task.from_preset(tmp_path / "model")
    exported = tf.saved_model.load(task.export(tmp_path / "exported"))
    (text,) = exported.signatures["serving_default"](tf.constant(["a [MASK] film"]))["text"].numpy()
    assert text.decode() == task.fill_mask(["a [MASK] film"])["text"][0]
    assert keras.backend.backend() == "tensorflow"
