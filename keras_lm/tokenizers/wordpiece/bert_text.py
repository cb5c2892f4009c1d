"""BERT's text cleaning: removing invisible characters, lower-casing, stripping accents."""

import tensorflow as tf
import tensorflow_text as tf_text

from keras_lm.tokenizers import unicode_ranges
from keras_lm.tokenizers.unicode_ranges import character_class

MOST_WORDS = 2**19  # that are searched for: ten times what there is, and it takes seconds

# Unicode noncharacters. Cleaning drops them from text, so that they can serve as sentinels that no
# text contains.
SENTINELS = r"\x{FDD0}-\x{FDEF}"

DROPPED = character_class(unicode_ranges.BERT_DROPPED)
MARKS = character_class(unicode_ranges.BERT_MARKS)
SPACES = character_class(unicode_ranges.WHITE_SPACE)

# Characters that end a word: white space, punctuation, and CJK ideographs.
WORD_ENDS = (
    SPACES
    + character_class(unicode_ranges.BERT_PUNCTUATION)
    + character_class("3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2CEAF 2F800-2FA1F")
)


def clean(text, lowercase, strip_accents, dropped=DROPPED + SENTINELS):
    """Return (B,) strings of valid UTF-8 without the characters of the class `dropped`."""
    text = tf.strings.regex_replace(text, f"[{dropped}]+", "")
    if lowercase:
        text = tf.strings.lower(text, encoding="utf-8")
    if strip_accents:
        text = tf_text.normalize_utf8(text, "NFD")
        text = tf.strings.regex_replace(text, f"[{MARKS}]+", "")
    return text


def where_not(text, pattern, function):
    """Apply a function to those of (B,) strings that a pattern does not match."""
    rows = tf.where(tf.logical_not(tf.strings.regex_full_match(text, pattern)))
    return tf.tensor_scatter_nd_update(text, rows, function(tf.gather_nd(text, rows)))


def visible_lengths(characters, clean, unit="BYTE"):
    """Return the int64 length of each of (B, N) characters in clean text, 0 for white space."""
    different, which = tf.unique(characters.values)
    left = tf.strings.regex_replace(clean(different), f"[{SPACES}]+", "")
    return tf.gather(tf.cast(tf.strings.length(left, unit), tf.int64), which)


def make_matcher(words, **options):
    """Return TF Text's matcher of words; ValueError if it cannot hold them."""
    if len(words) > MOST_WORDS:
        raise ValueError(
            f"`vocabulary` makes {len(words)} words to search for, and {MOST_WORDS} are the most: "
            "pass the vocabulary of a published model, or learn a smaller one."
        )
    try:
        return tf_text.FastWordpieceTokenizer(words, **options)
    except RuntimeError as error:
        raise ValueError(f"`vocabulary` cannot be searched for: {str(error)[:200]}") from error
