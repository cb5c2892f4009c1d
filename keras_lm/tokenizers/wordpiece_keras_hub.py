"""Words as KerasHub's WordPiece tokenizer splits and folds them, which is not as BERT does.

It splits at control characters and at no white space beyond ASCII, strips accents and leaves
composed what has none, and folds the case of words by NFKC: "ß" is "ss" and "½" is one word of
three characters. Expressions are RE2's, with TensorFlow's own classes of characters, as there.

Shapes: B texts, W words, S pieces of all words.
"""

from keras_lm.tensorflow import tf, tf_text
from keras_lm.tokenizers import strings

PART = b"\xff"  # between words; no UTF-8, which no expression matches
LONGEST = 100  # bytes of a word; longer ones are unknown
_SPACES = r"[\s\p{Cc}\p{Cf}]"
_IDEOGRAPHS = (
    r"\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2CEAF}"
    r"\x{2F800}-\x{2FA1F}"
)
_ALONE = rf"[!-/:-@\[-`{{-~\p{{P}}{_IDEOGRAPHS}]"


def words(text, lowercase, strip_accents):
    """Return the folded words of (B,) texts of valid UTF-8, ragged (B, W)."""
    if strip_accents:
        text = tf.strings.regex_replace(text, f"[{_IDEOGRAPHS}]", r" \0 ")
        text = _without_accents(text)
    text = tf.strings.regex_replace(text, f"{_SPACES}+", PART)
    text = tf.strings.regex_replace(text, _ALONE, PART + rb"\0" + PART)
    found = strings.split(text, PART)
    return found.with_values(tf_text.case_fold_utf8(found.values)) if lowercase else found


def visible_lengths(characters, lowercase, strip_accents):
    """Return how many bytes each of ragged (B, N) characters has in words, int64 (N,)."""
    different, which = tf.unique(characters.values)
    left = tf.strings.regex_replace(different, _SPACES, "")
    left = _without_accents(left) if strip_accents else left
    left = tf_text.case_fold_utf8(left) if lowercase else left
    return tf.gather(strings.size(left), which)


def _without_accents(text):
    return tf.strings.regex_replace(tf_text.normalize_utf8(text, "NFD"), r"\p{Mn}", "")
