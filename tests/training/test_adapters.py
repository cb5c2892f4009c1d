"""Adapters: what trains, what is saved, and what is refused."""

import keras
import numpy as np
import pytest

from keras_lm.converters import CheckpointError
from keras_lm.models import AlbertBackbone, BertBackbone, GPT2Backbone, LSTMBackbone
from keras_lm.tasks import CausalLM, FeatureExtractor, Task, TextClassifier
from keras_lm.tokenizers import WordPieceTokenizer
from keras_lm.training import (
    enable_adapters,
    enable_lora,
    load_adapters,
    save_adapters,
    save_lora,
)

TOKENIZER = WordPieceTokenizer(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"], lowercase=True
)
TEXTS, LABELS = ["a b c", "b b", "c d e f", "a d"] * 4, [0, 1, 1, 0] * 4
SIZE = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
# Down and up with their biases, after two parts of two blocks; scale and offset of five norms.
LEARNT = 4 * (8 * 3 + 3 + 3 * 8 + 8) + 5 * 2 * 8


def make(seed=0, num_classes=2):
    """A classifier over the same backbone for each seed; its head is fresh."""
    keras.utils.set_random_seed(seed)
    backbone = BertBackbone(len(TOKENIZER.vocabulary), dropout=0.0, **SIZE)
    for variable in backbone.trainable_variables:
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.3))
    return TextClassifier(backbone, tokenizer=TOKENIZER, num_classes=num_classes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    task = make()
    enable_adapters(task, adapter_dim=3)
    task.compile(optimizer=keras.optimizers.Adam(0.1))
    task.fit(TEXTS, LABELS, epochs=8, batch_size=16, verbose=0)
    path = tmp_path_factory.mktemp("adapters") / "update.safetensors"
    save_adapters(task, path)
    return task, path


def answers(task):
    """What the task says of some texts, without tracing anything."""
    return task(task.preprocess(TEXTS[:4]), training=False)


@pytest.mark.eager
def test_only_adapters_norms_and_head_train(trained):
    task, _ = trained
    before = {v.path: v.numpy() for v in make().backbone.weights}
    after = {v.path: v.numpy() for v in task.backbone.weights if "/adapter/" not in v.path}
    changed = {path for path in before if not np.array_equal(before[path], after[path])}
    assert changed == {path for path in before if path.endswith(("/gamma", "/beta"))}
    sizes = [np.prod(variable.shape) for variable in task.trainable_variables]
    assert sum(sizes) == LEARNT + 8 * 2 + 2
    assert task.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)["accuracy"] == 1.0


@pytest.mark.eager
def test_at_first_they_change_almost_nothing():
    task = make()
    before = task.predict(TEXTS, verbose=0)
    enable_adapters(task)
    np.testing.assert_allclose(task.predict(TEXTS, verbose=0), before, atol=1e-3)


@pytest.mark.eager
def test_an_adapter_is_a_bottleneck_beside_the_identity(trained):
    task, _ = trained
    layer = task.backbone.get_layer("block_1").feedforward.output_dense
    x = np.random.default_rng(0).normal(size=(2, 5, 16)).astype("float32")
    y = x @ layer.kernel.numpy() + layer.bias.numpy()
    down, up = layer.adapter.down, layer.adapter.up
    inner = np.array(keras.activations.gelu(y @ down.kernel.numpy() + down.bias.numpy()))
    expected = y + inner @ up.kernel.numpy() + up.bias.numpy()
    np.testing.assert_allclose(layer(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_files(trained, tmp_path):
    task, path = trained
    expected = answers(task)
    other = make()
    other.predict(TEXTS[:4], verbose=0)  # traced without adapters
    load_adapters(other, path)
    np.testing.assert_allclose(other.predict(TEXTS[:4], verbose=0), expected, rtol=1e-5)
    assert len(other.trainable_variables) == len(task.trainable_variables)
    task.save_to_preset(tmp_path / "preset")
    task.save(tmp_path / "task.keras")
    for loaded in (
        Task.from_preset(tmp_path / "preset"),
        keras.saving.load_model(tmp_path / "task.keras"),
    ):
        np.testing.assert_allclose(answers(loaded), expected, rtol=1e-4)
    larger = task.backbone.with_vocabulary_size(20)
    assert larger.adapter_dim == 3
    assert path.stat().st_size < 4 * (LEARNT + 18) + 5000


@pytest.mark.slow
@pytest.mark.eager
def test_an_export_has_them(trained, tmp_path):
    import tensorflow as tf

    task, _ = trained
    serve = tf.saved_model.load(str(task.export(tmp_path / "exported")))
    answer = serve.signatures["serving_default"](text=tf.constant(TEXTS))
    np.testing.assert_allclose(answer["scores"], task.classify(TEXTS)["scores"], atol=1e-5)


@pytest.mark.parametrize(
    ("backbone", "number"),
    [
        (GPT2Backbone(20, max_sequence_length=16, **SIZE), 4),
        (AlbertBackbone(20, embedding_dim=4, **SIZE), 2),  # blocks share their weights
    ],
)
def test_other_models(backbone, number):
    task = FeatureExtractor(backbone, tokenizer=None)
    enable_adapters(task, 2)
    adapters = {v.path for v in task.trainable_variables if v.path.endswith("down/kernel")}
    assert len(adapters) == number
    assert task({"token_ids": np.ones((1, 3), "int32")}).shape == (1, 8)


@pytest.mark.eager
def test_what_does_not_fit_is_refused(trained, tmp_path):
    task, path = trained
    with pytest.raises(ValueError, match="backbone with other weights"):
        load_adapters(make(seed=1), path)
    three = make(num_classes=3)
    with pytest.raises(ValueError, match=r"classifier.*is \(8, 2\), and in this .* \(8, 3\)"):
        load_adapters(three, path)
    assert three.backbone.adapter_dim is None
    with pytest.raises(ValueError, match="adapters of 3 units already"):
        enable_adapters(task)
    with pytest.raises(ValueError, match="has no adapters"):
        save_adapters(make(), tmp_path / "nothing")
    with pytest.raises(ValueError, match="adapter_dim=0"):
        enable_adapters(make(), 0)
    with pytest.raises(ValueError, match="LSTMBackbone has no blocks with attention"):
        enable_adapters(CausalLM(LSTMBackbone(20, num_layers=1, hidden_dim=6)))
    lora = make()
    enable_lora(lora)
    save_lora(lora, tmp_path / "lora")
    with pytest.raises(CheckpointError, match=r"not written by keras_lm.training.save_adapters"):
        load_adapters(make(), tmp_path / "lora")
    started = make()
    started.train_on_batch(TEXTS[:2], LABELS[:2])
    with pytest.raises(ValueError, match="call enable_adapters before fit"):
        enable_adapters(started)
    assert started.backbone.adapter_dim is None
