"""TensorFlow's stateless random numbers, on the host without TensorFlow. Shapes: B rows."""

import numpy as np

from keras_lm.generation.options import FRESH_SEED

ROUNDS = 10
FACTORS = np.array([0xD2511F53, 0xCD9E8D57], "uint64")
WEYL = np.array([0x9E3779B9, 0xBB67AE85], "uint64")
FIRST_KEY = np.array([0x3EC8F720, 0x02461E29], "uint64")  # TensorFlow's, of which it makes others
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
    for _ in range(ROUNDS):
        products = counters[..., ::2] * FACTORS  # (…, 2)
        high, low = products >> np.uint64(32), products & LOW
        mixed = high[..., ::-1] ^ counters[..., 1::2] ^ keys
        counters = np.stack([mixed[..., 0], low[..., 1], mixed[..., 1], low[..., 0]], axis=-1)
        keys = (keys + WEYL) & LOW
    return counters
