"""The signatures of a task's export: functions of named tensors, and requests to run them."""

import keras
import numpy as np
import tensorflow as tf

from keras_lm.layers.tensorflow import for_lite


def trace(function, specs):
    """Return the `ConcreteFunction` of a function of named tensors."""
    return tf.function(function, autograph=False).get_concrete_function(**specs)


def plain_floats(outputs):
    """Return the outputs of a signature, half precision as float32."""
    # Neither JSON nor most clients support half precision.
    halves = (tf.bfloat16, tf.float16)
    return {
        name: tf.cast(value, tf.float32) if value.dtype in halves else tf.identity(value)
        for name, value in outputs.items()
    }


class TextSignatures:
    """The signatures of a task with an answer per text."""

    # Whether a `.tflite` of the task answers by `answer_lite`.
    answers_in_lite = True

    def __init__(self, task):
        self.task = task

    def texts(self):
        """Return the inputs of `serving_default`; ValueError if the task has no tokenizer."""
        task = self.task
        if task.tokenizer is None:
            raise ValueError(
                f"{type(task).__name__} has no tokenizer, and an export takes strings: pass "
                "tokenizer= when making the task."
            )
        return task.packer.specs(optional=task.text_pair)

    def functions(self):
        """Return the signatures of a SavedModel: name → `ConcreteFunction`."""
        task, texts = self.task, self.texts()
        # One function for all signatures, so that the graph holds the tokenizer once. `classify`
        # and `regress` call `answer`, without a second copy of the model.
        tokenize = trace(task.tokenize, {"text": tf.TensorSpec([None], tf.string, "text")})
        answer = trace(self.answer(tokenize), texts)
        functions = {
            "serving_default": answer,
            "tokens": self.raw(),
            "tokenize": trace(self.pieces(tokenize), texts),
        }
        for name, specs in task.other_signatures().items():
            is_same = specs == texts  # only a further name
            functions[name] = answer if is_same else trace(self.answer(tokenize), specs)
        if task.example_signature():
            name, outputs = task.example_signature()
            inputs = {"inputs": tf.TensorSpec([None], tf.string, "inputs")}
            functions[name] = trace(example_function(answer, outputs, list(texts)), inputs)
        return functions

    def defaults(self):
        """Return the defaults of inputs: signature → input → array."""
        return {}

    def files(self):
        """Return what else a server is told, in `assets.extra`: name of a file → text."""
        return {}

    def answer(self, tokenize=None):
        return lambda **columns: plain_floats(self.task.answer(columns, tokenize))

    def raw(self):
        """Return the `ConcreteFunction` of `tokens`: packed inputs → raw outputs."""
        task = self.task

        def raw(**packed):
            outputs = task(packed, training=False)
            outputs = outputs if isinstance(outputs, dict) else {task.output_name: outputs}
            return plain_floats(outputs)

        inputs = keras.tree.flatten(task.backbone.input)
        specs = {x.name: tf.TensorSpec(x.shape, x.dtype, x.name) for x in inputs}
        return trace(raw, task.packer.row_specs(specs))

    def pieces(self, tokenize=None):
        """Return the function of `tokenize`: named strings → the pieces that the model reads."""
        task = self.task
        return lambda **columns: task.packer.pieces(task.preprocess(columns, tokenize))

    def requests(self, batch_sizes):
        """Yield requests (signature, arrays by name) that run all signatures that take texts.

        They warm up TensorFlow for each of the ascending sizes, so that the first client need not
        wait. Batches are small and texts short, so that a server starts quickly. One text is too
        long for the model.
        """
        task, specs = self.task, self.texts()

        def columns(number, rows):
            # `MaskedLM` fills in the mask; for other tasks it is ordinary text.
            mask = task.tokenizer.special_tokens.get("mask", "a")
            text = " ".join([mask, *["a"] * (number - 1)])
            # Two choices or words per row, if a row has several.
            shapes = {name: [rows, 2][: spec.shape.rank] for name, spec in specs.items()}
            return {name: np.full(shape, text) for name, shape in shapes.items()}

        for rows in batch_sizes:
            yield "serving_default", columns(1, rows)
            yield "serving_default", columns(16, rows)
        yield "serving_default", columns(2 * task.packing["sequence_length"], 1)
        yield "tokenize", columns(16, batch_sizes[0])
        if task.example_signature():
            yield task.example_signature()[0], columns(16, batch_sizes[0])

    # === LiteRT ===

    def lite_functions(self):
        """Yield alternatives for a `.tflite`, as `functions` returns them, the best first.

        If a model does not convert with a variable length, every row has `sequence_length` columns.
        """
        task, texts = self.task, self.texts()
        try:
            task.tokenizer.tokenize_lite  # noqa: B018 - a property of some, which says why not
        except AttributeError as error:
            raise ValueError(
                f"{type(task.tokenizer).__name__} cannot tokenize in LiteRT: {error}. Export as a "
                "SavedModel instead."
            ) from error
        packer = task.packer
        for padding in dict.fromkeys([packer.padding, "fixed"]):
            task.packer = packer.with_padding(padding)
            try:
                with for_lite():
                    function = trace(self.answer_lite, texts)
                yield {"serving_default": function}
            finally:
                task.packer = packer

    def answer_lite(self, **columns):
        return plain_floats(self.task.answer_lite(columns))

    def lite_requests(self):
        """Return a list of requests, as in `requests`, that test whether a `.tflite` runs."""
        texts = np.array([[b"", b"a"], [b"two words", b""]])
        specs = self.texts().items()
        columns = {name: texts if spec.shape.rank == 2 else texts[:, 0] for name, spec in specs}
        return [("serving_default", columns)]


def example_function(answer, outputs, names):
    """Return `answer` and `outputs` as a function of serialized `tf.Example`s, for TF Serving."""
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in names}

    def examples(inputs):
        return outputs(answer(**tf.io.parse_example(inputs, features)))

    return examples
