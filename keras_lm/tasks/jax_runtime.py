"""The step of a model with Keras's JAX backend. Shapes: B batch.

Devices are those of `keras.distribution`, of one process or several. XLA sees a batch as a whole,
however devices divide it, so losses and gradients are those of all of it. `tf.distribute` has no
part in this. Text stays on the host, in `tf.data`.
"""

import contextlib
import numbers

import jax
import keras
import numpy as np
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from keras import ops

from keras_lm.feeding.datasets import peeking
from keras_lm.feeding.devices import divided_already, one_divided, parts_of_batches, whole
from keras_lm.training.optimizers import schedule_and_steps


class JaxRuntime:
    """JAX's counterpart of `keras_lm.tasks.runtime.GraphRuntime`."""

    is_compiled = True  # Keras would run a step operation by operation

    def check(self, model, jit_compile, micro_batch_size, smoothing):
        """Raise a ValueError if what `compile` was given does not go together, or not on JAX."""
        if smoothing is not None:
            raise ValueError("smoothing needs Keras's TensorFlow backend: leave it out.")
        is_size = isinstance(micro_batch_size, numbers.Integral) and micro_batch_size >= 1
        if micro_batch_size is not None and not is_size:
            raise ValueError(
                f"micro_batch_size={micro_batch_size}: pass a whole number of rows, 1 or more."
            )

    def check_compiled(self, model, metrics):
        """Let a compiled step read the schedule's numbers, which it would keep as traced."""
        schedule, _ = schedule_and_steps(model)
        if schedule is not None:
            for variable in schedule.variables:
                model.optimizer._track_variable(variable)

    def train_step(self, model, state, data):
        """Take a step of the model's optimizer; return the logs and the new state."""
        data = whole(data)
        trained, others, optimizer, metrics = state
        train = _train
        if model.micro_batch_size:
            train = _train_by_cached_gradients if model.compares_rows else _train_in_parts
        gradients, logs, others, metrics = train(model, trained, others, metrics, data, optimizer)
        trained, optimizer = model.optimizer.stateless_apply(optimizer, gradients, trained)
        return logs, (trained, others, optimizer, metrics)

    def test_step(self, model, state, data):
        """Return the logs of a step of evaluation, and the new state."""
        with _Scope(model, *state) as scope:
            batch = model.prepare_batch(whole(data), training=False)
            _, logs = _compute(model, batch, training=False)
        return logs, (state[0], *scope.state())

    def predict_step(self, step, state, data):
        """Return the outputs of Keras's step, all on each device, and the new state."""
        outputs, state = step(state, whole(data))
        return jax.tree.map(everywhere, outputs), state

    def one_batch(self, batch):
        """Return a packed batch, a tuple, as Keras's `train_on_batch` takes it."""
        return one_divided(self.as_arrays(batch), parts_of_batches())

    def as_arrays(self, batch):
        """Return a packed batch of TensorFlow's tensors as numpy arrays."""
        return keras.tree.map_structure(np.asarray, batch)

    @contextlib.contextmanager
    def calling(self, model):
        """A context for Keras's `fit`, `evaluate` or `predict`, after which weights are there.

        Keras takes the values of all variables away, for the time of an epoch, and an error in its
        first step would lose them.
        """
        if model._jax_state_synced:
            model._jax_state = None  # of a call that failed
        with divided_already():
            try:
                yield
            except BaseException:
                model.jax_state_sync()
                if model.taken is not None:
                    model.taken.give_back()
                raise
            finally:
                model.taken = None

    def before_taking(self, model):
        """Remember the values that Keras is about to take from a model."""
        model.taken = Taken(model)

    def build(self, model, iterator, data_batch):
        """Build metrics and optimizer from labels that a step makes; Keras takes the data's."""
        if data_batch is None:
            with peeking():
                data_batch = next(next(batches) for _, _, batches in iterator)
        part = model._compile_metrics
        if part is not None and not part.built:
            labels, outputs = jax.tree.map(
                lambda x: keras.KerasTensor(x.shape, str(x.dtype)),
                jax.eval_shape(lambda data: _compared(model, data), data_batch),
            )
            if labels is not None:
                part.build(labels, outputs)
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        return True


def everywhere(array):
    """Return an array of a compiled function, all of which each device has; so each process can."""
    distribution = keras.distribution.distribution()
    if distribution is None:
        return array
    mesh = distribution.device_mesh.backend_mesh
    return jax.lax.with_sharding_constraint(array, NamedSharding(mesh, PartitionSpec()))


class Taken:
    """The values of all variables of a model, before Keras takes them away."""

    def __init__(self, model):
        variables = [*model.variables, *model.trainable_variables, *model.non_trainable_variables]
        variables += [*model.metrics_variables, *getattr(model.optimizer, "variables", ())]
        self.values = [(variable, variable._value) for variable in variables]

    def give_back(self):
        """Give values to those variables that have none; a step that began may have used some."""
        for variable, value in self.values:
            if variable._value is None and value is not None and not value.is_deleted():
                variable._value = value


class _Scope(keras.StatelessScope):
    """A context in which a model's variables have these values, and keep what they are assigned.

    Without values of the optimizer's variables, this is for evaluation.
    """

    def __init__(self, model, trained, others, metrics, optimizer=None):
        self.model = model
        refs = [*model.trainable_variables, *model.non_trainable_variables]
        refs, values = [*refs, *model.metrics_variables], [*trained, *others, *metrics]
        if optimizer is not None:
            refs, values = refs + model.optimizer.variables, values + [*optimizer]
        super().__init__(list(zip(refs, values, strict=True)), collect_losses=True)

    def state(self):
        """Return the values of the variables that are not trained, and of the metrics'."""
        model = self.model
        both = model.non_trainable_variables, model.metrics_variables
        return tuple(
            [self.get_current_value(variable) for variable in variables] for variables in both
        )


def _train(model, trained, others, metrics, data, optimizer):
    """Return the gradients of a batch, the logs, and the new values of other variables."""

    def loss_of(trained):
        with _Scope(model, trained, others, metrics, optimizer) as scope:
            batch = model.prepare_batch(data, training=True)
            loss, logs = _compute(model, batch, training=True)
            loss = model.optimizer.scale_loss(loss)
        return loss, (logs, *scope.state())

    gradients, (logs, others, metrics) = jax.grad(loss_of, has_aux=True)(trained)
    return gradients, logs, others, metrics


def _compute(model, batch, training):
    """Return the loss of a batch and the logs, in a `_Scope`."""
    computed = model.compute_batch(batch, training)
    return _loss_and_logs(model, batch, computed, training)


def _loss_and_logs(model, batch, computed, training):
    """Return the loss of what was computed for a batch, and the logs, in a `_Scope`."""
    rows = _rows(batch)
    terms = model.loss_terms(batch, computed, training)
    loss = _sum(model, terms, lambda term: term.count, rows, rows)
    model._loss_tracker.update_state(loss, sample_weight=rows)
    labels, outputs, weights, _ = computed
    return loss, model.compute_metrics(batch.inputs, labels, outputs, weights)


def _train_in_parts(model, trained, others, metrics, data, optimizer):
    """As `_train`, `model.micro_batch_size` rows at a time; see TensorFlow's `steps`."""
    if model._carried is not None:
        raise ValueError(
            f"micro_batch_size={model.micro_batch_size} with state that streams carry needs "
            "Keras's TensorFlow backend: leave it out."
        )
    with _Scope(model, trained, others, metrics, optimizer) as scope:
        whole = model.prepare_batch(data, training=True)
        counts = model.label_counts(whole)
    others, metrics = scope.state()
    rows, size = _rows(whole), model.micro_batch_size

    def loss_of(trained, others, metrics, part):
        of_part = _rows(part)

        def divisor(term):
            return counts[term.name] if term.name in counts else term.count * (rows / of_part)

        with _Scope(model, trained, others, metrics, optimizer) as scope:
            computed = model.compute_batch(part, training=True)
            terms = model.loss_terms(part, computed, training=True)
            loss = _sum(model, terms, divisor, of_part, rows)
            scaled = model.optimizer.scale_loss(loss)
            labels, outputs, weights, _ = computed
            model.compute_metrics(part.inputs, labels, outputs, weights)
        return scaled, (loss, *scope.state())

    def add_part(sums, part):
        gradients, loss, others, metrics = sums
        part_gradients, (own, others, metrics) = jax.grad(loss_of, has_aux=True)(
            trained, others, metrics, part
        )
        return (jax.tree.map(jnp.add, gradients, part_gradients), loss + own, others, metrics), None

    zeros = jax.tree.map(jnp.zeros_like, list(trained)), jnp.zeros(()), others, metrics
    sums, _ = _over_parts(add_part, zeros, whole, size)
    gradients, loss, others, metrics = sums
    with _Scope(model, trained, others, metrics, optimizer) as scope:
        model._loss_tracker.update_state(loss, sample_weight=rows)
        logs = model.get_metrics_result()
    return gradients, logs, *scope.state()


def _train_by_cached_gradients(model, trained, others, metrics, data, optimizer):
    """As `_train`, of a loss that compares all rows, `model.micro_batch_size` rows at a time.

    The vectors of all rows are computed first, then the loss, then each part again, with the same
    random numbers, for the gradients of its vectors; see TensorFlow's `runtime`.
    """
    with _Scope(model, trained, others, metrics, optimizer) as scope:
        batch = model.prepare_batch(data, training=True)
    others, metrics = scope.state()
    size = model.micro_batch_size

    def vectors_of(trained, others, part):
        with _Scope(model, trained, others, metrics, optimizer) as scope:
            vectors = model.compute_batch(part, training=True).outputs
        return ops.cast(vectors, "float32"), scope.state()[0]

    def add_vectors(others, part):
        vectors, others = vectors_of(trained, others, part)
        return others, vectors

    def loss_of(vectors):
        with _Scope(model, trained, last, metrics, optimizer) as scope:
            computed = model.compute_batch(batch, training=True, vectors=vectors)
            loss, logs = _loss_and_logs(model, batch, computed, training=True)
            loss = model.optimizer.scale_loss(loss)
        return loss, (logs, *scope.state())

    def add_gradients(state, part_and_wanted):
        (sums, others), (part, wanted) = state, part_and_wanted
        _, backward, others = jax.vjp(
            lambda trained: vectors_of(trained, others, part), trained, has_aux=True
        )
        return (jax.tree.map(jnp.add, sums, *backward(wanted)), others), None

    last, vectors = _over_parts(add_vectors, others, batch, size)
    wanted, (logs, last, metrics) = jax.grad(loss_of, has_aux=True)(vectors)
    zeros = jax.tree.map(jnp.zeros_like, list(trained))
    (sums, _), _ = _over_parts(add_gradients, (zeros, others), (batch, wanted), size)
    return sums, logs, last, metrics


def _over_parts(step, state, batch, size):
    """Return the last state and all outputs of a step over a batch, `size` rows at a time.

    `step(state, part)` returns the next state and the part's outputs, or None. It is a loop,
    because XLA might compute independent parts at once.
    """
    rows = keras.tree.flatten(batch)[0].shape[0]
    number, outputs = rows // size, []
    if number:
        parts = jax.tree.map(
            lambda x: jnp.reshape(x[: number * size], (number, size, *x.shape[1:])), batch
        )
        state, scanned = jax.lax.scan(step, state, parts)
        outputs.append(jax.tree.map(lambda x: jnp.reshape(x, (-1, *x.shape[2:])), scanned))
    if rows % size:
        state, rest = step(state, jax.tree.map(lambda x: x[number * size :], batch))
        outputs.append(rest)
    return state, jax.tree.map(lambda *x: jnp.concatenate(x), *outputs)


def _sum(model, terms, divisor, rows, all_rows):
    """Return the weighted sum of terms, each divided by `divisor(term)`, and note them in the logs.

    `rows` is the number of rows in this part, `all_rows` that in the whole batch.
    """
    loss = 0.0
    for term in terms:
        mean = ops.divide_no_nan(term.total, divisor(term))
        model.compiled_losses.note(term.name, mean * (all_rows / rows), rows)
        loss += term.weight * mean
    return loss


def _rows(batch):
    return keras.tree.flatten(batch.inputs)[0].shape[0]


def _compared(model, data):
    """Return the labels and outputs that metrics compare; only for their shapes."""
    with keras.StatelessScope():
        batch = model.prepare_batch(whole(data), training=False)
        computed = model.compute_batch(batch, training=False)
    return model.labels.measured(computed.labels), computed.outputs
