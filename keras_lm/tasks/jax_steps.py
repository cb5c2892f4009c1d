"""The step of a model with Keras's JAX backend. Shapes: B batch.

Devices are those of `keras.distribution`. XLA sees a batch as a whole, however devices divide it,
so losses and gradients are those of all of it. `tf.distribute` has no part in this: there is one
process, and one replica. Text stays on the host, in `tf.data`.
"""

import jax
import keras
from keras import ops

from keras_lm.training.schedules import schedule_and_steps

IS_COMPILED = True  # Keras would run a step operation by operation


def check(model, jit_compile, micro_batch_size, smoothing):
    """Raise a ValueError for the options that are for TensorFlow."""
    if smoothing is not None:
        raise ValueError("smoothing needs Keras's TensorFlow backend: leave it out.")
    if micro_batch_size is not None:
        raise ValueError(
            f"micro_batch_size={micro_batch_size} needs Keras's TensorFlow backend: leave it "
            "out, and divide a batch over more devices by keras.distribution."
        )


def check_compiled(model, metrics):
    """Let a compiled step read the schedule's numbers, which it would otherwise keep as traced."""
    schedule, _ = schedule_and_steps(model)
    if schedule is not None:
        for variable in schedule.variables:
            model.optimizer._track_variable(variable)


def train_step(model, state, data):
    """Take a step of the model's optimizer; return the logs and the new state."""
    trained, others, optimizer, metrics = state
    gradient = jax.value_and_grad(_forward, argnums=1, has_aux=True)
    (_, (logs, others, metrics)), gradients = gradient(
        model, trained, others, metrics, data, optimizer
    )
    trained, optimizer = model.optimizer.stateless_apply(optimizer, gradients, trained)
    return logs, (trained, others, optimizer, metrics)


def test_step(model, state, data):
    """Return the logs of a step of evaluation, and the new state."""
    _, (logs, others, metrics) = _forward(model, *state, data)
    return logs, (state[0], others, metrics)


def _forward(model, trained, others, metrics, data, optimizer=None):
    """Return the loss to derive, and logs and values of variables after a step; no effects.

    Without values of the optimizer's variables, this is a step of evaluation.
    """
    training = optimizer is not None
    refs = [*model.trainable_variables, *model.non_trainable_variables, *model.metrics_variables]
    values = [*trained, *others, *metrics]
    if training:
        refs, values = refs + model.optimizer.variables, values + [*optimizer]
    mapping = zip(refs, values, strict=True)
    with keras.StatelessScope(state_mapping=mapping, collect_losses=True) as scope:
        batch = model.prepare_batch(data, training)
        computed = model.compute_batch(batch, training)
        rows = keras.tree.flatten(batch.inputs)[0].shape[0]
        loss = 0.0
        for term in model.loss_terms(batch, computed, training):
            mean = ops.divide_no_nan(term.total, term.count)
            model.compiled_losses.note(term.name, mean, rows)
            loss += term.weight * mean
        model._loss_tracker.update_state(loss, sample_weight=rows)
        labels, outputs, weights, _ = computed
        logs = model.compute_metrics(batch.inputs, labels, outputs, weights)
        derived = model.optimizer.scale_loss(loss) if training else loss
    others, metrics = (
        [scope.get_current_value(variable) for variable in variables]
        for variables in (model.non_trainable_variables, model.metrics_variables)
    )
    return derived, (logs, others, metrics)


def build(model, iterator, data_batch):
    """Build metrics and optimizer from labels that a step makes, by Keras only from the data's."""
    if data_batch is None:
        data_batch = next(next(batches) for _, _, batches in iterator)
    batch = model.prepare_batch(data_batch, training=False)
    computed = model.compute_batch(batch, training=False)
    part = model._compile_metrics
    if part is not None and not part.built:
        part.build(computed.labels, computed.outputs)
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    return True
