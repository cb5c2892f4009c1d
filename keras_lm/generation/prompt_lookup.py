"""Speculative decoding by prompt look-up: the next tokens are proposed from the text so far.

If the last tokens have occurred before, the tokens that followed then are proposed, and the model
reads all of them at once. Each token is then chosen from its logits, as without proposals. A step
ends with the first token that differs from its proposal, and the model's state is rewound to it.
Proposals change the number of steps, but not the text.

The model needs two functions more than for `decoding`:

- `all_logits(token_ids, padding_mask, state)` reads new tokens, (B, S) each, padded on the right,
  and returns the logits after each token, (B, S, V) float32, and the new state;
- `rewind(state, number)` returns the state before the last `number` (B,) of these columns.

Shapes: B batch, T columns of prompts and new tokens, K proposals, S = 1 + K, V vocabulary.

Source: https://github.com/apoorvumang/prompt-lookup-decoding; speculative decoding is that of
https://arxiv.org/abs/2211.17192.
"""

from keras_lm.generation import logits as processors
from keras_lm.tensorflow import tf

# The shortest match that counts. In prose nearly every token has occurred before, but the next one
# is seldom the same: reading such proposals would only make the step slower.
SHORTEST_MATCH, LONGEST_MATCH = 2, 3


def propose(state, number):
    """Return up to `number` (B,) tokens that may come next, (B, K), padded with -1.

    They follow the longest earlier match of the last tokens; of equally long ones, the last.
    """
    same = processors.matches(state.token_ids, state.padding_mask, state.end, LONGEST_MATCH)
    columns = tf.range(tf.shape(same)[1])
    counts = (columns < state.end[:, tf.newaxis]) & (same >= SHORTEST_MATCH)
    same = tf.where(counts, same, 0)
    rank = same * tf.size(columns) + columns
    place = tf.argmax(rank, axis=1, output_type=tf.int32)[:, tf.newaxis]  # (B, 1)
    number = tf.where(tf.reduce_any(counts, axis=1), number, 0)
    ahead = tf.range(tf.reduce_max(tf.concat([number, [0]], axis=0)))  # (K,)
    # If the match overlaps the end of the text, its repetition is continued.
    period = tf.maximum(state.end[:, tf.newaxis] - place, 1)
    tokens = tf.gather(state.token_ids, place + ahead % period, batch_dims=1)
    return tf.where(ahead < number[:, tf.newaxis], tokens, -1)


def advance(model, choose, limit, number, state):
    """Return the `decoding.State` after a step of up to 1 + `number` new tokens in each row.

    `choose` and `limit` are as in `decoding.stepper`.
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
