"""A training step whose batch is computed in parts, to take less memory. Shapes: B batch."""

import tensorflow as tf

from keras_lm.layers.tensorflow.replica_sums import sum_over_replicas
from keras_lm.tasks.steps import metrics_of, rows_of, sum_of


def train(model, optimizer, whole):
    """Take the step of a prepared batch, `model.micro_batch_size` rows at a time.

    The whole batch is prepared first: how it is corrupted does not depend on the parts, and what
    each loss is divided by is known before the first of them. What layers add to the loss is not:
    of it the step takes the mean over the parts.
    """
    rows = rows_of(whole)
    counts = {name: sum_over_replicas(count) for name, count in model.label_counts(whole).items()}
    all_rows = sum_over_replicas(tf.cast(rows, "float32"))
    weights = model.trainable_weights
    reached = set()  # numbers of the weights that have a gradient

    def add_part(start, loss, *sums):
        end = tf.minimum(start + model.micro_batch_size, rows)
        part = tf.nest.map_structure(lambda x: None if x is None else x[start:end], whole)
        share = tf.math.divide_no_nan(tf.cast(end - start, "float32"), all_rows)

        def divisor(term):
            return counts[term.name] if term.name in counts else term.count / share

        with tf.GradientTape() as tape:
            computed = model.compute_batch(part, training=True)
            terms = model.loss_terms(part, computed, training=True)
            own = sum_of(model, terms, divisor, 1.0 / share)
            scaled = optimizer.scale_loss(own)
        gradients = tape.gradient(scaled, weights)
        reached.update(i for i, gradient in enumerate(gradients) if gradient is not None)
        metrics_of(model, part, computed)
        sums = [s if g is None else s + g for s, g in zip(sums, gradients, strict=True)]
        return end, loss + own, *sums

    zeros = [tf.zeros(weight.shape, weight.dtype) for weight in weights]
    _, loss, *sums = tf.while_loop(
        lambda start, *_: start < rows, add_part, (0, 0.0, *zeros), parallel_iterations=1
    )
    gradients = [s if i in reached else None for i, s in enumerate(sums)]
    optimizer.apply_gradients(zip(gradients, weights, strict=True))
    return loss, model.get_metrics_result()
