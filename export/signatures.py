"""What an exported model offers: functions of named tensors, and the variables they read."""

import tensorflow as tf

from keras_lm.tasks import FeatureExtractor


def text_specs(task):
    """Return the inputs of `serving_default`: a string tensor for each text that a task takes.

    Args:
        task: `keras_lm.tasks.Task`. With `text_pair=True` it takes both of its texts.

    Raises:
        ValueError: if the task has no tokenizer.
    """
    if task.tokenizer is None:
        raise ValueError(
            f"{type(task).__name__} has no tokenizer, and an export takes strings: pass tokenizer= "
            "when making the task."
        )
    return {
        name: tf.TensorSpec(task.text_shape(name), tf.string, name) for name in task.answer_names
    }


def trace_all(task):
    """Return all that a SavedModel of a task offers: name of the signature → `ConcreteFunction`.

    Args:
        task: `keras_lm.tasks.Task` with a tokenizer.
    """
    texts = text_specs(task)
    # One function for all signatures, so that the graph holds the tokenizer once. `classify` and
    # `regress` call `answer` in turn, and bring no second model.
    tokenize = trace(task.tokenize, {"text": tf.TensorSpec([None], tf.string, "text")})
    answer = trace(answer_function(task, tokenize), texts)
    functions = {
        "serving_default": answer,
        "tokens": trace(raw_function(task), task.packed_specs()),
        "tokenize": trace(pieces_function(task, tokenize), texts),
    }
    for name, specs in task.other_signatures().items():
        is_same = specs == texts  # only a further name
        functions[name] = answer if is_same else trace(answer_function(task, tokenize), specs)
    if task.example_signature():
        name, outputs = task.example_signature()
        inputs = {"inputs": tf.TensorSpec([None], tf.string, "inputs")}
        functions[name] = trace(example_function(answer, outputs, list(texts)), inputs)
    return functions


def answer_function(task, tokenize=None):
    """Return the function that `serving_default` is: named strings → `task.answer`.

    Args:
        task: `keras_lm.tasks.Task`.
        tokenize: see `Task.preprocess`.
    """

    def answer(**columns):
        return plain_floats(task.answer(columns, tokenize))

    return answer


def lite_function(task):
    """Return the function that a `.tflite` holds: named strings → `task.answer_lite`."""

    def answer(**columns):
        return plain_floats(task.answer_lite(columns))

    return answer


def raw_function(task):
    """Return the function that `tokens` is: named packed tensors → the task's raw outputs."""
    name = "embedding" if isinstance(task, FeatureExtractor) else "logits"

    def raw(**packed):
        outputs = task(packed, training=False)
        return plain_floats(outputs if isinstance(outputs, dict) else {name: outputs})

    return raw


def pieces_function(task, tokenize=None):
    """Return the function that `tokenize` is: named strings → what the model sees of them.

    Args:
        task: `keras_lm.tasks.Task`.
        tokenize: see `Task.preprocess`.
    """

    def pieces(**columns):
        return task.packer.pieces(task.preprocess(columns, tokenize), task.tokenizer)

    return pieces


def example_function(answer, outputs, names):
    """Return a function of `inputs`, serialized `tf.Example`s, for TF Serving's own methods.

    Args:
        answer: the function that `serving_default` is.
        outputs: what `Task.example_signature` gives: a function of the answer.
        names: names of the texts, features that each example must have.
    """
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in names}

    def examples(inputs):
        return outputs(answer(**tf.io.parse_example(inputs, features)))

    return examples


def plain_floats(outputs):
    """Return the outputs of a signature, half precision as float32."""
    # JSON has no word for half precision, and neither do most clients.
    halves = (tf.bfloat16, tf.float16)
    return {
        name: tf.cast(value, tf.float32) if value.dtype in halves else tf.identity(value)
        for name, value in outputs.items()
    }


def trace(function, specs):
    """Return the `ConcreteFunction` of a function of named tensors."""
    return tf.function(function, autograph=False).get_concrete_function(**specs)


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
