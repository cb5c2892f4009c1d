"""Log-likelihoods of tokens in texts, which are read in overlapping windows if they are long.

Shapes: B texts, R windows, S columns of a window, T of targets, V vocabulary, C continuations of
each, P columns of contexts.
"""

import numpy as np

from keras_lm.feeding.feed import columns_from_user
from keras_lm.layers.masks import IGNORED
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.host import as_lists
from keras_lm.utils.batch_iteration import with_progress

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

    def score(step, parts):
        here = slice(step * at_once, (step + 1) * at_once)
        columns = tf.range(tf.reduce_max(size[here]))  # (S,)
        real = columns < size[here, tf.newaxis]  # (R, S)
        places = tf.where(real, start[here, tf.newaxis] + columns, 0)
        scores = log_likelihood(
            tf.gather(values, places), tf.cast(real, tf.int32), tf.gather(values, places + 1)
        )
        new = real & (columns >= known[here, tf.newaxis])
        return step + 1, parts.write(step, tf.boolean_mask(scores, new))

    parts = tf.TensorArray(tf.float32, steps, infer_shape=False, element_shape=[None])
    _, parts = tf.while_loop(lambda step, _: step < steps, score, [0, parts])
    # The windows of a text follow each other, and so do the texts.
    scores = tf.cond(steps > 0, parts.concat, lambda: tf.zeros([0]))
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


def score_all(task, contexts, choices, compute, batch_size, verbose):
    """See `CausalLM.score_continuations`; `compute` maps what `pack` returns to `scores`."""
    task.require_tokenizer()
    columns = columns_from_user(
        {"contexts": contexts, "choices": choices},
        ("contexts", "choices"),
        required=("contexts", "choices"),
        lists=("choices",),
    )
    rows = list(zip(columns["contexts"], columns["choices"], strict=True))
    if not rows:
        raise ValueError("contexts is empty: pass at least one.")
    for i, (_, row) in enumerate(rows):
        if isinstance(row, bytes) or not row:
            raise ValueError(f"choices[{i}] is {row!r}: pass a list of at least one choice.")
    heads = _ids_after_bos(task, [context for context, _ in rows])
    wholes = _ids_after_bos(task, [context + choice for context, row in rows for choice in row])
    ends = np.cumsum([len(row) for _, row in rows])
    wholes = [wholes[end - len(row) : end] for end, (_, row) in zip(ends, rows, strict=True)]
    borders = [border(*pair) for pair in zip(heads, wholes, strict=True)]
    numbers = [[len(ids) - n for ids in whole] for whole, n in zip(wholes, borders, strict=True)]
    window = task.backbone.max_sequence_length or np.iinfo("int32").max
    for i, number in enumerate(numbers):
        if not borders[i]:
            raise ValueError(
                f"contexts[{i}]={rows[i][0]!r} has no token before its choices, and the "
                "tokenizer has no bos token to begin with: pass a longer context."
            )
        if not 0 < min(number) <= max(number) <= window:
            raise ValueError(
                f"choices[{i}] has {number} tokens: each must have one, and at most the "
                f"{window} of the window."
            )
        surplus = max(borders[i] + max(number) - 1 - window, 0)
        wholes[i] = [ids[surplus:] for ids in wholes[i]]
        borders[i] -= surplus
    flat_scores = []
    starts = range(0, len(rows), batch_size)
    for start in with_progress(starts, len(starts), verbose):
        here = slice(start, start + batch_size)
        packed = pack(wholes[here], borders[here])
        flat_scores += np.asarray(compute(packed)).tolist()
    mask = np.arange(max(map(len, numbers))) < np.array([[len(row)] for row in numbers])
    answer = {
        "scores": np.full(mask.shape, -np.inf, "float32"),
        "num_tokens": np.zeros(mask.shape, "int32"),
    }
    answer["scores"][mask] = flat_scores
    answer["num_tokens"][mask] = np.concatenate(numbers)
    return answer


def _ids_after_bos(task, texts):
    rows = as_lists(task.tokenize(texts))
    return [np.array([*task.end_ids("bos"), *row], "int32") for row in rows]


def border(context, wholes):
    """Return how many tokens a context shares with all of `wholes`, itself with a continuation."""
    return min(_shared(context, whole) for whole in wholes)


def _shared(a, b):
    n = min(len(a), len(b))
    return next(iter(np.flatnonzero(a[:n] != b[:n])), n)


def pack(wholes, borders):
    """Pack B lists of texts, int arrays, into the arguments of `scores`.

    The texts of a list share their first tokens; `borders` (B,) says how many, 1 or more. Returns a
    dict of int32: `context_ids` and `context_mask` (B, P), the shared tokens except the last,
    padded on the left; `token_ids` and `padding_mask` (R, S), the last shared token and all after
    it, padded on the right; and `of_context` (R,), the row of each text's context.
    """
    contexts = [row[0][: n - 1] for row, n in zip(wholes, borders, strict=True)]
    rest = [whole[n - 1 :] for row, n in zip(wholes, borders, strict=True) for whole in row]
    columns = max(1, *map(len, contexts))
    context_ids, context_mask = np.zeros((2, len(contexts), columns), "int32")
    for i, ids in enumerate(contexts):
        here = slice(columns - len(ids), columns)
        context_ids[i, here], context_mask[i, here] = ids, 1
    token_ids, padding_mask = np.zeros((2, len(rest), max(map(len, rest))), "int32")
    for i, ids in enumerate(rest):
        token_ids[i, : len(ids)], padding_mask[i, : len(ids)] = ids, 1
    return {
        "context_ids": context_ids,
        "context_mask": context_mask,
        "token_ids": token_ids,
        "padding_mask": padding_mask,
        "of_context": np.repeat(np.arange(len(wholes), dtype="int32"), [len(r) for r in wholes]),
    }


def scores(task, context_ids, context_mask, token_ids, padding_mask, of_context):
    """Return the log-likelihood (R,) of continuations given their contexts; see `pack`."""
    length = tf.shape(context_ids)[1] + tf.shape(token_ids)[1]
    state = task.initial_state(tf.shape(context_ids)[0], length)
    _, state = task.read(context_ids, context_mask, state)
    state = tf.nest.map_structure(lambda x: tf.gather(x, of_context), state)
    outputs, _ = task.read(token_ids[:, :-1], padding_mask[:, :-1], state)
    # Logits are large, so they are not computed for padding.
    places = tf.where(padding_mask[:, 1:] > 0)
    hidden = tf.gather_nd(outputs["sequence_output"], places)
    targets = tf.gather_nd(token_ids[:, 1:], places)
    losses = task.target_losses(hidden[tf.newaxis], targets[tf.newaxis])[0]
    return tf.math.unsorted_segment_sum(-losses, places[:, 0], tf.shape(token_ids)[0])
