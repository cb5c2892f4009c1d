"""Recomputation of values for a gradient, instead of keeping them."""

import tensorflow as tf


def computed_again(function):
    """Return a function that only keeps its arguments, and is computed again for its gradient.

    `function(inputs, weights)` takes two lists of float tensors and returns nested ones; it may use
    other tensors, which then have no gradient, but no variables. Unlike `tf.recompute_grad`, this
    does not copy weights, and works on each replica of a strategy.

    Source: https://arxiv.org/abs/1604.06174, section 4.
    """

    def compute(inputs, weights):
        number, structure = len(inputs), None

        @tf.custom_gradient
        def flat(*tensors):
            nonlocal structure
            structure = function(tensors[:number], tensors[number:])

            def gradient(*upstream):
                # Wait for the gradient, and do not let TensorFlow merge both computations.
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
