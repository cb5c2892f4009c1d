"""What a step does otherwise under a `tf.distribute` strategy."""

import contextlib

import keras

from keras_lm.tensorflow import tf

UNSUPPORTED = (
    tf.distribute.ParameterServerStrategy,
    tf.distribute.experimental.CentralStorageStrategy,
)


def first_of_a_replica(strategy, iterator):
    """Return the first batch of one of Keras's iterators, as the first replica here has it."""
    found = next(iter(iterator), None)
    if found is None:
        return None
    _, _, batches = found
    return keras.tree.map_structure(
        lambda x: strategy.experimental_local_results(x)[0], next(batches)
    )


def check(model, metrics):
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


def check_alike(model, argument, tasks):
    """Raise a ValueError if tasks of which a model is made were not made in its strategy."""
    # Not `distribute_strategy`, which is that of the moment for what was made outside of all.
    if any(task._distribute_strategy is not model._distribute_strategy for task in tasks):
        raise ValueError(
            f"{argument} were made under another strategy: make them and the "
            f"{type(model).__name__} in one strategy.scope(), or all outside."
        )


@contextlib.contextmanager
def draws_of_replica(model):
    """A context in which each replica draws other random numbers, for masks and dropout."""
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
