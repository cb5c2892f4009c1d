"""The rules of Moses for English, as Transformer-XL's words need them, as graph operations.

They are those of sacremoses' normalizer and tokenizer with `aggressive_dash_splits`, and what
transformers' `TransfoXLTokenizer` does after them, in this order:

- quotes, dashes and spaces get one spelling each;
- marks become words, except `.` and `'` in some places; `well-known` becomes `well @-@ known`;
- a full stop stays at abbreviations and before a word in lower case;
- 1,000.5 becomes `1 @,@ 000 @.@ 5`.

What is a letter differs for some rare signs, as sacremoses has a list of its own. Shapes: B batch,
S words of a text.
"""

from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings

SPACE = r"[\s\x{B}\x{1C}-\x{1F}\x{85}\p{Z}]"
# Letters; Chinese signs, Korean syllables, accents and mathematical letters are none there.
_LETTER = r"\p{L}\p{Nl}\p{M}\x{24B6}-\x{24E9}"
_ALONE = r"\p{Han}\x{AC00}-\x{D7A3}\x{300}-\x{344}\x{346}-\x{36F}\x{1D400}-\x{1D7FF}"
_NUMBER = r"\p{N}"

# Replacements, one after the other: pattern → what it becomes.
_SPELLING = [
    (r"\r", ""), (r"\(", " ("), (r"\)", ") "), (" +", " "), (r"\) ([.!:?;,])", r")\1"),
    (r"\( ", "("), (r" \)", ")"), (r"(\p{Nd}) %", r"\1%"), (" :", ":"), (" ;", ";"),
    ("`", "'"), ("''", ' " '),
    ("[„“”]", '"'), ("–", "-"), ("—", " - "), (" +", " "), ("´", "'"), ("[‘‚’]", "'"),
    ("''", '"'), ("…", "..."),
    ("\u00a0?[«»]\u00a0?", '"'),
    ("\u00a0([%:?!;])", r"\1"), ("nº\u00a0", "nº "), ("\u00a0(ºC|cm)", r" \1"), (",\u00a0", ", "),
    (" +", " "), ('"([,.]+)', r'\1"'), ("(\\p{Nd})\u00a0(\\p{Nd})", r"\1.\2"),
]  # fmt: skip
_WORDS = [
    (f"{SPACE}+", " "), (r"[\x{1}-\x{1F}]", ""), ("^ +| +$", ""),
    (rf"[^{_LETTER}\p{{Nd}}\s.'`,\-]|[{_ALONE}]", r" \0 "),
    # (Twice, as the letter between two dashes belongs to both.)
    *[(rf"([{_LETTER}\p{{Nd}}])-([{_LETTER}\p{{Nd}}])", r"\1 @-@ \2")] * 2,
    # Several full stops are one word; a noncharacter stands for them until the end.
    (r"\.\.", "\ufdd0\ufdd0"), ("\ufdd0\\.", "\ufdd0\ufdd0"), ("\ufdd0+", r" \0 "),
    (rf"([^{_NUMBER}]),", r"\1 , "), (rf",([^{_NUMBER}])", r" , \1"),
    (rf"([{_NUMBER}]),$", r"\1 , "),
    (rf"([^{_LETTER}])'([^{_LETTER}])", r"\1 ' \2"),
    (rf"([^{_LETTER}{_NUMBER}])'([{_LETTER}])", r"\1 ' \2"),
    (rf"([{_LETTER}])'([^{_LETTER}])", r"\1 ' \2"),
    (rf"([{_LETTER}])'([{_LETTER}])", r"\1 '\2"),
    (rf"([{_NUMBER}])'(s)", r"\1 '\2"),
]  # fmt: skip
# (Twice, as the digit between two marks belongs to both.)
_END = [
    (" +", " "), ("^ | $", ""), (r"\.' ?$", " . ' "), ("\ufdd0", "."),
    *[(r"(\p{Nd})([,.])(\p{Nd})", r"\1 @\2@ \3")] * 2,
]  # fmt: skip

# Abbreviations that keep their full stop, and those that keep it before a number only.
_KEEPING = (
    "[A-Z]|Adj|Adm|Adv|Apr|Asst|Aug|Bart|Bldg|Brig|Bros|Capt|Cmdr|Col|Comdr|Con|Corp|Cpl|DR|Dec|Dr|"
    r"Drs|Ens|Feb|Gen|Gov|Hon|Hosp|Hr|Insp|Jan|Jul|Jun|Lt|MM|MR|MRS|MS|Maj|Mar|Messrs|Mlle|Mme|Mr|"
    r"Mrs|Ms|Msgr|Nos|Nov|Nr|Oct|Op|Ord|Pfc|Ph|Prof|Pvt|Rep|Reps|Res|Rev|Rs|Rt|Sen|Sens|Sep|Sfc|Sgt|"
    r"Sr|St|Supt|Surg|e\.g|i\.e|rev|v|vs"
)
_KEEPING_BEFORE_NUMBERS = "Art|No|pp"


def split_words(text):
    """Return the words of (B,) strings of valid UTF-8 as ragged (B, S) strings.

    The noncharacter U+FDD0 must not be in them.
    """
    text = _replace(text, _SPELLING + _WORDS)
    text = strings.join(_part_full_stops(strings.split(text, b" ")), " ")
    return strings.split(_replace(text, _END), b" ")


def _replace(text, replacements):
    for pattern, replacement in replacements:
        text = tf.strings.regex_replace(text, pattern, replacement)
    return text


def _part_full_stops(words):
    """Part the full stop at the end of ragged (B, S) words from those that do not keep it."""
    rows = strings.row_ids(words)
    is_last = tf.concat([rows[1:] != rows[:-1], tf.ones_like(rows[:1], tf.bool)], axis=0)
    after = tf.concat([words.values[1:], tf.fill(tf.shape(words.values[:1]), "")], axis=0)
    after = tf.where(is_last, "", after)
    ends = tf.strings.regex_full_match(words.values, r".+\.")

    def matches(texts, pattern):
        return tf.strings.regex_full_match(texts, pattern)

    keeps = (
        matches(words.values, rf".*(?:\..*[{_LETTER}]|[{_LETTER}].*\.).*\.")
        | matches(words.values, rf"(?:{_KEEPING})\.")
        | matches(after, r"\p{Ll}.*")
        | (matches(words.values, rf"(?:{_KEEPING_BEFORE_NUMBERS})\.") & matches(after, "[0-9].*"))
    )
    parted = tf.strings.regex_replace(words.values, r"\.$", " .")
    return words.with_values(tf.where(ends & ~keeps, parted, words.values))


# === Back to text ===

_CHINESE = (
    r"\x{1100}-\x{11FF}\x{2E80}-\x{A4CF}\x{A840}-\x{A87F}\x{AC00}-\x{D7AF}\x{F900}-\x{FAFF}"
    r"\x{FE30}-\x{FE4F}\x{FF65}-\x{FFDC}\x{20000}-\x{2FFFF}"
)


def join_words(words):
    """Return (B,) texts of ragged (B, S) words, as sacremoses' detokenizer writes them."""
    words = strings.split(_replace(strings.join(words, " "), [(" @-@ ", "-")]), b" ")
    texts, rows = words.values, strings.row_ids(words)
    is_first = tf.concat([tf.ones_like(rows[:1], tf.bool), rows[1:] != rows[:-1]], axis=0)

    def matches(pattern):
        return tf.strings.regex_full_match(texts, pattern)

    def before(values):
        """Return what each word has the word before it for; False for the first of a row."""
        return tf.concat([tf.zeros_like(values[:1]), values[:-1]], axis=0) & ~is_first

    def is_odd(values):
        """Return whether the number of such words before each in its row is odd."""
        number = tf.cumsum(tf.cast(values, tf.int32), exclusive=True)
        at_start = tf.math.unsorted_segment_min(number, rows, words.nrows())
        return (number - tf.gather(at_start, rows)) % 2 == 1

    single, double = matches("'"), matches('"|[„“”]+')
    after_s = before(matches("(?s).*s"))
    possessive = single & after_s & ~is_odd(single & ~after_s)
    closes = (single & is_odd(single & ~possessive)) | (double & is_odd(double))
    opens = (single | double) & ~possessive & ~closes
    follows = (
        matches(r"[,.?!:;\\%}\])]+")
        | (matches(f"(?s)'[{_LETTER}].*") & ~is_first)
        | (matches(f"(?s)[{_CHINESE}].*") & before(matches(f"(?s).*[{_CHINESE}]")))
        | closes
        | possessive
    )
    leads = matches(r"[\p{Sc}(\[{¿¡]+") | opens
    texts = tf.where(follows | before(leads) | is_first, texts, tf.strings.join([" ", texts]))
    return _replace(strings.join(words.with_values(texts)), [(r" @([,.])@ ", r"\1")])
