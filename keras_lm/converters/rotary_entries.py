"""What configurations of Hugging Face's say of rotary positions, in their older and newer form.

The older form is the entry `rope_theta` beside `rope_scaling`, the newer one `rope_parameters`,
which has both.
"""

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.converter import Derived

ENTRIES = ("rope_theta", "rope_scaling", "rope_parameters")


def stated(config):
    """Return the parameters of rotary positions that a configuration states, a dict."""
    older = {"rope_theta": config["rope_theta"]} if config.get("rope_theta") is not None else {}
    # transformers 5 follows rope_scaling where both are stated, and 4 knows it alone.
    newer = config.get("rope_scaling") or config.get("rope_parameters") or {}
    return older | (newer if isinstance(newer, dict) else {"rope_type": newer})


def kind(parameters):
    """Return the kind of scaling for longer texts that parameters ask for."""
    return parameters.get("rope_type", parameters.get("type", "default"))


def wavelength(default):
    """Return the rule of the argument `rope_max_wavelength`, by default `default`."""

    def write(arguments):
        base = arguments["rope_max_wavelength"]
        parameters = {"rope_type": "default", "rope_theta": base}
        return {"rope_theta": base, "rope_parameters": parameters}

    return Derived(lambda config, _: stated(config).get("rope_theta", default), write, ENTRIES)


def require_unscaled(checkpoint, model):
    """Raise a CheckpointError if positions are scaled for longer texts, or rotate a part of heads.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        model: class, for the error.
    """
    parameters = stated(checkpoint.config)
    others = {name for name in parameters if name not in ("rope_theta", "rope_type", "type")}
    others -= {name for name in others if parameters[name] is None}
    if parameters.get("partial_rotary_factor") == 1:
        others.discard("partial_rotary_factor")
    if kind(parameters) == "default" and not others:
        return
    said = f"rope_type={kind(parameters)!r}"
    said += "".join(f", {name}={parameters[name]!r}" for name in sorted(others))
    raise CheckpointError(
        f"{checkpoint.source}: its configuration has {said} for positions, and {model.__name__} "
        "supports only rope_type='default', which is not scaled: take a checkpoint that is not."
    )
