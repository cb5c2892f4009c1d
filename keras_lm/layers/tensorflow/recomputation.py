"""Recomputation of values for a gradient, instead of keeping them."""

from keras_lm.tensorflow import tf


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
                sources = [_after(upstream[0], x) for x in tensors[:number]]
                sources += tensors[number:]
                with tf.GradientTape() as tape:
                    tape.watch(sources)
                    found = tf.nest.flatten(function(sources[:number], sources[number:]))
                return tape.gradient(found, sources, upstream, unconnected_gradients="zero")

            return tf.nest.flatten(structure), gradient

        outputs = flat(*inputs, *map(tf.convert_to_tensor, weights))
        return tf.nest.pack_sequence_as(structure, outputs)

    return compute


def map_chunks(function, tensors, weights):
    """Return what a function makes of each chunk of tensors, one chunk after the other.

    Nothing else is kept: for the gradient, each chunk is computed again.

    Args:
        function: callable of a list of tensors (C, …) and of `weights`, without variables, that
            returns (C, …).
        tensors: list of (K, C, …) for K chunks; those of integers have no gradients.
        weights: list of tensors of floats.
    """
    number, count = tf.shape(tensors[0])[0], len(tensors)
    floats = [n for n, x in enumerate(tensors) if x.dtype.is_floating]

    @tf.custom_gradient
    def run(*flat):
        tensors, weights = list(flat[:count]), list(flat[count:])

        def gradient(upstream):
            def compute(i):
                part = [x[i] for x in tensors]
                sources = [part[n] for n in floats]
                with tf.GradientTape() as tape:
                    tape.watch([sources, weights])
                    found = function(part, weights)
                return tape.gradient(
                    found, (sources, weights), upstream[i], unconnected_gradients="zero"
                )

            def body(i, arrays, sums):
                of_part, of_weights = compute(i)
                arrays = [a.write(i, x) for a, x in zip(arrays, of_part, strict=True)]
                return i + 1, arrays, [a + b for a, b in zip(sums, of_weights, strict=True)]

            arrays = [_array(number, tensors[n].dtype, tensors[n].shape[1:]) for n in floats]
            sums = [tf.zeros_like(weight) for weight in weights]
            _, arrays, sums = tf.while_loop(
                lambda i, *_: i < number, body, (0, arrays, sums), parallel_iterations=1
            )
            found = [None] * len(tensors)
            for n, array in zip(floats, arrays, strict=True):
                found[n] = array.stack()
            return *found, *sums

        def body(i, array):
            return i + 1, array.write(i, function([x[i] for x in tensors], weights))

        array = _array(number, tensors[0].dtype, None)
        _, array = tf.while_loop(lambda i, _: i < number, body, (0, array), parallel_iterations=1)
        return array.stack(), gradient

    return run(*tensors, *map(tf.convert_to_tensor, weights))


def _array(size, dtype, shape):
    return tf.TensorArray(dtype, size=size, element_shape=shape)


def reversible(functions, x, y, weights, given):
    """Return what is left of two streams after functions that add to each of them in turn.

    Each function reads the second stream and adds to the first, and the streams change places. So
    its inputs follow from its outputs: the gradient computes them again, from the last function to
    the first, and nothing is kept of what lies between.

    Args:
        functions: list of `f(stream, weights, given)`, without variables.
        x, y: tensors of floats of one shape, the two streams.
        weights: list of lists of tensors, those of each function, which have gradients.
        given: list, further arguments of each function, without gradients.

    Source: Reformer, https://arxiv.org/abs/2001.04451, section 3; Gomez et al. 2017,
    https://arxiv.org/abs/1707.04585, section 3.2.
    """
    structure = weights

    @tf.custom_gradient
    def run(x, y, *weights):
        steps = list(
            zip(functions, tf.nest.pack_sequence_as(structure, weights), given, strict=True)
        )
        for function, own, other in steps:
            # What is drawn at random waits, or TensorFlow would draw for all functions at first.
            x, y = y, x + function(y, own, _all_after(y, other))

        def gradient(of_x, of_y):
            first, second, found = x, y, []
            for function, own, other in reversed(steps):
                stream, other = _all_after(of_y, (first, other))
                with tf.GradientTape() as tape:
                    tape.watch([stream, own])
                    added = function(stream, own, other)
                of_stream, of_weights = tape.gradient(
                    added, (stream, own), of_y, unconnected_gradients="zero"
                )
                first, second = second - added, stream
                # What the gradients of weights read is free before the next function begins.
                with tf.control_dependencies(of_weights):
                    of_x, of_y = of_y, of_x + of_stream
                found = [*of_weights, *found]
            return of_x, of_y, *found

        return (x, y), gradient

    return run(x, y, *map(tf.convert_to_tensor, tf.nest.flatten(weights)))


def _all_after(tensor, nested):
    """Return nested tensors, of which some may be None, as `_after` does each."""
    return tf.nest.map_structure(lambda x: None if x is None else _after(tensor, x), nested)


def _after(tensor, x):
    """Return `x`, not before another tensor of floats is there.

    So a computation waits for it, and TensorFlow does not merge it with an earlier one.
    """
    first = tf.reduce_max(tf.reshape(tensor, [-1])[:1])
    zero, other = (0.0, float("nan")) if x.dtype.is_floating else (0, 1)
    return x + tf.cast(tf.where(tf.equal(first, first), zero, other), x.dtype)
