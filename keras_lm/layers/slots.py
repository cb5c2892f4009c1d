"""Writing new keys and values into the slots of a cache.

Shapes: B batch, N heads, S new tokens, T slots, H per head.
"""

import keras
import tensorflow as tf
from keras import ops


def write_slots(old, new, indices):
    """Return a copy of a cache's keys or values with new ones in it.

    Args:
        old: (B, N, T, H).
        new: (B, N, S, H).
        indices: (B, N, S, 3) int32, where each goes: a row, a head and a slot.

    Returns:
        (B, N, T, H).
    """
    return ops.scatter_update(old, *_updates(new, indices))


def write_slots_in_place(old, new, indices):
    """Do as `write_slots`, but copy nothing where TensorFlow sees that `old` is not used again.

    That is so in a loop, whose steps would otherwise take longer the more slots there are: on a
    CPU, TensorFlow's scatter update always copies. What it can do in place is to add. In a slot
    that held zeros, as free slots do, the sum is exact; in another it is rounded once.

    Args:
        old, new, indices: see `write_slots`.

    Returns:
        (B, N, T, H).
    """
    if keras.backend.backend() != "tensorflow":
        return write_slots(old, new, indices)
    indices, new = _updates(new, indices)
    return tf.raw_ops.ScatterNdNonAliasingAdd(
        input=old, indices=indices, updates=new - tf.gather_nd(old, indices)
    )


def _updates(new, indices):
    """Indices (B·N·S, 3), and rows (B·N·S, H) that go there."""
    return ops.reshape(indices, (-1, 3)), ops.reshape(new, (-1, new.shape[-1]))
