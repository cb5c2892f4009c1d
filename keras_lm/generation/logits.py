"""Processing of the next token's logits, given the tokens so far.

Each function takes its strength per row, so that rows of a batch may differ, and does nothing if no
row needs it.

Shapes: B batch, T slots for tokens, V vocabulary.
"""

from keras_lm.tensorflow import tf

# Below any logit, but finite, so that the softmax of such values alone is still a distribution.
BANNED = tf.float32.min


def penalize_repetition(logits, token_ids, padding_mask, penalty):
    """Make tokens of `token_ids` (B, T) less likely, by a penalty (B,); 1 has no effect.

    The penalty divides positive logits and multiplies negative ones, (B, V).

    Source: CTRL, https://arxiv.org/abs/1909.05858, section 4.1; the rule for negative logits is
    that of Hugging Face's `RepetitionPenaltyLogitsProcessor`.
    """

    def penalized():
        seen = _marked(token_ids, padding_mask > 0, tf.shape(logits)[1])
        strength = penalty[:, tf.newaxis]
        return tf.where(seen, tf.where(logits < 0, logits * strength, logits / strength), logits)

    return tf.cond(tf.reduce_any(penalty != 1.0), penalized, lambda: logits)


def ban_repeated_ngrams(logits, token_ids, padding_mask, end, size):
    """Ban each token that would complete an n-gram that is already in the row (B, T).

    `size` (B,) is n: 0 bans nothing, 1 every token that has occurred. `end` (B,) is the next
    column.

    Source: https://arxiv.org/abs/1705.04304, section 2.5, for n = 3.
    """

    def banned():
        # Ban tokens that follow the same n - 1 tokens as the next token does.
        most = tf.reduce_max(size) - 1
        same = matches(token_ids, padding_mask, end, most) >= size[:, tf.newaxis] - 1  # (B, T)
        repeats = same & (padding_mask > 0) & (size > 0)[:, tf.newaxis]
        return tf.where(_marked(token_ids, repeats, tf.shape(logits)[1]), BANNED, logits)

    return tf.cond(tf.reduce_any(size > 0), banned, lambda: logits)


def ban_sequences(logits, token_ids, padding_mask, end, sequences):
    """Ban each token that would complete one of the sequences (B, F, L) of its row.

    Sequences with fewer than L tokens are padded with -1 on the left. `end` (B,) is the next
    column.
    """

    back = tf.range(tf.shape(sequences)[2] - 1, 0, -1)
    columns = end[:, tf.newaxis] - back  # (B, L - 1)
    ids = tf.where(padding_mask > 0, token_ids, -2)
    before = tf.gather(ids, tf.maximum(columns, 0), batch_dims=1)
    before = tf.where(columns >= 0, before, -2)[:, tf.newaxis]
    begin, last = sequences[..., :-1], sequences[..., -1]  # (B, F, L - 1), (B, F)
    is_next = tf.reduce_all((begin == before) | (begin < 0), axis=-1)
    return tf.where(_marked(last, is_next, tf.shape(logits)[1]), BANNED, logits)


def matches(token_ids, padding_mask, end, most):
    """Return for each column how many tokens before it equal those before `end` (B,), (B, T).

    They are compared backwards, `most` at most, until one differs or is padding. Columns from `end`
    on are 0.
    """
    columns = tf.range(tf.shape(token_ids)[1])
    ids = tf.where(padding_mask > 0, token_ids, -1)

    def compare(back, number, same):
        before = tf.gather(ids, tf.maximum(columns - back, 0), axis=1)
        last = tf.gather(ids, tf.maximum(end - back, 0), batch_dims=1)
        last = tf.where(end >= back, last, -1)[:, tf.newaxis]
        same &= (columns >= back) & (before == last) & (last >= 0)
        return back + 1, number + tf.cast(same, tf.int32), same

    # In a loop, because comparing all at once would take `most` times the memory.
    start = [1, tf.zeros_like(ids), columns < end[:, tf.newaxis]]
    return tf.while_loop(
        lambda back, _, same: (back <= most) & tf.reduce_any(same), compare, start
    )[1]


def _marked(token_ids, chosen, vocabulary_size):
    """Return whether each token of the vocabulary is among the `chosen` (B, T) ones, (B, V)."""
    places = tf.where(chosen)  # (number, 2): row, column
    tokens = tf.cast(tf.gather_nd(token_ids, places), tf.int64)
    cells = tf.stack([places[:, 0], tokens], axis=1)
    shape = tf.cast([tf.shape(token_ids)[0], vocabulary_size], tf.int64)
    return tf.scatter_nd(cells, tf.ones_like(tokens), shape) > 0
