"""Steps of tasks with Keras's JAX backend. Shapes: B batch."""

import jax
import keras
import tensorflow as tf

from keras_lm.tasks import micro_batches
from keras_lm.training.schedules import schedule_and_steps


class StepModel(micro_batches.StepModel):
    """The step on JAX: corruption, losses and metrics are those of TensorFlow's.

    Devices are those of `keras.distribution`. XLA sees a batch as a whole, however devices divide
    it, so losses and gradients are those of all of it. Text stays on the host, in `tf.data`.
    """

    # `tf.distribute` has no part in this: one process, and one replica.
    distribute_strategy = property(lambda self: tf.distribute.get_strategy())

    def compile(self, *args, micro_batch_size=None, smoothing=None, **kwargs):
        """As `keras.Model.compile`.

        Raises:
            ValueError: with `micro_batch_size` or `smoothing`, which are for TensorFlow.
        """
        if smoothing is not None:
            raise ValueError("smoothing needs Keras's TensorFlow backend: leave it out.")
        if micro_batch_size is not None:
            raise ValueError(
                f"micro_batch_size={micro_batch_size} needs Keras's TensorFlow backend: leave it "
                "out, and divide a batch over more devices by keras.distribution."
            )
        super(micro_batches.StepModel, self).compile(*args, **kwargs)
        schedule, _ = schedule_and_steps(self)
        if schedule is not None:  # else a compiled step would keep the numbers it was traced with
            for variable in schedule.variables:
                self.optimizer._track_variable(variable)

    def train_step(self, state, data):
        trained, others, optimizer, metrics = state
        gradient = jax.value_and_grad(self._forward, has_aux=True)
        (_, (logs, others, metrics)), gradients = gradient(
            trained, others, metrics, data, optimizer
        )
        trained, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trained)
        return logs, (trained, others, optimizer, metrics)

    def test_step(self, state, data):
        _, (logs, others, metrics) = self._forward(*state, data)
        return logs, (state[0], others, metrics)

    def _forward(self, trained, others, metrics, data, optimizer=None):
        """Return the loss to derive, and logs and values of variables after a step; no effects.

        Without values of the optimizer's variables, this is a step of evaluation.
        """
        training = optimizer is not None
        refs = [*self.trainable_variables, *self.non_trainable_variables, *self.metrics_variables]
        values = [*trained, *others, *metrics]
        if training:
            refs, values = refs + self.optimizer.variables, values + [*optimizer]
        mapping = zip(refs, values, strict=True)
        with keras.StatelessScope(state_mapping=mapping, collect_losses=True) as scope:
            prepared = self.prepare_batch(data, training)
            inputs, *compared = self.compute_batch(prepared, training)
            loss = self.compute_loss(inputs, *compared, training=training)
            rows = keras.tree.flatten(inputs)[0].shape[0]
            self._loss_tracker.update_state(loss, sample_weight=rows)
            logs = self.compute_metrics(inputs, *compared)
            derived = self.optimizer.scale_loss(loss) if training else loss
        others, metrics = (
            [scope.get_current_value(variable) for variable in variables]
            for variables in (self.non_trainable_variables, self.metrics_variables)
        )
        return derived, (logs, others, metrics)

    def _symbolic_build(self, iterator=None, data_batch=None):
        # Losses and metrics are built from labels that a step makes, by Keras only from the data's.
        if data_batch is None:
            data_batch = next(next(batches) for _, _, batches in iterator)
        prepared = self.prepare_batch(data_batch, training=False)
        _, labels, outputs, _ = self.compute_batch(prepared, training=False)
        for part in (self._compile_loss, self._compile_metrics):
            if part is not None and not part.built:
                part.build(labels, outputs)
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
