"""Samplers: pick the next token from its logits.

Shapes: B batch, V vocabulary, K candidates.
"""

from keras_lm.generation.options import FRESH_SEED
from keras_lm.tensorflow import tf

# Sorting the whole vocabulary is much slower than finding the likeliest tokens, which nearly always
# suffice for sampling.
FIRST_CANDIDATES = 1024
LEAST_TEMPERATURE = 1e-6


def uniform_noise(seed, sequence, number):
    """Return random numbers (B, number) in [0, 1) that only depend on a row's seed and sequence.

    `seed` is (B,) int64, where `FRESH_SEED` means a new one; `sequence` (B,) int64 is the index
    among the continuations of a prompt. A larger `number` starts with the same values.
    """
    fresh = tf.random.uniform(tf.shape(seed), maxval=tf.int64.max, dtype=tf.int64)
    seeds = tf.stack([tf.where(seed == FRESH_SEED, fresh, seed), sequence], axis=1)
    seeds = tf.pad(seeds, [[0, 1], [0, 0]])  # `map_fn` needs a row
    return tf.map_fn(
        lambda row: tf.random.stateless_uniform([number], row, alg="philox"),
        seeds,
        fn_output_signature=tf.TensorSpec([None], tf.float32),
    )[:-1]


def pick(logits, temperature, top_k, top_p, noise):
    """Pick a token (B,) for each row of logits (B, V): the likeliest, or a random one.

    With a `temperature` above 0, keep the `top_k` likeliest tokens (0 keeps all), then the fewest
    of them whose probabilities sum to `top_p` (1 keeps all); `noise` in [0, 1) picks one.

    Source: https://arxiv.org/abs/1805.04833, section 5.4 (top-k); https://arxiv.org/abs/1904.09751,
    section 3.1 (top-p).
    """
    return tf.cond(
        tf.reduce_any(temperature > 0),
        lambda: _sample(logits, temperature, top_k, top_p, noise),
        lambda: tf.argmax(logits, axis=-1, output_type=tf.int32),
    )


def _sample(logits, temperature, top_k, top_p, noise):
    vocabulary_size = tf.shape(logits)[1]
    greedy = temperature <= 0
    temperature = tf.where(greedy, 1.0, tf.maximum(temperature, LEAST_TEMPERATURE))
    # The largest logit becomes 0, so that no temperature makes one infinite.
    logits = logits - tf.reduce_max(logits, axis=-1, keepdims=True)
    probabilities = tf.nn.softmax(logits / temperature[:, tf.newaxis])
    number = tf.where(top_k > 0, tf.minimum(top_k, vocabulary_size), vocabulary_size)
    number = tf.where(greedy, 1, number)
    keeps_all = number == vocabulary_size

    def candidates(size):
        """The likeliest tokens, their probabilities and the sums of those before, (B, K) each."""
        values, ids = tf.math.top_k(probabilities, size)
        values = tf.where(tf.range(size) < number[:, tf.newaxis], values, 0.0)
        return ids, values, tf.cumsum(values, axis=1, exclusive=True)

    most = tf.maximum(tf.reduce_max(number), 1)  # 1 for an empty batch
    few = candidates(tf.minimum(most, FIRST_CANDIDATES))
    # The candidates suffice if they include a row's top_k, its top_p or, without these, its draw.
    held = few[2][:, -1] + few[1][:, -1]
    enough = (number <= FIRST_CANDIDATES) | (
        keeps_all & (held > tf.where(top_p < 1.0, top_p, noise))
    )
    ids, values, before = tf.cond(tf.reduce_all(enough), lambda: few, lambda: candidates(most))

    total = tf.where(keeps_all, 1.0, before[:, -1] + values[:, -1])[:, tf.newaxis]  # (B, 1)
    kept = (before < top_p[:, tf.newaxis] * total) & (values > 0)
    until = tf.where(kept, before + values, 0.0)
    mass = tf.where(top_p[:, tf.newaxis] < 1.0, tf.reduce_max(until, axis=1, keepdims=True), total)
    passed = kept & (until <= noise[:, tf.newaxis] * mass)
    drawn = tf.reduce_sum(tf.cast(passed, tf.int32), axis=1)
    # By rounding, the sum of all may be below 1, and the draw above it.
    drawn = tf.minimum(drawn, tf.reduce_sum(tf.cast(kept, tf.int32), axis=1) - 1)
    return tf.gather(ids, tf.maximum(drawn, 0), batch_dims=1)  # below 0 if logits are NaN
