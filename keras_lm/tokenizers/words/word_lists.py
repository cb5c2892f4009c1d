"""Learn a list of words from a corpus, the frequent ones first."""

import collections

import tensorflow as tf

from keras_lm.elements import elements
from keras_lm.tokenizers import splitting
from keras_lm.tokenizers.offsets import valid_utf8
from keras_lm.tokenizers.words.words import SENTINEL

SPECIAL_WORDS = ["<S>", "</S>", "<UNK>"]
TEXTS_AT_A_TIME = 1024


def learn_words(texts, vocabulary_size, splitter="punctuation", min_count=1):
    """Return the most frequent words of a corpus, as a bidirectional language model predicts them.

    `<S>`, `</S>` and `<UNK>` come first, then the words from the most frequent to the rarest,
    equally frequent ones in the order of their characters.

    Args:
        texts: iterable of strings, or a `tf.data.Dataset` of single strings.
        vocabulary_size: int. Words at most, the three special ones included.
        splitter: see `keras_lm.tokenizers.CharacterTokenizer`; take that of the model.
        min_count: int. Words that are rarer are left out.

    Raises:
        ValueError: if there is no word, or no room for one, or `splitter` is unknown.

    Example:

        texts = keras_lm.data.read_documents("corpus/*.txt")
        words = keras_lm.tokenizers.learn_words(texts, 50_000)
    """
    splitting.check_splitter(splitter)
    if vocabulary_size <= len(SPECIAL_WORDS):
        raise ValueError(
            f"vocabulary_size={vocabulary_size}: pass more than {len(SPECIAL_WORDS)}, the special "
            "words."
        )
    if isinstance(texts, (str, bytes)):
        raise ValueError("texts is one string: pass a list of them.")
    if not isinstance(texts, tf.data.Dataset):
        strings = iter(texts)
        texts = tf.data.Dataset.from_generator(
            lambda: strings, output_signature=tf.TensorSpec([], tf.string)
        )

    def split(texts):
        texts = tf.strings.regex_replace(valid_utf8(texts), SENTINEL, "")
        return splitting.split_words(texts, splitter).values

    counts = collections.Counter()
    for words in elements(texts.batch(TEXTS_AT_A_TIME).map(split)):
        counts.update(words.numpy().tolist())
    for word in SPECIAL_WORDS:
        del counts[word.encode()]
    found = [word for word, count in counts.items() if count >= min_count]
    if not found:
        raise ValueError(f"texts has no word that occurs min_count={min_count} times.")
    found.sort(key=lambda word: (-counts[word], word))
    found = found[: vocabulary_size - len(SPECIAL_WORDS)]
    return [*SPECIAL_WORDS, *(word.decode() for word in found)]
