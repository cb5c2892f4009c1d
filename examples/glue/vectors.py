"""Word vectors learned from texts, for baselines where there are no published ones.

Imports TensorFlow. Shapes: V words, E width of a vector.
"""

import numpy as np

from keras_lm.tokenizers import WordTokenizer, learn_words
from keras_lm.utils.files import replacing

SPECIAL = ["<unk>", "<pad>"]
SMOOTHING = 0.75  # of the frequencies of contexts
TEXTS_AT_A_TIME = 1024


def word_tokenizer(words):
    """Return the tokenizer of a list of words, which is lower-case if all of them are."""
    lowercase = all(word == word.lower() for word in words)
    return WordTokenizer(words, *SPECIAL, lowercase=lowercase)


def learn_vectors(texts, vocabulary_size=6000, embedding_dim=100, window=5, seed=0):
    """Return words and an array (V, E) of their vectors, from how often which stands near which.

    A word's row of positive pointwise mutual information with the words around it is made shorter
    by a singular value decomposition, which learns about as well from little text as word2vec does.

    Args:
        texts: list of str.
        vocabulary_size: int, V at most; words that occur once are left out.
        embedding_dim: int, E at most.
        window: int. How far apart words are seen together; farther ones count less.
        seed: int, of the random projection.

    Source: Levy, Goldberg and Dagan 2015, https://aclanthology.org/Q15-1016, sections 2 and 3; the
    decomposition is that of Halko et al. 2009, https://arxiv.org/abs/0909.4061, algorithm 4.4.
    """
    texts = [text.lower() for text in texts]
    words = SPECIAL + learn_words(texts, vocabulary_size, min_count=2)[3:]
    counts = _count(word_tokenizer(words), texts, len(words), window)
    of_context = counts.sum(axis=0) ** SMOOTHING
    expected = np.outer(counts.sum(axis=1), of_context / of_context.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.nan_to_num(np.log(counts / expected), neginf=0.0)
    information = np.maximum(information, 0.0)

    width = min(embedding_dim, len(words) - len(SPECIAL))
    random = np.random.default_rng(seed)
    basis = information @ random.normal(size=(len(words), width + 10)).astype("float32")
    for _ in range(2):
        basis = np.linalg.qr(basis)[0]
        basis = information @ (information.T @ basis)
    basis = np.linalg.qr(basis)[0]
    left, values, _ = np.linalg.svd(basis.T @ information, full_matrices=False)
    vectors = (basis @ left)[:, :width] * np.sqrt(values[:width])
    return words, (vectors / vectors.std()).astype("float32")


def _count(tokenizer, texts, size, window):
    """Return how often words stand together (V, V), those at a distance of d counting 1 / d."""
    counts = np.zeros(size * size, "float32")
    for start in range(0, len(texts), TEXTS_AT_A_TIME):
        ids = tokenizer(texts[start : start + TEXTS_AT_A_TIME])
        words, rows = ids.values.numpy().astype("int64"), ids.value_rowids().numpy()
        for distance in range(1, window + 1):
            ahead, back = words[:-distance], words[distance:]
            known = (rows[:-distance] == rows[distance:]) & (np.minimum(ahead, back) >= 2)
            np.add.at(counts, (ahead * size + back)[known], 1 / distance)
    counts = counts.reshape(size, size)
    return counts + counts.T


def write_vectors(path, words, vectors):
    """Write words and vectors as GloVe's files are."""
    with replacing(path) as new, open(new, "w", encoding="utf-8") as file:
        for word, vector in zip(words, vectors, strict=True):
            file.write(" ".join([word, *(f"{number:.4g}" for number in vector)]) + "\n")
