"""What the arguments of a model may be: what is declared of each, and what a checkpoint allows.

`COMMON` has the ranges of arguments that several models have under one name. A model declares its
own in `RANGES`, and those of `COMMON` that differ for it:

    RANGES = {"memory_length": Whole(0), "pooled_dim": Axis()}

They are looked at when a model is made, and before that, when a checkpoint's configuration asks for
one. An argument that neither has, and no flag, may be anything here.
"""

import dataclasses
import inspect
import math
import numbers
from collections.abc import Callable

import keras

from keras_lm.converters import CheckpointError
from keras_lm.utils.registry import backbone_classes
from keras_lm.utils.user_arguments import is_flag


class Range:
    """What an argument may be.

    With `is_axis`, a tensor of a checkpoint has an axis as long, or nearly. With `is_count`, each
    of as many parts has at least one tensor of its own. So a checkpoint bounds both.
    """

    is_axis = is_count = False

    def problem(self, value):
        """Return what to pass in place of a value, or None."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Whole(Range):
    """Whole numbers from `least` to `most`, and None if `is_optional`."""

    least: int = 1
    most: float = math.inf
    is_optional: bool = False
    is_axis: bool = False
    is_count: bool = False

    def problem(self, value):
        if value is None and self.is_optional:
            return None
        is_whole = isinstance(value, numbers.Integral) and type(value) is not bool
        if not is_whole or value < self.least:
            return f"a whole number of {self.least} or more"
        return None if value <= self.most else f"{self.most} or less"


@dataclasses.dataclass(frozen=True)
class Axis(Whole):
    """The length of an axis of a tensor."""

    is_axis: bool = True


@dataclasses.dataclass(frozen=True)
class Count(Whole):
    """A number of parts with tensors of their own."""

    is_count: bool = True


@dataclasses.dataclass(frozen=True)
class Wholes(Whole):
    """A `Whole`, or a list of them, which is empty only if it `may_be_empty`."""

    may_be_empty: bool = False

    def problem(self, value):
        is_list = isinstance(value, (list, tuple)) and (len(value) > 0 or self.may_be_empty)
        problems = map(super().problem, value if is_list else [value])
        problem = next(filter(None, problems), None)
        return problem and f"{problem}, or a list of such"


@dataclasses.dataclass(frozen=True)
class Real(Range):
    """Numbers from 0 to `most`, and None if `is_optional`; without 0 if `is_positive`."""

    most: float = math.inf
    is_optional: bool = True
    is_positive: bool = False

    def problem(self, value):
        if value is None and self.is_optional:
            return None
        is_number = isinstance(value, numbers.Real) and type(value) is not bool
        is_number = is_number and math.isfinite(value) and 0 <= value <= self.most
        if is_number and (value > 0 or not self.is_positive):
            return None
        if self.is_positive:
            return "a number above 0, such as 1e-12"
        return f"a number {'of 0 or more' if self.most == math.inf else f'from 0 to {self.most}'}"


@dataclasses.dataclass(frozen=True)
class Known(Range):
    """The names for which a function raises no ValueError; `what` says what they are."""

    find: Callable
    what: str

    def problem(self, value):
        if not isinstance(value, str):
            return self.what
        try:
            self.find(value)
        except ValueError:
            return self.what
        return None


RATE = Real(most=1)

COMMON = {
    "num_layers": Count(),
    "num_decoder_layers": Count(),
    "vocabulary_size": Axis(),
    "decoder_vocabulary_size": Axis(),
    "num_heads": Axis(),
    "head_dim": Axis(),
    "hidden_dim": Axis(),
    "embedding_dim": Axis(),
    "intermediate_dim": Axis(),
    "num_segments": Axis(),
    "max_sequence_length": Axis(),
    "dropout": RATE,
    "attention_dropout": RATE,
    "classifier_dropout": RATE,
    "embedding_dropout": RATE,
    "layer_norm_epsilon": Real(is_optional=False, is_positive=True),
}
# Sizes of heads, in the arguments of tasks and in what these hold, which a checkpoint bounds, too.
OF_TASKS = {
    "concept_dim": Axis(),
    "feature_dim": Axis(),
    "graph_dim": Axis(),
    "graph_hidden_dim": Axis(),
    "lstm_dim": Axis(),
    "num_classes": Axis(),
    "num_lstm_layers": Count(),
    "num_mixes": Count(),
    "output_dim": Axis(),
    "pair_dim": Axis(),
    "path_dim": Axis(),
    "relation_dim": Axis(),
    "text_dim": Axis(),
    "truncate_dim": Axis(),
}


def ranges_of(cls: type) -> dict[str, Range]:
    """Return the ranges of the arguments of a class: those of `COMMON`, and its own."""
    ranges = dict(COMMON)
    for base in reversed(cls.__mro__):
        ranges |= vars(base).get("RANGES", {})
    return ranges


# === A call ===


def bind_arguments(cls, args, kwargs):
    """Return the arguments of a call of a class with the defaults, as presets keep them.

    That is a dict without `dtype` and `name`, and with lists in place of tuples. Other models are
    left out: a class that keeps one adds it in `get_config`. Arguments that a constructor passes on
    as `*args` and `**kwargs` are bound to its base's.

    Raises:
        ValueError: if an argument is not in its range, see `ranges_of`. Those that are at their
            default are not looked at. Flags are those whose default is one.

    Example:

        bind_arguments(BertBackbone, (), {"num_heads": 12})  # 0 is a ValueError
    """
    arguments, ranges = {}, ranges_of(cls)
    for constructor in (vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)):
        signature = inspect.signature(constructor)
        try:
            bound = signature.bind_partial(None, *args, **kwargs)
        except TypeError:  # the call itself says it better
            break
        _check(bound.arguments, signature, ranges)
        bound.apply_defaults()
        args, kwargs = (), None
        for name, value in list(bound.arguments.items())[1:]:
            kind = signature.parameters[name].kind
            if kind == inspect.Parameter.VAR_POSITIONAL:
                args = value
            elif kind == inspect.Parameter.VAR_KEYWORD:
                kwargs = value
            elif name not in ("dtype", "name") and not isinstance(value, keras.Model):
                arguments.setdefault(name, _with_lists(value))
        if kwargs is None:
            break
    return arguments


def check_arguments(cls, arguments):
    """Raise a ValueError if a dict has a value that an argument of a class cannot have.

    Args:
        cls: class of backbone.
        arguments: dict of some of its arguments.
    """
    _check(arguments, inspect.signature(cls.__init__), ranges_of(cls))


def _with_lists(value):
    return [_with_lists(item) for item in value] if isinstance(value, (list, tuple)) else value


def _check(given, signature, ranges):
    for name, value in given.items():
        default = signature.parameters[name].default
        is_default = type(value) is type(default) and value == default
        if is_default:
            continue
        if isinstance(default, bool):
            problem = None if is_flag(value) else "True or False"
        else:
            problem = ranges[name].problem(value) if name in ranges else None
        if problem:
            raise ValueError(f"{name}={value!r}: pass {problem}.")


# === A checkpoint ===

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
        layers, ranges = _layers_with_tensors(part, cls), OF_TASKS | COMMON
        if cls is not None:
            ranges = ranges_of(cls)
        for name, value in part.items():
            largest, number = _sizes_in(value)
            declared = ranges.get(name, Range)
            shared = name == "num_layers" and layers != largest
            most = max(len(shapes), MOST_SHARED_LAYERS * shared)
            if declared.is_count and largest > most:
                raise _error(checkpoint, f"{name}={largest}", f"it has {len(shapes)} tensors")
            if name == "filters" and number > len(shapes):
                raise _error(checkpoint, f"{number} {name}", f"it has {len(shapes)} tensors")
            most = SLACK * max(longest, SHORTEST_AXIS if declared.is_axis else SMALL_NUMBER)
            if largest > most:
                raise _error(checkpoint, f"{name}={largest}", f"no tensor is longer than {longest}")
            if number > SLACK * max(longest, SHORTEST_LIST):
                raise _error(checkpoint, f"{number} {name}", f"no tensor is longer than {longest}")
        sizes = {name: part[name] for name in part if ranges.get(name, Range).is_axis}
        claimed = least_parameters(sizes, layers)
        if claimed > SLACK * total + NEGLIGIBLE:
            sizes = ", ".join(f"{name}={part[name]}" for name in _SIZES if name in part)
            raise _error(checkpoint, sizes, f"its tensors hold {total} numbers")


_SIZES = ("vocabulary_size", "max_sequence_length", "num_layers", "hidden_dim", "embedding_dim")
_SIZES += ("intermediate_dim", "cell_dim", "num_heads", "head_dim", "num_buckets", "filters")


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
    pending, largest = [value], 0
    while pending:
        part = pending.pop()
        if isinstance(part, (list, tuple)):
            pending += part
        elif type(part) is int:
            largest = max(largest, part)
    return largest, len(value) if isinstance(value, (list, tuple)) else 0


def _parts(value):
    """Yield the dicts in a dict, each with the backbone's class whose arguments it has, or None."""
    classes = {}
    for part in nested_dicts(value):
        cls = backbone_classes().get(str(part.get("class") or part.get("class_name")))
        classes |= {id(part.get(key)): cls for key in ("arguments", "config")}
        yield part, classes.get(id(part))


def _layers_with_tensors(arguments, cls):
    number = arguments.get("num_layers", 0) if cls is None else cls.layers_with_tensors(arguments)
    return number if type(number) is int and number > 0 else 0


def nested_dicts(value):
    """Yield a dict and the dicts in it, however deep: backbones of backbones."""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield value
            pending += value.values()
        elif isinstance(value, list):
            pending += value


def _error(checkpoint, sizes, reason):
    return CheckpointError(
        f"{checkpoint.source}: its configuration asks for {sizes}, but {reason}: it is "
        "another checkpoint's, or damaged. Copy or download it again."
    )
