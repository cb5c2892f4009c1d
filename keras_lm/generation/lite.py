"""Writing with operations that LiteRT has: the whole loop, from prompts to new tokens.

A model has `initial_state` and `next_logits`, as in `decoding`.

Shapes: B batch, P columns of the prompts, T of new tokens, V vocabulary.
"""

from typing import Any, NamedTuple

import keras
import numpy as np

from keras_lm.generation import logits as processors
from keras_lm.generation.decoding import State, process
from keras_lm.generation.logits import FACTORS, FIRST_KEY, ROUNDS, WEYL
from keras_lm.generation.options import OPTIONS, Options
from keras_lm.layers.state import EARLIER, FIXED
from keras_lm.layers.tensorflow import growing
from keras_lm.tensorflow import tf

NO_TOKEN = -1
BLOCK = 16  # steps, after which their part of a cache goes to the rest of it
# Of the options that a task may state, those that count for a text that is written greedily.
FOLLOWED = {"repetition_penalty", "no_repeat_ngram_size"}


class Chances(NamedTuple):
    """How `write` draws tokens, the same for all texts: scalars, float32 or int32.

    `stop_tokens` (K,) int32 are ids that end a text, and are not part of it.
    """

    temperature: Any
    top_k: Any
    top_p: Any
    seed: Any
    stop_tokens: Any


def write(model, limits, token_ids, padding_mask, most, source_ids=None, banned=(), chances=None):
    """Return the new tokens after prompts (B, P), padded on the left: (B, T), -1 after an end.

    Args:
        model: see above.
        limits: `decoding.Limits`, whose rules are followed, those of sampling with `chances` only.
        token_ids, padding_mask: (B, P) int32, one token or more in each row.
        most: the most new tokens, a scalar int32.
        source_ids: (B, S) int32, the tokens of sources, -1 in padding; None without sources.
        banned: ids that are never written.
        chances: `Chances` to draw tokens by; None takes the likeliest ones.
    """
    rows, begin = tf.unstack(tf.shape(token_ids))
    # The number of columns changes in the loop, and must not be known before: this adds 0 to it.
    columns = begin + tf.minimum(rows, 0)
    token_ids, padding_mask = (x[:, :columns] for x in (token_ids, padding_mask))
    end_ids = tf.constant(limits.end_ids, tf.int32)
    if chances is not None:
        end_ids = tf.concat([end_ids, chances.stop_tokens], 0)
        noise = uniform_noise(chances.seed, most + 1)

    def read(token_ids, padding_mask, state):
        with growing():
            return model.next_logits(token_ids, padding_mask, state)

    def choose(logits, written):
        """Add the next token of each row, -1 where it is done."""
        token_ids, padding_mask, is_done = written
        logits = _processed(logits, *written[:2], begin, most, limits, source_ids, banned)
        if chances is None:
            token = tf.argmax(logits, axis=1, output_type=tf.int32)[:, tf.newaxis]
        else:
            token = draw(logits, tf.shape(token_ids)[1] - begin)[:, tf.newaxis]
        is_done |= tf.reduce_any(token == end_ids, axis=1)
        token = tf.where(is_done[:, tf.newaxis], NO_TOKEN, token)
        real = tf.cast(token >= 0, tf.int32)
        return tf.concat([token_ids, token], 1), tf.concat([padding_mask, real], 1), is_done

    def draw(logits, place):
        rules = limits.rules
        of_rows = (tf.fill([rows], chance) for chance in (*chances[:3], noise[place]))
        return processors.pick(logits, *of_rows, rules.kept if rules.samples else None)

    def goes_on(written, *_):
        return (tf.shape(written[0])[1] < begin + most) & tf.reduce_any(~written[2])

    def steps(written, state, end=None):
        """Write until all is done, or there are `end` columns."""
        fixed, state = _divided(state, FIXED, EARLIER)

        def step(written, state):
            newest = tf.maximum(written[0][:, -1], 0)[:, tf.newaxis]
            logits, state = read(newest, tf.ones_like(newest), state | fixed if fixed else state)
            return choose(logits, written), _divided(state, FIXED)[1]

        def is_within(written, *_):
            return goes_on(written) & (end is None or tf.shape(written[0])[1] < end)

        return _loop(is_within, step, (written, state))

    logits, state = read(token_ids, padding_mask, model.initial_state(rows, 0))
    written = choose(logits, (token_ids, padding_mask, tf.fill([rows], most <= 0)))
    if not isinstance(state, dict) or "keys" not in state:
        return steps(written, state)[0][0][:, begin:]
    # LiteRT copies what changes in a loop at each step, so only the newest part of a cache does.
    fixed, state = _divided(state, FIXED)

    def block(written, state):
        earlier, state = _divided(state, "keys", "values")
        recent = {name: tuple(map(_without_slots, parts)) for name, parts in earlier.items()}
        end = tf.shape(written[0])[1] + BLOCK
        written, state = steps(written, state | recent | fixed | {EARLIER: earlier}, end)
        for name, parts in earlier.items():
            pairs = zip(parts, state[name], strict=True)
            state[name] = tuple(tf.concat(pair, 2) for pair in pairs)
        return written, state

    return _loop(goes_on, block, (written, state))[0][0][:, begin:]


def _divided(state, *names):
    """Return (dict of the parts of a state that have these names, the others)."""
    if not isinstance(state, dict):
        return {}, state
    parts = {name: value for name, value in state.items() if name in names}
    return parts, {name: value for name, value in state.items() if name not in names}


def _without_slots(part):
    """Return keys or values like `part` (B, N, T, H) without a slot, (B, N, 0, H)."""
    _, heads, _, width = part.shape
    rows, _, slots, _ = tf.unstack(tf.shape(part))
    # How many slots there are must not be known before, as it changes in the loop.
    return tf.zeros([rows, heads, tf.minimum(slots, 0), width], part.dtype)


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


# === Random numbers ===


def uniform_noise(seed, number):
    """Return the numbers of `logits.uniform_noise` for a seed, (number,) float32 in [0, 1).

    LiteRT has no products of 64 bits, so numbers of 32 bits are four digits of base 256.

    Args:
        seed: scalar int32, 0 or more. All texts have the same numbers, as there with one seed.
        number: scalar int32.

    Source: Philox 4x32-10, Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3";
    keys and counters as in TensorFlow's `stateless_uniform` with `alg="philox"`.
    """
    first = tf.pad(_digits(seed[tf.newaxis])[:, tf.newaxis], [[0, 0], [0, 3], [0, 0]])
    mixed = _philox(first, tf.constant([[_bytes(part) for part in FIRST_KEY]]))
    groups = tf.math.floordiv(number + 3, 4)
    counters = tf.pad(_digits(tf.range(groups))[:, tf.newaxis], [[0, 0], [0, 1], [0, 0]])
    counters = tf.concat([counters, tf.tile(mixed[:, 2:], [groups, 1, 1])], 1)
    bits = tf.reshape(_philox(counters, tf.tile(mixed[:, :2], [groups, 1, 1])), [-1, 4])
    whole = bits[:, 0] + 2**8 * bits[:, 1] + 2**16 * tf.math.floormod(bits[:, 2], 2**7)
    return tf.cast(whole[:number], tf.float32) * 2.0**-23


def _philox(counters, keys):
    """Hash counters (N, 4, 4) by keys (N, 2, 4); the last axis are digits, the lowest first."""
    factors = np.zeros((2, 4, 2, 8), "float32")  # of a digit of one of two words → of its product
    for word, factor in enumerate(FACTORS):
        for place in range(4):
            factors[word, place, word, place : place + 4] = _bytes(factor)
    factors = factors.reshape(8, 16)

    def mix(step, counters, keys):
        words = tf.unstack(counters, axis=1)
        both = tf.cast(tf.concat([words[0], words[2]], 1), tf.float32)
        # Exact, as the sums are below 2**24.
        products = _carried(tf.reshape(tf.cast(tf.matmul(both, factors), tf.int32), [-1, 2, 8]))
        (low_0, low_2), (high_0, high_2) = (
            tf.unstack(part, axis=1) for part in (products[:, :, :4], products[:, :, 4:])
        )
        key_0, key_1 = tf.unstack(keys, axis=1)
        xor = tf.bitwise.bitwise_xor
        mixed = xor(xor(high_2, words[1]), key_0), xor(xor(high_0, words[3]), key_1)
        counters = tf.stack([mixed[0], low_2, mixed[1], low_0], 1)
        return step + 1, counters, _carried(keys + tf.constant([_bytes(part) for part in WEYL]))

    return tf.while_loop(lambda step, *_: step < ROUNDS, mix, (0, counters, keys))[1]


def _bytes(number):
    return list(int(number).to_bytes(4, "little"))


def _digits(numbers):
    """Return int32 numbers (N,), 0 or more, as digits (N, 4)."""
    places = tf.constant([1, 2**8, 2**16, 2**24])
    return tf.math.floormod(tf.math.floordiv(numbers[:, tf.newaxis], places), 2**8)


def _carried(digits):
    """Return digits (N, W, D) within 0 to 255, if some are not; what the last carries is lost."""
    carry, kept = 0, []
    for digit in tf.unstack(digits, axis=2):
        digit += carry
        carry = tf.math.floordiv(digit, 2**8)
        kept.append(digit - 2**8 * carry)
    return tf.stack(kept, 2)
