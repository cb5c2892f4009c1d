"""From logits to the next token: what is penalized or banned, and how one is picked.

What penalizes or bans tokens takes its strength per row, so that rows of a batch may differ, and
does nothing if no row needs it. All of it runs on TensorFlow and on JAX, except `uniform_noise`.

Shapes: B batch, T slots for tokens, V vocabulary, K candidates.
"""

import numpy as np
from keras import ops

from keras_lm.generation.options import FRESH_SEED
from keras_lm.layers.backend import argmax, at_columns, size_within
from keras_lm.tensorflow import tf

# Below any logit, but finite, so that the softmax of such values alone is still a distribution.
BANNED = float(np.finfo("float32").min)


def penalize_repetition(logits, token_ids, padding_mask, penalty):
    """Make tokens of `token_ids` (B, T) less likely, by a penalty (B,); 1 has no effect.

    The penalty divides positive logits and multiplies negative ones, (B, V).

    Source: CTRL, https://arxiv.org/abs/1909.05858, section 4.1; the rule for negative logits is
    that of Hugging Face's `RepetitionPenaltyLogitsProcessor`.
    """

    def penalized():
        seen = marked(token_ids, padding_mask > 0, ops.shape(logits)[1])
        strength = penalty[:, None]
        return ops.where(seen, ops.where(logits < 0, logits * strength, logits / strength), logits)

    return ops.cond(ops.any(penalty != 1.0), penalized, lambda: logits)


def ban_repeated_ngrams(logits, token_ids, padding_mask, end, size):
    """Ban each token that would complete an n-gram that is already in the row (B, T).

    `size` (B,) is n: 0 bans nothing, 1 every token that has occurred. `end` (B,) is the next
    column.

    Source: https://arxiv.org/abs/1705.04304, section 2.5, for n = 3.
    """

    def banned():
        # Ban tokens that follow the same n - 1 tokens as the next token does.
        most = ops.max(size) - 1
        same = matches(token_ids, padding_mask, end, most) >= size[:, None] - 1  # (B, T)
        repeats = same & (padding_mask > 0) & (size > 0)[:, None]
        return ops.where(marked(token_ids, repeats, ops.shape(logits)[1]), BANNED, logits)

    return ops.cond(ops.any(size > 0), banned, lambda: logits)


def ban_sequences(logits, token_ids, padding_mask, end, sequences):
    """Ban each token that would complete one of the sequences (B, F, L) of its row.

    Sequences with fewer than L tokens are padded with -1 on the left. `end` (B,) is the next
    column.
    """
    back = ops.arange(ops.shape(sequences)[2] - 1, 0, -1, dtype="int32")
    columns = end[:, None] - back  # (B, L - 1)
    ids = ops.where(padding_mask > 0, token_ids, -2)
    before = at_columns(ids, ops.maximum(columns, 0))
    before = ops.where(columns >= 0, before, -2)[:, None]
    begin, last = sequences[..., :-1], sequences[..., -1]  # (B, F, L - 1), (B, F)
    is_next = ops.all((begin == before) | (begin < 0), axis=-1)
    return ops.where(marked(last, is_next, ops.shape(logits)[1]), BANNED, logits)


def matches(token_ids, padding_mask, end, most):
    """Return for each column how many tokens before it equal those before `end` (B,), (B, T).

    They are compared backwards, `most` at most, until one differs or is padding. Columns from `end`
    on are 0.
    """
    columns = ops.arange(ops.shape(token_ids)[1], dtype="int32")
    ids = ops.where(padding_mask > 0, token_ids, -1)

    def compare(back, number, same):
        before = ops.take(ids, ops.maximum(columns - back, 0), axis=1)
        last = at_columns(ids, ops.maximum(end - back, 0))
        last = ops.where(end >= back, last, -1)[:, None]
        same &= (columns >= back) & (before == last) & (last >= 0)
        return back + 1, number + ops.cast(same, "int32"), same

    # In a loop, because comparing all at once would take `most` times the memory.
    start = (1, ops.zeros_like(ids), columns < end[:, None])
    return ops.while_loop(lambda back, _, same: (back <= most) & ops.any(same), compare, start)[1]


def marked(token_ids, chosen, vocabulary_size):
    """Return whether each token of the vocabulary is among the `chosen` (B, T) ones, (B, V)."""
    rows = ops.shape(chosen)[0]
    # Those not chosen share a column of their own, because shapes must not depend on values.
    tokens = ops.where(chosen, token_ids, vocabulary_size)
    row = ops.arange(rows, dtype="int32")[:, None] + ops.zeros_like(tokens)
    cells = ops.reshape(ops.stack([row, tokens], axis=-1), (-1, 2))
    found = ops.scatter(cells, ops.ones_like(cells[:, 0]), (rows, vocabulary_size + 1))
    return found[:, :-1] > 0


# Sorting the whole vocabulary is much slower than finding the likeliest tokens, which nearly always
# suffice for sampling.
FIRST_CANDIDATES = 1024
LEAST_TEMPERATURE = 1e-6


def uniform_noise(seed, sequence, number):
    """Return random numbers (B, number) in [0, 1) that only depend on a row's seed and sequence.

    `seed` is (B,) int64, where `FRESH_SEED` means a new one; `sequence` (B,) int64 is the index
    among the continuations of a prompt. A larger `number` starts with the same values. Other
    backends have the same numbers from `philox.uniform_noise`.
    """
    fresh = tf.random.uniform(tf.shape(seed), maxval=tf.int64.max, dtype=tf.int64)
    seeds = tf.stack([tf.where(seed == FRESH_SEED, fresh, seed), sequence], axis=1)
    seeds = tf.pad(seeds, [[0, 1], [0, 0]])  # `map_fn` needs a row
    return tf.map_fn(
        lambda row: tf.random.stateless_uniform([number], row, alg="philox"),
        seeds,
        fn_output_signature=tf.TensorSpec([None], tf.float32),
    )[:-1]


def pick(logits, temperature, top_k, top_p, noise, keep=None):
    """Pick a token (B,) for each row of logits (B, V): the likeliest, or a random one.

    With a `temperature` above 0, keep the `top_k` likeliest tokens (0 keeps all), then the fewest
    of them whose probabilities sum to `top_p` (1 keeps all); `noise` in [0, 1) picks one. `keep`
    maps the probabilities (B, V) of those, the largest first and 0 for the others, to the same with
    0 for more of them; None keeps them.

    Source: https://arxiv.org/abs/1805.04833, section 5.4 (top-k); https://arxiv.org/abs/1904.09751,
    section 3.1 (top-p).
    """
    return ops.cond(
        ops.any(temperature > 0),
        lambda: _sample(logits, temperature, top_k, top_p, noise, keep),
        lambda: argmax(logits),
    )


def _sample(logits, temperature, top_k, top_p, noise, keep):
    vocabulary_size = ops.shape(logits)[1]
    greedy = temperature <= 0
    temperature = ops.where(greedy, 1.0, ops.maximum(temperature, LEAST_TEMPERATURE))
    # The largest logit becomes 0, so that no temperature makes one infinite.
    logits = logits - ops.max(logits, axis=-1, keepdims=True)
    probabilities = ops.softmax(logits / temperature[:, None])
    number = ops.where(top_k > 0, ops.minimum(top_k, vocabulary_size), vocabulary_size)
    number = ops.where(greedy, 1, number)
    keeps_all = number == vocabulary_size

    def candidates(size):
        """The likeliest tokens, their probabilities and the sums of those before, (B, K) each."""
        values, ids = ops.top_k(probabilities, size)
        values = ops.where(ops.arange(size, dtype="int32") < number[:, None], values, 0.0)
        return ids, values, ops.pad(ops.cumsum(values, axis=1)[:, :-1], [[0, 0], [1, 0]])

    def draw(ids, values, before):
        total = ops.where(keeps_all, 1.0, before[:, -1] + values[:, -1])[:, None]  # (B, 1)
        kept = (before < top_p[:, None] * total) & (values > 0)
        until = ops.where(kept, before + values, 0.0)
        mass = ops.where(top_p[:, None] < 1.0, ops.max(until, axis=1, keepdims=True), total)
        passed = kept & (until <= noise[:, None] * mass)
        drawn = ops.sum(ops.cast(passed, "int32"), axis=1)
        # By rounding, the sum of all may be below 1, and the draw above it.
        drawn = ops.minimum(drawn, ops.sum(ops.cast(kept, "int32"), axis=1) - 1)
        return at_columns(ids, ops.maximum(drawn, 0))  # below 0 if logits are NaN

    def draw_kept(ids, values, before):
        total = before[:, -1:] + values[:, -1:]
        values = keep(ops.where(before < top_p[:, None] * total, values, 0.0))
        until = ops.cumsum(values, axis=1)
        passed = until <= noise[:, None] * until[:, -1:]
        return at_columns(ids, ops.sum(ops.cast(passed, "int32"), axis=1))

    if keep is not None:
        return draw_kept(*candidates(vocabulary_size))
    most = ops.maximum(ops.max(number), 1)  # 1 for an empty batch
    few = candidates(size_within(most, FIRST_CANDIDATES, vocabulary_size))
    # The candidates suffice if they include a row's top_k, its top_p or, without these, its draw.
    held = few[2][:, -1] + few[1][:, -1]
    enough = (number <= FIRST_CANDIDATES) | (
        keeps_all & (held > ops.where(top_p < 1.0, top_p, noise))
    )
    return ops.cond(
        ops.all(enough),
        lambda: draw(*few),
        lambda: draw(*candidates(size_within(most, vocabulary_size, vocabulary_size))),
    )
