"""Whether a checkpoint's configuration and its tensors agree.

Sizes and classes are checked before anything is built, and tables that are read in two places when
the weights have been loaded.
"""

import math
import re

import keras

from keras_lm.converters import CheckpointError
from keras_lm.utils.registry import BACKBONES
from keras_lm.utils.user_warning import warn

# Each of these has at least one tensor of its own, and each of those is the axis of one.
COUNT = re.compile(r"num_(\w+_)?(layers|groups|repetitions|highways|mixes)")
AXIS = re.compile(
    r"\w+_(dims?|size)|num_(segments|classes|characters|heads|buckets)|max_sequence_length"
)
# Where a checkpoint says the same in another way: a row less, or parts of a tensor each on its own.
SLACK = 2
# So short an axis, or list, any model may have; other numbers, such as a limit that is never
# reached, may be larger than a tensor is long.
SHORTEST_AXIS, SHORTEST_LIST, SMALL_NUMBER = 1024, 8192, 2**20
# Layers that share all parameters need no tensors, but time.
MOST_SHARED_LAYERS = 256
# A model with fewer parameters than these does no harm, whatever its checkpoint holds.
NEGLIGIBLE = 2**20


def check_claims(checkpoint, arguments):
    """Raise a CheckpointError if arguments describe a model far larger than a checkpoint's tensors.

    A few bytes can claim any number of layers, or matrices of any size, and building those would
    take all memory and time. What is merely wrong is found when the weights are loaded.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        arguments: dict of a backbone's or a task's `class` and `arguments`; dicts in these are
            looked at too.
    """
    shapes = [checkpoint.tensors.shape(name) for name in checkpoint.tensors]
    longest = max((axis for shape in shapes for axis in shape), default=0)
    total = sum(map(math.prod, shapes))
    for part, cls in _parts(arguments):
        layers, unlike = _layers_with_tensors(part, cls), _unlike_tensors(cls)
        for name, value in part.items():
            largest, number = _sizes_in(value)
            shared = name == "num_layers" and layers != largest
            most = max(len(shapes), MOST_SHARED_LAYERS * shared)
            if COUNT.fullmatch(name) and largest > most:
                raise _error(checkpoint, f"{name}={largest}", f"it has {len(shapes)} tensors")
            if name == "filters" and number > len(shapes):
                raise _error(checkpoint, f"{number} {name}", f"it has {len(shapes)} tensors")
            is_axis = AXIS.fullmatch(name) and name not in unlike
            most = SLACK * max(longest, SHORTEST_AXIS if is_axis else SMALL_NUMBER)
            if largest > most:
                raise _error(checkpoint, f"{name}={largest}", f"no tensor is longer than {longest}")
            if number > SLACK * max(longest, SHORTEST_LIST):
                raise _error(checkpoint, f"{number} {name}", f"no tensor is longer than {longest}")
        claimed = least_parameters({k: v for k, v in part.items() if k not in unlike}, layers)
        if claimed > SLACK * total + NEGLIGIBLE:
            sizes = ", ".join(f"{name}={part[name]}" for name in _SIZES if name in part)
            raise _error(checkpoint, sizes, f"its tensors hold {total} numbers")


_SIZES = ("vocabulary_size", "max_sequence_length", "num_layers", "hidden_dim", "embedding_dim")
_SIZES += ("intermediate_dim", "cell_dim", "num_heads", "head_dim", "num_buckets", "filters")


def check_classes(checkpoint, config):
    """Raise a CheckpointError if the configuration of a preset names a class that it may not.

    Keras makes what a dict with a `class_name` describes: any class of its own, or a function. Here
    those are backbones in backbones, and dtype policies.
    """
    for part in _dicts(config):
        if "class_name" not in part:
            continue
        name, module, registered = (
            part.get(key) for key in ("class_name", "module", "registered_name")
        )
        found = keras.saving.get_registered_object(str(registered))
        # By its name as well: Keras makes some classes by it alone, whatever is registered.
        is_backbone = found in BACKBONES.values() and found.__name__ == name
        is_policy = module == "keras" and name == "DTypePolicy" and registered is None
        if not is_backbone and not is_policy:
            raise CheckpointError(
                f"{checkpoint.source}: its configuration names the class {name!r} of {module!r}, "
                "and only backbones and dtype policies may be named there: do not use it unless "
                "you know who made it."
            )


def check_output_matrix(checkpoint, names, untied, model, network):
    """Raise a CheckpointError if a table of tokens would be another than the checkpoint's.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        names: `NameTable` of its model.
        untied: list of the tensors, left over, that usually are copies of the token embedding.
        model, network: a task or a backbone, and the network that has the weights.
    """
    kinds = getattr(model, "head_kinds", ())
    reads_it = any(network.HEADS[kind].reads_embedding for kind in kinds)
    untied = sorted(untied, key=lambda name: name.endswith("bias"))
    of_network = [name for name in untied if "embed" in name]
    if of_network or (untied and reads_it):
        name = (of_network or untied)[0]
        originals = " and ".join(names.originals(name))
        remedy = (
            "" if of_network else ": tasks that predict no tokens, such as TextClassifier, load it"
        )
        raise CheckpointError(
            f"{checkpoint.source} has {name}, which differs from {originals}, and "
            f"{type(model).__name__} has one for both{remedy}."
        )
    is_untied = checkpoint.config.get("tie_word_embeddings") is False
    is_untied = is_untied and "tie_embeddings" not in network.config
    has_matrix = names.copies.keys() & names.resolve(checkpoint.weights).keys()
    if reads_it and is_untied and not has_matrix:
        warn(
            f"{checkpoint.source} states tie_word_embeddings=False and has no output matrix: "
            f"{type(model).__name__} takes the token embedding."
        )


def least_parameters(arguments, layers):
    """Return a number of parameters that a model of these arguments has at least.

    Args:
        arguments: dict.
        layers: int. How many layers have kernels of their own.
    """
    sizes = {name: value for name, value in arguments.items() if type(value) is int and value > 0}
    width = sizes.get("hidden_dim", 0)
    heads = sizes.get("num_heads", 0) * sizes.get("head_dim", 0)
    layers *= width
    layers *= max(width, sizes.get("intermediate_dim", 0), sizes.get("cell_dim", 0), heads)
    rows = sizes.get("vocabulary_size", 0) + sizes.get("max_sequence_length", 0)
    filters = arguments.get("filters") or []
    try:
        filters = sum(span * number for span, number in filters)
    except (TypeError, ValueError):  # the constructor says what is wrong
        filters = 0
    biases = sizes.get("num_buckets", 0) * sizes.get("num_heads", 0)
    return layers + rows * sizes.get("embedding_dim", width) + filters + biases


def _sizes_in(value):
    """Return the largest number in an argument and in its lists, and how long its list is."""
    found, largest = [value], 0
    while found:
        part = found.pop()
        if isinstance(part, (list, tuple)):
            found += part
        elif type(part) is int:
            largest = max(largest, part)
    return largest, len(value) if isinstance(value, (list, tuple)) else 0


def _parts(value):
    """Yield the dicts in a dict, each with the backbone's class whose arguments it has, or None."""
    classes = {}
    for part in _dicts(value):
        cls = BACKBONES.get(str(part.get("class") or part.get("class_name")))
        classes |= {id(part.get(key)): cls for key in ("arguments", "config")}
        yield part, classes.get(id(part))


def _layers_with_tensors(arguments, cls):
    found = arguments.get("num_layers", 0) if cls is None else cls.layers_with_tensors(arguments)
    return found if type(found) is int and found > 0 else 0


def _unlike_tensors(cls):
    """Return the arguments that no tensor is as long as, whatever their names, as a set."""
    ranges = {} if cls is None else cls.RANGES
    return {name for name, allowed in ranges.items() if not allowed.is_axis}


def _dicts(value):
    """Yield a dict and the dicts in it, however deep: backbones of backbones."""
    found = [value]
    while found:
        value = found.pop()
        if isinstance(value, dict):
            yield value
            found += value.values()
        elif isinstance(value, list):
            found += value


def _error(checkpoint, sizes, reason):
    return CheckpointError(
        f"{checkpoint.source}: its configuration asks for {sizes}, but {reason}: it is "
        "another checkpoint's, or damaged. Copy or download it again."
    )
