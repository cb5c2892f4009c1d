"""fastai's rules for ULMFiT's vocabularies, as graph operations.

They are those of fastai 2.7, `fastai/text/core.py`, and run in this order:

- HTML: `<br />` becomes a line end, `#39;`, `quot;` and the like what they stand for;
- a character three times or more becomes `xxrep 3 c`, then a word `xxwrep 3 word`;
- spaces around `/`, `#` and the backslash;
- WORD becomes `xxup word`, Word `xxmaj word`, then everything is lower-cased.

Two things differ: of HTML's other entities, only `lt`, `gt` and `apos` are known, and of two
consecutive runs of words both are replaced. The packer adds `xxbos`.
"""

from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings
from keras_lm.tokenizers.splitting import split_words

MARKERS = ("xxunk", "xxrep", "xxwrep", "xxup", "xxmaj")
W = r"[\p{L}\p{N}_]"

# In this order, like fastai: `&amp;` becomes two ampersands there, too.
HTML = [
    ("#39;", "'"), ("amp;", "&"), ("#146;", "'"), ("nbsp;", " "), ("#36;", "$"), (r"\\n", "\n"),
    ("quot;", "'"), ("<br />", "\n"), (r'\\"', '"'), ("<unk>", " xxunk "), (r" @\.@ ", "."),
    (" @-@ ", "-"), (r"\.\.\.", " …"), ("&lt;", "<"), ("&gt;", ">"), ("&apos;", "'"),
]  # fmt: skip

# Rows that may have a character three times: one of ASCII, or any three others in a row.
TRIPLES = "|".join(
    [rf"\x{{{code:X}}}{{3}}" for code in range(0x21, 0x7F)] + [r"[^\x{0}-\x{7F}]{3}"]
)


def apply_rules(text, markers):
    """Apply the rules to (B,) strings of valid UTF-8; `markers` maps `MARKERS` to their words."""
    for before, after in HTML:
        text = tf.strings.regex_replace(text, before, after.replace("xxunk", markers["xxunk"]))
    rows = tf.where(tf.strings.regex_full_match(text, rf"(?s).*(?:{TRIPLES}).*"))
    replaced = _replace_characters(tf.gather_nd(text, rows), markers["xxrep"])
    text = tf.tensor_scatter_nd_update(text, rows, replaced)
    text = _replace_words(text, markers["xxwrep"])
    text = tf.strings.regex_replace(text, r"[/#\\]", r" \0 ")
    return _replace_capitals(text, markers)


def _replace_characters(text, marker):
    characters = tf.strings.unicode_split(text, "UTF-8")
    is_space = tf.strings.regex_full_match(characters.values, r"[\s\x{B}\x{85}\p{Z}]")
    is_same = _equals_previous(characters) & ~is_space
    count, is_first, _ = _runs(is_same)
    run = tf.strings.join(
        [" ", marker, " ", tf.strings.as_string(count), " ", characters.values, " "]
    )
    run = tf.where(is_first, run, "")
    characters = characters.with_values(tf.where(count < 3, characters.values, run))
    return strings.join(characters)


def _replace_words(text, marker):
    words = split_words(text, "whitespace")
    letters = tf.strings.regex_replace(words.values, rf"(?s)^({W}*).*", r"\1")
    # The last of several equal words may have something after it: "no no no!"
    is_whole = _previous(words.values == letters, False)
    is_same = _equals_previous(words.with_values(letters)) & is_whole & (letters != "")
    count, is_first, is_last = _runs(is_same)
    run = tf.strings.join([marker, " ", tf.strings.as_string(count), " ", letters])
    rest = tf.strings.regex_replace(words.values, f"^{W}*", "")
    run = tf.where(is_first, run, tf.where(is_last, rest, ""))
    words = words.with_values(tf.where(count < 3, words.values, run))
    return strings.join(words, " ")


def _replace_capitals(text, markers):
    words = split_words(text, "whitespace")
    is_up = tf.strings.regex_full_match(words.values, r"[A-Z][^a-z]+")
    is_maj = tf.strings.regex_full_match(words.values, r"[A-Z][^A-Z]+") & ~is_up
    marks = tf.where(is_up, f"{markers['xxup']} ", tf.where(is_maj, f"{markers['xxmaj']} ", ""))
    words = words.with_values(tf.strings.join([marks, words.values]))
    text = strings.join(words, " ")
    return strings.lower(text)


def _previous(values, first):
    return tf.concat([[first], values], axis=0)[:-1]


def _equals_previous(texts):
    """Return whether each value equals the one before it in the same row."""
    rows = strings.row_ids(texts)
    return (texts.values == _previous(texts.values, "")) & (
        rows == _previous(rows, tf.constant(-1, rows.dtype))
    )


def _runs(is_same):
    """Return the length of each value's run of equals, and whether it is its first, or last."""
    run = tf.cumsum(tf.cast(~is_same, tf.int32)) - 1
    counts = tf.math.unsorted_segment_sum(tf.ones_like(run), run, tf.size(run))
    is_last = tf.concat([~is_same, [True]], axis=0)[1:]
    return tf.gather(counts, run), ~is_same, is_last
