"""Computing again what a gradient needs, instead of keeping it."""

import tensorflow as tf


def computed_again(function):
    """Return a function that keeps its arguments, and computes again what its gradient needs.

    `function(inputs, weights)` takes two lists of tensors of floats and returns nested ones; it may
    use other tensors, which then have no gradient, but no variables. Unlike `tf.recompute_grad`,
    this copies no weights, and does the same on each replica of a strategy.

    Source: https://arxiv.org/abs/1604.06174, section 4.
    """

    def compute(inputs, weights):
        number, structure = len(inputs), None

        @tf.custom_gradient
        def flat(*tensors):
            nonlocal structure
            structure = function(tensors[:number], tensors[number:])

            def gradient(*upstream):
                # Not before the gradient is there, and not as one with the first computation.
                first = tf.reduce_max(tf.reshape(upstream[0], [-1])[:1])
                zero = tf.where(tf.equal(first, first), 0.0, float("nan"))
                sources = [x + tf.cast(zero, x.dtype) for x in tensors[:number]]
                sources += tensors[number:]
                with tf.GradientTape() as tape:
                    tape.watch(sources)
                    found = tf.nest.flatten(function(sources[:number], sources[number:]))
                return tape.gradient(found, sources, upstream, unconnected_gradients="zero")

            return tf.nest.flatten(structure), gradient

        outputs = flat(*inputs, *map(tf.convert_to_tensor, weights))
        return tf.nest.pack_sequence_as(structure, outputs)

    return compute
