"""Who may import whom: no circle, nothing upwards, and TensorFlow only where it has to be."""

import ast
import collections
import re
from pathlib import Path

import pytest

import keras_lm
from keras_lm.utils.registry import BACKBONES, TASKS

REPOSITORY = Path(__file__).parents[1]

# From the ground up: what stands on one line imports from its own line and those above it.
HOUSE = """
version utils tensorflow
datasets litert knowledge search
converters
presets
layers
tokenizers
packers
models
objectives
metrics
data training
feeding
generation
export
tasks
prompting
evaluation inspection analysis
serving
lectures
cli pipelines
"""
FLOORS = {part: floor for floor, line in enumerate(HOUSE.split("\n")) for part in line.split()}

# Layers, models and objectives are made of `keras.ops`, and run on Keras's other backends too;
# files of data are read by commands that start before TensorFlow is there.
WITHOUT_TENSORFLOW = ("layers", "models", "objectives", "datasets", "knowledge")
WITH_TENSORFLOW = "layers.tensorflow"


def read_imports():
    """Return a dict of a module's name after `keras_lm.` → the names that it imports anywhere."""
    paths = {}
    for folder, start in [("keras_lm", ()), ("export", ("export",)), ("lectures", ("lectures",))]:
        for path in (REPOSITORY / folder).rglob("*.py"):
            parts = (*start, *path.relative_to(REPOSITORY / folder).with_suffix("").parts)
            paths[".".join(part for part in parts if part != "__init__")] = path
    paths.pop("")  # the package itself offers all that there is
    return {name: set(_imported(path, paths)) for name, path in paths.items()}


def _imported(path, modules):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.removeprefix("keras_lm.")
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            package = f"{node.module}.".removeprefix("keras_lm.")
            for alias in node.names:
                inner = package + alias.name
                yield inner if inner in modules else package.removesuffix(".")


IMPORTS = read_imports()
OURS = {name: {other for other in results if other in IMPORTS} for name, results in IMPORTS.items()}


def floor(module):
    return FLOORS[module.split(".")[0]]


def test_every_part_has_its_floor():
    assert {name.split(".")[0] for name in IMPORTS} == set(FLOORS)


def test_nothing_imports_upwards():
    results = {(name, o) for name, others in OURS.items() for o in others if floor(o) > floor(name)}
    assert not results


def test_no_circle():
    """Repeatedly remove modules that import none of the rest; what remains is a circle."""
    left = {name: others - {name} for name, others in OURS.items()}
    while True:
        free = {name for name, others in left.items() if not others & left.keys()}
        if not free:
            break
        left = {name: others for name, others in left.items() if name not in free}
    assert not left, {name: sorted(others & left.keys()) for name, others in left.items()}


@pytest.mark.parametrize("part", WITHOUT_TENSORFLOW)
def test_tensorflow_has_its_place(part):
    heavy = ("tensorflow", "tensorflow_text", "tensorflow_serving")
    results = {
        name
        for name, others in IMPORTS.items()
        if name.split(".")[0] == part and not name.startswith(WITH_TENSORFLOW)
        if any(other.split(".")[0] in heavy for other in others)
    }
    assert not results


def test_tensorflow_may_be_missing():
    """What is not for servers and exports imports it from `keras_lm.tensorflow`."""
    results = [
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / "keras_lm").rglob("*.py")
        if re.search(r"^(import|from) tensorflow(_text)?\b", path.read_text(), re.MULTILINE)
    ]
    allowed = ("keras_lm/tensorflow.py", "keras_lm/serving/")
    assert [path for path in results if not path.startswith(allowed)] == []


# Where a context changes what layers do: while a graph is traced for LiteRT, in int8 or bfloat16,
# or to decode; for the numbers of classes; and while a checkpoint is loaded. (One more has files
# that several readers of a source share.)
TRACED_OTHERWISE = {"converters.checkpoint", "layers.tensorflow", "tokenizers.strings"}
TRACED_OTHERWISE |= {"utils.input_files"}


def test_what_layers_do_follows_from_their_arguments():
    assert {name for name, others in IMPORTS.items() if "contextvars" in others} == TRACED_OTHERWISE


def test_models_are_named_in_their_own_files():
    kinds = {"CausalBackbone", "EncoderDecoderBackbone", "FeatureBackbone", "SparseBackbone"}
    kinds |= {"TokenVectorBackbone"}
    backbones = set(BACKBONES) - kinds
    results = collections.defaultdict(set)
    for folder in ("keras_lm", "export"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            where = path.relative_to(REPOSITORY)
            if where.parts[:2] == ("keras_lm", "models"):
                continue
            for node in ast.walk(ast.parse(path.read_text())):  # docstrings may, as examples
                names = {getattr(node, name, None) for name in ("id", "attr", "name")}
                results[str(where)] |= names & backbones
    assert not {where: sorted(names) for where, names in results.items() if names}


def depth(cls):
    """Return how many of our classes the longest line of inheritance from a class has."""
    ours = cls.__module__.startswith("keras_lm")
    return ours + max((depth(base) for base in cls.__bases__), default=0)


def test_tasks_are_at_most_four_deep():
    tasks = [getattr(keras_lm.tasks, name) for name in keras_lm.tasks.__all__]
    assert not {task.__name__: depth(task) for task in [*tasks, *TASKS.values()] if depth(task) > 4}
