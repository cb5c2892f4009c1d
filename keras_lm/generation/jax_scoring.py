"""Log-likelihoods of texts with Keras's JAX backend, as of `scoring` and `continuations`.

Shapes: B texts, R windows or continuations, P columns of contexts, S columns of the others.
"""

import jax
import numpy as np
from keras import ops

from keras_lm.generation.jax_decoding import compiled, rounded_up
from keras_lm.generation.scoring import TOKENS_AT_ONCE
from keras_lm.tokenizers.host import as_lists


def score_texts(task, text, window, stride):
    """Return how likely texts (B,) are, numpy arrays by name; see `CausalLM.score`."""
    ids = [[*task.end_ids("bos"), *row] for row in as_lists(task.tokenize(text))]
    found = token_scores(task, ids, window, stride)
    number = np.array([len(scores) for scores in found], "int32")
    total = np.array([np.sum(scores) for scores in found], "float32")
    longest = int(number.max(initial=0))
    tokens = np.full((len(ids), longest), b"", object)
    scores = np.zeros((len(ids), longest), "float32")
    vocabulary = task.tokenizer.vocabulary
    for row, n in enumerate(number):
        tokens[row, :n] = [vocabulary[id].encode("utf-8", "surrogateescape") for id in ids[row][1:]]
        scores[row, :n] = found[row]
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
    found = [[] for _ in rows]
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
            found[row].extend(scores[place, known:size])
    return [np.array(scores, "float32") for scores in found]


def _likelihood(task, token_ids, padding_mask, targets):
    return task._log_likelihood(token_ids, padding_mask, targets)


def score_continuations(task, packed):
    """As `continuations.scores`, for what `continuations.pack` returns: a numpy array (R,)."""
    context, own = ((packed[a], packed[b]) for a, b in (CONTEXT, OWN))
    most = task.backbone.max_sequence_length
    add = rounded_up(context[0].shape[1], most) - context[0].shape[1]
    context = [np.pad(each, [(0, 0), (add, 0)]) for each in context]
    # A column more, since the last token has no next one.
    add = rounded_up(own[0].shape[1], most) + 1 - own[0].shape[1]
    own = [np.pad(each, [(0, 0), (0, add)]) for each in own]
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
