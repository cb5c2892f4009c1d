"""The function of an export that takes ids. Shapes: B batch, S sequence."""

import numpy as np

from keras_lm.layers.tensorflow import for_lite
from keras_lm.tasks.signatures import plain_floats, trace
from keras_lm.tensorflow import tf

# Rows and columns of what a new file is asked: single tokens, padding, more than one block.
SIZES = ((1, 1), (3, 7), (2, 40))


class PackedSignatures:
    """Packed rows in, the numbers of the answer out; texts and their tokenizer are not in it.

    Raises:
        ValueError: if the answer to packed rows is not one array or several.
    """

    def __init__(self, task):
        task.require_packed_answers()
        self.task = task

    def specs(self):
        """Return the `tf.TensorSpec`s of the inputs by name."""
        return self.task.packer.row_specs(self.task.signatures.raw_specs())

    def axes(self, _):
        """Return the names of an input's axes."""
        several = self.task.packer.rows.several_for is not None
        return ("batch", "choices", "sequence") if several else ("batch", "sequence")

    def answer(self):
        task = self.task
        return lambda **packed: plain_floats(
            task.decode_packed(task(packed, training=False), packed)
        )

    def function(self):
        """Return the `ConcreteFunction` of `answer`, in operations that other formats have."""
        with for_lite():
            return trace(self.answer(), self.specs())

    def rows(self, columns):
        """Return the packed rows of named strings, arrays by name."""
        packed = self.task.preprocess({name: tf.constant(x) for name, x in columns.items()})
        return {name: packed[name].numpy() for name in self.specs()}

    def requests(self):
        """Yield packed rows of random tokens, some of them with padding: arrays by name."""
        longest = self.task.packer.sequence_length
        random = np.random.default_rng(0)
        for rows, columns in SIZES:
            columns = min(columns, longest)
            sizes = [rows, columns] if self.task.packer.rows.several_for is None else [rows, 2]
            sizes += [columns, columns]
            yield {name: self._values(spec, sizes, random) for name, spec in self.specs().items()}

    def _values(self, spec, sizes, random):
        shape = [size or known for size, known in zip(spec.shape, sizes)]
        if spec.dtype.is_floating:
            return random.normal(size=shape).astype(spec.dtype.as_numpy_dtype)
        if spec.name == "token_ids":
            most = self.task.backbone.vocabulary_size
            return random.integers(0, most, shape).astype("int32")
        values = np.full(shape, int(spec.name.endswith("_mask")), "int32")
        if len(values) > 1:
            values[1, ..., shape[-1] // 2 + 1 :] = 0
        return values
