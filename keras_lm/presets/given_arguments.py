"""The arguments of `from_preset`: those that nothing takes are refused, with what was meant."""

import inspect

from keras_lm.utils.registry import advice

# What other libraries call arguments → ours.
OTHER_NAMES = {
    "num_labels": "num_classes",
    "labels": "class_names",
    "id2label": "class_names",
    "max_length": "sequence_length",
    "max_seq_length": "sequence_length",
    "model_max_length": "sequence_length",
    "preprocessor": "tokenizer",
    "torch_dtype": "dtype",
}


def argument_names(cls):
    """Return the names of the arguments of a backbone or a task that `from_preset` takes, a set."""
    found = inspect.signature(cls.__init__).parameters.values()
    return {
        each.name
        for each in found
        if each.kind is each.POSITIONAL_OR_KEYWORD or each.kind is each.KEYWORD_ONLY
    } - {"self", "backbone"}


def refuse_unknown(arguments, known):
    """Raise a ValueError if `from_preset` got arguments that none of `known` takes.

    `known` is a dict of what takes arguments → their names.
    """
    names = set().union(*known.values())
    if unknown := sorted(set(arguments) - names):
        near = "".join(
            f" {name} is {OTHER_NAMES[name]} here."
            if OTHER_NAMES.get(name) in names
            else advice(name, sorted(names))
            for name in unknown
        )
        takes = ", ".join(f"{what} takes {sorted(each)}" for what, each in known.items())
        raise ValueError(f"from_preset got the unknown arguments {unknown}.{near} {takes}.")
