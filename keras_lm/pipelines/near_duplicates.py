"""Near duplicates: MinHash signatures of documents, and the buckets that they fall into.

Documents are compared by their shingles, the set of all runs of five words, in lower case. Each of
200 hash functions keeps its smallest value over the shingles; two documents agree in a value with
probability J, their Jaccard similarity (shared shingles / all shingles). The 200 values are divided
into 20 bands of 10. Documents with an equal band share a bucket, which has the probability
1 - (1 - J¹⁰)²⁰: 0.02 for J = 0.5, 0.44 for 0.7, 0.90 for 0.8 and above 0.99 for 0.9.

Source: Broder 1997, "On the resemblance and containment of documents" (shingles, MinHash); Lee et
al. 2021, https://arxiv.org/abs/2107.06499, section 4.2 and appendix A (for corpora of language
models, with 450 bands of 20; unlike here, they also compare the pairs that are found); Leskovec et
al., "Mining of Massive Datasets", section 3.4 (banding).
"""

import functools
import hashlib
import re

import numpy as np

SHINGLE = 5  # words
BANDS = 20
BAND = 10  # values
SHINGLES_AT_ONCE = 512  # so that the values fit into a processor's cache
# In scripts without spaces, each letter is a word.
WORD = re.compile(r"[぀-ヿ㐀-鿿]|[^\W぀-ヿ㐀-鿿]+")


def _constants():
    """Return fixed random numbers for the places in a shingle and for the hash functions."""
    stream = hashlib.shake_256(b"keras_lm").digest(8 * (SHINGLE + 2 * BANDS * BAND))
    numbers = np.frombuffer(stream, "<u8")
    factors, summands = numbers[SHINGLE:].reshape(2, -1, 1)
    odd = np.uint64(1)
    return numbers[:SHINGLE] | odd, factors | odd, summands


PLACES, FACTORS, SUMMANDS = _constants()


@functools.lru_cache(2**17)
def _hash(word):
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def _shingles(text):
    """Return the hashes of the shingles of a document, (N,) uint64; a short one has one."""
    words = [_hash(word) for word in WORD.findall(text.lower())]
    size = max(min(SHINGLE, len(words)), 1)
    windows = np.lib.stride_tricks.sliding_window_view(np.array(words or [0], "uint64"), size)
    return (windows * PLACES[:size]).sum(axis=1, dtype="uint64")  # modulo 2 ** 64, as below


def minhash(text):
    """Return the signature of a document, (200,) uint64; text is a str."""
    hashes = _shingles(text)
    smallest = np.full(BANDS * BAND, np.iinfo("uint64").max, "uint64")
    for start in range(0, len(hashes), SHINGLES_AT_ONCE):
        values = hashes[start : start + SHINGLES_AT_ONCE] * FACTORS + SUMMANDS
        smallest = np.minimum(smallest, values.min(axis=1))
    return smallest


def buckets(text):
    """Return the bucket of each band, 20 of 9 bytes."""
    bands = minhash(text).astype("<u8").reshape(BANDS, BAND)
    return [
        bytes([i]) + hashlib.blake2b(band.tobytes(), digest_size=8).digest()
        for i, band in enumerate(bands)
    ]
