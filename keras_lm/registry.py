"""The names that presets and users know: of classes, registered when defined, and of sizes."""

import difflib

BACKBONES, TASKS, TOKENIZERS = {}, {}, {}


def register(cls, classes):
    """Add a class to a table above, where it may replace a user's class, but not this library's."""
    known = classes.get(cls.__name__)
    if known is not None and _is_ours(known) and cls.__module__ != known.__module__:
        raise ValueError(
            f"{cls.__module__} defines {cls.__name__}, the name of a class of keras_lm by which "
            "presets know it: choose another name."
        )
    classes[cls.__name__] = cls


def sizes():
    """Return a dict of the name of each published size → class of backbone."""
    return {name: cls for cls in BACKBONES.values() for name in vars(cls).get("SIZES", {})}


def advice(name, known):
    """Return `" Did you mean …?"` for a name that is close to a known one, otherwise nothing."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.7)
    return f" Did you mean {' or '.join(close)}?" if close else ""


def _is_ours(cls):
    return cls.__module__.startswith("keras_lm.")
