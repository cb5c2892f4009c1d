"""Keras's entry points on raw strings."""

import numbers

import keras

from keras_lm.feeding import datasets, lengths
from keras_lm.feeding.replicas import distributed
from keras_lm.feeding.user_data import labelled, labels_from_user
from keras_lm.tasks import classes
from keras_lm.tasks.backend_steps import StepModel
from keras_lm.training import AdamW, schedules
from keras_lm.training.distribution import workers_of


class TextModel(StepModel):
    """A `keras.Model` whose `fit`, `evaluate`, `predict` and the like take raw strings.

    As in KerasHub's `PipelineModel`, `preprocess` runs in `tf.data`, on the host; the network takes
    packed dicts. See `keras_lm.feeding.datasets`.
    """

    # Whether an output has a sequence axis, so that rows of a prediction need one common length.
    predicts_sequences = False
    # Whether texts come in pairs; None until the first data shows it.
    text_pair = None
    is_pair_stated = False
    # Whether data to learn from and to evaluate on must come with labels.
    needs_labels = True
    labels_remedy = "pass y, the labels of x"
    # What a table's column of labels may be called.
    label_columns = ("labels", "label")

    # === Defined by subclasses ===

    def preprocess(self, columns):
        """Return the packed dict for a dict of string tensors (B,), in the graph."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to preprocess text.")

    def prepare_labels(self, labels):
        """Return labels as the loss takes them; `labels` is an array with a row per example."""
        return labels

    def prepare_label_tensor(self, labels):
        """The same for a batch of a `tf.data.Dataset`, in the graph."""
        return labels

    def matched_labels(self, columns, labels):
        """Return prepared labels for texts or packed inputs; raise an error if they do not fit."""
        return labels

    def labels_for_metrics(self, labels, outputs):
        """Return labels of a batch as metrics compare them with outputs."""
        return labels

    def prepare_metric(self, metric):
        """Return a metric, or its name, as it fits the task's labels and outputs."""
        return metric

    def prepare_class_weight(self, class_weight, labels=None):
        """Return the weight of each class, in their order, for `class_weight` of `fit`.

        `labels` are all of them, prepared, or None where they are not in memory.
        """
        raise ValueError(
            f"class_weight weighs classes, and {type(self).__name__} has none: pass sample_weight, "
            "a number for each text."
        )

    def start_from(self, labels):
        """Set what a new head begins with, from the labels of `fit`; None if x is a dataset."""

    def row_lengths(self, columns, labels=None):
        """Return numbers (N,) by which rows of like lengths are sorted together in `fit`."""
        return lengths.count_tokens(self, columns)

    def preprocess_with_labels(self, columns, labels):
        """Return packed texts and labels; overridden if labels depend on the text's tokens."""
        return self.preprocess(columns), labels

    def training_batches(self, x, y, sample_weight, batch_size, shuffle, group):
        """Return the packed batches of `fit`; overridden if an example has several rows there."""
        return datasets.batches(
            self, x, y, sample_weight, batch_size, shuffle, group, needs_labels=self.needs_labels
        )

    def validation_batches(self, data, batch_size, steps):
        """Return the packed batches of `validation_data`."""
        return datasets.validation_batches(self, data, batch_size, steps)

    def default_loss(self):
        return None

    def default_metrics(self):
        return None

    # === Keras's methods ===

    def compile(
        self,
        optimizer="auto",
        loss="auto",
        metrics="auto",
        weighted_metrics=None,
        **kwargs,
    ):
        """As `StepModel.compile`, with the task's own optimizer, loss and metrics for `"auto"`.

        The optimizer is `AdamW(backbone.learning_rate)`, which warms up and decays.
        Keras's metrics take the labels and outputs of a task, also those that are defined for
        one-hot labels and probabilities, such as `keras.metrics.F1Score(average="macro")`; see
        `keras_lm.metrics` for others.
        """
        with self.distribute_strategy.scope():
            optimizer = AdamW(self.backbone.learning_rate) if optimizer == "auto" else optimizer
            loss = self.default_loss() if isinstance(loss, str) and loss == "auto" else loss
            is_auto = isinstance(metrics, str) and metrics == "auto"
            metrics = self.default_metrics() if is_auto else metrics
            metrics, weighted_metrics = keras.tree.map_structure(
                self.prepare_metric, (metrics, weighted_metrics)
            )
        super().compile(
            optimizer=optimizer,
            loss=loss,
            metrics=metrics,
            weighted_metrics=weighted_metrics,
            **kwargs,
        )

    def compile_from_config(self, config):
        try:
            self.compile(**keras.saving.deserialize_keras_object(config))
        except (AttributeError, ImportError, KeyError, TypeError) as error:
            raise ValueError(
                "What the file says of optimizer, loss and metrics cannot be used, "
                f"{type(error).__name__}: {' '.join(str(error).split())[:200]}. Load it with "
                "compile=False."
            ) from error
        with self.distribute_strategy.scope():
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
        validation_batch_size=None,
        group_by_length=True,
        **kwargs,
    ):
        """As `keras.Model.fit`, on raw strings.

        `batch_size` is 16 by default, half of Keras's: few examples then teach more, as they make
        more steps. Of a table without `y`, a pandas DataFrame or a Hugging Face `Dataset`, the
        column `labels` or `label` has the labels. `class_weight` may have class names as keys; a
        tagger's weighs each word by its own class. It is `"balanced"`, of labels in memory, for
        classes that count the same, however many labels they have. Where lists or arrays of texts
        are shuffled, `group_by_length` has those of like lengths come in one batch, which saves the
        time of padding: rows are shuffled, sorted in blocks of up to 50 batches, and the batches
        shuffled again.

        A learning-rate schedule of `keras_lm.training` without a length gets the steps of this
        call.

        Raises:
            ValueError: if strings or labels have another form; names row and value.
        """
        if not isinstance(epochs, numbers.Integral) or epochs < 0:
            raise ValueError(f"epochs={epochs!r} must be an int, 0 or more.")
        x, y = labelled(self, x, y)
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = datasets.split(
                x, y, sample_weight, validation_split
            )
        batches = self.first_batches(x, y, sample_weight, batch_size, shuffle, group_by_length)
        if class_weight is not None:
            is_counted = isinstance(class_weight, str) and y is not None
            labels = self.prepare_labels(labels_from_user(y, len(y))) if is_counted else None
            weights = self.prepare_class_weight(class_weight, labels)
            batches = classes.with_class_weights(batches, weights)
        if validation_data is not None:
            size = batch_size if validation_batch_size is None else validation_batch_size
            steps = kwargs.get("validation_steps")
            validation_data = self.validation_batches(validation_data, size, steps)
        if datasets.has_replicas(self):
            batches = distributed(self.distribute_strategy, batches)
            validation_data = distributed(self.distribute_strategy, validation_data)
        steps = datasets.number_of_batches(batches) if steps_per_epoch is None else steps_per_epoch
        if steps is None or steps < 1:
            schedules.plan(self, 0, None)
        else:
            schedules.plan(self, -initial_epoch * steps, epochs * steps)
        return super().fit(
            batches,
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            validation_data=validation_data,
            shuffle=False,  # done above
            initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch,
            **kwargs,
        )

    def first_batches(self, x, y, sample_weight, batch_size, shuffle, group):
        """Return the packed batches of `fit`, and learn from its data what the task begins with."""
        guessed, self.text_pair = self.text_pair, self.text_pair if self.is_pair_stated else None
        batches = self.training_batches(x, y, sample_weight, batch_size, shuffle, group)
        self.text_pair = guessed if self.text_pair is None else self.text_pair
        self.start_from(y)
        return batches

    def evaluate(
        self, x=None, y=None, batch_size=None, verbose="auto", sample_weight=None, **kwargs
    ):
        x, y = labelled(self, x, y)
        batches, _ = datasets.sorted_batches(
            self, x, y, sample_weight, batch_size, kwargs.get("steps"), self.needs_labels
        )
        if datasets.has_replicas(self):
            batches = distributed(self.distribute_strategy, batches)
        return super().evaluate(batches, verbose=verbose, **kwargs)

    def predict(self, x, batch_size=None, verbose="auto", **kwargs):
        """As `keras.Model.predict`; sequence outputs are padded to the longest text of all."""
        steps, strategy = kwargs.get("steps"), self.distribute_strategy
        batches, places = datasets.sorted_batches(self, x, batch_size=batch_size, steps=steps)
        if self.predicts_sequences:
            if steps:
                batches = batches.take(steps * workers_of(strategy).replicas)
            batches = datasets.padded_alike(batches, self.packer, strategy)
        if datasets.has_replicas(self):
            batches = distributed(strategy, batches)
        outputs = super().predict(batches, verbose=verbose, **kwargs)
        if places is None:
            return outputs
        return keras.tree.map_structure(lambda array: array[places], outputs)

    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None, **kwargs):
        schedules.plan(self, 0, None)
        batch = datasets.one_batch(self, x, y, sample_weight, self.needs_labels)
        if class_weight is not None:
            batch = classes.weigh_classes(self.prepare_class_weight(class_weight), *batch)
        return super().train_on_batch(*batch, **kwargs)

    def test_on_batch(self, x, y=None, sample_weight=None, **kwargs):
        batch = datasets.one_batch(self, x, y, sample_weight, self.needs_labels)
        return super().test_on_batch(*batch, **kwargs)

    def predict_on_batch(self, x):
        packed = datasets.one_batch(self, x)[0]
        outputs, rows = super().predict_on_batch(packed), len(next(iter(packed.values())))
        return keras.tree.map_structure(lambda array: array[:rows], outputs)  # every replica's

    def note_pairs(self, columns):
        """Set `text_pair` by the first data, unless it was given."""
        if self.text_pair is None:
            self.text_pair = "text_pair" in columns
