"""What `compile` refuses on TensorFlow, before a step is traced."""

import numbers

import keras

from keras_lm.tensorflow import tf

UNSUPPORTED = (
    tf.distribute.ParameterServerStrategy,
    tf.distribute.experimental.CentralStorageStrategy,
)


def check(model, jit_compile, micro_batch_size, smoothing):
    """Raise a ValueError if what `compile` was given does not go together."""
    is_size = isinstance(micro_batch_size, numbers.Integral) and micro_batch_size >= 1
    if micro_batch_size is not None and (not is_size or jit_compile is True):
        raise ValueError(
            f"micro_batch_size={micro_batch_size}, jit_compile={jit_compile}: pass a whole "
            "number of rows, 1 or more; parts of a batch differ in size, which XLA lacks."
        )
    if smoothing is not None:
        smoothing.check(model)


def check_compiled(model, metrics):
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
