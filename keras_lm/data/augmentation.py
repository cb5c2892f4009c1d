"""More texts of the same kind, for a teacher to answer and a student to learn.

Shapes: B batch, S sequence, V vocabulary, U words looked up, E width of a word vector.
"""

import random
import re
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_lm.tensorflow import tf
from keras_lm.utils.user_arguments import iterable

WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
BLOCK_WORDS = 256  # looked up together


def augment_texts(
    texts: Sequence[str],
    masked_lm: keras.Model,
    word_vectors: Any = None,
    candidates: int = 15,
    copies: int = 30,
    probability: float = 0.4,
    batch_size: int = 32,
    seed: int = 0,
) -> list[list[str]]:
    """Return each text and copies of it in which some words are replaced by others that fit.

    A word that is one token of `masked_lm` may become one of the words which that model finds
    likeliest in its place; it reads the masked text with the text itself after it. A word of
    several tokens may become one of its nearest neighbours among the word vectors. Everything
    else, from punctuation to spaces, stays as it is. The copies have no labels: let a teacher
    answer them, with `keras_lm.tasks.Distiller`.

    Args:
        texts: list of str.
        masked_lm: `keras_lm.tasks.MaskedLM` with a tokenizer.
        word_vectors: a list of words and their vectors (V, E), as `read_word_vectors` of
            `keras_lm.converters` returns them; None leaves words of several tokens as they are.
        candidates: int, M in the paper. How many words one may become.
        copies: int, N. How many copies to try; repeated ones are left out.
        probability: float, p. How likely each word is replaced.
        batch_size: int, of `masked_lm`, which reads a text once for each of its words.
        seed: int. The copies of a text depend on it and the text alone.

    Returns:
        A list for each text, itself first.

    Raises:
        ValueError: if `texts` is one string, `masked_lm` no masked language model, or a number out
            of range.

    Example:

        vectors = keras_lm.converters.read_word_vectors("glove.6B.300d.txt", limit=100_000)
        more = keras_lm.data.augment_texts(["a fine film"], masked_lm, vectors)
        distiller.fit([text for versions in more for text in versions])

    Source: TinyBERT, https://arxiv.org/abs/1909.10351, algorithm 1. The authors'
    `data_augmentation.py` reads the text after the masked one too; it spares a list of stop words.
    """
    if isinstance(texts, (str, bytes)):
        raise ValueError(f"texts={texts!r} is a single text: pass a list.")
    if getattr(masked_lm, "pretraining_head", None) != "token" or masked_lm.tokenizer is None:
        raise ValueError(
            f"masked_lm is a {type(masked_lm).__name__}: pass a MaskedLM with a tokenizer."
        )
    for name, number in (("candidates", candidates), ("copies", copies)):
        if number < 1:
            raise ValueError(f"{name}={number} is less than 1.")
    if not 0 < probability <= 1:
        raise ValueError(f"probability={probability} is not in (0, 1].")
    texts = list(iterable(texts, "texts"))
    word_matches = [list(WORD.finditer(text)) for text in texts]
    words = sorted({match[0] for matches in word_matches for match in matches})
    sizes = masked_lm.tokenizer([f" {word}" for word in words]).row_lengths().numpy()
    is_single = dict(zip(words, sizes == 1, strict=True))
    near = {}
    if word_vectors is not None:
        near = _neighbours(
            [word for word in words if not is_single[word]], candidates, word_vectors
        )

    mask = masked_lm.tokenizer.special_tokens["mask"]
    # A text that holds the mask's own name has more than one mask: its words are left alone.
    places = [
        (i, match)
        for i, text in enumerate(texts)
        for match in word_matches[i]
        if is_single[match[0]] and mask not in text
    ]
    masked = [texts[i][: m.start()] + mask + texts[i][m.end() :] for i, m in places]
    likely = _likely_words(masked_lm, masked, [texts[i] for i, _ in places], candidates, batch_size)
    options = [
        {m.span(): near[m[0]] for m in matches if near.get(m[0])} for matches in word_matches
    ]  # for each text, place → words that fit there
    for (i, match), likely_here in zip(places, likely, strict=True):
        if likely_here:
            options[i][match.span()] = [_cased(word, match[0]) for word in likely_here]
    return [
        _versions(text, sorted(here.items()), copies, probability, seed)
        for text, here in zip(texts, options, strict=True)
    ]


def _versions(text, options, copies, probability, seed):
    """Return a text and its copies, for a sorted list of (place, words that fit there)."""
    chance = random.Random(f"{seed} {text}")
    versions = dict.fromkeys([text])  # in order, each once
    for _ in range(copies):
        parts, end = [], 0
        for (start, after), words in options:
            word = chance.choice(words)
            if chance.random() < probability:
                parts += [text[end:start], word]
                end = after
        versions["".join([*parts, text[end:]])] = None
    return list(versions)


def _likely_words(masked_lm, masked, originals, number, batch_size):
    """Return the likeliest words at the one mask of each text, a list of lists."""
    tokenizer = masked_lm.tokenizer
    names = tokenizer.detokenize(tf.range(tokenizer.vocabulary_size)[:, None]).numpy()  # (V,)
    names = [name.decode("utf-8", "replace").strip() for name in names]
    is_word = [
        bool(begins and WORD.fullmatch(name))
        for begins, name in zip(tokenizer.begins_word, names, strict=True)
    ]
    mask_id, number = tokenizer.special_id("mask"), min(number, tokenizer.vocabulary_size)
    strings = tf.TensorSpec([None], tf.string)

    def predict(text, text_pair):
        packed = masked_lm.preprocess({"text": text, "text_pair": text_pair})
        is_mask = tf.equal(packed["token_ids"], mask_id)  # (B, S)
        position = tf.argmax(tf.cast(is_mask, tf.int32), axis=1, output_type=tf.int32)
        logits = masked_lm({**packed, "mask_positions": position[:, None]}, training=False)
        # Without the rows that a padded embedding has besides.
        best = tf.math.top_k(logits[:, 0, : tokenizer.vocabulary_size], number).indices
        return best, tf.reduce_any(is_mask, axis=1)  # False if the text is cut before its mask

    predict = tf.function(predict, [strings, strings], autograph=False)
    likely = [[]] * len(masked)
    order = sorted(range(len(masked)), key=lambda i: len(masked[i]))  # little padding
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        ids, has_mask = predict(*(tf.constant([t[i] for i in rows]) for t in (masked, originals)))
        for i, best, is_there in zip(rows, ids.numpy(), has_mask.numpy(), strict=True):
            likely[i] = [names[id] for id in best if is_word[id]] if is_there else []
    return likely


def _neighbours(wanted, number, word_vectors):
    """Return a dict of a word → those with the nearest vectors, by their cosine."""
    words, vectors = word_vectors
    if np.ndim(vectors) != 2 or len(words) != len(vectors):
        raise ValueError(
            f"word_vectors has {len(words)} words and vectors of shape {np.shape(vectors)}: pass "
            "what read_word_vectors returns."
        )
    places = {word: i for i, word in enumerate(words)}
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)  # (V, 1)
    units = vectors / np.maximum(norms, 1e-12)
    known = {word: places.get(word, places.get(word.lower())) for word in wanted}
    known = [(word, place) for word, place in known.items() if place is not None and norms[place]]
    number = min(number, len(words) - 1)
    near = {}
    for start in range(0, len(known), BLOCK_WORDS):
        block = known[start : start + BLOCK_WORDS]
        rows = [place for _, place in block]
        cosines = np.where(norms[:, 0] > 0, units[rows] @ units.T, -np.inf)  # (U, V)
        cosines[np.arange(len(rows)), rows] = -np.inf  # the word itself
        best = np.argsort(-cosines, axis=1, kind="stable")[:, :number]
        for (word, _), row, scores in zip(block, best, cosines, strict=True):
            near[word] = [_cased(words[i], word) for i in row if np.isfinite(scores[i])]
    return near


def _cased(word, like):
    """Return a word with a capital where the one that it replaces has one."""
    return word[:1].upper() + word[1:] if like[:1].isupper() else word
