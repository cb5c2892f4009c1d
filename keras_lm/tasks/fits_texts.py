"""`fit` on raw strings: from what users pass to packed batches, and the epochs of these."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_lm.feeding import datasets, predict_batches, replicas
from keras_lm.feeding.step_arguments import check_arguments
from keras_lm.feeding.user_data import watching
from keras_lm.feeding.user_labels import labelled, labels_from_user
from keras_lm.tasks import classes
from keras_lm.training.optimizers import plan_schedule
from keras_lm.training.windows import restored_epoch
from keras_lm.utils.argument_types import RawLabels, RawTexts, Tensor


class FitsTexts:
    """The methods of a `TextModel` that train it."""

    def fit(
        self,
        x: RawTexts | None = None,
        y: RawLabels = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Sequence[Any] | None = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Mapping[Any, float] | None = None,
        sample_weight: Tensor = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_batch_size: int | None = None,
        group_by_length: bool = True,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """As `keras.Model.fit`, on raw strings.

        `batch_size` is 16 by default, half of Keras's: few examples then teach more, as they make
        more steps. Of a table without `y`, a pandas DataFrame or a Hugging Face `Dataset`, the
        column `labels` or `label` has the labels. `class_weight` may have class names as keys; a
        tagger's weighs each word by its own class. It is `"balanced"`, of labels in memory, for
        classes that count the same, however many labels they have. Where lists or arrays of texts
        are shuffled, `group_by_length` puts texts of similar length into one batch, to save the
        time of padding: rows are shuffled, sorted in blocks of up to 50 batches, and the batches
        shuffled again.

        A learning-rate schedule of `keras_lm.training` without a length gets the steps of this
        call.

        Raises:
            FloatingPointError: in the first step whose loss is not a finite number; with a
                `keras.callbacks.TerminateOnNaN`, training ends there without an error.
            TypeError: if an argument is unknown.
            ValueError: if strings or labels have another form; names row and value. If an argument
                is out of its range.
        """
        check_arguments(
            "fit",
            kwargs,
            batch_size=batch_size,
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            validation_split=validation_split,
            validation_data=validation_data,
            class_weight=class_weight,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch,
            validation_batch_size=validation_batch_size,
        )
        x, y = labelled(self, x, y)
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = predict_batches.split_validation(
                x, y, sample_weight, validation_split
            )
        batches = self.first_batches(
            x, y, sample_weight, batch_size, shuffle, group_by_length, class_weight
        )
        if validation_data is not None:
            size = batch_size if validation_batch_size is None else validation_batch_size
            steps = kwargs.get("validation_steps")
            validation_data = self.validation_batches(validation_data, size, steps)
        batches = replicas.distributed(self.distribute_strategy, batches)
        steps = datasets.number_of_batches(batches) if steps_per_epoch is None else steps_per_epoch
        if steps is None or steps < 1:
            plan_schedule(self, 0, None)
        else:
            plan_schedule(self, -initial_epoch * steps, epochs * steps)
        return self.fit_packed(
            batches,
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            validation_data=validation_data,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch,
            **kwargs,
        )

    def fit_packed(self, batches, callbacks=None, validation_data=None, **kwargs):
        """As `keras.Model.fit`, on what `first_batches` and `validation_batches` return."""
        kwargs["callbacks"] = callbacks
        strategy = self.distribute_strategy
        with watching(kwargs, self):
            history = keras.Model.fit(
                self,
                replicas.distributed(strategy, batches),
                validation_data=replicas.distributed(strategy, validation_data),
                shuffle=False,  # done before
                **kwargs,
            )
        history.restored_epoch = restored_epoch(callbacks)
        return history

    def maker_of_batches(self, x, y, batch_size, class_weight=None):
        """Return a function from a seed to the packed batches of an epoch, in an order by it."""
        x, y = labelled(self, x, y)
        return lambda seed: self.first_batches(
            x, y, None, batch_size, True, class_weight=class_weight, seed=seed
        )

    def first_batches(
        self, x, y, sample_weight, batch_size, shuffle, group=True, class_weight=None, seed=None
    ):
        """Return the packed batches of `fit`, and learn from its data what the task begins with."""
        guessed, self.text_pair = self.text_pair, self.text_pair if self.is_pair_stated else None
        self.trained_on_pairs = None
        arguments = (x, y, sample_weight, batch_size, shuffle, group)
        batches = self.training_batches(*arguments, seed=seed)
        self.trained_on_pairs = self.text_pair
        self.text_pair = guessed if self.text_pair is None else self.text_pair
        self.start_from(y)
        if class_weight is None:
            return batches
        is_counted = isinstance(class_weight, str) and y is not None
        labels = self.prepare_labels(labels_from_user(y, len(y))) if is_counted else None
        weights = self.prepare_class_weight(class_weight, labels)
        return classes.with_class_weights(batches, weights)
