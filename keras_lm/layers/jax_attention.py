"""What attention has of JAX: cuDNN's fused kernel."""

import functools

import jax
import jax.numpy as jnp

from keras_lm.layers.masks import MASKED

# Shapes: B batch, S sequence, T attended length, N heads, H per head.

KERNEL = "cudnn"  # of `jax.nn.dot_product_attention`

# Of fewer scores a head, attention keeps little for the gradient, and is left to XLA.
FEWEST_SCORES = 2**16


@functools.cache
def has_fused_kernel():
    """Whether the devices have cuDNN's fused attention: NVIDIA's from Ampere on."""
    device = jax.devices()[0]
    capability = getattr(device, "compute_capability", None)
    if (
        device.platform != "gpu"
        or capability is None
        or "cuda" not in device.client.platform_version
    ):
        return False
    return float(capability) >= 8.0


def fused_attention(query, key, value, bias, scale):
    """Return softmax(scale · query · key + bias) · value by a fused kernel, or None without one.

    The kernel is exact, and keeps no scores for the gradient. It computes in float16 or bfloat16,
    and has no dropout. Where padding is on the right, and perhaps later tokens masked, it gets the
    lengths of the texts, and leaves out what is masked; any other bias it adds to the scores.

    Args:
        query: (B, N, S, H).
        key, value: (B, N, T, H).
        bias: additive bias that broadcasts to (B, N, S, T), a `Visible`, or None.
        scale: float.

    Source: https://arxiv.org/abs/2205.14135 and https://arxiv.org/abs/2307.08691.
    """
    if not (has_fused_kernel() and _fits(query, key, value)):
        return None
    query, key, value = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))  # (B, S or T, N, H)
    attend = functools.partial(
        jax.nn.dot_product_attention, query, key, value, scale=scale, implementation=KERNEL
    )
    shape = (query.shape[0], query.shape[1], key.shape[1])
    rule = _as_lengths(bias, shape)

    def with_lengths():
        _, lengths, is_causal = rule
        return attend(key_value_seq_lengths=lengths, is_causal=is_causal)

    def with_bias():
        return attend(_whole(bias, shape).astype(query.dtype))

    if bias is None:
        attended = attend()
    elif rule is None:
        attended = with_bias()
    else:
        attended = jax.lax.cond(rule[0], with_lengths, with_bias)
    return jnp.swapaxes(attended, 1, 2)


def _fits(query, key, value):
    """Whether the kernel takes these shapes, with their gradient, and pays for them."""
    if query.ndim != 4 or query.dtype not in (jnp.float16, jnp.bfloat16):
        return False
    if not query.dtype == key.dtype == value.dtype:
        return False
    queries, columns, width = query.shape[2], key.shape[2], query.shape[3]
    if not width == value.shape[3] <= 128 or width % 8 or queries % 2 or columns % 2:
        return False
    return queries * columns >= FEWEST_SCORES


def _whole(bias, shape):
    """Return a bias as a tensor (B or 1, N or 1, S, T)."""
    bias = bias.bias() if isinstance(bias, tuple) else bias  # a `Visible`
    bias = jnp.reshape(bias, (1,) * (4 - bias.ndim) + bias.shape)
    return jnp.broadcast_to(bias, (*bias.shape[:2], *shape[1:]))


def _as_lengths(bias, shape):
    """Return whether the bias is no more than padding on the right; the lengths (B,); is_causal.

    Return None if its shape says that it is more.
    """
    batch, queries, columns = shape
    is_causal = isinstance(bias, tuple)  # a `Visible`
    if is_causal:
        if bias.window or queries != columns:
            return None
        visible = bias.padding_mask[:, 0] > 0  # (B or 1, T)
        is_rule = jnp.all(bias.slots[..., 0] == jnp.arange(queries, dtype="int32"))
    else:
        if bias is None or bias.ndim != 4 or bias.shape[1:3] != (1, 1):
            return None
        visible = bias[:, 0, 0] == 0  # (B or 1, T)
        is_rule = jnp.all(visible | (bias[:, 0, 0] == MASKED))
    visible = jnp.broadcast_to(visible, (batch, columns))
    lengths = jnp.sum(visible, axis=1, dtype="int32")
    is_first = jnp.arange(columns, dtype="int32") < lengths[:, None]
    return is_rule & jnp.all(visible == is_first) & jnp.all(lengths > 0), lengths, is_causal
