"""Low-rank adaptation: what trains, what is saved, and what is refused."""

import json

import keras
import numpy as np
import pytest
import safetensors

from keras_lm.converters import CheckpointError
from keras_lm.converters.checked_files import save_checked
from keras_lm.models import BertBackbone, GPT2Backbone, LSTMBackbone
from keras_lm.tasks import CausalLM, Task, TextClassifier
from keras_lm.tokenizers import WordPieceTokenizer
from keras_lm.training import enable_lora, load_lora, save_lora

pytestmark = pytest.mark.eager  # test_adapters.py shows that what was traced is traced again

TOKENIZER = WordPieceTokenizer(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"], lowercase=True
)
TEXTS, LABELS = ["a b c", "b b", "c d e f", "a d"] * 4, [0, 1, 1, 0] * 4
SIZE = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}


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
    enable_lora(task, rank=2, alpha=8)
    task.compile(optimizer=keras.optimizers.Adam(0.1))
    task.fit(TEXTS, LABELS, epochs=8, batch_size=16, verbose=0)
    path = tmp_path_factory.mktemp("lora") / "update.safetensors"
    save_lora(task, path)
    return task, path


def answers(task):
    """What the task says of some texts."""
    return task(task.preprocess(TEXTS[:4]), training=False)


@pytest.mark.slow
def test_only_updates_and_head_train(trained):
    task, _ = trained
    before = {v.path: v.numpy() for v in make().backbone.weights}
    after = {v.path: v.numpy() for v in task.backbone.weights if "lora" not in v.path}
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[path], after[path]) for path in before)
    # Two matrices for each of two blocks, (8, 2) and (2, 24), beside kernel and bias of the head.
    sizes = [np.prod(variable.shape) for variable in task.trainable_variables]
    assert sum(sizes) == 2 * (8 * 2 + 2 * 24) + 8 * 2 + 2
    assert task.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)["accuracy"] == 1.0


def test_the_kernel_is_the_sum(trained):
    task, _ = trained
    layer = task.backbone.get_layer("block_0").attention.query_key_value
    update = 8 / 2 * layer.lora_kernel_a.numpy() @ layer.lora_kernel_b.numpy()
    np.testing.assert_allclose(layer.kernel, layer._kernel.numpy() + update, rtol=1e-5)
    assert np.abs(update).max() > 1e-3


def test_files(trained, tmp_path):
    task, path = trained
    expected = answers(task)
    other, address = make(), f"memory://{tmp_path}/update"
    save_lora(task, address)
    load_lora(other, address)
    np.testing.assert_allclose(answers(other), expected, rtol=1e-5)
    task.save_to_preset(tmp_path / "preset")
    task.save(tmp_path / "task.keras")
    for plain in (
        Task.from_preset(tmp_path / "preset"),
        keras.saving.load_model(tmp_path / "task.keras"),
    ):
        np.testing.assert_allclose(answers(plain), expected, rtol=1e-4)
        assert len(plain.weights) == len(make().weights)
    assert path.stat().st_size < 6000


def test_a_language_model(tmp_path):
    backbone = GPT2Backbone(20, max_sequence_length=16, dropout=0.0, **SIZE)
    task = CausalLM(backbone)
    enable_lora(task, layers=["query_key_value", "intermediate"])
    inputs = {"token_ids": np.tile([[3, 4, 5, 6, 7, 8]], [8, 1])}
    before = task.predict_on_batch(inputs)
    assert len(task.trainable_variables) == 2 * 2 * 2  # the head is the frozen embedding
    save_lora(task, tmp_path / "update")
    for variable in task.trainable_variables:
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.1))
    assert np.abs(task.predict_on_batch(inputs) - before).max() > 1e-3


def test_what_does_not_fit_is_refused(trained, tmp_path):
    task, path = trained
    with pytest.raises(ValueError, match="backbone with other weights"):
        load_lora(make(seed=1), path)
    three = make(num_classes=3)
    with pytest.raises(ValueError, match=r"classifier.*is \(8, 2\), and in this .* \(8, 3\)"):
        load_lora(three, path)
    assert not any("lora" in variable.path for variable in three.weights)
    with pytest.raises(ValueError, match="LoRA already"):
        enable_lora(task)
    with pytest.raises(ValueError, match="has no LoRA"):
        save_lora(make(), tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(FileNotFoundError, match="save_lora"):
        load_lora(make(), tmp_path / "nothing")
    (tmp_path / "cut").write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match="damaged"):
        load_lora(make(), tmp_path / "cut")
    task.save_to_preset(tmp_path / "preset")
    with pytest.raises(CheckpointError, match="was not written by"):
        load_lora(make(), tmp_path / "preset" / "model.safetensors")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 0}, "rank=0"),
        ({"rank": "2"}, "rank=2"),
        ({"alpha": -1}, "alpha=-1"),
        ({"alpha": float("nan")}, "alpha=nan"),
        ({"alpha": 1e300}, "alpha=1e\\+300: pass a positive number, at most"),
        ({"layers": ["queries"]}, "intermediate"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        enable_lora(make(), **arguments)


def test_a_model_without_dense_layers():
    backbone = LSTMBackbone(20, num_layers=1, hidden_dim=6)
    with pytest.raises(ValueError, match="LSTMBackbone has no such Dense layers, but none"):
        enable_lora(CausalLM(backbone))


def test_after_training_it_asks_to_compile():
    task = make()
    task.fit(TEXTS, LABELS, verbose=0)
    with pytest.raises(ValueError, match=r"task\.compile\(\)"):
        enable_lora(task)
    task.compile()
    enable_lora(task)
    task.fit(TEXTS, LABELS, verbose=0)


def changed(path, new, settings=None, number=None):
    """Write a file of an update with other settings or numbers."""
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if settings is not None:
        known = json.loads(metadata["settings"])
        known = known | settings if isinstance(settings, dict) else None
        metadata["settings"] = json.dumps(known) if known else settings
    if number is not None:
        name = next(name for name in arrays if "lora" in name)
        arrays[name].flat[0] = number
    save_checked(arrays, new, metadata)
    return new


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"alpha": 1e300}}, "alpha=1e"),
        ({"settings": {"rank": 10**12}}, "in which .*lora_kernel_a"),
        ({"settings": {"rank": "2"}}, "settings are"),
        ({"settings": {"layers": None}}, "settings are"),
        ({"settings": "[1]"}, "settings are"),
        ({"settings": "null"}, "settings are"),
        ({"settings": "[" * 100_000}, "is damaged or incomplete"),
        ({"number": np.nan}, "lora_kernel_a' holds float32 that are not all finite"),
    ],
)
def test_files_that_would_answer_nan(trained, tmp_path, change, message):
    path = changed(trained[1], tmp_path / "new.safetensors", **change)
    task = make()
    with pytest.raises(ValueError, match=rf"new\.safetensors.*{message}"):
        load_lora(task, path)
    assert not any("lora" in variable.path for variable in task.weights)
