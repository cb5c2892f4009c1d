"""Prompts as users give them, and aligned, so that all rows continue in the same column.

Shapes: B batch, S sequence.
"""

import numpy as np

from keras_lm.feeding.user_data import columns_from_user
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings

NO_BOS = "A prompt is empty, and the tokenizer has no bos token to begin with: pass some text."


def align(token_ids, room):
    """Keep the last `room` (B,) tokens of each row of ragged (B, S), and pad on the left with 0.

    Returns `(token_ids, padding_mask)`, (B, P) with P at least 1.
    """
    length = tf.minimum(tf.cast(token_ids.row_lengths(), tf.int32), room)
    columns = tf.reduce_max(tf.concat([length, [1]], axis=0))
    back = columns - tf.range(columns)  # (P,): from 1 at the right edge on
    real = back <= length[:, tf.newaxis]  # (B, P)
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
        prompts = [prompts] if isinstance(prompts, (str, bytes)) else prompts
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
    return {"token_ids": token_ids, "padding_mask": mask}


def ends_of_texts(tokenizer):
    """Return the tokens that begin and end texts, `"bos"` and `"eos"`, of those there are.

    A BERT's vocabulary has neither, and its cls and sep tokens take their place.
    """
    roles = tokenizer.special_tokens
    if not {"bos", "eos"} & {*roles} and {"cls", "sep"} <= {*roles}:
        return {"bos": roles["cls"], "eos": roles["sep"]}
    return {role: roles[role] for role in ("bos", "eos") if role in roles}
