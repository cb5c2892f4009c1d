"""A task's variables and layers, for both kinds of export."""

import tensorflow as tf


def module_of(*functions, lookups=()):
    """Return a `tf.Module` that tracks only what traced functions read.

    Keras objects would add optimizer slots, seeds, and a second copy of weights. Tables of the
    tokenizers in `lookups` are made anew when the module is loaded.
    """
    module = tf.Module()
    module.lookups = list(lookups)
    # Not those whose values were only looked at in tracing.
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


def answering(task, texts):
    """Yield (signature, task that it answers as, texts for it) of a task, or of each of several."""
    if not hasattr(task, "tasks"):
        yield "serving_default", task, texts
        return
    if not isinstance(texts, dict) or set(texts) != set(task.tasks):
        raise ValueError(f"texts must be a dict with texts for each task of {[*task.tasks]}.")
    for name, part in task.tasks.items():
        yield name, part, texts[name]
