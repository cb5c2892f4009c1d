"""Students for distillation, which start from some of their teacher's layers."""

import re

BLOCK = re.compile(r"^block_(\d+)/")


def chosen_layers(teacher, layers):
    """Return which of a teacher's layers a student starts from, a list of int from 0.

    Args:
        teacher: `Backbone`.
        layers: list of their numbers, or int, how many; see `spread_layers`.

    Raises:
        ValueError: if the teacher has fewer, a number is not there, or blocks share their weights.
    """
    blocks = getattr(teacher, "blocks", [])
    paths = [(i, weight.path) for i, block in enumerate(blocks) for weight in block.weights]
    if not paths or not all(path.startswith(f"block_{i}/") for i, path in paths):
        raise ValueError(
            f"{type(teacher).__name__} has no blocks with weights of their own, of which a "
            "student could take some."
        )
    number = len(blocks)
    if isinstance(layers, int):
        if not 1 <= layers <= number:
            raise ValueError(f"layers={layers}: the teacher has {number}, so pass 1 to {number}.")
        return spread_layers(layers, number)
    layers = [int(layer) for layer in layers]
    if not layers or not all(0 <= layer < number for layer in layers):
        raise ValueError(
            f"layers={layers}: pass numbers from 0 to {number - 1}, or how many to take."
        )
    return layers


def spread_layers(number, of):
    """Return the numbers of some layers, spread evenly from the first to the last.

    6 of 12 are `[0, 2, 4, 7, 9, 11]`, as DistilBERT took them: huggingface/transformers,
    `distillation/scripts/extract_distilbert.py`.
    """
    last = max(number - 1, 1)
    return [round(i * (of - 1) / last) for i in range(number)]


def config_with(layers, config):
    """Return a configuration with only some of the layers, a list of their numbers."""
    config = config | {"num_layers": len(layers)}
    windows = config.get("attention_windows")
    if windows is not None:  # which are repeated over the blocks: each keeps its own
        config["attention_windows"] = [windows[i % len(windows)] for i in layers]
    return config


def copy_layers(teacher, student, layers):
    """Assign to a student the teacher's weights of the same names, to block i those of `layers[i]`.

    Weights that only the teacher has are left out.
    """
    weights = {weight.path: weight for weight in teacher.weights}
    for weight in student.weights:
        path = BLOCK.sub(lambda match: f"block_{layers[int(match[1])]}/", weight.path)
        weight.assign(weights[path])
