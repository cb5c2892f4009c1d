"""The step of a model on TensorFlow, on one replica or several. Shapes: B batch."""

import contextlib

import tensorflow as tf

from keras_lm.layers.tensorflow.replica_sums import num_replicas, sum_over_replicas
from keras_lm.tasks import strategies
from keras_lm.training.distribution import workers_of


def check(model, jit_compile, micro_batch_size, smoothing):
    """Raise a ValueError if what `compile` was given does not go together."""
    if micro_batch_size is not None and (micro_batch_size < 1 or jit_compile is True):
        raise ValueError(
            f"micro_batch_size={micro_batch_size}, jit_compile={jit_compile}: pass 1 row or "
            "more; parts of a batch differ in size, which XLA lacks."
        )
    if smoothing is not None:
        smoothing.check(model)


def check_compiled(model, metrics):
    """Raise a ValueError if a model compiled with metrics cannot be trained in its strategy."""
    strategies.check(model, metrics)


def train_step(model, data):
    """Take a step of the model's optimizer; return the logs."""
    return train_by(model, model.optimizer, data)


def train_by(model, optimizer, data):
    """Take a step of an optimizer, which may be that of a model that this one is part of."""
    with _draws_of_replica(model):
        batch = model.prepare_batch(data, training=True)
        if model.micro_batch_size:
            from keras_lm.tasks import micro_batches

            loss, metrics = micro_batches.train(model, optimizer, batch)
        else:
            loss, metrics = _train(model, optimizer, batch)
    return _logs(model, batch, loss, metrics)


def test_step(model, data):
    """Return the logs of a step of evaluation."""
    batch = model.prepare_batch(data, training=False)
    computed = model.compute_batch(batch, training=False)
    loss = total(model, model.loss_terms(batch, computed, training=False))
    return _logs(model, batch, loss, metrics_of(model, batch, computed))


def _train(model, optimizer, batch):
    with tf.GradientTape() as tape:
        computed = model.compute_batch(batch, training=True)
        loss = total(model, model.loss_terms(batch, computed, training=True))
        scaled = optimizer.scale_loss(loss)
    weights = model.trainable_weights
    optimizer.apply_gradients(zip(tape.gradient(scaled, weights), weights, strict=True))
    return loss, metrics_of(model, batch, computed)


def total(model, terms):
    """Return a replica's part of the loss of a batch: the parts of all replicas add up to it."""
    return sum_of(model, terms, lambda term: sum_over_replicas(term.count), num_replicas())


def sum_of(model, terms, divisor, parts):
    """Return the weighted sum of terms, each divided by `divisor(term)`, and note them in the logs.

    `parts` is how many times as large as this part the whole batch is.
    """
    loss = 0.0
    for term in terms:
        mean = tf.math.divide_no_nan(term.total, divisor(term))
        model.compiled_losses.note(term.name, parts * mean)
        loss += term.weight * mean
    return loss


def metrics_of(model, batch, computed):
    """Update the metrics; return their results."""
    labels, outputs, weights, _ = computed
    return model.compute_metrics(batch.inputs, labels, outputs, weights)


def _logs(model, batch, loss, metrics):
    """Return the logs of a step: of this replica's metrics, and the loss of the whole batch."""
    loss = sum_over_replicas(loss)
    model._loss_tracker.update_state(loss, sample_weight=rows_of(batch))
    logs = metrics | {"loss": model._loss_tracker.result()}
    if num_replicas() > 1 and workers_of(model.distribute_strategy).number > 1:
        # Keras takes the mean over the first axis, which scalars lack.
        logs = {name: tf.expand_dims(value, 0) for name, value in logs.items()}
    return logs


def rows_of(batch):
    """Return B, the rows of a prepared batch, a tensor."""
    return tf.shape(tf.nest.flatten(batch.inputs)[0])[0]


def _draws_of_replica(model):
    if num_replicas() == 1:
        return contextlib.nullcontext()
    return strategies.draws_of_replica(model)


def build(model, iterator, data_batch):
    """Build the metrics of a model whose labels are made within a step; Keras does the rest.

    Under a strategy Keras builds them from the first batch, before any step.
    """
    part = model._compile_metrics
    if model.objectives and data_batch is not None and part is not None and not part.built:
        batch = model.prepare_batch(data_batch, training=False)
        computed = model.compute_batch(batch, training=False)
        part.build(computed.labels, computed.outputs)
    return False


def first_batch(model, iterator):
    """Return the first batch of one of Keras's iterators, as the first replica here has it."""
    return strategies.first_of_a_replica(model.distribute_strategy, iterator)
