"""A task's variables and layers, for both export formats."""

from keras_lm.tensorflow import tf


def module_of(*functions, lookups=()):
    """Return a `tf.Module` that tracks only what traced functions read.

    A Keras object would also track optimizer slots, seeds, and a second copy of the weights. The
    tables of the tokenizers in `lookups` are created again when the module is loaded.
    """
    module = tf.Module()
    module.lookups = list(lookups)
    # `variables` also has those whose values were only read during tracing.
    read = {id(tensor) for function in functions for tensor in function.captured_inputs}
    variables = {
        id(v): v for function in functions for v in function.variables if id(v.handle) in read
    }
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
