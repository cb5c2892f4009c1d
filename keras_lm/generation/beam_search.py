"""Beam search: looks for the likeliest continuations, with a few candidates at each step.

Shapes: B prompts, K beams each, C candidates, T columns of prompts and new tokens, V vocabulary.
"""

from typing import NamedTuple

from keras import ops

from keras_lm.generation import decoding
from keras_lm.generation.decoding import State, repeat_rows
from keras_lm.layers.backend import at_columns, at_rows
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

    At each step, the 2 K likeliest continuations of all beams of a prompt are candidates: more with
    several end tokens, so that K go on. Those among the first K that end become finished texts; the
    K likeliest that do not end are the next beams. A text's score is its log-likelihood divided by
    `penalty_divisor`. A prompt is done when it has K finished texts, and no beam, at its current
    length, scores better than the worst of them; or as `early_stopping` in the rules of `ending`
    says. `num_beams` is K; `sequences`, at most K, is the number of texts to return per prompt.

    Source: https://arxiv.org/abs/1609.08144, section 7; stopping is that of Hugging Face's
    `generate`. For the coverage penalty see `targets.coverage`.
    """
    begin, state, logits = decoding.start(
        model, token_ids, padding_mask, options.max_new_tokens, num_beams
    )
    beams = first_beams(state, num_beams)
    step = searcher(begin, options, ending, num_beams, length_penalty, length_offset)
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


def first_beams(state, num_beams):
    """Return the `Beams` of a `State` (B · K) before any token: all but the first are the same."""
    first = ops.arange(num_beams, dtype="int32") == 0
    columns = ops.shape(state.token_ids)[1]
    ids = ops.zeros_like(ops.reshape(state.token_ids, (-1, num_beams, columns)))
    numbers = ops.zeros_like(ids[:, :, 0])
    impossible = ops.cast(numbers, "float32") + IMPOSSIBLE
    scores = ops.where(first, 0.0, impossible)
    return Beams(scores, impossible, ids, numbers)


def penalty_divisor(length, length_penalty, length_offset=0):
    """Return the divisor, float32, of the log-likelihoods of texts with `length` tokens.

    It is the number of tokens, including the end token, to the power of `length_penalty`: a value
    above 0 favours longer texts, below 0 shorter ones. With `GNMT_OFFSET` as the offset it is
    GNMT's, ((5 + length) / 6) to this power, https://arxiv.org/abs/1609.08144, equation 14; with 0
    it is that of Hugging Face's `generate`.
    """
    length = ops.cast(length + length_offset, "float32") / (1 + length_offset)
    return length**length_penalty


def searcher(begin, options, ending, num_beams, length_penalty, length_offset):
    """Return a function of logits (B · K, V), a `State` and `Beams` that returns the next two."""
    options, limits = repeat_rows(options, num_beams), ending.limits
    way = limits.rules.early_stopping
    number = max(2, 1 + len(limits.end_ids)) * num_beams
    most = ops.reshape(options.max_new_tokens, (-1, num_beams))[:, :1]  # (B, 1)

    def step(logits, state, beams):
        was_done = ops.reshape(state.is_done, (-1, num_beams))[:, 0]  # (B,)
        # The number of new tokens including the next one, which is the same for all beams.
        length = ops.reshape(state.end, (-1, num_beams))[:, :1] + 1 - begin  # (B, 1)
        divisor = penalty_divisor(length, length_penalty, length_offset)
        is_last = length >= most

        # The likeliest continuations of all beams of a prompt.
        scores = decoding.process(ops.log_softmax(logits), state, options, begin, limits)
        vocabulary_size = ops.shape(logits)[1]
        scores = ops.reshape(scores, (-1, num_beams, vocabulary_size)) + beams.scores[:, :, None]
        scores = ops.reshape(scores, (-1, num_beams * vocabulary_size))
        scores, places = ops.top_k(scores, number)  # (B, C)
        token, of_beam = places % vocabulary_size, places // vocabulary_size
        first_row = num_beams * ops.arange(ops.shape(places)[0], dtype="int32")
        of_row = of_beam + first_row[:, None]  # (B, C)

        # Their tokens, and whether they end the text.
        is_end = ending.is_token(token)
        end = begin + length[:, None] - 1  # (B, 1, 1)
        columns = ops.shape(state.token_ids)[1]
        written = ~is_end[:, :, None] & (ops.arange(columns, dtype="int32") == end)
        ids = at_rows(state.token_ids, of_row)  # (B, C, T)
        ids = ops.where(written, token[:, :, None], ids)
        mask = ops.where(written, 1, at_rows(state.padding_mask, of_row))
        numbers = length - ops.cast(is_end, "int32")  # (B, C)
        is_text = ending.is_text(
            ops.reshape(ids, (-1, columns)), begin, begin + ops.reshape(numbers, (-1,))
        )
        is_end |= ops.reshape(is_text, ops.shape(is_end)) | is_last

        # The best finished texts, old and new. Those of a prompt that is done do not change.
        is_first = ops.arange(number, dtype="int32") < num_beams
        counts = is_end & is_first & ~was_done[:, None]
        finished = ops.where(counts, scores / divisor, IMPOSSIBLE)
        done_scores, best = ops.top_k(
            ops.concatenate([beams.done_scores, finished], axis=1), num_beams
        )
        done_ids = at_columns(ops.concatenate([beams.done_ids, ids], axis=1), best)
        done_numbers = at_columns(ops.concatenate([beams.done_numbers, numbers], axis=1), best)

        # The next beams, and whether any could still win.
        scores, best = ops.top_k(ops.where(is_end, IMPOSSIBLE, scores), num_beams)
        length = ops.where(length_penalty > 0, most, length) if way == "never" else length
        divisor = penalty_divisor(length, length_penalty, length_offset)
        hope = scores[:, 0] / divisor[:, 0]
        is_full = ops.all(done_scores > IMPOSSIBLE, axis=1)
        is_hopeless = True if way is True else ops.min(done_scores, axis=1) >= hope
        is_done = was_done | (is_full & is_hopeless)
        is_done |= is_last[:, 0]
        rows = ops.reshape(at_columns(of_row, best), (-1,))
        state = State(
            end=state.end + 1,
            token_ids=ops.reshape(at_columns(ids, best), (-1, columns)),
            padding_mask=ops.reshape(at_columns(mask, best), (-1, columns)),
            is_done=ops.repeat(is_done, num_beams, axis=0),
            model_state=map_state(lambda x: at_rows(x, rows), state.model_state),
        )
        return state, Beams(scores, done_scores, done_ids, done_numbers)

    return step
