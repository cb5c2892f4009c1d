"""Generation with Keras's JAX backend: the steps of `decoding` and `beam_search` in XLA's loops.

XLA compiles for each shape, so prompts get a multiple of `COLUMNS` columns. Text stays on the host,
to which the loop returns after `STEPS` tokens if there are stop strings.

Shapes: B prompts, N continuations of each, P columns of prompts, T of prompts and new tokens, R
windows or continuations, S columns of the others.
"""

from collections import deque
from typing import NamedTuple

import jax
import keras
import numpy as np
from jax import numpy as jnp
from keras import ops

from keras_lm.generation import beam_search, decoding
from keras_lm.generation import logits as processors
from keras_lm.generation.decoding import COLUMNS_AT_ONCE as AT_ONCE
from keras_lm.generation.decoding import NO_BOS, TOO_LONG, UP_TO_LENGTH, Ending, State
from keras_lm.generation.options import FRESH_SEED, Options
from keras_lm.generation.scoring import TOKENS_AT_ONCE
from keras_lm.generation.streaming import growth
from keras_lm.tokenizers.host import as_lists, as_texts

FACTORS = np.array(processors.FACTORS, "uint64")
WEYL = np.array(processors.WEYL, "uint64")
FIRST_KEY = np.array(processors.FIRST_KEY, "uint64")
LOW = np.uint64(2**32 - 1)


def uniform_noise(seed, sequence, number):
    """Return the numbers (B, number) float32 of `logits.uniform_noise`, as a numpy array.

    New seeds are drawn by numpy, whose seed `keras.utils.set_random_seed` sets.

    Source: Philox 4x32-10, Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3";
    keys and counters as in TensorFlow's `stateless_uniform` with `alg="philox"`.
    """
    fresh = np.random.randint(0, np.iinfo("int64").max, np.shape(seed), "int64")
    seeds = np.stack([np.where(np.equal(seed, FRESH_SEED), fresh, seed), sequence], axis=1)
    seeds = seeds.astype("int64").view("uint64")  # (B, 2)
    parts = np.stack([seeds & LOW, seeds >> np.uint64(32)], axis=-1).reshape(-1, 4)
    mixed = _philox(parts, np.broadcast_to(FIRST_KEY, seeds.shape))
    groups = -(-number // 4)
    counters = np.zeros((len(seeds), groups, 4), "uint64")
    counters[:, :, 0] = np.arange(groups)
    counters[:, :, 2:] = mixed[:, None, 2:]
    keys = np.broadcast_to(mixed[:, None, :2], (len(seeds), groups, 2))
    bits = _philox(counters, keys).reshape(len(seeds), -1)[:, :number]
    return (bits & np.uint64(2**23 - 1)).astype("float32") * np.float32(2.0**-23)


def _philox(counters, keys):
    """Hash counters (…, 4) by keys (…, 2); all are uint64 of 32 bits."""
    for _ in range(processors.ROUNDS):
        products = counters[..., ::2] * FACTORS  # (…, 2)
        high, low = products >> np.uint64(32), products & LOW
        mixed = high[..., ::-1] ^ counters[..., 1::2] ^ keys
        counters = np.stack([mixed[..., 0], low[..., 1], mixed[..., 1], low[..., 0]], axis=-1)
        keys = (keys + WEYL) & LOW
    return counters


COLUMNS = 32
STEPS = 16


def compiled(task, function, *arguments, **static):
    """Call `function(task, *arguments, **static)`, compiled by XLA, with the task's weights.

    The arguments are nested arrays; it is compiled again for others of the `static` ones.
    """
    key = (function, *sorted(static.items()))
    if key not in task._graphs:

        def computed(values, arguments):
            state = list(zip(task.variables, values, strict=True))
            with keras.StatelessScope(state_mapping=state):
                return function(task, *arguments, **static)

        task._graphs[key] = jax.jit(computed)
    return task._graphs[key]([variable.value for variable in task.variables], arguments)


def rounded_up(number, most=None):
    """Round a number of columns up to a multiple of `COLUMNS`, to `most` at most."""
    columns = -(-max(number, 1) // COLUMNS) * COLUMNS
    return columns if most is None else max(min(columns, most), number)


def continued(task, prompt=None, token_ids=None, padding_mask=None, stop_strings=(), **arguments):
    """Return the continuations of prompts as `CausalLM.generate` does: str, or lists of ids.

    For the other arguments see `written`.
    """
    if prompt is None:
        rows = [ids[mask > 0] for ids, mask in zip(token_ids, padding_mask, strict=True)]
    else:
        rows = prompt_rows(task, prompt)
    new_ids, _ = written(task, rows, task.tokenizer, stop_strings, **arguments)
    return new_ids if prompt is None else texts(task.tokenizer, new_ids, stop_strings)


def prompt_rows(task, prompt):
    """As `CausalLM.prompt_ids`, on the host: lists of int."""
    bos, rows = task.end_ids("bos"), as_lists(task.tokenize(prompt))
    if task.ends_prompts:
        rows = [[*row, *task.end_ids("eos")] for row in rows]
    is_begun = [task.begins_prompts or not len(row) for row in rows]
    if any(is_begun) and not bos:
        raise ValueError(NO_BOS)
    return [bos + row if begun else row for row, begun in zip(rows, is_begun, strict=True)]


def targets(
    task,
    columns,
    prefix=None,
    stop_strings=(),
    forbidden=None,
    coverage_penalty=None,
    **arguments,
):
    """Return what a `Seq2SeqLM` writes for columns of sources: B · N str, and scores or None.

    `prefix` (B,) are strings to begin with, `forbidden` (F, L) as in `targets.write`; for the other
    arguments see `written`.
    """
    if coverage_penalty is not None:
        raise ValueError(
            f"coverage_penalty={coverage_penalty} needs Keras's TensorFlow backend: set "
            "KERAS_BACKEND=tensorflow, or make the task without it."
        )
    source = {name: np.asarray(value) for name, value in task.preprocess(columns).items()}
    rows, width = source["encoder_token_ids"].shape
    free = max(min(rounded_up(width), task.packer.sequence_length) - width, 0)
    source = {name: np.pad(value, [(0, 0), (0, free)]) for name, value in source.items()}
    tokenizer, start = task.tokenizer.target, task.packer.start_id
    begun = [[]] * rows if prefix is None else as_lists(task.tokenize_target(prefix))
    banned = [] if forbidden is None else forbidden.tolist()
    if not task.backbone.generates_start:
        banned.append([-1] * (len(banned[0]) - 1 if banned else 0) + [start])
    tokens, mask = source["encoder_token_ids"], source["encoder_padding_mask"]
    target_ids, scores = written(
        task,
        [[start, *ids] for ids in begun],
        tokenizer,
        stop_strings,
        source=source,
        forbidden=np.array([banned] * rows, "int32") if banned else None,
        source_ids=np.where(mask > 0, tokens, -1),
        **arguments,
    )
    number = len(target_ids) // rows
    target_ids = [[*begun[place // number], *ids] for place, ids in enumerate(target_ids)]
    return texts(tokenizer, target_ids, stop_strings), scores


def texts(tokenizer, rows, stop_strings):
    """Return the texts (str) of lists of ids, up to the first stop string (bytes) of each."""
    stops = [stop.decode("utf-8", "replace") for stop in stop_strings]
    whole = as_texts(tokenizer, rows)
    return [text[: min([*(text.find(s) for s in stops if s in text), len(text)])] for text in whole]


def written(
    task,
    rows,
    tokenizer,
    stop_strings=(),
    stop_ids=(),
    source=None,
    num_beams=None,
    length_penalty=1.0,
    num_return_sequences=1,
    **options,
):
    """Return the new tokens after B prompts, B · N lists of int, and beam search's scores or None.

    Args:
        task: `CausalLM` or `Seq2SeqLM`.
        rows: list of B prompts, lists of one id or more.
        tokenizer: of what is written, for stop strings; None if there are none.
        source: dict of a `Seq2SeqLM`'s packed sources.
        stop_strings, …: see `CausalLM.continue_ids`; `options` are arrays (B,).
    """
    num_beams, number = int(num_beams or 1), int(num_return_sequences)
    if num_beams > 1 and len(stop_strings):
        raise ValueError(
            f"num_beams={num_beams} with stop={[s.decode() for s in stop_strings]}: beams that "
            "end at strings need Keras's TensorFlow backend; pass token ids, or one beam."
        )
    prompts, options = _aligned(task.limits, rows, options)
    ends = np.concatenate([task.limits.end_ids, stop_ids]).astype("int32")
    room = int(max([0, *options["max_new_tokens"]]))
    if num_beams > 1:
        options = _options(options)
        start = source, *prompts, options, ends, np.float32(length_penalty)
        beams = compiled(task, _search, *start, room=room, num_beams=num_beams)
        ids, numbers, scores = (np.asarray(array)[:, :number] for array in beams)
        ids = [row[:n].tolist() for row, n in zip(_joined(ids), _joined(numbers), strict=True)]
        return ids, _joined(scores)
    which = np.tile(np.arange(number), len(rows))
    options = {n: None if v is None else np.repeat(v, number, axis=0) for n, v in options.items()}
    noise = uniform_noise(options["seed"], which, room + 1)
    choice = Choice(np.int32(prompts[0].shape[1]), _options(options), ends, noise)
    state = compiled(task, _begun, source, *prompts, choice, room=room, number=number)
    stops = [] if tokenizer is None else [stop.decode("utf-8", "replace") for stop in stop_strings]
    states = _advanced(task, state, choice, tokenizer, stops, STEPS if stops else room)
    return _new_ids(deque(states, maxlen=1).pop(), choice.begin), None


def pieces(task, prompt, stop_strings, stop_ids, options):
    """As `streaming.Stream.pieces`."""
    (row,) = prompt_rows(task, prompt)
    prompts, options = _aligned(task.limits, [row], options)
    room = int(options["max_new_tokens"][0])
    ends = np.concatenate([task.limits.end_ids, stop_ids]).astype("int32")
    noise = uniform_noise(options["seed"], np.zeros(1, "int64"), room + 1)
    choice = Choice(np.int32(prompts[0].shape[1]), _options(options), ends, noise)
    state = compiled(task, _begun, None, *prompts, choice, room=room, number=1)
    stops = [stop.decode("utf-8", "replace") for stop in stop_strings]
    for_each = _advanced(task, state, choice, task.tokenizer, stops, 1)

    def grown():
        for state in for_each:
            (text,) = texts(task.tokenizer, _new_ids(state, choice.begin), stop_strings)
            yield text, bool(state.is_done[0])

    yield from growth(grown(), stop_strings)


class Choice(NamedTuple):
    """What `decoding.make_token_chooser` takes: the first new column, options, ends and noise."""

    begin: np.ndarray
    options: Options
    end_ids: np.ndarray
    noise: np.ndarray

    def make_token_chooser(self, limits):
        ending = Ending(self.end_ids, None, None, limits)
        return decoding.make_token_chooser(self.begin, self.options, ending, self.noise)


def _options(options):
    # Noise is made of the seed, which would need 64 bits on the device.
    values = {"forbidden": None} | options
    return Options(**values | {"seed": None})


def _aligned(limits, rows, options):
    """Return prompts' last tokens for which a window has room, their mask, and the options.

    The prompts and their mask are (B, P) int32; of the options, `max_new_tokens` are real numbers.
    """
    window, max_new_tokens = limits.window, options["max_new_tokens"]
    if limits.rules.max_length is not None:
        lengths, unstated = np.array([*map(len, rows)]), max_new_tokens == UP_TO_LENGTH
        if limits.is_below_window and np.any(unstated & (lengths >= limits.rules.max_length)):
            raise ValueError(TOO_LONG.format(limits.rules.max_length))
        max_new_tokens = np.where(unstated, limits.room(lengths), max_new_tokens).astype("int32")
    if window is not None:
        rows = [row[-(window - n) :] for row, n in zip(rows, max_new_tokens.tolist(), strict=True)]
    longest = max(map(len, rows), default=1)
    columns = rounded_up(longest)
    if window is not None:
        columns = max(min(columns, window - int(max_new_tokens.max(initial=0))), longest)
    token_ids, padding_mask = np.zeros((2, len(rows), columns), "int32")
    for place, row in enumerate(rows):
        token_ids[place, columns - len(row) :] = row
        padding_mask[place, columns - len(row) :] = 1
    return (token_ids, padding_mask), options | {"max_new_tokens": max_new_tokens}


def _new_ids(state, begin):
    rows = zip(np.asarray(state.token_ids), np.asarray(state.end), strict=True)
    return [ids[begin:end].tolist() for ids, end in rows]


def _joined(x):
    return np.reshape(x, (-1, *x.shape[2:]))


# === On the host ===


def _advanced(task, state, choice, tokenizer, stops, steps):
    """Yield the `State` and those that follow, `steps` tokens later each, until all rows end."""
    before = np.full(len(state.end), choice.begin)
    while True:
        if stops:
            state = _stopped(state, before, choice.begin, tokenizer, stops)
        yield state
        if np.all(state.is_done):
            return
        before = np.asarray(state.end)
        state = compiled(task, _advance, state, choice, np.int32(steps))


def _stopped(state, before, begin, tokenizer, stops):
    """Return the state with an end after the first new token that completes a stop string.

    `before` (B,) is where rows ended when they had none.
    """
    end, is_done = np.array(state.end), np.array(state.is_done)
    new = _new_ids(state, begin)
    ends = [(row, n) for row, first in enumerate(before) for n in range(first + 1, end[row] + 1)]
    beginnings = as_texts(tokenizer, [new[row][: n - begin] for row, n in ends])
    for (row, n), text in reversed([*zip(ends, beginnings, strict=True)]):
        if any(stop in text for stop in stops):
            end[row], is_done[row] = n, True
    return state._replace(end=end, is_done=is_done)


# === On the device ===


def _started(model, token_ids, padding_mask, options, room, number):
    """As `decoding.start`: the `State` after the prompts, and the logits, (B · N, …)."""
    rows, columns = token_ids.shape
    state = model.initial_state(rows, columns + room)
    # Only the first part may be shorter than the others.
    for end in range((columns - 1) % AT_ONCE + 1, columns + 1, AT_ONCE):
        here = slice(max(end - AT_ONCE, 0), end)
        logits, state = model.next_logits(token_ids[:, here], padding_mask[:, here], state)
    free = [(0, 0), (0, room)]
    state = State(
        end=jnp.full((rows,), columns, "int32"),
        token_ids=jnp.pad(token_ids, free),
        padding_mask=jnp.pad(padding_mask, free),
        is_done=jnp.zeros((rows,), bool),
        model_state=model.decoding_state(state),
    )
    state, logits = jax.tree.map(lambda x: jnp.repeat(x, number, axis=0), (state, logits))
    return state._replace(is_done=options.max_new_tokens <= 0), logits


def _begun(task, source, token_ids, padding_mask, choice, room, number):
    model = task.decoder(source)
    state, logits = _started(model, token_ids, padding_mask, choice.options, room, number)
    return choice.make_token_chooser(task.limits)(logits, state)


def _advance(task, state, choice, steps):
    model, choose = task.decoder(None), choice.make_token_chooser(task.limits)

    return ops.while_loop(
        lambda step, state: (step < steps) & ~ops.all(state.is_done),
        lambda step, state: (step + 1, choose(*decoding.read_newest(model, state))),
        (0, state),
    )[1]


def _search(
    task, source, token_ids, padding_mask, options, end_ids, length_penalty, room, num_beams
):
    """As `beam_search.search`: ids (B, K, T - P), numbers (B, K) and scores (B, K)."""
    model, begin = task.decoder(source), token_ids.shape[1]
    repeated = options._replace(max_new_tokens=jnp.repeat(options.max_new_tokens, num_beams))
    state, logits = _started(model, token_ids, padding_mask, repeated, room, num_beams)
    step = beam_search.searcher(
        begin, options, Ending(end_ids, None, None, task.limits), num_beams, length_penalty, 0
    )
    _, beams = ops.while_loop(
        lambda state, beams: ~ops.all(state.is_done),
        lambda state, beams: step(*decoding.read_newest(model, state), beams),
        step(logits, state, beam_search.first_beams(state, num_beams)),
    )
    return beams.done_ids[:, :, begin:], beams.done_numbers, beams.done_scores


def score_texts(task, text, window, stride):
    """Return how likely texts (B,) are, numpy arrays by name; see `CausalLM.score`."""
    ids = [[*task.end_ids("bos"), *row] for row in as_lists(task.tokenize(text))]
    row_scores = token_scores(task, ids, window, stride)
    number = np.array([len(scores) for scores in row_scores], "int32")
    total = np.array([np.sum(scores) for scores in row_scores], "float32")
    longest = int(number.max(initial=0))
    tokens = np.full((len(ids), longest), b"", object)
    scores = np.zeros((len(ids), longest), "float32")
    vocabulary = task.tokenizer.vocabulary
    for row, n in enumerate(number):
        tokens[row, :n] = [vocabulary[id].encode("utf-8", "surrogateescape") for id in ids[row][1:]]
        scores[row, :n] = row_scores[row]
    return {
        "scores": total,
        "perplexity": np.exp(-total / np.maximum(number, 1)).astype("float32"),
        "num_tokens": number,
        "tokens": tokens,
        "token_scores": scores,
    }


def token_scores(task, rows, window, stride):
    """As `scoring.token_scores`, for lists of ids: a list of arrays of float32."""
    windows = []  # (row, first token, number of tokens, how many of them are scored already)
    for row, ids in enumerate(rows):
        targets = max(len(ids) - 1, 0)
        number = 1 + -(-max(targets - window, 0) // stride) if targets else 0
        for which in range(number):
            size = min(targets - which * stride, window)
            windows.append((row, which * stride, size, window - stride if which else 0))
    row_scores = [[] for _ in rows]
    columns = rounded_up(max((size for _, _, size, _ in windows), default=1), window)
    at_once = min(max(TOKENS_AT_ONCE // columns, 1), len(windows))
    for first in range(0, len(windows), at_once or 1):
        token_ids, padding_mask, targets = np.zeros((3, at_once, columns), "int32")
        here = windows[first : first + at_once]
        for place, (row, start, size, _) in enumerate(here):
            token_ids[place, :size] = rows[row][start : start + size]
            targets[place, :size] = rows[row][start + 1 : start + size + 1]
            padding_mask[place, :size] = 1
        scores = np.asarray(compiled(task, _likelihood, token_ids, padding_mask, targets))
        for place, (row, _, size, known) in enumerate(here):
            row_scores[row].extend(scores[place, known:size])
    return [np.array(scores, "float32") for scores in row_scores]


def _likelihood(task, token_ids, padding_mask, targets):
    return task._log_likelihood(token_ids, padding_mask, targets)


def score_continuations(task, packed):
    """As `continuations.scores`, for what `continuations.pack` returns: a numpy array (R,)."""
    context, own = ((packed[a], packed[b]) for a, b in (CONTEXT, OWN))
    most = task.backbone.max_sequence_length
    add = rounded_up(context[0].shape[1], most) - context[0].shape[1]
    context = [np.pad(array, [(0, 0), (add, 0)]) for array in context]
    # A column more, since the last token has no next one.
    add = rounded_up(own[0].shape[1], most) + 1 - own[0].shape[1]
    own = [np.pad(array, [(0, 0), (0, add)]) for array in own]
    return np.asarray(compiled(task, _continuations, *context, *own, packed["of_context"]))


CONTEXT, OWN = ("context_ids", "context_mask"), ("token_ids", "padding_mask")


def _continuations(task, context_ids, context_mask, token_ids, padding_mask, of_context):
    rows, columns = context_ids.shape
    state = task.initial_state(rows, columns + token_ids.shape[1])
    _, state = task.read(context_ids, context_mask, state)
    state = jax.tree.map(lambda x: x[of_context], state)
    outputs, _ = task.read(token_ids[:, :-1], padding_mask[:, :-1], state)
    losses = task.target_losses(outputs["sequence_output"], token_ids[:, 1:])
    return -ops.sum(losses * padding_mask[:, 1:], axis=1)
