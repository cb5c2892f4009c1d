"""Beam search: looks for the likeliest continuations, with a few candidates at each step.

Shapes: B prompts, K beams each, C candidates, T columns of prompts and new tokens, V vocabulary.
"""

from typing import NamedTuple

from keras_lm.generation import decoding
from keras_lm.generation.decoding import State
from keras_lm.generation.options import repeat_rows
from keras_lm.layers.state import map_state
from keras_lm.tensorflow import tf

IMPOSSIBLE = -1e9
GNMT_OFFSET = 5


class Beams(NamedTuple):
    """The loop's variables, next to the `State` of the B · K beams.

    - `scores` (B, K): the log-likelihoods of the beams.
    - `done_scores` (B, K): the scores of the finished texts, the best first; `IMPOSSIBLE` where
      there is none.
    - `done_ids` (B, K, T): these texts.
    - `done_numbers` (B, K): how many new tokens they have.
    """

    scores: tf.Tensor
    done_scores: tf.Tensor
    done_ids: tf.Tensor
    done_numbers: tf.Tensor


def search(
    model,
    token_ids,
    padding_mask,
    options,
    ending,
    num_beams,
    length_penalty,
    sequences=1,
    length_offset=0,
):
    """Continue prompts by beam search; return the same as `decoding.sample`, and scores (B · N,).

    The best continuation of a prompt comes first.

    At each step, the 2 K likeliest continuations of all beams of a prompt are candidates. Those
    among the first K that end become finished texts; the K likeliest that do not end are the next
    beams. A text's score is its log-likelihood divided by `penalty_divisor`. A prompt is done when
    it has K finished texts, and no beam, at its current length, scores better than the worst of
    them. `num_beams` is K; `sequences`, at most K, is the number of texts to return per prompt.

    Source: https://arxiv.org/abs/1609.08144, section 7; stopping is that of Hugging Face's
    `generate` with `early_stopping=False`. For the coverage penalty see `targets.coverage`.
    """
    begin, state, logits = decoding.start(
        model, token_ids, padding_mask, options.max_new_tokens, num_beams
    )
    prompts, columns = tf.shape(token_ids)[0], tf.shape(state.token_ids)[1]
    first = tf.range(num_beams) == 0
    beams = Beams(
        scores=tf.tile(tf.where(first, 0.0, IMPOSSIBLE)[tf.newaxis], [prompts, 1]),
        done_scores=tf.fill([prompts, num_beams], IMPOSSIBLE),
        done_ids=tf.zeros([prompts, num_beams, columns], tf.int32),
        done_numbers=tf.zeros([prompts, num_beams], tf.int32),
    )
    step = _search_step(begin, options, ending, num_beams, length_penalty, length_offset)
    state, beams = tf.cond(
        tf.reduce_all(state.is_done), lambda: (state, beams), lambda: step(logits, state, beams)
    )
    _, beams = tf.while_loop(
        lambda state, beams: ~tf.reduce_all(state.is_done),
        lambda state, beams: step(*decoding.read_newest(model, state), beams),
        [state, beams],
    )
    number = tf.reshape(beams.done_numbers[:, :sequences], [-1])
    longest = tf.reduce_max(tf.concat([number, [0]], axis=0))
    new_ids = beams.done_ids[:, :sequences, begin : begin + longest]
    scores = tf.reshape(beams.done_scores[:, :sequences], [-1])
    return tf.reshape(new_ids, [tf.size(number), longest]), number, scores


def penalty_divisor(length, length_penalty, length_offset=0):
    """Return the divisor, float32, of the log-likelihoods of texts with `length` tokens.

    It is the number of tokens, including the end token, to the power of `length_penalty`: a value
    above 0 favours longer texts, below 0 shorter ones. With `GNMT_OFFSET` as the offset it is
    GNMT's, ((5 + length) / 6) to this power, https://arxiv.org/abs/1609.08144, equation 14; with 0
    it is that of Hugging Face's `generate`.
    """
    length = tf.cast(length + length_offset, tf.float32) / (1 + length_offset)
    return length**length_penalty


def _search_step(begin, options, ending, num_beams, length_penalty, length_offset):
    options = repeat_rows(options, num_beams)
    most = tf.reshape(options.max_new_tokens, [-1, num_beams])[:, :1]  # (B, 1)

    def step(logits, state, beams):
        was_done = tf.reshape(state.is_done, [-1, num_beams])[:, 0]  # (B,)
        # The number of new tokens including the next one, which is the same for all beams.
        length = tf.reshape(state.end, [-1, num_beams])[:, :1] + 1 - begin  # (B, 1)
        divisor = penalty_divisor(length, length_penalty, length_offset)

        # The likeliest continuations of all beams of a prompt.
        scores = decoding.process(tf.nn.log_softmax(logits), state, options)
        vocabulary_size = tf.shape(logits)[1]
        scores = tf.reshape(scores, [-1, num_beams, vocabulary_size]) + beams.scores[:, :, None]
        scores = tf.reshape(scores, [-1, num_beams * vocabulary_size])
        number = 2 * num_beams
        scores, places = tf.math.top_k(scores, number)  # (B, C)
        token, of_beam = places % vocabulary_size, places // vocabulary_size
        of_row = of_beam + num_beams * tf.range(tf.shape(places)[0])[:, tf.newaxis]  # (B, C)

        # Their tokens, and whether they end the text.
        is_end = ending.is_token(token)
        end = begin + length[:, tf.newaxis] - 1  # (B, 1, 1)
        written = ~is_end[:, :, tf.newaxis] & (tf.range(tf.shape(state.token_ids)[1]) == end)
        ids = tf.gather(state.token_ids, of_row)  # (B, C, T)
        ids = tf.where(written, token[:, :, tf.newaxis], ids)
        mask = tf.where(written, 1, tf.gather(state.padding_mask, of_row))
        columns = tf.shape(ids)[2]
        numbers = length - tf.cast(is_end, tf.int32)  # (B, C)
        is_text = ending.is_text(
            tf.reshape(ids, [-1, columns]), begin, begin + tf.reshape(numbers, [-1])
        )
        is_end |= tf.reshape(is_text, tf.shape(is_end)) | (length >= most)

        # The best finished texts, old and new. Those of a prompt that is done do not change.
        counts = is_end & (tf.range(number) < num_beams) & ~was_done[:, tf.newaxis]
        finished = tf.where(counts, scores / divisor, IMPOSSIBLE)
        done_scores, best = tf.math.top_k(
            tf.concat([beams.done_scores, finished], axis=1), num_beams
        )
        done_ids = tf.gather(tf.concat([beams.done_ids, ids], axis=1), best, batch_dims=1)
        done_numbers = tf.gather(
            tf.concat([beams.done_numbers, numbers], axis=1), best, batch_dims=1
        )

        # The next beams, and whether any could still win.
        scores, best = tf.math.top_k(tf.where(is_end, IMPOSSIBLE, scores), num_beams)
        hope = scores[:, 0] / divisor[:, 0]
        is_full = tf.reduce_all(done_scores > IMPOSSIBLE, axis=1)
        is_done = was_done | (is_full & (tf.reduce_min(done_scores, axis=1) >= hope))
        is_done |= (length >= most)[:, 0]
        rows = tf.reshape(tf.gather(of_row, best, batch_dims=1), [-1])
        state = State(
            end=state.end + 1,
            token_ids=tf.reshape(tf.gather(ids, best, batch_dims=1), [-1, columns]),
            padding_mask=tf.reshape(tf.gather(mask, best, batch_dims=1), [-1, columns]),
            is_done=tf.repeat(is_done, num_beams),
            model_state=map_state(lambda x: tf.gather(x, rows), state.model_state),
        )
        return state, Beams(scores, done_scores, done_ids, done_numbers)

    return step
