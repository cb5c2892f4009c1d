"""What exports of both kinds need to know of a task: its variables and its layers."""

import tensorflow as tf


def module_of(*functions, lookups=()):
    """Return a `tf.Module` with what traced functions read, and with nothing else.

    Keras objects stay outside: with them would come optimizer slots, seeds, and weights again.

    Args:
        *functions: `ConcreteFunction`s, whose variables are taken.
        lookups: list of `keras_lm.tokenizers.Tokenizer`s. Lookup tables and other resources that
            they hold are made anew wherever the module is loaded.
    """
    module = tf.Module()
    module.lookups = list(lookups)
    variables = {id(v): v for function in functions for v in function.variables}
    module.weights = {}
    for variable in sorted(variables.values(), key=lambda v: v.name):
        name = variable.name.partition(":")[0]
        while name in module.weights:  # two layers may share a name
            name += "_"
        module.weights[name] = variable
    return module


def layer_names(task):
    """Return the names of all layers of a task, at any depth."""
    return {layer.name for layer in task._flatten_layers()}
