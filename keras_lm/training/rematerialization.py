"""Blocks that are computed again for their gradients, instead of keeping what they computed."""

import functools

import keras
from keras import ops, tree

from keras_lm.layers.backend import computed_again


def enable_rematerialization(task: keras.Model) -> None:
    """Have the blocks of a task's backbone computed again in the backward pass.

    A training step then keeps the inputs of each block, and of one block at a time what it computes
    inside: less memory, for about a third more time. Losses and gradients stay the same, as dropout
    draws the same numbers again. Nothing else changes, and presets do not hold it.

    Args:
        task: `keras_lm.tasks.Task` or its backbone, before `fit`; a task that was trained already
            needs a new `compile`.

    Raises:
        ValueError: if the backbone has no blocks, as recurrent ones.

    Example:

        task = keras_lm.tasks.TextClassifier.from_preset(SOURCE, num_classes=2)
        keras_lm.training.enable_rematerialization(task)
        task.fit(["good", "bad"], [1, 0])

    Source: Chen et al. 2016, https://arxiv.org/abs/1604.06174, section 4.
    """
    backbone = getattr(task, "backbone", task)
    names = ("blocks", "encoder_blocks", "decoder_blocks")
    blocks = [block for name in names for block in getattr(backbone, name, ())]
    if not blocks:
        raise ValueError(
            f"{type(backbone).__name__} has no blocks that could be computed again: leave "
            "enable_rematerialization out, or pass compile(micro_batch_size=…)."
        )
    for block in blocks:
        if "call" not in vars(block):  # one that occurs twice is wrapped once
            block.call = _rematerialized(block)


def _rematerialized(block):
    call = block.call

    @functools.wraps(call)
    def rematerialized(*args, training=None, **kwargs):
        if not training:
            return call(*args, training=training, **kwargs)
        # What has a gradient is an argument of the function, weights, too.
        leaves = tree.flatten((args, kwargs))
        places = [n for n, leaf in enumerate(leaves) if _is_float(leaf)]
        weights, states = block.trainable_variables, block.non_trainable_variables
        before = [ops.stop_gradient(state.value) for state in states]  # as they are now
        changed = {}  # position of a state → how much it changed

        def compute(inputs, values):
            filled = dict(enumerate(leaves)) | dict(zip(places, inputs, strict=True))
            again, options = tree.pack_sequence_as((args, kwargs), [*filled.values()])
            mapping = [*zip(weights, values, strict=True), *zip(states, before, strict=True)]
            with keras.StatelessScope(state_mapping=mapping) as scope:
                outputs = call(*again, training=training, **options)
            after = [scope.get_current_value(state) for state in states]
            changed.clear()
            for n, (old, new) in enumerate(zip(before, after, strict=True)):
                if new is not old:
                    changed[n] = None
            # Seeds, which count what was drawn; as floats, which gradients are defined for.
            steps = [ops.cast(after[n] - before[n], "float32") for n in changed]
            return outputs, steps

        inputs = [leaves[n] for n in places]
        outputs, steps = computed_again(compute)(inputs, [weight.value for weight in weights])
        for n, step in zip(changed, steps, strict=True):
            states[n].assign(before[n] + ops.cast(step, before[n].dtype))
        return outputs

    return rematerialized


def _is_float(leaf):
    return ops.is_tensor(leaf) and "float" in keras.backend.standardize_dtype(leaf.dtype)
