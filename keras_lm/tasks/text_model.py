"""Keras's entry points on raw strings.

Shapes: B batch, S sequence.
"""

import itertools

import keras
import numpy as np
import tensorflow as tf

from keras_lm.tasks.columns import check_names, columns_from_user, labels_from_user, tensors
from keras_lm.training import schedules

# The inputs that a backbone cannot do without, of which it has one.
PACKED = {"token_ids", "character_ids", "word_vectors"}


class TextModel(keras.Model):
    """A `keras.Model` whose `fit`, `evaluate`, `predict` and the like take raw strings.

    A list or array is a batch, a tuple of two is a pair, a dict uses the keys `text` and
    `text_pair`, and a `tf.data.Dataset` or a generator yields batches of these, alone or with
    labels. Packed dicts (`token_ids`, …) pass through. Strings are tokenized and packed in
    `tf.data`, on the host.

    A subclass says how in `preprocess`, and in `prepare_labels` what its loss takes.
    """

    text_names = ("text", "text_pair")
    # Those that no data may lack, and those whose rows may be lists of strings.
    required_names = ("text",)
    list_names = ()
    # Whether an output has a sequence axis, so that rows of a prediction need one common length.
    predicts_sequences = False
    # Whether texts come in pairs; None until the first data shows it.
    text_pair = None
    is_pair_stated = False
    packer = None

    def preprocess(self, columns):
        """From a dict of string tensors (B,) to the packed dict, in the graph."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to preprocess text.")

    def preprocess_with_labels(self, columns, labels):
        """The same for texts with labels: the packed dict, and the labels as the loss takes them.

        Overridden where a label's place follows from the text's tokens.
        """
        return self.preprocess(columns), labels

    def columns(self, x):
        """Return raw text in any form that `fit` takes, but for datasets, as named string tensors.

        Raises:
            ValueError: if it has no such form; names row and value.
        """
        return tensors(columns_from_user(x, self.text_names, self.required_names, self.list_names))

    def named(self, x):
        """Return an element of a dataset, a tensor, a tuple of two or a dict, as a dict."""
        if not isinstance(x, dict):
            parts = _as_tuple(x)
            if len(parts) > len(self.text_names):
                raise ValueError(
                    f"x is a tuple of {len(parts)} texts: allowed are {list(self.text_names)}."
                )
            x = dict(zip(self.text_names, parts, strict=False))
        check_names(x, self.text_names, self.required_names)
        return x

    @property
    def lookups(self):
        """What holds the tables that `answer` looks strings up in, for an export to take along."""
        return [self.tokenizer, *self.packer.lookups]

    def require_tokenizer(self):
        """Raise an error where strings cannot be taken."""

    def prepare_labels(self, labels):
        """Return labels as the loss takes them; `labels` is an array with a row per example."""
        return labels

    def prepare_label_tensor(self, labels):
        """The same for a batch of a `tf.data.Dataset`, in the graph."""
        return labels

    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        epochs=1,
        verbose="auto",
        callbacks=None,
        validation_split=0.0,
        validation_data=None,
        shuffle=True,
        class_weight=None,
        sample_weight=None,
        initial_epoch=0,
        steps_per_epoch=None,
        **kwargs,
    ):
        """As `keras.Model.fit`, on raw strings; the arguments are Keras's own.

        A learning-rate schedule of `keras_lm.training` without a length is laid over the steps of
        this call.

        Raises:
            ValueError: if strings or labels are not what the task takes; names row and value.
        """
        if validation_split and validation_data is None:
            if isinstance(x, tf.data.Dataset) or hasattr(x, "__next__"):
                raise ValueError("validation_split needs arrays or lists: pass validation_data.")
            (x, y, sample_weight), validation_data = _split(x, y, sample_weight, validation_split)
        guessed, self.text_pair = self.text_pair, self.text_pair if self.is_pair_stated else None
        training = self._batches(x, y, sample_weight, batch_size, shuffle)
        self.text_pair = guessed if self.text_pair is None else self.text_pair
        if validation_data is not None:
            if isinstance(validation_data, (tuple, list)) and not _is_text(validation_data[:1]):
                data = (*validation_data, None, None)[:3]
            else:
                data = (validation_data, None, None)
            size = kwargs.pop("validation_batch_size", None) or batch_size
            validation_data = self._batches(*data, size, shuffle=False)
        steps = steps_per_epoch
        if steps is None and isinstance(training, tf.data.Dataset):
            steps = int(training.cardinality())  # negative where nobody knows
        if steps is None or steps < 1:
            schedules.plan(self, 0, None)
        else:
            schedules.plan(self, -initial_epoch * steps, epochs * steps)
        return super().fit(
            training,
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            validation_data=validation_data,
            shuffle=False,  # done above
            class_weight=class_weight,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch,
            **kwargs,
        )

    def evaluate(
        self, x=None, y=None, batch_size=None, verbose="auto", sample_weight=None, **kwargs
    ):
        """As `keras.Model.evaluate`, on raw strings."""
        batches = self._batches(x, y, sample_weight, batch_size, shuffle=False)
        return super().evaluate(batches, verbose=verbose, **kwargs)

    def predict(self, x, batch_size=None, verbose="auto", **kwargs):
        """As `keras.Model.predict`, on raw strings: what calling the task returns, for all rows.

        Rows of sequence outputs are padded to the longest text of all.
        """
        batches = self._batches(x, None, None, batch_size, shuffle=False)
        if self.predicts_sequences:
            if kwargs.get("steps"):
                batches = batches.take(kwargs["steps"])
            batches = _pad_alike(batches.cache(), self.packer)
        return super().predict(batches, verbose=verbose, **kwargs)

    def train_on_batch(self, x, y=None, sample_weight=None, **kwargs):
        """As `keras.Model.train_on_batch`, on raw strings."""
        schedules.plan(self, 0, None)
        return super().train_on_batch(*self._one_batch(x, y, sample_weight), **kwargs)

    def test_on_batch(self, x, y=None, sample_weight=None, **kwargs):
        """As `keras.Model.test_on_batch`, on raw strings."""
        return super().test_on_batch(*self._one_batch(x, y, sample_weight), **kwargs)

    def predict_on_batch(self, x):
        """As `keras.Model.predict_on_batch`, on raw strings."""
        return super().predict_on_batch(self._one_batch(x)[0])

    def _batches(self, x, y, sample_weight, batch_size, shuffle):
        """Return a dataset of packed batches `(inputs[, labels[, weights]])`."""
        if isinstance(x, tf.data.Dataset):
            if y is not None or sample_weight is not None:
                raise ValueError("x is a tf.data.Dataset: let it yield (x, y, sample_weight).")
            return self._prepared_dataset(x)
        if hasattr(x, "__next__"):
            return _from_generator(self._one_batch(*_as_tuple(batch)) for batch in x)
        data = self._arrays(x, y, sample_weight)
        size = next(iter(data[0].values())).shape[0]
        if not size:
            raise ValueError("x is empty: pass at least one example.")
        dataset = tf.data.Dataset.from_tensor_slices(data)
        if shuffle:
            dataset = dataset.shuffle(size)
        return self._prepared_dataset(dataset.batch(batch_size or 32), labels_are_ready=True)

    def _arrays(self, x, y, sample_weight):
        if _is_packed(x):
            columns = {key: np.asarray(value) for key, value in x.items()}
        else:
            self.require_tokenizer()
            columns = self.columns(x)
            self._note_pairs(columns)
        length = next(iter(columns.values())).shape[0]
        data = [columns]
        if y is not None:
            data.append(
                {key: labels_from_user(value, length) for key, value in y.items()}
                if isinstance(y, dict)
                else self.prepare_labels(labels_from_user(y, length))
            )
        if sample_weight is not None:
            if y is None:
                raise ValueError("sample_weight is given without y: it weighs the loss of labels.")
            data.append(labels_from_user(sample_weight, length))
        return tuple(data)

    def _one_batch(self, x, y=None, sample_weight=None):
        return self._preprocessed(*self._arrays(x, y, sample_weight))

    def _preprocessed(self, x, *rest):
        """Pack the columns of `(x[, labels[, weights]])`, unless they are packed already."""
        if _is_packed(x):
            return (x, *rest)
        if not rest:
            return (self.preprocess(x),)
        return (*self.preprocess_with_labels(x, rest[0]), *rest[1:])

    def _prepared_dataset(self, dataset, labels_are_ready=False):
        spec = _as_tuple(dataset.element_spec)[0]
        packed = _is_packed(spec)
        for leaf in tf.nest.flatten(spec):
            if leaf.shape.rank == 0:
                raise ValueError("x is a tf.data.Dataset of single examples: call .batch(n) on it.")
            if not packed and leaf.dtype != tf.string:
                raise ValueError(
                    f"x is a tf.data.Dataset of {leaf.dtype.name}: it must yield strings, or dicts "
                    "with token_ids."
                )
            is_list = leaf.shape.rank == 2 and self.list_names
            if not packed and leaf.shape.rank not in (None, 1) and not is_list:
                raise ValueError(
                    f"x is a tf.data.Dataset of strings of shape {leaf.shape}: it must yield (B,), "
                    "and pairs as a tuple or a dict."
                )
        if not packed:
            self.require_tokenizer()
            self._note_pairs(self.named(spec))

        # Plain graph code: without AutoGraph it is quicker to trace and errors are clearer.
        @tf.autograph.experimental.do_not_convert
        def prepare(*batch):
            x, *rest = batch
            if rest and not labels_are_ready:
                rest[0] = self.prepare_label_tensor(rest[0])
            return self._preprocessed(x if packed else self.named(x), *rest)

        return dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def _note_pairs(self, columns):
        if self.text_pair is None:
            self.text_pair = "text_pair" in columns


def _is_packed(x):
    """Whether inputs are a backbone's, rather than texts."""
    return isinstance(x, dict) and not PACKED.isdisjoint(x)


def _as_tuple(element):
    return element if isinstance(element, tuple) else (element,)


def _is_text(values):
    """Whether a list (of one) is a batch of texts, rather than `[x, y]`."""
    return isinstance(values, list) and all(isinstance(value, (str, bytes)) for value in values)


def _from_generator(batches):
    """A dataset of a generator's batches, of which no two need the same width."""
    first = next(batches, None)
    if first is None:
        raise ValueError("x is a generator without batches: pass at least one.")
    spec = tf.nest.map_structure(
        lambda value: tf.TensorSpec([None] * len(value.shape), value.dtype), first
    )
    rest = itertools.chain([first], batches)
    return tf.data.Dataset.from_generator(lambda: rest, output_signature=spec)


def _split(x, y, sample_weight, share):
    """Hold out the last `share` of the rows, as Keras does."""
    if not 0 < share < 1:
        raise ValueError(f"validation_split={share} is not between 0 and 1.")
    first = next(iter(x.values())) if isinstance(x, dict) else x[0] if isinstance(x, tuple) else x
    length = len(first)
    y = list(y) if isinstance(y, tuple) else y
    at = int(length * (1 - share))
    if at in (0, length):
        raise ValueError(f"validation_split={share} of {length} examples leaves a side empty.")

    def take(data, rows):
        if data is None:
            return None
        if isinstance(data, dict):
            return {key: take(value, rows) for key, value in data.items()}
        if isinstance(data, tuple):
            return tuple(take(value, rows) for value in data)
        return data[rows] if not hasattr(data, "iloc") else data.iloc[rows]

    data = (x, y, sample_weight)
    return (
        tuple(take(part, slice(None, at)) for part in data),
        tuple(take(part, slice(at, None)) for part in data),
    )


def _pad_alike(batches, packer):
    """Pad every packed batch of a dataset to the columns of the widest."""
    inputs = batches.map(lambda *batch: batch[0])

    def complete(packed):  # what is added below must not pass for text
        if "token_ids" not in packed:
            return packed
        return {"padding_mask": tf.ones_like(packed["token_ids"])} | packed

    inputs = inputs.map(complete)
    widths = inputs.map(lambda packed: {key: tf.shape(v)[1] for key, v in packed.items()})
    widths = widths.reduce(
        dict.fromkeys(widths.element_spec, 0),
        lambda most, here: {key: tf.maximum(most[key], here[key]) for key in most},
    )
    pad_id = 0 if packer is None else packer.pad_id
    on_the_left = packer is not None and packer.template.padding_side == "left"

    def pad(packed):
        def widen(name, value):
            missing = widths[name] - tf.shape(value)[1]
            is_left = on_the_left and name != "mask_positions"
            missing = [missing, 0] if is_left else [0, missing]
            constant = pad_id if name == "token_ids" else 0
            others = [[0, 0]] * (value.shape.rank - 2)
            return tf.pad(value, [[0, 0], missing, *others], constant_values=constant)

        return {name: widen(name, value) for name, value in packed.items()}

    return inputs.map(pad)
