"""Writing with operations that LiteRT has: the whole loop, from prompts to new tokens, greedily.

A model has `initial_state` and `next_logits`, as in `decoding`.

Shapes: B batch, P columns of the prompts, T of new tokens, V vocabulary.
"""

import keras

from keras_lm.generation import logits as processors
from keras_lm.generation.decoding import State, process
from keras_lm.generation.options import OPTIONS, Options
from keras_lm.layers.state import FIXED
from keras_lm.layers.tensorflow import growing
from keras_lm.tensorflow import tf

NO_TOKEN = -1
# Of the options that a task may state, those that count for a text that is written greedily.
FOLLOWED = {"repetition_penalty", "no_repeat_ngram_size"}


def write(model, limits, token_ids, padding_mask, most, source_ids=None, banned=()):
    """Return the new tokens after prompts (B, P), padded on the left: (B, T), -1 after an end.

    Args:
        model: see above.
        limits: `decoding.Limits`, whose rules are followed, except those of sampling.
        token_ids, padding_mask: (B, P) int32, one token or more in each row.
        most: the most new tokens, a scalar int32.
        source_ids: (B, S) int32, the tokens of sources, -1 in padding; None without sources.
        banned: ids that are never written.
    """
    rows, begin = tf.unstack(tf.shape(token_ids))
    # The number of columns changes in the loop, and must not be known before: this adds 0 to it.
    columns = begin + tf.minimum(rows, 0)
    token_ids, padding_mask = (x[:, :columns] for x in (token_ids, padding_mask))
    end_ids = tf.constant(limits.end_ids, tf.int32)

    def read(token_ids, padding_mask, state):
        with growing():
            return model.next_logits(token_ids, padding_mask, state)

    def choose(logits, written):
        """Add the next token of each row, -1 where it is done."""
        token_ids, padding_mask, is_done = written
        logits = _processed(logits, *written[:2], begin, most, limits, source_ids, banned)
        token = tf.argmax(logits, axis=1, output_type=tf.int32)[:, tf.newaxis]
        is_done |= tf.reduce_any(token == end_ids, axis=1)
        token = tf.where(is_done[:, tf.newaxis], NO_TOKEN, token)
        real = tf.cast(token >= 0, tf.int32)
        return tf.concat([token_ids, token], 1), tf.concat([padding_mask, real], 1), is_done

    def step(written, state):
        newest = tf.maximum(written[0][:, -1], 0)[:, tf.newaxis]
        logits, state = read(newest, tf.ones_like(newest), state)
        return choose(logits, written), state

    logits, state = read(token_ids, padding_mask, model.initial_state(rows, 0))
    written = choose(logits, (token_ids, padding_mask, tf.fill([rows], most <= 0)))
    # What is the same in all steps, such as a source's keys, need not go through the loop.
    fixed = {FIXED: state.pop(FIXED)} if isinstance(state, dict) and FIXED in state else {}

    def go_on(written, state):
        written, state = step(written, state | fixed if fixed else state)
        if fixed:
            state = {name: value for name, value in state.items() if name != FIXED}
        return written, state

    (token_ids, *_), _ = _loop(
        lambda written, _: (tf.shape(written[0])[1] < begin + most) & tf.reduce_any(~written[2]),
        go_on,
        (written, state),
    )
    return token_ids[:, begin:]


def _loop(condition, body, variables):
    """Return nested variables after a loop, in which sizes that are unknown may change."""
    flat = keras.tree.flatten(variables)

    def nested(function):
        return lambda *flat: function(*keras.tree.pack_sequence_as(variables, flat))

    flat = tf.while_loop(
        nested(condition),
        lambda *flat: keras.tree.flatten(nested(body)(*flat)),
        flat,
        [part.shape for part in flat],
    )
    return keras.tree.pack_sequence_as(variables, flat)


def _processed(logits, token_ids, padding_mask, begin, most, limits, source_ids, banned):
    """Return logits (B, V) by what the model states for all texts, and without `banned` ids."""
    rows, end = tf.unstack(tf.shape(token_ids))
    for token in banned:
        logits = tf.where(tf.range(tf.shape(logits)[1]) == token, processors.BANNED, logits)
    state = State(tf.fill([rows], end), token_ids, padding_mask, None, None)
    stated = dict.fromkeys(Options._fields) | {"source_ids": source_ids}
    for name in FOLLOWED & limits.options.keys():
        stated[name] = tf.fill([rows], tf.constant(limits.options[name], OPTIONS[name].dtype))
    stated["max_new_tokens"] = tf.fill([rows], most)
    return process(logits, state, Options(**stated), begin, limits)
