"""Speculative decoding by prompt look-up: the text so far proposes its next tokens.

What followed the last time that the text ended like this is proposed, and the model reads it all
at once. Each token is then chosen from the logits after those before it, as without proposals; the
first that differs from its proposal is the last of the step, and what the model read after it is
taken back. Only the number of steps depends on what is proposed, not the text.

The model has two functions beside those that `decoding` asks for:

- `all_logits(token_ids, padding_mask, state)` reads new tokens, (B, S) each, padded on the right,
  and returns the logits after each, (B, S, V) float32, and the state after them;
- `rewind(state, number)` returns the state before the last `number` (B,) columns of these.

Shapes: B batch, T columns of prompts and new tokens, K proposals, S = 1 + K, V vocabulary.

Source: https://github.com/apoorvumang/prompt-lookup-decoding; speculative decoding is that of
https://arxiv.org/abs/2211.17192.
"""

import tensorflow as tf

from keras_lm.generation import logits as processors

# In prose, a single token has nearly always occurred before, but what followed it seldom follows
# again: a step that reads such proposals takes longer for nothing.
SHORTEST_MATCH, LONGEST_MATCH = 2, 3


def propose(state, number):
    """Return up to `number` (B,) tokens that may come next, (B, K); −1 after those of a row.

    They follow the longest earlier match of the last tokens, of equally long ones the last one.
    """
    same = processors.matches(state.token_ids, state.padding_mask, state.end, LONGEST_MATCH)
    columns = tf.range(tf.shape(same)[1])
    counts = (columns < state.end[:, tf.newaxis]) & (same >= SHORTEST_MATCH)
    same = tf.where(counts, same, 0)
    rank = same * tf.size(columns) + columns
    place = tf.argmax(rank, axis=1, output_type=tf.int32)[:, tf.newaxis]  # (B, 1)
    number = tf.where(tf.reduce_any(counts, axis=1), number, 0)
    ahead = tf.range(tf.reduce_max(tf.concat([number, [0]], axis=0)))  # (K,)
    # A text that repeats itself up to here is proposed to go on.
    period = tf.maximum(state.end[:, tf.newaxis] - place, 1)
    tokens = tf.gather(state.token_ids, place + ahead % period, batch_dims=1)
    return tf.where(ahead < number[:, tf.newaxis], tokens, -1)


def advance(model, choose, limit, number, state):
    """Return the `decoding.State` after a step of up to 1 + `number` new tokens in each row.

    `choose` and `limit` are as for `decoding.stepper`.
    """
    left = tf.where(state.is_done, 0, limit - state.end)
    proposed = propose(state, tf.clip_by_value(left - 1, 0, number))
    token_ids = tf.concat([state.newest()[:, tf.newaxis], proposed], axis=1)  # (B, S)
    padding_mask = tf.cast(token_ids >= 0, tf.int32)
    logits, model_state = model.all_logits(
        tf.maximum(token_ids, 0), padding_mask, state.model_state
    )
    expected = tf.pad(proposed, [[0, 0], [0, 1]], constant_values=-1)  # (B, S)

    def verify(i, goes_on, state):
        chosen = choose(logits[:, i], state._replace(is_done=~goes_on))
        is_done = state.is_done | (goes_on & chosen.is_done)
        return (
            i + 1,
            ~chosen.is_done & (chosen.newest() == expected[:, i]),
            chosen._replace(is_done=is_done),
        )

    before = state.end
    _, _, state = tf.while_loop(
        lambda i, goes_on, state: tf.reduce_any(goes_on),
        verify,
        [0, ~state.is_done, state._replace(model_state=())],
    )
    unread = tf.shape(token_ids)[1] - (state.end - before)
    return state._replace(model_state=model.rewind(model_state, unread))
