"""Log-likelihoods of tokens in texts, which are read in overlapping windows if they are long.

Shapes: B texts, R windows, S columns of a window, T of targets, V vocabulary.
"""

from keras_lm.layers.masks import IGNORED
from keras_lm.tensorflow import tf

# How many tokens' logits are in memory at once.
TOKENS_AT_ONCE = 1024


def token_scores(log_likelihood, token_ids, window, stride):
    """Return the log-likelihood of each token given those before it, except the first of a row.

    A text longer than the window is read in several windows. The first scores all of its tokens.
    Each later one begins `stride` (1 to `window`) tokens after the one before, and scores its last
    `stride` tokens, so that each has at least `window - stride` tokens before it. `token_ids` is
    ragged; `log_likelihood` takes `(token_ids, padding_mask, targets)`, (R, S) each, and returns
    (R, S).

    Source: overlapping windows as in https://arxiv.org/abs/1809.10853, section 4.3.
    """
    splits = tf.cast(token_ids.row_splits, tf.int32)
    targets = tf.maximum(splits[1:] - splits[:-1] - 1, 0)  # (B,): tokens to score
    number = tf.where(targets > 0, 1 + -(-tf.maximum(targets - window, 0) // stride), 0)
    which = tf.ragged.range(number).values  # (R,): 0, 1, … for each text
    row = tf.repeat(tf.range(tf.size(number)), number)
    start = which * stride
    size = tf.minimum(tf.gather(targets, row) - start, window)
    start = tf.gather(splits, row) + start  # among all tokens
    known = tf.where(which > 0, window - stride, 0)

    most = tf.reduce_max(tf.concat([size, [1]], axis=0))
    at_once = tf.maximum(TOKENS_AT_ONCE // most, 1)
    steps = -(-tf.size(start) // at_once)
    values = tf.concat([token_ids.values, [0]], axis=0)  # never empty

    def score(step, found):
        here = slice(step * at_once, (step + 1) * at_once)
        columns = tf.range(tf.reduce_max(size[here]))  # (S,)
        real = columns < size[here, tf.newaxis]  # (R, S)
        places = tf.where(real, start[here, tf.newaxis] + columns, 0)
        scores = log_likelihood(
            tf.gather(values, places), tf.cast(real, tf.int32), tf.gather(values, places + 1)
        )
        new = real & (columns >= known[here, tf.newaxis])
        return step + 1, found.write(step, tf.boolean_mask(scores, new))

    found = tf.TensorArray(tf.float32, steps, infer_shape=False, element_shape=[None])
    _, found = tf.while_loop(lambda step, _: step < steps, score, [0, found])
    # The windows of a text follow each other, and so do the texts.
    scores = tf.cond(steps > 0, found.concat, lambda: tf.zeros([0]))
    return tf.RaggedTensor.from_row_lengths(scores, targets)


def target_scores(logits, labels, tokens):
    """Return how likely targets are by their logits, a dict; see `Seq2SeqLM.score`.

    Args:
        logits: (B, T, V).
        labels: (B, T) ids; `IGNORED` where a target has ended.
        tokens: function of ids that returns their strings.
    """
    known = labels != IGNORED
    ids = tf.where(known, labels, 0)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids, tf.cast(logits, tf.float32))
    scores = tf.where(known, -losses, 0.0)
    total = tf.reduce_sum(scores, axis=1)
    number = tf.reduce_sum(tf.cast(known, tf.int32), axis=1)
    return {
        "scores": total,
        "perplexity": tf.exp(tf.math.divide_no_nan(-total, tf.cast(number, tf.float32))),
        "num_tokens": number,
        "tokens": tf.where(known, tokens(ids), ""),
        "token_scores": scores,
    }
