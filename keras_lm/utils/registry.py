"""Names in presets and in users' calls: classes, registered when they are defined, and sizes."""

import difflib
import importlib

BACKBONES, TASKS, TOKENIZERS = {}, {}, {}
# The names of the library's own tokenizers → their modules, which `tokenizer_named` imports;
# `keras_lm.tokenizers` fills it.
TOKENIZER_MODULES = {}


def register(cls, classes):
    """Add a class to a table above; it may replace a user's class, but not one of this library."""
    known = classes.get(cls.__name__)
    late = TOKENIZER_MODULES.get(cls.__name__, "") if classes is TOKENIZERS else ""
    place = getattr(known, "__module__", late)
    if place.startswith("keras_lm.") and cls.__module__ != place:
        raise ValueError(
            f"{cls.__module__} defines {cls.__name__}, but presets use this name for keras_lm's "
            "own class: choose another name."
        )
    classes[cls.__name__] = cls


def backbone_classes():
    """Return a dict of the names of all backbones → classes, a user's among them."""
    importlib.import_module("keras_lm.models")
    return BACKBONES


def task_classes():
    """Return a dict of the names of all tasks → classes, a user's among them."""
    importlib.import_module("keras_lm.tasks")
    return TASKS


def tokenizer_named(name):
    """Return the tokenizer of that name, the library's own or a user's, or None."""
    if name in TOKENIZER_MODULES:
        return getattr(importlib.import_module(TOKENIZER_MODULES[name]), name)
    return TOKENIZERS.get(name)


def tokenizer_classes():
    """Return a dict of the names of all tokenizers → classes, the library's own first."""
    return {name: tokenizer_named(name) for name in [*TOKENIZER_MODULES, *TOKENIZERS]}


def sizes():
    """Return a dict of the names of published sizes → backbone classes, in the classes' order."""
    classes = [cls for _, cls in sorted(backbone_classes().items())]
    return {name: cls for cls in classes for name in vars(cls).get("SIZES", {})}


def advice(name, known):
    """Return `" Did you mean …?"` if a name is close to a known one, else an empty string."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.7)
    return f" Did you mean {' or '.join(close)}?" if close else ""
