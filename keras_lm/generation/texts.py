"""The texts around decoding: prompts, aligned to continue in one column, and stop strings.

Shapes: B texts, S sequence, C columns, P prompts, K stop strings of each.
"""

import numpy as np

from keras_lm.feeding.predict_batches import longest_first
from keras_lm.feeding.user_data import columns_from_user
from keras_lm.models.backbone import check_ids
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings
from keras_lm.utils.batch_iteration import with_progress

NO_BOS = "A prompt is empty, and the tokenizer has no bos token to begin with: pass some text."
NOWHERE = 2**31 - 1


def written_for_all(task, columns, write, batch_size, number, verbose="auto"):
    """Return the generated text of each row, or if `number` is not 1, a list of `number` texts.

    `columns` are the texts of the rows; `write` maps the places of some rows of similar lengths to
    the list of their generated texts, `number` per row.
    """
    texts, order = [], np.arange(next(iter(columns.values())).shape[0])
    if len(order) > batch_size:
        order = longest_first(task, columns, batch_size)
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
        task.require_tokenizer()
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
        found = counts & (before < tf.strings.length(text))
        return i + 1, tf.where(found, tf.minimum(before, places), places)

    return tf.while_loop(lambda i, _: i < tf.size(every), earlier, [0, nowhere])[1]


def cut(text, stops):
    """Return each text up to its first stop string; see `first_place`."""
    return tf.strings.substr(text, tf.zeros(tf.shape(text), tf.int32), first_place(text, stops))


def longest(stops):
    """Return the length of the longest stop string in bytes, int32; 0 without any."""
    lengths = tf.strings.length(tf.reshape(stops, [-1]))
    return tf.reduce_max(tf.concat([[0], lengths], axis=0))


def with_scores(found, number):
    """Return the texts and the scores of a list with a pair, or `number` of them, per source."""
    rows = found if number > 1 else [[pair] for pair in found]
    scores = np.array([[score for _, score in row] for row in rows], "float32")
    texts = [[text for text, _ in row] for row in rows]
    return (texts, scores) if number > 1 else ([text for (text,) in texts], scores[:, 0])
