"""A step whose batch is computed in parts, by replicas or to take less memory. Shapes: B batch."""

import contextlib

import keras
import tensorflow as tf

from keras_lm.layers.batch_parts import part_of_batch
from keras_lm.layers.tensorflow.replica_sums import num_replicas, sum_over_replicas
from keras_lm.objectives.objective import MeanLoss
from keras_lm.training.distribution import workers_of

UNSUPPORTED = (
    tf.distribute.ParameterServerStrategy,
    tf.distribute.experimental.CentralStorageStrategy,
)


class StepModel(keras.Model):
    """A `keras.Model` whose step may be computed in parts: by replicas, in micro-batches, or both.

    Under a `tf.distribute` strategy, losses, gradients and their norm are those of the whole batch,
    whichever replica has how many of its rows and labels. Two private methods of Keras 3 fail there
    and are amended, see `_maybe_symbolic_build` and `_results`.
    """

    micro_batch_size = None
    smoothing = None

    def compile(self, *args, jit_compile=False, micro_batch_size=None, smoothing=None, **kwargs):
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
            ValueError: if `micro_batch_size` is less than 1, or comes with `jit_compile`; or under
                a strategy that Keras cannot train with, or cannot with these options.
        """
        if micro_batch_size is not None and (micro_batch_size < 1 or jit_compile is True):
            raise ValueError(
                f"micro_batch_size={micro_batch_size}, jit_compile={jit_compile}: pass 1 row or "
                "more; parts of a batch differ in size, which XLA lacks."
            )
        if smoothing is not None:
            smoothing.check(self)
        with self.distribute_strategy.scope():  # Keras makes a metric for the loss
            super().compile(*args, jit_compile=jit_compile, **kwargs)
        self.micro_batch_size = micro_batch_size
        self.smoothing = smoothing
        check_options(self, [kwargs.get("metrics"), kwargs.get("weighted_metrics")])

    def get_compile_config(self):
        config = super().get_compile_config()
        if config and self.micro_batch_size:
            config["micro_batch_size"] = self.micro_batch_size
        if config and self.smoothing is not None:
            config["smoothing"] = keras.saving.serialize_keras_object(self.smoothing)
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

    # === Steps ===

    def train_step(self, data):
        if not self.trainable_weights:
            return super().train_step(data)  # warns
        return self.train_by(self.optimizer, data)

    def train_by(self, optimizer, data):
        """Take a step of an optimizer, which may be that of a model that this one is part of."""
        with chance_of_replica(self):
            prepared = self.prepare_batch(data, training=True)
            compute = train_in_parts if self.micro_batch_size else train_at_once
            results = compute(self, optimizer, prepared)
        return self._results(*results)

    def test_step(self, data):
        loss, inputs, compared = self.forward(self.prepare_batch(data, training=False), False)
        return self._results(loss, inputs, self.compute_metrics(inputs, *compared))

    def forward(self, prepared, training):
        """Return the loss, inputs, and what `compute_metrics` takes besides, of a prepared batch.

        The loss is a replica's part of the batch's: the parts of all replicas add up to it.
        """
        losses = [loss for loss in keras.tree.flatten(self.loss) if loss is not None]
        share = 1.0
        if num_replicas() > 1 and not all(isinstance(loss, MeanLoss) for loss in losses):
            share = share_of_batch(number_of_rows(prepared))
        with part_of_batch(share) as added:
            inputs, *compared = self.compute_batch(prepared, training)
            loss = self.loss_of_part(inputs, *compared, training=training)
        loss = share * loss
        for total, count in added or ():
            loss += tf.math.divide_no_nan(total, sum_over_replicas(count))
        return loss, inputs, compared

    def loss_of_part(self, inputs, labels, outputs, sample_weight, training):
        """Return the loss of what `compute_batch` returned, a float32 scalar."""
        loss = self.compute_loss(inputs, labels, outputs, sample_weight, training=training)
        loss = tf.cast(loss, "float32")
        if training and self.smoothing is not None:
            loss += self.smoothing(self, inputs, outputs)
        return loss

    def _results(self, loss, inputs, metrics):
        """Return the logs of a step: of this replica's metrics, and the loss of the whole batch."""
        loss = sum_over_replicas(loss)
        self._loss_tracker.update_state(loss, sample_weight=number_of_rows(inputs))
        logs = metrics | {"loss": self._loss_tracker.result()}
        if workers_of(self.distribute_strategy).number > 1:
            # Keras takes the mean over the first axis, which scalars lack.
            logs = {name: tf.expand_dims(value, 0) for name, value in logs.items()}
        return logs

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        # Keras takes the mean of the replicas' first inputs, for which these have to be alike.
        if iterator is not None and self._distribute_strategy is not None:
            iterator, data_batch = None, first_of_a_replica(self.distribute_strategy, iterator)
        super()._maybe_symbolic_build(iterator, data_batch)

    def make_train_function(self, force=False):
        # TensorFlow traces a step twice if that creates variables.
        if self.optimizer is not None and not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)


def first_of_a_replica(strategy, iterator):
    """Return the first batch of one of Keras's iterators, as the first replica here has it."""
    found = next(iter(iterator), None)
    if found is None:
        return None
    _, _, batches = found
    return keras.tree.map_structure(
        lambda x: strategy.experimental_local_results(x)[0], next(batches)
    )


def check_options(model, metrics):
    """Raise a ValueError if a model compiled with metrics cannot be trained in its strategy."""
    strategy = model.distribute_strategy
    name = type(strategy).__name__
    if isinstance(strategy, UNSUPPORTED):
        raise ValueError(
            f"{name} is not supported, as Keras 3 trains synchronously only: make the task in the "
            "scope of a MirroredStrategy, MultiWorkerMirroredStrategy or TPUStrategy."
        )
    made = [model.optimizer, *keras.tree.flatten(metrics)]
    for variable in [v for each in made for v in getattr(each, "variables", ())]:
        if not strategy.extended.variable_created_in_scope(variable.value):
            raise ValueError(
                f"{variable.path} was made outside of strategy.scope(), and the task inside: make "
                "optimizer and metrics inside, too."
            )
    if strategy.num_replicas_in_sync == 1 or isinstance(strategy, tf.distribute.TPUStrategy):
        return
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)  # loss scaling
    steps = getattr(optimizer, "gradient_accumulation_steps", None)
    if steps:
        raise ValueError(
            f"gradient_accumulation_steps={steps} fails in Keras under a {name}: compile with "
            "micro_batch_size, which computes one larger batch in parts."
        )
    if model.steps_per_execution > 1:
        raise ValueError(
            f"steps_per_execution={model.steps_per_execution} fails in Keras under a {name}: leave "
            "it at 1; for larger steps in the same memory, compile with micro_batch_size."
        )
    if model.jit_compile is True:
        raise ValueError(
            f"jit_compile=True fails in Keras under a {name}, as XLA compiles no exchange between "
            "replicas: leave it out; to take less memory, compile with micro_batch_size."
        )


@contextlib.contextmanager
def chance_of_replica(model):
    """A context in which each replica draws other random numbers, for masks and dropout."""
    if num_replicas() == 1:
        yield
        return
    holders = [model, *getattr(model, "objectives", ())]
    variables = {id(v): v for holder in holders for v in holder.variables}
    states = [v for v in variables.values() if v.path.endswith("seed_generator_state")]
    number = tf.distribute.get_replica_context().replica_id_in_sync_group
    # The second number of a state counts draws; the first is the seed, of which static masks are.
    shift = tf.stack([0, tf.cast(number, "int64") * 2**24])
    for state in states:
        state.assign(state.value + tf.cast(shift, state.dtype))
    yield
    for state in states:  # all alike, as a checkpoint holds one of them
        state.assign(state.value - tf.cast(shift, state.dtype))


def number_of_rows(prepared):
    """Return B, the rows of a prepared batch or of its inputs, a tensor."""
    return tf.shape(tf.nest.flatten(prepared)[0])[0]


def share_of_batch(rows):
    """Return the share of so many rows of a replica; see `part_of_batch`."""
    rows = tf.cast(rows, "float32")
    return tf.math.divide_no_nan(rows * num_replicas(), sum_over_replicas(rows))


def train_at_once(task, optimizer, prepared):
    """Take the step of a prepared batch; return the replica's loss, inputs and metrics."""
    with tf.GradientTape() as tape:
        loss, inputs, compared = task.forward(prepared, training=True)
        scaled = optimizer.scale_loss(loss)
    weights = task.trainable_weights
    optimizer.apply_gradients(zip(tape.gradient(scaled, weights), weights, strict=True))
    return loss, inputs, task.compute_metrics(inputs, *compared)


def train_in_parts(task, optimizer, whole):
    """As `train_at_once`, with the gradients of `task.micro_batch_size` rows at a time.

    The whole batch is prepared first: how it is corrupted does not depend on the parts, and what
    each loss is divided by is known before the first of them.
    """
    rows = number_of_rows(whole)
    counts = {
        loss: sum_over_replicas(count)
        for loss, count in task.label_counts(task.counted_labels(whole), whole[2]).items()
    }
    share_of_row = tf.math.divide_no_nan(share_of_batch(rows), tf.cast(rows, "float32"))
    weights = task.trainable_weights
    reached = set()  # numbers of the weights that have a gradient

    def add_part(start, loss, *sums):
        end = tf.minimum(start + task.micro_batch_size, rows)
        part = tf.nest.map_structure(lambda x: None if x is None else x[start:end], whole)
        share = tf.cast(end - start, "float32") * share_of_row
        with tf.GradientTape() as tape, part_of_batch(share, counts):
            inputs, *compared = task.compute_batch(part, training=True)
            own = share * task.loss_of_part(inputs, *compared, training=True)
            scaled = optimizer.scale_loss(own)
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
    optimizer.apply_gradients(zip(gradients, weights, strict=True))
    return loss, whole, task.get_metrics_result()


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
