"""Keras on JAX where TensorFlow is not installed: one process that cannot import it."""

import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest

from keras_lm.tasks import MaskedLM, TextClassifier

PROGRAM = """
import os, sys
os.environ["KERAS_BACKEND"] = "jax"
for name in ("tensorflow", "tensorflow_text"):
    sys.modules[name] = None
import json
import keras
import numpy as np
import keras_lm
from keras_lm.tasks import CausalLM, MaskedLM, Task, TextClassifier

folder, masked, causal = sys.argv[1:]
texts, labels = ["good film", "bad film, was unly"] * 4, [1, 0] * 4
task = Task.from_preset(folder)
found = {"before": task.predict(texts, verbose=0).tolist(), "ids": task.tokenizer(texts)}
found["pair"] = task.predict((texts, texts[::-1]), verbose=0).tolist()
task.compile(optimizer=keras.optimizers.Adam(1e-2))
data = texts, labels
history = task.fit(*data, epochs=8, batch_size=4, verbose=0, validation_data=data)
found["losses"] = history.history["loss"]
found["accuracy"] = task.evaluate(*data, verbose=0, return_dict=True)["accuracy"]
found["after"] = task.predict(texts, verbose=0).tolist()
task.save_to_preset(folder + "-after")


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, place):
        return texts[:4], np.array(labels[:4])


other = Task.from_preset(folder)
found["streams"] = other.fit(Batches(), epochs=1, verbose=0).history["loss"]
rows = (batch for batch in [(texts, np.array(labels))] * 2)
found["streams"] += other.fit(rows, verbose=0).history["loss"]
found["streams"].append(float(other.train_on_batch(texts, np.array(labels))[0]))
task.save(folder + ".keras")
again = keras.saving.load_model(folder + ".keras")
found["again"] = again.predict(texts, verbose=0).tolist()
found["masked"] = Task.from_preset(masked).fit(texts, epochs=2, verbose=0).history["loss"]
writer = CausalLM.from_preset(causal, tokenizer=None)
ids = {"token_ids": np.arange(5, 29).reshape(3, 8), "padding_mask": np.ones((3, 8), "int32")}
found["causal"] = writer.fit(ids, epochs=2, verbose=0).history["loss"]
try:
    task.export(folder + "-export")
except (ImportError, RuntimeError) as error:
    found["export"] = str(error)
try:
    keras_lm.tokenizers.ByteTokenizer()(["a"])
except (ImportError, ValueError) as error:
    found["bytes"] = str(error)
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_task_is_trained_and_kept(make, goldens, tmp_path):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("needs jax")
    task = make(TextClassifier, num_classes=2)
    task.save_to_preset(tmp_path / "task")
    make(MaskedLM).save_to_preset(tmp_path / "masked")
    texts = ["good film", "bad film, was unly"] * 4
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    folders = map(str, (tmp_path / "task", tmp_path / "masked", goldens("gpt2")))
    done = subprocess.run([*command, *folders], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["ids"] == task.tokenizer(texts).to_list()
    np.testing.assert_allclose(found["before"], task.predict(texts, verbose=0), atol=1e-5)
    pairs = task.predict((texts, texts[::-1]), verbose=0)
    np.testing.assert_allclose(found["pair"], pairs, atol=1e-5)
    assert found["losses"][-1] < found["losses"][0]
    assert found["accuracy"] == 1.0
    assert found["again"] == found["after"]
    after = TextClassifier.from_preset(tmp_path / "task-after")
    np.testing.assert_allclose(after.predict(texts, verbose=0), found["after"], atol=1e-5)
    for losses in (found["masked"], found["causal"], found["streams"]):
        assert np.isfinite(losses).all()
    assert "TensorFlow" in found["export"]
    assert "pip install tensorflow" in found["bytes"]
