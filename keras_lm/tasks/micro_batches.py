"""A training step whose batch is computed in parts, to take less memory. Shapes: B batch."""

import keras
import tensorflow as tf

from keras_lm.layers.tensorflow import sum_over_replicas
from keras_lm.objectives.objective import MeanLoss, micro_batch


class StepModel(keras.Model):
    """A `keras.Model` whose training step may compute its batch in parts."""

    micro_batch_size = None

    def compile(self, *args, jit_compile=False, micro_batch_size=None, **kwargs):
        """As `keras.Model.compile`, and how much of a batch is computed at a time.

        With `jit_compile`, XLA recompiles for every sequence length: use it with
        `padding="fixed"`.

        With `micro_batch_size`, an int, a step computes its batch in parts of so many rows of each
        replica, which takes the memory of one, and adds their gradients. The step is that of the
        whole batch: losses are divided by its labels, however these are distributed, then
        gradients are clipped once. Keras's `gradient_accumulation_steps` takes the mean of the
        means of several batches instead, and its schedules count these batches. Losses that layers
        add are means over the parts.

        Raises:
            ValueError: if `micro_batch_size` is less than 1, or comes with `jit_compile`.
        """
        if micro_batch_size is not None and (micro_batch_size < 1 or jit_compile is True):
            raise ValueError(
                f"micro_batch_size={micro_batch_size}, jit_compile={jit_compile}: pass 1 row or "
                "more; parts of a batch differ in size, which XLA lacks."
            )
        super().compile(*args, jit_compile=jit_compile, **kwargs)
        self.micro_batch_size = micro_batch_size

    def get_compile_config(self):
        config = super().get_compile_config()
        if config and self.micro_batch_size:
            config["micro_batch_size"] = self.micro_batch_size
        return config

    def prepare_batch(self, data, training):
        """Return what `compute_batch` takes, tensors with a row per example: before the network."""
        return keras.utils.unpack_x_y_sample_weight(data)

    def compute_batch(self, prepared, training):
        """Return `(inputs, labels, outputs, sample_weight)` of a batch, or of some of its rows."""
        inputs, labels, weights = prepared
        return inputs, labels, self(inputs, training=training), weights

    def counted_labels(self, prepared):
        """Return labels of a prepared batch from which its losses can count what they sum."""
        return prepared[1]

    def label_counts(self, labels, sample_weight):
        """Return the number of labels of each `MeanLoss`, by its `id`."""
        return label_counts(self.loss, labels, sample_weight)

    def train_step(self, data):
        if self.micro_batch_size:
            return train_step(self, data)
        return super().train_step(data)

    def make_train_function(self, force=False):
        # TensorFlow traces a step twice if that creates variables.
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)


def train_step(task, data):
    """Take the step of a batch, with the gradients of `task.micro_batch_size` rows at a time.

    The whole batch is prepared first: how it is corrupted does not depend on the parts, and what
    each loss is divided by is known before the first of them.
    """
    whole = task.prepare_batch(data, training=True)
    rows = tf.shape(tf.nest.flatten(whole)[0])[0]
    counts = {
        loss: sum_over_replicas(count)
        for loss, count in task.label_counts(task.counted_labels(whole), whole[2]).items()
    }
    weights = task.trainable_weights
    reached = set()  # numbers of the weights that have a gradient

    def add_part(start, loss, *sums):
        end = tf.minimum(start + task.micro_batch_size, rows)
        part = tf.nest.map_structure(lambda x: None if x is None else x[start:end], whole)
        share = tf.cast(end - start, "float32") / tf.cast(rows, "float32")
        with tf.GradientTape() as tape, micro_batch(counts, share):
            inputs, *compared = task.compute_batch(part, training=True)
            own = share * tf.cast(task.compute_loss(inputs, *compared, training=True), "float32")
            scaled = task.optimizer.scale_loss(own)
        gradients = tape.gradient(scaled, weights)
        reached.update(i for i, gradient in enumerate(gradients) if gradient is not None)
        task.compute_metrics(inputs, *compared)
        sums = [s if g is None else s + g for s, g in zip(sums, gradients, strict=True)]
        return end, loss + own, *sums

    zeros = [tf.zeros(weight.shape, weight.dtype) for weight in weights]
    _, loss, *sums = tf.while_loop(
        lambda start, *_: start < rows, add_part, (0, 0.0, *zeros), parallel_iterations=1
    )
    gradients = [s if i in reached else None for i, s in enumerate(sums)]
    task.optimizer.apply_gradients(zip(gradients, weights, strict=True))
    task._loss_tracker.update_state(sum_over_replicas(loss), sample_weight=rows)
    return task.get_metrics_result()


def label_counts(loss, labels, sample_weight):
    """Return the number of labels of each `MeanLoss`, by its `id`.

    `loss` is as Keras's `compile` takes it; `labels` and weights are alike, or one for all.

    Raises:
        ValueError: if the labels of one are not among those, or one counts those of two outputs.
    """
    losses = loss if isinstance(loss, dict) else {None: loss}
    counts = {}
    for name, loss in losses.items():
        if not isinstance(loss, MeanLoss):
            continue
        given = labels if name is None else labels.get(name)
        if given is None or id(loss) in counts:
            raise ValueError(
                f"The labels of {name!r} are not known before the forward pass, or its loss is that"
                " of another output, so it cannot be computed in parts: compile without "
                "micro_batch_size."
            )
        weights = sample_weight.get(name) if isinstance(sample_weight, dict) else sample_weight
        counts[id(loss)] = loss.count(given, weights)
    return counts
