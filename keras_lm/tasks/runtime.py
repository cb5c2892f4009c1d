"""What runs a task on Keras's backend: a step, and how TensorFlow's texts reach the network.

Shapes: B batch.
"""

import contextlib
import numbers

import keras
import numpy as np

from keras_lm.layers.tensorflow import classes_are_named, num_replicas, sum_over_replicas
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.utils.processes import workers_of

IS_TENSORFLOW = keras.backend.backend() == "tensorflow"


class GraphRuntime:
    """TensorFlow's: a step is traced into a graph, by one replica or several, whole or in parts."""

    is_compiled = False  # by XLA, unless a user says so

    def train_step(self, model, data):
        """Take a step of the model's optimizer; return the logs."""
        return self.train_by(model, model.optimizer, data)

    def train_by(self, model, optimizer, data):
        """Take a step of an optimizer, which may be that of a model that this one is part of."""
        with draws_of_replica(model):
            batch = model.prepare_batch(data, training=True)
            in_parts = _train_by_cached_gradients if model.compares_rows else _train_in_parts
            train = in_parts if model.micro_batch_size else _train
            loss, metrics = train(model, optimizer, batch)
        return _logs(model, batch, loss, metrics)

    def test_step(self, model, data):
        """Return the logs of a step of evaluation."""
        batch = model.prepare_batch(data, training=False)
        computed = model.compute_batch(batch, training=False)
        loss = _total(model, batch, model.loss_terms(batch, computed, training=False))
        return _logs(model, batch, loss, _metrics(model, batch, computed))

    def predict_step(self, step, data):
        """Return the outputs of Keras's step."""
        return step(data)

    def one_batch(self, batch):
        """Return a packed batch, a tuple, as Keras's `train_on_batch` takes it."""
        return batch

    def as_arrays(self, batch):
        """Return a packed batch as Keras's `predict_on_batch` takes it."""
        return batch

    def before_taking(self, model):
        """Do nothing: Keras leaves a model its variables."""

    def calling(self, model):
        """A context for Keras's `fit`, `evaluate` or `predict`."""
        return contextlib.nullcontext()

    def build(self, model, iterator, data_batch):
        """Build the metrics of a model whose labels are made within a step; Keras does the rest.

        Under a strategy Keras builds them from the first batch, before any step.
        """
        part = model._compile_metrics
        if model.objectives and data_batch is not None and part is not None and not part.built:
            batch = model.prepare_batch(data_batch, training=False)
            computed = model.compute_batch(batch, training=False)
            part.build(computed.labels, computed.outputs)
        return False

    def first_batch(self, model, iterator):
        """Return the first batch of one of Keras's iterators, as the first replica here has it."""
        step = next(iter(iterator), None)
        if step is None:
            return None
        _, _, batches = step
        return keras.tree.map_structure(
            lambda x: model.distribute_strategy.experimental_local_results(x)[0], next(batches)
        )

    def check(self, model, jit_compile, micro_batch_size, smoothing):
        """Raise a ValueError if what `compile` was given does not go together."""
        is_size = (
            isinstance(micro_batch_size, numbers.Integral)
            and not isinstance(micro_batch_size, bool)
            and micro_batch_size >= 1
        )
        if micro_batch_size is not None and (not is_size or jit_compile is True):
            raise ValueError(
                f"micro_batch_size={micro_batch_size}, jit_compile={jit_compile}: pass a whole "
                "number of rows, 1 or more; parts of a batch differ in size, which XLA lacks."
            )
        if smoothing is not None:
            smoothing.check(model)

    def check_compiled(self, model, metrics):
        """Raise a ValueError if a model compiled with metrics cannot be trained in its strategy."""
        strategy = model.distribute_strategy
        name = type(strategy).__name__
        unsupported = (
            tf.distribute.ParameterServerStrategy,
            tf.distribute.experimental.CentralStorageStrategy,
        )
        if isinstance(strategy, unsupported):
            raise ValueError(
                f"{name} is not supported, as Keras 3 trains synchronously only: make the task in "
                "the scope of a MirroredStrategy, MultiWorkerMirroredStrategy or TPUStrategy."
            )
        made = [model.optimizer, *keras.tree.flatten(metrics)]
        for variable in [v for owner in made for v in getattr(owner, "variables", ())]:
            if not strategy.extended.variable_created_in_scope(variable.value):
                raise ValueError(
                    f"{variable.path} was made outside of strategy.scope(), and the task inside: "
                    "make optimizer and metrics inside, too."
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
                f"steps_per_execution={model.steps_per_execution} fails in Keras under a {name}: "
                "leave it at 1; for larger steps in the same memory, compile with micro_batch_size."
            )
        if model.jit_compile is True:
            raise ValueError(
                f"jit_compile=True fails in Keras under a {name}, as XLA compiles no exchange "
                "between replicas: leave it out; to take less memory, compile with "
                "micro_batch_size."
            )


def _train(model, optimizer, batch):
    with tf.GradientTape() as tape:
        computed = model.compute_batch(batch, training=True)
        loss = _total(model, batch, model.loss_terms(batch, computed, training=True))
        scaled = optimizer.scale_loss(loss)
    weights = model.trainable_weights
    optimizer.apply_gradients(zip(tape.gradient(scaled, weights), weights, strict=True))
    return loss, _metrics(model, batch, computed)


def _train_in_parts(model, optimizer, whole):
    """Take the step of a prepared batch, `model.micro_batch_size` rows at a time.

    The whole batch is prepared first: how it is corrupted does not depend on the parts, and what
    each loss is divided by is known before the first of them. What layers add to the loss is not:
    of it the step takes the mean over the parts.
    """
    rows = _rows(whole)
    counts = {name: sum_over_replicas(count) for name, count in model.label_counts(whole).items()}
    all_rows = sum_over_replicas(tf.cast(rows, "float32"))
    weights = model.trainable_weights
    reached = set()  # numbers of the weights that have a gradient

    def add_part(start, loss, *sums):
        end = tf.minimum(start + model.micro_batch_size, rows)
        part = tf.nest.map_structure(lambda x: None if x is None else x[start:end], whole)
        of_part = tf.cast(end - start, "float32")
        share = tf.math.divide_no_nan(of_part, all_rows)

        def divisor(term):
            return counts[term.name] if term.name in counts else term.count / share

        with tf.GradientTape() as tape, _rows_of_streams(model._carried, start, end):
            computed = model.compute_batch(part, training=True)
            terms = model.loss_terms(part, computed, training=True)
            own = _sum(model, terms, divisor, of_part, all_rows)
            scaled = optimizer.scale_loss(own)
        gradients = tape.gradient(scaled, weights)
        reached.update(i for i, gradient in enumerate(gradients) if gradient is not None)
        _metrics(model, part, computed)
        sums = [s if g is None else s + g for s, g in zip(sums, gradients, strict=True)]
        return end, loss + own, *sums

    zeros = [tf.zeros(weight.shape, weight.dtype) for weight in weights]
    _, loss, *sums = tf.while_loop(
        lambda start, *_: start < rows, add_part, (0, 0.0, *zeros), parallel_iterations=1
    )
    gradients = [s if i in reached else None for i, s in enumerate(sums)]
    optimizer.apply_gradients(zip(gradients, weights, strict=True))
    return loss, model.get_metrics_result()


def _train_by_cached_gradients(model, optimizer, whole):
    """Take the step of a loss that compares all rows, `model.micro_batch_size` rows at a time.

    The vectors of all rows are computed first, without what their gradients need. The loss of the
    whole batch has a gradient for each vector; then each part is computed again, with the same
    random numbers, and gets its own. Source: Gao et al. 2021, https://arxiv.org/abs/2101.06983,
    section 3.2.
    """
    rows, size = _rows(whole), model.micro_batch_size
    states = [v for v in model.variables if v.path.endswith("seed_generator_state")]
    weights = model.trainable_weights
    reached, shape = set(), model.shape_of_vectors(whole)

    def part_from(start):
        end = tf.minimum(start + size, rows)
        return end, tf.nest.map_structure(lambda x: None if x is None else x[start:end], whole)

    def add_vectors(start, vectors, *drawn):
        drawn = [each.write(start // size, v.value) for each, v in zip(drawn, states, strict=True)]
        end, part = part_from(start)
        outputs = model.compute_batch(part, training=True).outputs
        return end, vectors.write(start // size, tf.cast(outputs, tf.float32)), *drawn

    number = (rows + size - 1) // size
    arrays = [tf.TensorArray(v.dtype, number, element_shape=v.shape) for v in states]
    _, vectors, *drawn = tf.while_loop(
        lambda start, *_: start < rows,
        add_vectors,
        (0, tf.TensorArray(tf.float32, number, element_shape=shape), *arrays),
        parallel_iterations=1,
    )
    last = [tf.identity(v.value) for v in states]
    vectors = tf.ensure_shape(vectors.concat(), shape)
    model._clear_losses()  # of layers, in the loop
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        computed = model.compute_batch(whole, training=True, vectors=vectors)
        loss = _total(model, whole, model.loss_terms(whole, computed, training=True))
        scaled = optimizer.scale_loss(loss)
    wanted = tape.gradient(scaled, vectors)

    def add_gradients(start, *sums):
        for v, each in zip(states, drawn, strict=True):
            v.assign(each.read(start // size))
        end, part = part_from(start)
        with tf.GradientTape() as tape:
            outputs = model.compute_batch(part, training=True).outputs
        own = tf.cast(wanted[start:end], outputs.dtype)
        gradients = tape.gradient(outputs, weights, output_gradients=own)
        reached.update(i for i, gradient in enumerate(gradients) if gradient is not None)
        sums = [s if g is None else s + g for s, g in zip(sums, gradients, strict=True)]
        return end, *sums

    zeros = [tf.zeros(weight.shape, weight.dtype) for weight in weights]
    _, *sums = tf.while_loop(
        lambda start, *_: start < rows, add_gradients, (0, *zeros), parallel_iterations=1
    )
    for v, state in zip(states, last, strict=True):
        v.assign(state)
    gradients = [s if i in reached else None for i, s in enumerate(sums)]
    optimizer.apply_gradients(zip(gradients, weights, strict=True))
    return loss, _metrics(model, whole, computed)


@contextlib.contextmanager
def _rows_of_streams(carried, start, end):
    """A context in which a part of a batch has its rows of the state that is carried, if any."""
    if carried is None:
        yield
        return
    carried.rows = start, end
    try:
        yield
    finally:
        carried.rows = None


def _total(model, batch, terms):
    """Return a replica's part of the loss of a batch: the parts of all replicas add up to it."""
    rows = tf.cast(_rows(batch), "float32")
    all_rows = sum_over_replicas(rows) if model.compiled_losses.means else rows
    return _sum(model, terms, lambda term: sum_over_replicas(term.count), rows, all_rows)


def _sum(model, terms, divisor, rows, all_rows):
    """Return the weighted sum of terms, each divided by `divisor(term)`, and note them in the logs.

    `rows` is the number of rows in this part, `all_rows` that in the whole batch.
    """
    loss = 0.0
    for term in terms:
        mean = tf.math.divide_no_nan(term.total, divisor(term))
        # The mean of the parts, by their rows, is the sum of what each adds to the loss.
        whole = mean * tf.math.divide_no_nan(all_rows, rows)
        model.compiled_losses.note(term.name, whole, rows)
        loss += term.weight * mean
    return loss


def _metrics(model, batch, computed):
    """Update the metrics; return their results."""
    labels, outputs, weights, _ = computed
    return model.compute_metrics(batch.inputs, labels, outputs, weights)


def _logs(model, batch, loss, metrics):
    """Return the logs of a step: of this replica's metrics, and the loss of the whole batch."""
    loss = sum_over_replicas(loss)
    model._loss_tracker.update_state(loss, sample_weight=_rows(batch))
    logs = metrics | {"loss": model._loss_tracker.result()}
    if num_replicas() > 1 and workers_of(model.distribute_strategy).number > 1:
        # Keras takes the mean over the first axis, which scalars lack.
        logs = {name: tf.expand_dims(value, 0) for name, value in logs.items()}
    return logs


def _rows(batch):
    """Return B, the rows of a prepared batch, a tensor."""
    return tf.shape(tf.nest.flatten(batch.inputs)[0])[0]


@contextlib.contextmanager
def draws_of_replica(model):
    """A context in which each replica draws other random numbers, for masks and dropout."""
    if num_replicas() == 1:
        yield
        return
    holders = [model, *model.objectives]
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


if keras.backend.backend() == "jax":
    from keras_lm.generation import jax_decoding
    from keras_lm.tasks.jax_runtime import JaxRuntime

    RUNTIME = JaxRuntime()
else:
    jax_decoding = None
    RUNTIME = GraphRuntime()


# === Texts ===


def answered(task, inputs):
    """Return what a task's network on another backend makes of TensorFlow's tensors, as such.

    Where TensorFlow is not installed, both are numpy arrays.
    """
    inputs = {name: np.asarray(value) for name, value in inputs.items()}
    outputs = task.predict_on_batch(inputs)
    return keras.tree.map_structure(tf.convert_to_tensor, outputs) if IS_INSTALLED else outputs


def outputs_of(task, packed):
    """Return what a task's network makes of packed texts, as its `decode` takes it."""
    return task(packed, training=False) if IS_INSTALLED else answered(task, packed)


def at_numbers(names, *numbers):
    """Return the names that tensors of numbers stand for: strings in the graph, or numpy bytes."""
    if not classes_are_named():
        return list(numbers)
    if IS_TENSORFLOW:
        names = tf.constant(names)
        return [tf.gather(names, number) for number in numbers]
    names = np.array([name.encode() for name in names], object)
    return [names[np.asarray(number)] for number in numbers]


def require_tensorflow(what):
    """Raise a RuntimeError where Keras has another backend than TensorFlow."""
    if not IS_TENSORFLOW:
        raise RuntimeError(
            f"{what} runs on TensorFlow, and KERAS_BACKEND is {keras.backend.backend()}: call "
            "save_to_preset here, and load the preset where KERAS_BACKEND=tensorflow."
        )


def check_alike(model, argument, tasks):
    """Raise a ValueError if tasks of which a model is made were not made in its strategy."""
    # Not `distribute_strategy`, which is that of the moment for what was made outside of all.
    if any(task._distribute_strategy is not model._distribute_strategy for task in tasks):
        raise ValueError(
            f"{argument} were made under another strategy: make them and the "
            f"{type(model).__name__} in one strategy.scope(), or all outside."
        )
