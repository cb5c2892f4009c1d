"""Greedy decoding and sampling: continues prompts token by token, in one loop in the graph.

The loop is TensorFlow's; its steps (`make_token_chooser`, `read_newest`) are those of
`jax_decoding`, too.

A model is any object with three functions:

- `initial_state(rows, length)` returns the state before any token, with room for `length` tokens:
  nested tensors, batch first;
- `next_logits(token_ids, padding_mask, state)` reads new tokens, (B, S) int32 each, and returns
  the logits after the last token of each row, (B, V) float32, and the new state;
- `decoding_state(state)` returns the state after the prompts in the form from which the loop goes
  on, a token of each row at a time: the same, unless the model has a quicker one.

Prompt look-up needs two more, see `prompt_lookup`.

Shapes: B batch, P columns of the prompts, T of prompts and new tokens, V vocabulary, K proposals,
S = 1 + K. Of texts: C columns, P prompts, K stop strings of each.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import keras
import numpy as np
from keras import ops

from keras_lm.feeding.feed import columns_from_user
from keras_lm.feeding.predict_batches import longest_first
from keras_lm.generation import logits as processors
from keras_lm.generation.logits import Rules
from keras_lm.generation.options import batch_options, no_room
from keras_lm.layers.backend import at_columns, at_rows, sizes
from keras_lm.layers.tensorflow import required, within
from keras_lm.models.backbone import check_ids
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings
from keras_lm.utils.batch_iteration import with_progress

# Columns of a long prompt to read at once, since the memory for attention's scores grows with the
# square of their number.
COLUMNS_AT_ONCE = 256
MOST_SERVED = 4096  # the most new tokens that a server allows for a model without a window


# In place of `max_new_tokens`: as many as `Rules.max_length` leaves beside a prompt.
UP_TO_LENGTH = -1
TOO_LONG = (
    "A prompt has as many tokens as max_length={}, which the model's settings state, or more: pass "
    "max_new_tokens."
)


class Limits(NamedTuple):
    """The limits of a model's texts, and what else holds for all of them.

    - `end_ids`: list of int, the tokens that end a text.
    - `window`: int, how many tokens a prompt and its continuation may have together, or None.
    - `max_new_tokens`: int, the default of the option.
    - `rules`: `Rules`.
    - `options`: dict of options of `generate` → their defaults, where they are not the usual ones.
    - `special_tokens`: dict of the tokens that have no text → their ids, for `stop`.
    """

    end_ids: list
    window: int | None
    max_new_tokens: int
    rules: Rules = Rules()
    options: Mapping[str, Any] = {}
    special_tokens: Mapping[str, int] = {}

    @property
    def most_served(self):
        """The most new tokens that a server allows, since it allocates memory for all at once."""
        unlimited = self.window is None
        return max(MOST_SERVED, self.max_new_tokens) if unlimited else self.window - 1

    @property
    def usual_number(self):
        """The default of `max_new_tokens`."""
        return self.max_new_tokens if self.rules.max_length is None else UP_TO_LENGTH

    @property
    def is_below_window(self):
        """Whether `Rules.max_length` ends texts before the window does."""
        most = self.rules.max_length
        return most is not None and (self.window is None or most < self.window)

    def room(self, lengths):
        """Return how many tokens may follow prompts of some lengths, (B,) each, by `max_length`."""
        most = self.rules.max_length if self.is_below_window else self.window
        return ops.where(lengths < most, most - lengths, self.max_new_tokens)

    def to_json(self) -> dict[str, Any]:
        """Return values of JSON, without what is as usual."""
        values = self._asdict() | {"rules": self.rules.stated()}
        always = ("end_ids", "window", "max_new_tokens")
        return {name: v for name, v in values.items() if v or name in always}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return what `to_json` describes."""
        return cls(**values | {"rules": Rules(**values.get("rules", {}))})


class Ending(NamedTuple):
    """What ends a text before its maximum length.

    - `token_ids`, (P, n) for P prompts or (n,) for all: a text ends before any of these tokens.
    - `strings`, (P, K) for P prompts or (K,) for all: and before any of these strings; empty ones
      are padding.
    - `detokenize`: function of ragged (B, S) ids that returns (B,) strings; None if there are no
      strings.
    - `limits`: `Limits`, whose rules tokens obey.
    """

    token_ids: tf.Tensor
    strings: tf.Tensor
    detokenize: Callable | None
    limits: Limits = Limits([], None, 0)

    def is_token(self, token):
        """Return whether tokens (B, …), of the same number of rows for each prompt, end a text."""
        ids = self.token_ids
        if len(ids.shape) > 1:  # -1, in padding, is no token
            of_prompts = ops.reshape(token, (ops.shape(ids)[0], -1, 1))
            is_end = ops.any(of_prompts == ids[:, None], axis=-1)
            return ops.reshape(is_end, ops.shape(token))
        return ops.any(token[..., None] == ids, axis=-1)

    def is_text(self, token_ids, begin, end):
        """Return whether rows (B, T) have one of `strings` between `begin` and `end` (B,), (B,)."""
        nothing = ops.zeros_like(token_ids[:, 0], "bool")
        if self.detokenize is None:
            return nothing

        def is_text():
            # Enough tokens for the longest string, since each has at least one byte. Up to three
            # more bytes may be replaced if the first character is cut.
            longest = tf.minimum(longest_stop(self.strings) + 3, tf.shape(token_ids)[1])
            back = tf.range(longest, 0, -1)
            columns = end[:, tf.newaxis] - back
            tail = tf.gather(token_ids, tf.maximum(columns, 0), batch_dims=1)
            tail = real_tokens(tail, tf.cast(columns >= begin, tf.int32))
            places = first_place(self.detokenize(tail), self.strings)
            return places < NOWHERE

        return tf.cond(tf.reduce_any(self.strings != ""), is_text, lambda: nothing)


class State(NamedTuple):
    """The loop's variables.

    - `end` (B,): the column of each row's next token.
    - `token_ids`, `padding_mask` (B, T): prompts and new tokens.
    - `is_done` (B,): whether a row has ended.
    - `model_state`: the model's state after all tokens except the newest.
    """

    end: tf.Tensor
    token_ids: tf.Tensor
    padding_mask: tf.Tensor
    is_done: tf.Tensor
    model_state: object

    def newest(self):
        """Return the newest token of each row, (B,)."""
        return at_columns(self.token_ids, self.end - 1)


def prepare_generation(
    model, limits, detokenize, token_ids, stop_strings=(), stop_ids=(), **options
):
    """Return the first arguments of `sample` and `beam_search.search`.

    They are the model, the prompts and their mask (B, P), the options, and an `Ending`. `token_ids`
    is ragged (B, None); `options` are those of `OPTIONS`, scalars or (B,).
    """
    rows = tf.cast(token_ids.nrows(), tf.int32)
    options = {"max_new_tokens": limits.usual_number} | options
    if limits.rules.max_length is not None:
        options["max_new_tokens"] = _up_to_length(limits, token_ids, options["max_new_tokens"])
    options = batch_options(rows, **options)
    window = tf.int32.max if limits.window is None else limits.window
    most = options.max_new_tokens
    most = required(most, most < window, no_room("…", limits.window))
    options = options._replace(max_new_tokens=most)
    stop_ids = tf.cast(stop_ids, tf.int32)
    end_ids = tf.constant(limits.end_ids, tf.int32)
    if stop_ids.shape.rank == 2:
        end_ids = tf.tile(end_ids[tf.newaxis], [rows, 1])
    ending = Ending(
        tf.concat([stop_ids, end_ids], axis=-1),
        tf.convert_to_tensor(stop_strings, tf.string),
        detokenize,
        limits,
    )
    return model, *align(token_ids, window - most), options, ending


def _up_to_length(limits, token_ids, most):
    """Return `most`, with what `max_length` leaves where it is `UP_TO_LENGTH`."""
    room = limits.room(tf.cast(token_ids.row_lengths(), tf.int32))
    if limits.is_below_window:
        longest = limits.rules.max_length
        message = TOO_LONG.format(longest)
        is_short = tf.cast(token_ids.row_lengths(), tf.int32) < longest
        room = required(room, (most != UP_TO_LENGTH) | is_short, message)
    return tf.where(most == UP_TO_LENGTH, room, most)


def sample(model, token_ids, padding_mask, options, ending, sequences=1, proposals=None):
    """Continue prompts (B, P), padded on the left; each has at least one token.

    `proposals` is the maximum number of tokens that prompt look-up proposes at each step, or None.
    Returns the new tokens, (B · N, longest), with N = `sequences` adjacent rows for each prompt,
    and the number of new tokens in each row.
    """
    begin, state, logits = start(
        model, token_ids, padding_mask, options.max_new_tokens, sequences, proposals
    )
    rows = tf.shape(token_ids)[0]
    which = tf.tile(tf.range(tf.cast(sequences, tf.int64)), [rows])
    options = repeat_rows(options, sequences)
    choose = make_token_chooser(begin, options, ending, sampling_noise(options, which))
    choose = as_one_function(choose)
    state = tf.cond(tf.reduce_all(state.is_done), lambda: state, lambda: choose(logits, state))
    advance = stepper(model, choose, begin + options.max_new_tokens, proposals)
    state = tf.while_loop(
        lambda state: ~tf.reduce_all(state.is_done), lambda state: [advance(state)], [state]
    )[0]
    number = state.end - begin
    longest = tf.reduce_max(tf.concat([number, [0]], axis=0))
    return state.token_ids[:, begin : begin + longest], number


def start(model, token_ids, padding_mask, max_new_tokens, sequences=1, proposals=None):
    """Read the prompts; return the column of the first new token, a `State`, and its logits.

    The state and the logits (B · N, V) have N = `sequences` rows for each prompt. The state has
    room for `max_new_tokens`, and for `proposals`, see `sample`, that may be rejected.
    """
    rows, begin = tf.unstack(tf.shape(token_ids))
    spare = 0 if proposals is None else proposals
    room = tf.reduce_max(tf.concat([max_new_tokens, [0]], axis=0))
    # Those of a source that a decoder reads are repeated for each beam, too.
    columns = begin + room + getattr(model, "source_length", 0)
    room = within(room, rows, sequences, columns)
    logits, model_state = read_prompts(
        model,
        token_ids,
        padding_mask,
        model.initial_state(rows, begin + room + tf.minimum(spare, room)),
    )
    if proposals is None:  # else several tokens are read at a time
        model_state = model.decoding_state(model_state)
    state = State(
        end=tf.fill([rows], begin),
        token_ids=tf.pad(token_ids, [[0, 0], [0, room]]),
        padding_mask=tf.pad(padding_mask, [[0, 0], [0, room]]),
        is_done=max_new_tokens <= 0,
        model_state=model_state,
    )
    return begin, *repeat_rows((state, logits), sequences)


def repeat_rows(structure, times):
    """Repeat each row of every tensor in a structure: rows 0, 0, 1, 1, … for 2."""

    def repeated(x):
        # Not `ops.repeat`, which is 30 operations for each of dozens of tensors of a cache.
        return at_rows(x, ops.arange(sizes(x)[0] * times, dtype="int32") // times)

    return keras.tree.map_structure(lambda x: None if x is None else repeated(x), structure)


def read_prompts(model, token_ids, padding_mask, state):
    """Read prompts (B, P) in parts; return the logits after them, (B, V), and the model's state."""
    rows, columns = tf.unstack(tf.shape(token_ids))

    def read(end, _, state):
        here = slice(tf.maximum(end - COLUMNS_AT_ONCE, 0), end)
        logits, state = model.next_logits(token_ids[:, here], padding_mask[:, here], state)
        return end + COLUMNS_AT_ONCE, logits, state

    # Only the first part may be shorter than the others.
    first = columns - (columns - 1) // COLUMNS_AT_ONCE * COLUMNS_AT_ONCE
    start = [first, tf.zeros([rows, 0]), state]
    shapes = tf.nest.map_structure(lambda x: x.shape, start)
    shapes[1] = tf.TensorShape([None, None])
    _, logits, state = tf.while_loop(lambda end, *_: end <= columns, read, start, shapes)
    return logits, state


def stepper(model, choose, limit, proposals=None):
    """Return a function of a `State` that reads the newest tokens and chooses the next ones.

    `choose` is from `make_token_chooser`; `limit` (B,) is the column at which a row has to end.
    """
    if proposals is None:
        return lambda state: choose(*read_newest(model, state))
    return lambda state: advance(model, choose, limit, proposals, state)


def read_newest(model, state):
    """Let the model read the newest token of each row; return its logits and the new `State`."""
    newest = state.newest()[:, None]
    logits, model_state = model.next_logits(newest, ops.ones_like(newest), state.model_state)
    return logits, state._replace(model_state=model_state)


def sampling_noise(options, which):
    """Return the random numbers of rows, one for each token and one more, for rows that are done.

    `which` (B,) int64 is the index of each row among the continuations of its prompt.
    """
    most = tf.reduce_max(tf.concat([options.max_new_tokens, [0]], axis=0))
    return processors.uniform_noise(options.seed, which, most + 1)


def as_one_function(choose):
    """Return what `make_token_chooser` returned, as a function that a graph holds once."""
    if tf.executing_eagerly():
        return choose

    @functools.partial(tf.function, autograph=False)
    def chosen(logits, state):
        return choose(logits, state)

    def choose_in_graph(logits, state):
        # What the model keeps goes past the function.
        without = chosen(logits, state._replace(model_state=()))
        return without._replace(model_state=state.model_state)

    return choose_in_graph


def make_token_chooser(begin, options, ending, noise):
    """Return a function of logits (B, V) and a `State` that adds the next token to each row.

    `noise` is that of `sampling_noise`.
    """
    rules = ending.limits.rules
    keep = rules.kept if rules.samples else None

    def choose(logits, state):
        logits = process(logits, state, options, begin, ending.limits)
        drawn = at_columns(noise, state.end - begin)
        chances = options.temperature, options.top_k, options.top_p
        token = processors.pick(logits, *chances, drawn, keep)
        is_end = ending.is_token(token)
        is_new = ~state.is_done & ~is_end
        columns = ops.arange(ops.shape(state.token_ids)[1], dtype="int32")
        written = is_new[:, None] & (columns == state.end[:, None])  # (B, T)
        token_ids = ops.where(written, token[:, None], state.token_ids)
        padding_mask = ops.where(written, 1, state.padding_mask)
        end = state.end + ops.cast(is_new, "int32")
        is_done = state.is_done | is_end | (end - begin >= options.max_new_tokens)
        is_done |= ending.is_text(token_ids, begin, end)
        return State(end, token_ids, padding_mask, is_done, state.model_state)

    return choose


def process(logits, state, options, begin, limits):
    """Apply all processing of logits (B, V) that depends on the tokens so far.

    Options that are None have no effect, and no branch in the graph.
    """
    rules = limits.rules
    logits = rules.before(logits, state, options.source_ids, begin)
    if (penalty := options.repetition_penalty) is not None:
        tokens = state.token_ids, state.padding_mask
        logits = processors.penalize_repetition(logits, *tokens, penalty)
    written = (state.token_ids, state.padding_mask, state.end)
    if options.no_repeat_ngram_size is not None:
        logits = processors.ban_repeated_ngrams(logits, *written, options.no_repeat_ngram_size)
    if options.forbidden is not None:
        logits = processors.ban_sequences(logits, *written, options.forbidden)
    most = options.max_new_tokens
    return rules.after(logits, state, options.source_ids, begin, most, limits.end_ids)


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


# === Texts: prompts, aligned to continue in one column, and stop strings ===


NO_BOS = "A prompt is empty, and the tokenizer has no bos token to begin with: pass some text."
NOWHERE = 2**31 - 1


def written_for_all(task, columns, write, batch_size, number, verbose="auto"):
    """Return the generated text of each row, or if `number` is not 1, a list of `number` texts.

    `columns` are the texts of the rows; `write` maps the places of some rows of similar lengths to
    the list of their generated texts, `number` per row.
    """
    texts, order = [], np.arange(next(iter(columns.values())).shape[0])
    if len(order) > batch_size:
        order = longest_first(task.preprocessor, columns, batch_size)
    starts = range(0, len(order), batch_size)
    for start in with_progress(starts, len(starts), verbose):
        texts += write(order[start : start + batch_size])
    rows = [texts[i : i + number] for i in number * np.argsort(order)]
    return rows if number > 1 else [row[0] for row in rows]


def align(token_ids, room):
    """Keep the last `room` (B,) tokens of each row of ragged (B, S), and pad on the left with 0.

    Returns `(token_ids, padding_mask)`, (B, C) with C at least 1.
    """
    length = tf.minimum(tf.cast(token_ids.row_lengths(), tf.int32), room)
    columns = tf.reduce_max(tf.concat([length, [1]], axis=0))
    back = columns - tf.range(columns)  # (C,): from 1 at the right edge on
    real = back <= length[:, tf.newaxis]  # (B, C)
    ends = tf.cast(token_ids.row_limits(), tf.int32)[:, tf.newaxis]
    values = tf.concat([token_ids.values, [0]], axis=0)  # never empty
    ids = tf.gather(values, tf.where(real, ends - back, 0))
    return tf.where(real, ids, 0), tf.cast(real, tf.int32)


def real_tokens(token_ids, padding_mask):
    """Return token ids (B, S) without padding, as a ragged tensor."""
    rows = tf.RaggedTensor.from_tensor(token_ids)
    return strings.keep(rows, tf.reshape(padding_mask, [-1]) > 0)


def prompt_arrays(task, prompts):
    """Return prompts as `prompt` (B,), or as `token_ids` and `padding_mask` (B, S)."""
    if not isinstance(prompts, dict) or "token_ids" not in prompts:
        task.preprocessor.require_tokenizer()
        if isinstance(prompts, str):
            prompts = prompts.encode("utf-8", "surrogatepass")
        if isinstance(prompts, bytes):
            return {"prompt": np.array([prompts], object)}
        return columns_from_user(prompts, ("prompt",))
    unknown = set(prompts) - {"token_ids", "padding_mask", "segment_ids"}
    if unknown:
        raise ValueError(f"prompts has the unknown keys {sorted(unknown)}.")
    token_ids = np.asarray(prompts["token_ids"], "int32")
    mask = np.asarray(prompts.get("padding_mask", np.ones_like(token_ids)), "int32")
    if token_ids.ndim != 2 or mask.shape != token_ids.shape:
        raise ValueError(
            f"prompts has token_ids of shape {token_ids.shape} and padding_mask of shape "
            f"{mask.shape}: both must be (B, S)."
        )
    for row in np.flatnonzero(~mask.any(axis=1))[:1]:
        raise ValueError(
            f"prompts has no token in row {row}: begin an empty prompt with the bos token."
        )
    check_ids(task.backbone, {"token_ids": token_ids})
    return {"token_ids": token_ids, "padding_mask": mask}


def tensors_of(arrays):
    """Return named arrays as tensors, those of bytes as strings."""
    return {
        name: tf.constant(array, tf.string if array.dtype == object else array.dtype)
        for name, array in arrays.items()
    }


def ends_of_texts(tokenizer):
    """Return the tokens that begin and end texts, `"bos"` and `"eos"`, of those there are.

    A BERT's vocabulary has neither, and its cls and sep tokens take their place.
    """
    roles = tokenizer.special_tokens
    if not {"bos", "eos"} & {*roles} and {"cls", "sep"} <= {*roles}:
        return {"bos": roles["cls"], "eos": roles["sep"]}
    return {role: roles[role] for role in ("bos", "eos") if role in roles}


def first_place(text, stops):
    """Return the byte (B,) at which the first stop string begins in a text, or `NOWHERE`.

    `stops` is (P, K), or (K,) for all texts; empty strings are padding. `text` (B,) has the same
    number of adjacent texts for each of P prompts.
    """
    stops = tf.convert_to_tensor(stops, tf.string)
    stops = stops[tf.newaxis] if stops.shape.rank == 1 else stops
    nowhere = tf.fill(tf.shape(text), NOWHERE)
    every = tf.unique(tf.reshape(stops, [-1])).y
    every = tf.boolean_mask(every, every != "")
    times = tf.size(text) // tf.maximum(tf.shape(stops)[0], 1)

    def earlier(i, places):
        parts = tf.raw_ops.StringSplitV2(input=text, sep=every[i], maxsplit=1)
        is_first = parts.indices[:, 1] == 0
        before = tf.strings.length(tf.boolean_mask(parts.values, is_first))
        rows = tf.boolean_mask(parts.indices[:, :1], is_first)
        before = tf.scatter_nd(rows, before, tf.shape(text, tf.int64))
        counts = tf.repeat(tf.reduce_any(stops == every[i], axis=1), times)
        occurs = counts & (before < tf.strings.length(text))
        return i + 1, tf.where(occurs, tf.minimum(before, places), places)

    return tf.while_loop(lambda i, _: i < tf.size(every), earlier, [0, nowhere])[1]


def cut(text, stops):
    """Return each text up to its first stop string; see `first_place`."""
    return tf.strings.substr(text, tf.zeros(tf.shape(text), tf.int32), first_place(text, stops))


def longest_stop(stops):
    """Return the length of the longest stop string in bytes, int32; 0 without any."""
    lengths = tf.strings.length(tf.reshape(stops, [-1]))
    return tf.reduce_max(tf.concat([[0], lengths], axis=0))


def with_scores(answers, number):
    """Return the texts and the scores of a list with a pair, or `number` of them, per source."""
    rows = answers if number > 1 else [[pair] for pair in answers]
    scores = np.array([[score for _, score in row] for row in rows], "float32")
    texts = [[text for text, _ in row] for row in rows]
    return (texts, scores) if number > 1 else ([text for (text,) in texts], scores[:, 0])
