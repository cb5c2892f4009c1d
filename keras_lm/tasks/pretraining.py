"""Self-supervised tasks: objectives corrupt batches and make labels within each step."""

import copy
from typing import Any

import keras

from keras_lm.tasks.task import Task


class PretrainingTask(Task):
    """A task that the objectives of `make_objectives` train; labels in the data replace theirs."""

    predicts_sequences = True

    def make_objectives(self):
        return []

    @property
    def objective(self):
        (objective,) = self.objectives
        return objective

    def _set_tokenizer(self, tokenizer):
        super()._set_tokenizer(tokenizer)
        self._train_on(self.objectives or self.make_objectives())

    def over(self, backbone, tokenizer):
        task = super().over(backbone, tokenizer)
        task._train_on(map(copy.copy, self.objectives))
        return task

    def _train_on(self, objectives):
        self.objectives = list(objectives)
        for objective in self.objectives:
            objective.set_tokenizer(self.tokenizer)
            objective.set_backbone(self.backbone)
        if keras.backend.backend() != "tensorflow":  # else a step knows nothing of their state
            self.objective_seeds = [o.seed_generator for o in self.objectives if o.seed_generator]
            if any(objective.companions for objective in self.objectives):
                raise ValueError(
                    "An objective has a network of its own, such as a generator, which is trained "
                    "with Keras's TensorFlow backend only: set KERAS_BACKEND=tensorflow."
                )

    def default_loss(self):
        return self.objective.loss()

    def default_metrics(self):
        return self.objective.metrics()

    @property
    def needs_labels(self):
        return bool(self._labels_of_data)

    @property
    def labels_remedy(self):
        return f"pass y, and say there {' and '.join(self._labels_of_data)}"

    @property
    def _labels_of_data(self):
        return [one.labels_of_data for one in self.objectives if one.labels_of_data]

    @property
    def trainable_weights(self):
        # Also those of companions, which are trained, but not saved with the model.
        weights = super().trainable_weights
        own = {id(weight) for weight in weights}
        others = [w for objective in self.objectives for w in objective.trainable_weights]
        return weights + [weight for weight in others if id(weight) not in own]

    # === Steps ===

    def _encode(self, inputs, training):
        return self._read(self.backbone, inputs, training)

    def _read(self, compute, inputs, training):
        inputs = self.backbone.taken(inputs)
        if self._carried is None:
            return compute(inputs, training=training)
        outputs = compute(inputs | self._carried.inputs(training), training=training)
        self._carried.keep(outputs, training)
        return outputs

    def prepare_batch(self, data: Any, training: bool | None) -> Any:
        """Corrupt a batch without labels."""
        batch = super().prepare_batch(data, training)
        if batch.labels is None:
            inputs, labels = self.objective.corrupt(batch.inputs, training)
            batch = batch._replace(inputs=inputs, labels=labels)
        return batch
