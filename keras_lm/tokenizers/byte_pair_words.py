r"""How byte-level BPE splits text into words, in the graph: a tokenizer.json's `pre_tokenizer`.

Its regular expressions are Oniguruma's, and RE2 runs here. RE2 has no `\s+(?!\S)`, with which they
end: "white space, but not the last before a word". So such runs are split first, and the rest of
the expression finds the same words in what remains.
"""

import re

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings
from keras_lm.tokenizers.strings import regex_literal
from keras_lm.tokenizers.unicode_ranges import (
    BERT_PUNCTUATION,
    LETTERS,
    NUMBERS,
    WHITE_SPACE,
    character_class,
)

# A byte that valid UTF-8 never has, and that no regular expression matches: it parts words.
PART = b"\xff"

L, N, S = (character_class(ranges) for ranges in (LETTERS, NUMBERS, WHITE_SPACE))
# White space but the ends of lines.
S_IN_LINE = character_class(WHITE_SPACE.replace("9-D", "9 B-C"))
CLASSES = {r"\p{L}": L, r"\p{N}": N, r"\s": S}

LINES = r"\s*[\r\n]"
END = r"|\s+(?!\S)|\s+"
# The last of several spaces goes with the next word.
GPT2 = rf"'(?:[stmd]|re|ve|ll)| ?(?:\p{{L}}+|\p{{N}}+|[^\s\p{{L}}\p{{N}}]+){END}"
# Possessive forms that match what ordinary ones match.
ORDINARY = {
    r"[^\r\n\p{L}\p{N}]?+": r"[^\r\n\p{L}\p{N}]?",
    r"[^\s\p{L}\p{N}]++": r"[^\s\p{L}\p{N}]+",
}
# What an expression has that leaves no character out.
EVERYTHING = (END, r"\p{L}+", r"\p{N}", r"[^\s\p{L}\p{N}]+")

# (Words cover a text without a gap, by which offsets are told: nothing is removed.)
BEHAVIORS = {
    "Isolated": PART + rb"\0" + PART,
    "MergedWithPrevious": rb"\0" + PART,
    "MergedWithNext": PART + rb"\0",
}

# KerasHub's own splitting. It marks the spaces that go with a word by a digit of Devanagari, which
# it takes out of every text; RE2's classes are those of TensorFlow, which it runs on as well.
KERAS_HUB = {"type": "KerasHub"}
_MARK = "६"
_RARE = r"\x{A0}\x{2009}\x{202F}\x{3000}"
_BEFORE_WORD = rf" [^\s{_RARE}]"
_WORDS = (
    rf"'(?:[stmd]|re|ve|ll)|[\s{_RARE}]+[\n\r\t\f{_MARK}{_RARE}]"
    rf"| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}{_RARE}]+"
)
_LAST = rf"[ \t\r\f\v{_MARK}{_RARE}]$"


class WordRules:
    """Splits parts of texts into words.

    Args:
        steps: list of dicts, the steps of a tokenizer.json's `pre_tokenizer`, ending with
            "ByteLevel"; `[KERAS_HUB]` for that library's splitting.

    Raises:
        CheckpointError: if a step is not done here; the message names it.
    """

    def __init__(self, steps):
        self.is_keras_hub = steps == [KERAS_HUB]
        self._replacements = []
        if self.is_keras_hub:
            return
        for number, step in enumerate(steps):
            if (step["type"] == "ByteLevel") != (number == len(steps) - 1):
                _refuse(step, "which must be the last one, and only once")
            if number and step.get("add_prefix_space"):
                _refuse(step, "which adds a space to each part of other steps")
            self._replacements += _replacements(step)

    def __call__(self, parts):
        """Return (P,) parts with the byte `PART` between words."""
        if self.is_keras_hub:
            return _as_keras_hub(parts)
        for pattern, new in self._replacements:
            parts = tf.strings.regex_replace(parts, pattern, new)
        return parts


def _replacements(step):
    """Return the (pattern, replacement) pairs that part what a step parts."""
    kind = step["type"]
    if kind == "ByteLevel":
        return _of_expression(GPT2) if step.get("use_regex", True) else []
    if kind == "Digits":
        digits = f"[{N}]" if step.get("individual_digits") else f"[{N}]+"
        return [(digits, BEHAVIORS["Isolated"])]
    if kind == "Punctuation":
        return [(f"[{character_class(BERT_PUNCTUATION)}]", _behavior(step))]
    if kind != "Split":
        _refuse(step)
    pattern = step["pattern"]
    if "String" in pattern:
        if step.get("invert"):
            _refuse(step)
        return [(regex_literal(pattern["String"]), _behavior(step))]
    expression = pattern["Regex"]
    is_whole = all(part in ordinary(expression) for part in EVERYTHING)
    # (If no character is left out, to remove what is between words removes nothing.)
    has_words = step["behavior"] == "Isolated" and not step.get("invert")
    has_words |= step["behavior"] == "Removed" and bool(step.get("invert")) and is_whole
    if has_words and expression.endswith(END):
        return _of_expression(expression)
    if step.get("invert"):
        _refuse(step)
    return [(in_re2(expression, step), _behavior(step))]


def _behavior(step):
    found = BEHAVIORS.get(step["behavior"])
    return found or _refuse(step)


def _of_expression(expression):
    """Return the replacements for an expression that ends with `END`."""
    body = ordinary(expression.removesuffix(END))
    last = S_IN_LINE if LINES in body else S
    return [
        (f"([{S}]+)([{last}][^{S}])", rb"\1" + PART + rb"\2"),
        (in_re2(body + r"|\s+"), BEHAVIORS["Isolated"]),
    ]


def ordinary(expression):
    """Return an expression without possessive forms that make no difference."""
    for possessive, same in ORDINARY.items():
        expression = expression.replace(possessive, same)
    return expression


def in_re2(expression, step=None):
    """Return RE2's form of an expression of Oniguruma, with the classes of `tokenizers`.

    Raises:
        CheckpointError: if it has something else than letters, numbers and white space, and what
            both know.
    """
    found, is_inside = [], False
    for token in re.findall(r"\\p\{\^?\w+\}|\\.|\(\?.?|[*+?}][+?]|.", expression, re.DOTALL):
        if token in CLASSES:
            found.append(CLASSES[token] if is_inside else f"[{CLASSES[token]}]")
            continue
        is_escape = len(token) == 2 and token[0] == "\\"
        is_known = token in (r"\r", r"\n", r"\t") or (is_escape and not token[1].isalnum())
        is_group = token in ("(?i", "(?:")
        if not (is_known or is_group or (len(token) == 1 and token != "\\")):
            _refuse(step or {"type": "Split"}, f"whose {token!r} is not known here")
        is_inside = token == "[" or (is_inside and token != "]")
        found.append(token)
    return "".join(found)


def _refuse(step, reason=""):
    raise CheckpointError(
        f"tokenizer.json's pre_tokenizer has the step {str(step)[:300]}"
        f"{f', {reason}' * bool(reason)}: BytePairTokenizer does not support it. Tokenize such "
        "text outside of the graph."
    )


def _as_keras_hub(parts):
    parts = tf.strings.regex_replace(parts, _BEFORE_WORD, rf"{_MARK}\0")
    parts = tf.strings.regex_replace(parts, _WORDS, BEHAVIORS["Isolated"])
    words = strings.split(parts, PART)  # ragged (P, W)
    ended = tf.strings.regex_replace(words.values, _LAST, BEHAVIORS["MergedWithNext"])
    ended = strings.split(ended, PART)  # ragged (W, 1 or 2)
    words = words.with_values(ended).merge_dims(1, 2)
    return strings.join(strings.keep(words, words.values != _MARK), PART)
