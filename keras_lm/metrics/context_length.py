"""How much context a language model uses. Shapes: M models, C lengths of context, T tokens."""

from collections.abc import Sequence

import keras
import numpy as np

from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import Tensor
from keras_lm.utils.user_arguments import check_batch_size


def context_losses(
    task: keras.Model, token_ids: Tensor, lengths: Sequence[int], batch_size: int = 32
) -> np.ndarray:
    """Return the cross-entropies (C, T) float32 of tokens given the last tokens before each only.

    The tokens are those with the longest context before them, T = N - max(lengths). Each context is
    read anew, so the time is that of T times the sum of `lengths`.

    Args:
        task: `keras_lm.tasks.CausalLM`.
        token_ids: (N,) int, a text.
        lengths: C int, 1 or more each: how many tokens are read before the one that is predicted.
        batch_size: int, contexts at a time.

    Raises:
        ValueError: if a length is not from 1 to N - 1.

    Source: Transformer-XL, https://arxiv.org/abs/1901.02860, appendix C: l(c, t).
    """
    check_batch_size(batch_size)
    token_ids = np.asarray(token_ids, "int32")
    if token_ids.ndim != 1 or not 1 <= min(lengths) <= max(lengths) < len(token_ids):
        raise ValueError(
            f"lengths={list(lengths)}: pass numbers from 1 to {token_ids.size - 1}, one less than "
            f"token_ids of shape {token_ids.shape} has."
        )

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    def losses(windows):
        states = task.backbone({"token_ids": windows[:, :-1]}, training=False)["sequence_output"]
        return task.target_losses(states[:, -1:], windows[:, -1:])[:, 0]

    rows = []
    for length in lengths:
        windows = np.lib.stride_tricks.sliding_window_view(token_ids, length + 1)
        windows = windows[max(lengths) - length :]
        starts = range(0, len(windows), batch_size)
        parts = [losses(tf.constant(windows[i : i + batch_size])).numpy() for i in starts]
        rows.append(np.concatenate(parts))
    return np.stack(rows)


def relative_effective_context_length(
    losses: Tensor, lengths: Sequence[int], ratio: float = 1.0, threshold: float = 0.01
) -> list[int]:
    """Return up to which length of context each of several models gains from more: M ints.

    With a context of c tokens, the best of the models sets a baseline for each token. A model gains
    from the next length c' by how much lower its perplexity is if only losses below the baseline
    count. The first length from which the gain is below the threshold is the model's.

    Args:
        losses: (M, C, T) floats: of each model, the losses of the same tokens with each context;
            see `context_losses`.
        lengths: C ints, rising in equal steps, two or more.
        ratio: float above 0, 1 at most. The share of tokens that count: those that are hardest with
            the short context.
        threshold: float. The least gain, as a share of the perplexity.

    Raises:
        ValueError: if shapes do not match, or an argument is out of range.

    Example:

        lengths = [10, 20, 30]
        losses = [context_losses(task, token_ids, lengths) for task in (with_memory, without)]
        relative_effective_context_length(losses, lengths)  # [30, 10]

    Source: Transformer-XL, https://arxiv.org/abs/1901.02860, section 4.3 and appendix C.
    """
    losses, lengths = np.asarray(losses, "float64"), [int(length) for length in lengths]
    if losses.ndim != 3 or losses.shape[1] != len(lengths) or 0 in losses.shape:
        raise ValueError(
            f"losses has the shape {losses.shape}: pass (models, {len(lengths)} lengths, tokens)."
        )
    steps = np.diff(lengths)
    if not steps.size or steps[0] < 1 or (steps != steps[0]).any():
        raise ValueError(f"lengths={lengths}: pass two or more, rising in equal steps.")
    if not 0 < ratio <= 1:
        raise ValueError(f"ratio={ratio}: pass a number above 0, 1 at most.")
    effective = []
    for own in losses:
        for place in range(len(lengths) - 1):
            baseline = losses[:, place].min(axis=0)  # (T,)
            number = max(round(ratio * baseline.size), 1)
            hardest = np.argsort(-baseline, kind="stable")[:number]
            short, long = (
                np.exp(np.minimum(baseline, own[column])[hardest].mean())
                for column in (place, place + 1)
            )
            if (short - long) / short < threshold:
                break
        else:
            place = len(lengths) - 1
        effective.append(lengths[place])
    return effective
