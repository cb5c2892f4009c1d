"""Names of models, one rule for all that serves them."""

import re


def check_name(name):
    """Raise a `ValueError` if a model's name cannot stand in URLs and in protocol buffers."""
    if not isinstance(name, str) or not re.fullmatch(r"[^/:\x00-\x1f\x7f\ud800-\udfff]+", name):
        raise ValueError(
            f"name={name!r} cannot be a model's name: it has no / and no :, no control characters, "
            "and is not empty."
        )
