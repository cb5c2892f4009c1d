"""Task: a tokenizer, a packer, a backbone and a head, trained and served on raw strings.

Shapes: B batch, S sequence, D hidden.
"""

import keras
import numpy as np
import tensorflow as tf

from keras_lm import tokenizers
from keras_lm.packers import Packer
from keras_lm.tasks.columns import columns_from_user, labels_from_user
from keras_lm.training import AdamW, WarmupLinearDecay


class Task(keras.Model):
    """A model that does a job on text; the base class of all tasks.

    A subclass makes its head in `__init__` (with `add_head`), states its defaults for `compile` and
    what it serves (`decode`). `fit`, `evaluate`, `predict`, `train_on_batch`, `test_on_batch` and
    `predict_on_batch` take raw strings: a list or array is a batch, a tuple of two is a pair, a
    dict uses the keys `text` and `text_pair`, and a `tf.data.Dataset` yields batches of these,
    alone or with labels. They also take packed dicts (`token_ids`, …), as `task(inputs)` does.

    Args:
        backbone: `keras_lm.models.Backbone`.
        tokenizer: `keras_lm.tokenizers.Tokenizer`, or None for a task that takes packed dicts only.
        sequence_length: int, or None for the backbone's own limit. Longer texts are truncated.
        padding: `"longest"` of the batch, or `"fixed"` to `sequence_length`.
        truncation: see `keras_lm.packers.Packer`.
        text_pair: bool. Whether the served signature takes `text_pair` beside `text`; None until
            `fit` has seen which it is.
        name: str.

    Raises:
        ValueError: if the tokenizer's vocabulary is larger than the backbone's embedding, or
            `sequence_length` exceeds what the backbone has positions for.
    """

    text_names = ("text", "text_pair")
    default_learning_rate = 5e-5
    # Whether an output has a sequence axis, so that rows of a prediction need one common length.
    predicts_sequences = False

    def __init__(
        self,
        backbone,
        tokenizer=None,
        sequence_length=None,
        padding="longest",
        truncation="longest_first",
        text_pair=None,
        name=None,
    ):
        super().__init__(name=name, dtype=backbone.dtype_policy)
        limit = backbone.max_sequence_length
        if sequence_length is not None and limit is not None and sequence_length > limit:
            raise ValueError(
                f"sequence_length={sequence_length}, but the backbone has positions for {limit}: "
                f"pass {limit} or less."
            )
        self.backbone = backbone
        self.packing = {
            "sequence_length": sequence_length or limit or 512,
            "padding": padding,
            "truncation": truncation,
        }
        self.text_pair = text_pair
        self._set_tokenizer(tokenizer)

    def _set_tokenizer(self, tokenizer):
        self.tokenizer = tokenizer
        self.packer = None
        if tokenizer is None:
            return
        rows = self.backbone.config["vocabulary_size"]
        if tokenizer.vocabulary_size > rows:
            raise ValueError(
                f"tokenizer has {tokenizer.vocabulary_size} entries, but the backbone's embedding "
                f"has {rows} rows: they belong to different checkpoints."
            )
        self.packer = Packer(self.backbone.TEMPLATE, tokenizer, **self.packing)

    def add_head(self, kind, **options):
        """Return the backbone's head of a `kind`, built."""
        head = self.backbone.make_head(kind, **options)
        head(self.backbone.output, self.backbone.input)
        return head

    def _finish(self):
        """Every variable is there by now: say so to Keras, and compile with the defaults."""
        self.built = True
        self.compile()

    # === From and to files ===

    @classmethod
    def from_preset(cls, source, load_weights=True, **arguments):
        """Load a task from a preset, a published checkpoint or a size name.

        Args:
            source: see `keras_lm.models.Backbone.from_preset`.
            load_weights: bool. False gives random weights; a size name needs it.
            **arguments: of the task, such as `num_classes` or `sequence_length`; of its backbone,
                such as `dropout` or `dtype`. `tokenizer` replaces the checkpoint's own.

        Returns:
            A compiled task. A head that the checkpoint lacks is fresh, and one warning says so.

        Raises:
            FileNotFoundError: if `source` is neither a folder nor a known name.
            ValueError: if the checkpoint is damaged, unknown or ambiguous, or an argument is
                unknown.
        """
        from keras_lm import presets

        return presets.load_task(source, cls, load_weights=load_weights, **arguments)

    @classmethod
    def arguments_from_checkpoint(cls, labels):
        """Return the arguments that a published classification head states.

        Args:
            labels: `keras_lm.converters.labels.Labels`.

        Returns:
            dict, or None where the head is not one of this task.
        """
        return None

    def save_to_preset(self, folder):
        """Write configuration, vocabulary and weights to `folder`, together and in one step.

        Args:
            folder: path. Made, or replaced where it holds a preset.

        Raises:
            FileExistsError: if `folder` holds something that is no preset; it is left as it is.
        """
        from keras_lm import presets

        presets.save(folder, backbone=self.backbone, task=self)

    def export(self, path, format="saved_model"):
        """Write one artefact that takes strings.

        Args:
            path: for `"saved_model"` the folder of all versions, in which the next number is made;
                for `"litert"` the `.tflite` file.
            format: `"saved_model"` or `"litert"`.

        Returns:
            `pathlib.Path` of what was written.

        Raises:
            ValueError: if `format` is unknown, the task has no tokenizer, or the graph holds an
                operation that the place where it shall run does not have.
        """
        from keras_lm import export

        return export.export(self, path, format=format)

    def get_config(self):
        tokenizer = self.tokenizer
        return {
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "tokenizer": tokenizer
            and {"class_name": type(tokenizer).__name__, "config": tokenizer.get_config()},
            "name": self.name,
            **self.get_arguments(),
        }

    def get_arguments(self):
        """Return the arguments but for backbone, tokenizer and name, as JSON can hold them."""
        return {**self.packing, "text_pair": self.text_pair}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        tokenizer = config.pop("tokenizer")
        if not isinstance(config["backbone"], keras.Model):
            config["backbone"] = keras.saving.deserialize_keras_object(
                config["backbone"], custom_objects
            )
        task = cls(**config)
        task._tokenizer_config = tokenizer  # its vocabulary follows in load_assets
        return task

    def save_assets(self, folder):
        """Called by Keras for a `.keras` file: the vocabulary."""
        if self.tokenizer is not None:
            self.tokenizer.save_assets(folder)

    def load_assets(self, folder):
        """Called by Keras for a `.keras` file: the vocabulary."""
        if self._tokenizer_config is not None:
            cls = getattr(tokenizers, self._tokenizer_config["class_name"])
            self._set_tokenizer(cls.from_assets(folder, self._tokenizer_config["config"]))

    # === Calling ===

    def __call__(self, inputs, *args, **kwargs):
        if not isinstance(inputs, dict):
            raise ValueError(
                f"inputs is a {type(inputs).__name__}: calling {type(self).__name__} takes the "
                "dict that preprocess({'text': …}) returns. Raw strings go to predict."
            )
        inputs = {
            name: np.asarray(value) if isinstance(value, list) else value
            for name, value in inputs.items()
        }
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs, training=None):
        return self.head(self._encode(inputs, training), inputs, training=training)

    def _encode(self, inputs, training):
        return self.backbone(self._backbone_inputs(inputs), training=training)

    def _backbone_inputs(self, inputs):
        """Leave out what is meant for a head, such as `mask_positions`."""
        return {name: inputs[name] for name in self.backbone.input_names if name in inputs}

    def preprocess(self, columns, tokenize=None):
        """Tokenize and pack, in the graph.

        Args:
            columns: dict of string tensors (B,), keyed `text` and perhaps `text_pair`.
            tokenize: callable from strings to ragged ids; the task's tokenizer where left out.

        Returns:
            The packed dict of (B, S) int32 that calling the task takes.
        """
        if tokenize is None:
            self._require_tokenizer()
            tokenize = self._tokenize
        return self.packer(*(tokenize(columns[key]) for key in self.text_names if key in columns))

    def _tokenize(self, text):
        return self.tokenizer(text)

    def answer(self, columns, tokenize=None):
        """From strings to what a client wants, in the graph: the function that is exported.

        Args:
            columns: dict of string tensors (B,).
            tokenize: see `preprocess`.

        Returns:
            dict of tensors, each with B rows.
        """
        packed = self.preprocess(columns, tokenize)
        return self.decode(self(packed, training=False), packed)

    def decode(self, outputs, packed):
        """Return the served dict for raw outputs: these themselves, where not overridden."""
        return outputs if isinstance(outputs, dict) else {"logits": outputs}

    def answer_all(self, x, batch_size=32):
        """Answer for raw strings, batch by batch.

        Args:
            x: raw strings in any form that `predict` takes.
            batch_size: int.

        Returns:
            dict of numpy arrays, a row per example; strings are `str`.
        """
        self._require_tokenizer()
        if self._answer_function is None:
            self._answer_function = tf.function(self.answer, reduce_retracing=True, autograph=False)
        if not isinstance(x, tf.data.Dataset):
            columns = columns_from_user(x, self.text_names)
            x = tf.data.Dataset.from_tensor_slices(_tensors(columns)).batch(batch_size)
        else:
            x = x.map(lambda *batch: _named(batch[0], self.text_names))
        answers = [
            {key: value.numpy() for key, value in self._answer_function(batch).items()}
            for batch in x
        ]
        if not answers:
            raise ValueError("x is empty: pass at least one text.")
        return {key: _to_str(_concatenate([a[key] for a in answers])) for key in answers[0]}

    _answer_function = None
    _tokenizer_config = None

    def _require_tokenizer(self):
        if self.tokenizer is None:
            raise ValueError(
                f"{type(self).__name__} has no tokenizer, so it cannot take raw strings: pass "
                "tokenizer= when making it, or call it with packed dicts."
            )

    # === Training ===

    def default_loss(self):
        """Return the loss that `compile()` uses."""
        return None

    def default_metrics(self):
        """Return the metrics that `compile()` uses."""
        return None

    def compile(self, optimizer="auto", loss="auto", metrics="auto", jit_compile=False, **kwargs):
        """As `keras.Model.compile`, with the task's defaults for what is `"auto"`.

        Args:
            optimizer: `"auto"` is `keras_lm.training.AdamW`.
            loss: `"auto"` is the task's own.
            metrics: `"auto"` are the task's own.
            jit_compile: bool. XLA compiles anew for every sequence length: use it with
                `padding="fixed"`.
            **kwargs: see `keras.Model.compile`.
        """
        optimizer = AdamW(self.default_learning_rate) if optimizer == "auto" else optimizer
        loss = self.default_loss() if isinstance(loss, str) and loss == "auto" else loss
        metrics = (
            self.default_metrics() if isinstance(metrics, str) and metrics == "auto" else metrics
        )
        super().compile(
            optimizer=optimizer, loss=loss, metrics=metrics, jit_compile=jit_compile, **kwargs
        )

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

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
            if isinstance(x, tf.data.Dataset):
                raise ValueError("validation_split needs arrays or lists: pass validation_data.")
            (x, y, sample_weight), validation_data = _split(x, y, sample_weight, validation_split)
        training = self._batches(x, y, sample_weight, batch_size, shuffle)
        if validation_data is not None:
            if isinstance(validation_data, (tuple, list)):
                data = (*validation_data, None, None)[:3]
            else:
                data = (validation_data, None, None)
            size = kwargs.pop("validation_batch_size", None) or batch_size
            validation_data = self._batches(*data, size, shuffle=False)
        self._plan_schedule(training, epochs, initial_epoch, steps_per_epoch)
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
            batches = _pad_alike(batches, self.packer)
        return super().predict(batches, verbose=verbose, **kwargs)

    def train_on_batch(self, x, y=None, sample_weight=None, **kwargs):
        """As `keras.Model.train_on_batch`, on raw strings."""
        return super().train_on_batch(*self._one_batch(x, y, sample_weight), **kwargs)

    def test_on_batch(self, x, y=None, sample_weight=None, **kwargs):
        """As `keras.Model.test_on_batch`, on raw strings."""
        return super().test_on_batch(*self._one_batch(x, y, sample_weight), **kwargs)

    def predict_on_batch(self, x):
        """As `keras.Model.predict_on_batch`, on raw strings."""
        return super().predict_on_batch(self._one_batch(x)[0])

    def prepare_labels(self, labels):
        """Return labels as the loss takes them; `labels` is an array with a row per example."""
        return labels

    def prepare_label_tensor(self, labels):
        """The same for a batch of a `tf.data.Dataset`, in the graph."""
        return labels

    def _batches(self, x, y, sample_weight, batch_size, shuffle):
        """Return a dataset of packed batches `(inputs[, labels[, weights]])`."""
        if isinstance(x, tf.data.Dataset):
            if y is not None or sample_weight is not None:
                raise ValueError("x is a tf.data.Dataset: let it yield (x, y, sample_weight).")
            return self._prepared_dataset(x)
        if hasattr(x, "__next__"):
            return (self._one_batch(*_as_tuple(batch)) for batch in x)
        data = self._arrays(x, y, sample_weight)
        size = len(next(iter(data[0].values())))
        if not size:
            raise ValueError("x is empty: pass at least one example.")
        dataset = tf.data.Dataset.from_tensor_slices(data)
        if shuffle:
            dataset = dataset.shuffle(size)
        return self._prepared_dataset(dataset.batch(batch_size or 32), labels_are_ready=True)

    def _arrays(self, x, y, sample_weight):
        if isinstance(x, dict) and "token_ids" in x:
            columns = {key: np.asarray(value) for key, value in x.items()}
        else:
            self._require_tokenizer()
            columns = _tensors(columns_from_user(x, self.text_names))
            self._note_pairs(columns)
        length = len(next(iter(columns.values())))
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
        columns, *rest = self._arrays(x, y, sample_weight)
        return (columns if "token_ids" in columns else self.preprocess(columns), *rest)

    def _prepared_dataset(self, dataset, labels_are_ready=False):
        spec = _as_tuple(dataset.element_spec)[0]
        packed = isinstance(spec, dict) and "token_ids" in spec
        for leaf in tf.nest.flatten(spec):
            if leaf.shape.rank == 0:
                raise ValueError("x is a tf.data.Dataset of single examples: call .batch(n) on it.")
            if not packed and leaf.dtype != tf.string:
                raise ValueError(
                    f"x is a tf.data.Dataset of {leaf.dtype.name}: it must yield strings, or dicts "
                    "with token_ids."
                )
        if not packed:
            self._require_tokenizer()
            self._note_pairs(_named(spec, self.text_names))

        # Plain graph code: without AutoGraph it is quicker to trace and errors are clearer.
        @tf.autograph.experimental.do_not_convert
        def prepare(*batch):
            x, *rest = batch
            if not packed:
                x = self.preprocess(_named(x, self.text_names))
            if rest and not labels_are_ready:
                rest[0] = self.prepare_label_tensor(rest[0])
            return (x, *rest)

        return dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def _note_pairs(self, columns):
        if self.text_pair is None:
            self.text_pair = "text_pair" in columns

    def _plan_schedule(self, batches, epochs, initial_epoch, steps_per_epoch):
        optimizer = getattr(self.optimizer, "inner_optimizer", self.optimizer)  # loss scaling
        schedule = getattr(optimizer, "_learning_rate", None)
        if not isinstance(schedule, WarmupLinearDecay):
            return
        steps = steps_per_epoch
        if steps is None and isinstance(batches, tf.data.Dataset):
            steps = int(batches.cardinality())
        if steps is None or steps < 1:
            return
        start = int(optimizer._iterations) - initial_epoch * steps
        if schedule.plan(start, epochs * steps):
            self.train_function = None


def _tensors(columns):
    return {name: tf.constant(list(column), tf.string) for name, column in columns.items()}


def _as_tuple(element):
    return element if isinstance(element, tuple) else (element,)


def _named(x, names):
    """A dataset's element, a tensor, a tuple of two, or a dict, as a dict."""
    if isinstance(x, dict):
        unknown = sorted(set(x) - set(names))
        if unknown or names[0] not in x:
            raise ValueError(
                f"x has the keys {sorted(x)}: {names[0]!r} is needed, allowed are {list(names)}."
            )
        return x
    return dict(zip(names, _as_tuple(x), strict=False))


def _split(x, y, sample_weight, share):
    """Hold out the last `share` of the rows, as Keras does."""
    if not 0 < share < 1:
        raise ValueError(f"validation_split={share} is not between 0 and 1.")
    length = len(y) if y is not None else len(x)
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
    widths = inputs.map(lambda packed: tf.shape(packed["token_ids"])[1])
    width = widths.reduce(0, tf.maximum)
    pad_id = 0 if packer is None else packer.pad_id
    on_the_left = packer is not None and packer.template.padding_side == "left"

    def pad(packed):
        def widen(name, value):
            missing = width - tf.shape(value)[1]
            missing = [missing, 0] if on_the_left else [0, missing]
            constant = pad_id if name == "token_ids" else 0
            return tf.pad(value, [[0, 0], missing], constant_values=constant)

        return {name: widen(name, value) for name, value in packed.items()}

    return inputs.map(pad)


def _concatenate(arrays):
    """Join batches along the rows; zeros or empty strings widen other axes to the largest."""
    shape = np.max([array.shape[1:] for array in arrays], axis=0) if arrays[0].ndim > 1 else ()
    widened = [
        np.pad(
            array,
            [(0, 0), *((0, int(n) - m) for n, m in zip(shape, array.shape[1:], strict=True))],
            constant_values=b"" if array.dtype == object else 0,
        )
        for array in arrays
    ]
    return np.concatenate(widened)


def _to_str(array):
    if array.dtype != object:
        return array
    return np.vectorize(lambda value: value.decode("utf-8", "replace"), otypes=[object])(array)
