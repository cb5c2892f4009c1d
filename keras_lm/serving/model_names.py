"""The names of served models."""

import re


def check_name(name):
    """Raise a `ValueError` if a name cannot be part of a URL or of a protocol buffer."""
    if not isinstance(name, str) or not re.fullmatch(r"[^/:\x00-\x1f\x7f\ud800-\udfff]+", name):
        raise ValueError(
            f"name={name!r} cannot be a model's name: pass one without /, : and control "
            "characters, and not empty."
        )


def default_name(path):
    """Return the name of a model that is given none: its folder's, or its file's."""
    return path.stem if path.is_file() else path.name
