"""Private names of other packages that the library needs: each is listed in BUILD.md, with why."""

import ast
import collections
import re
from pathlib import Path

import keras
import tensorflow as tf

REPOSITORY = Path(__file__).parents[1]
FOLDERS = ("keras_lm", "export")
PRIVATE = re.compile(r"_[a-zA-Z]\w*")
# The public ones are reached as `keras.…` and `tf.…`.
PRIVATE_MODULES = re.compile(r"(keras\.src|tensorflow|tensorflow_text)\..+")
# Documented, in spite of their names.
PUBLIC = {"_asdict", "_create_resource", "_exit", "_fields", "_initialize"}
# What our classes derive from: a private method of ours that one of these has replaces it.
BASES = (
    keras.Model,
    keras.Variable,
    keras.callbacks.Callback,
    keras.layers.Dense,
    keras.layers.RNN,
    keras.losses.Loss,
    keras.Metric,
    keras.optimizers.Adafactor,
    keras.optimizers.AdamW,
    keras.utils.PyDataset,
    tf.Module,
    tf.Variable,
    tf.saved_model.experimental.TrackableResource,
)


def is_own(node):
    """Whether an attribute is that of an object's own class."""
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def names_in(tree):
    """Return the private names of a module's own members, those that it uses, private modules."""
    defined, used, modules = set(), set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                targets = getattr(part, "targets", [getattr(part, "target", None)])
                defined.update(target.id for target in targets if isinstance(target, ast.Name))
                defined.add(getattr(part, "name", ""))
        elif isinstance(node, ast.Attribute):
            stores = isinstance(node.ctx, ast.Store) and is_own(node)
            (defined if stores else used).add(node.attr)
        elif isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module)
            used.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Call):  # getattr(x, "_name"), kwargs.get("_name")
            called = ast.unparse(node.func)
            if called in ("getattr", "hasattr", "setattr", "kwargs.get", "kwargs.pop"):
                strings = [a.value for a in node.args[:2] if isinstance(a, ast.Constant)]
                used.update(name for name in strings if isinstance(name, str))
    private = [{name for name in names if PRIVATE.fullmatch(name)} for names in (defined, used)]
    return *private, {name for name in modules if PRIVATE_MODULES.fullmatch(name)}


def private_names():
    """Return a dict of private names and modules of other packages → files that need them."""
    paths = [path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py")]
    read = {path: names_in(ast.parse(path.read_text())) for path in paths}
    own = set().union(*(defined for defined, *_ in read.values()))
    replaced = {name for name in own if any(hasattr(base, name) for base in BASES)}
    results = collections.defaultdict(set)
    for path, (defined, used, modules) in read.items():
        for name in (used - own) | ((used | defined) & replaced) | modules:
            if name not in PUBLIC:
                results[name].add(path.relative_to(REPOSITORY).as_posix())
    return results


def test_each_private_name_is_listed():
    text = (REPOSITORY / "BUILD.md").read_text()
    section = text.split("## Private names of other packages\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1:] for line in section.splitlines() if line.startswith("| `")]
    listed = {name for names, *_ in rows for name in re.findall(r"`([^`]+)`", names)}
    assert all(reason.strip() for _, reason, *_ in rows)
    actual = private_names()
    missing = {name: sorted(files) for name, files in actual.items() if name not in listed}
    assert not missing, "Add them to BUILD.md, or better use public names."
    assert listed <= actual.keys(), "BUILD.md lists names that nothing needs any longer."


def test_what_counts_as_private():
    source = """
import keras
from tensorflow.python.ops import inner
from tensorflow.core.framework import types_pb2

class Mine(keras.layers.Layer):
    def __init__(self):
        self._own = self._theirs
    def _method(self, other, **kwargs):
        other._set = getattr(other, "_got", 1) + kwargs.get("_given", 2)
"""
    defined, used, modules = names_in(ast.parse(source))
    assert defined == {"_own", "_method"}
    assert used == {"_theirs", "_set", "_got", "_given"}
    assert modules == {"tensorflow.python.ops", "tensorflow.core.framework"}
