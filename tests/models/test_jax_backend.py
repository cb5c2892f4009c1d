"""Backbones run on JAX too: one process of another backend, for all of them."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

NAMES = ["bert", "gpt2", "gpt3-banded-gpt2"]

JAX = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import sys
import numpy as np
import keras_lm


def outputs(folder):
    backbone = keras_lm.models.Backbone.from_preset(folder)
    arrays = np.load(folder + "/expected.npz")
    ids = arrays["in.input_ids"]
    if "in.split" not in arrays:
        segments, mask = arrays["in.token_type_ids"], arrays["in.attention_mask"]
        encoded = backbone({"token_ids": ids, "segment_ids": segments, "padding_mask": mask})
        return {"sequence_output": encoded["sequence_output"]}
    ids, split = ids[:1], int(arrays["in.split"])
    first = backbone({"token_ids": ids[:, :split]})
    rest = backbone({"token_ids": ids[:, split:], "cache": first["cache"]})
    head = backbone.make_head("causal_lm")
    return {"prefix_logits": head(first), "rest_logits": head(rest)}


for folder in sys.argv[2:]:
    np.savez(os.path.join(sys.argv[1], os.path.basename(folder)), **outputs(folder))
"""


@pytest.fixture(scope="module")
def jax_outputs(goldens, tmp_path_factory):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("needs jax")
    folder = tmp_path_factory.mktemp("jax")
    command = [sys.executable, "-c", JAX, folder, *map(goldens, NAMES)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_outputs_equal_the_reference(jax_outputs, goldens, assert_equal, name):
    expected, actual = np.load(goldens(name) / "expected.npz"), np.load(jax_outputs / f"{name}.npz")
    if name == "bert":
        assert_equal(actual["sequence_output"], expected["out.hidden_states"][-1])
    else:
        for part in ("prefix_logits", "rest_logits"):
            assert_equal(actual[part], expected[f"out.cache.{part}"])
