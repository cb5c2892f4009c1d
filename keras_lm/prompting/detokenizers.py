"""Detokenizing a corpus reversibly.

Corpora for word-level language models come as tokens with spaces around them: `3 @,@ 000 men , and
more`. A model that was trained on plain text should read `3,000 men, and more`.
"""

import re
from collections.abc import Sequence


class Detokenizer:
    """Turn lines of tokens into plain text, reversibly.

    A line that could not be restored stays as tokens, so that the likelihood of the text is that of
    the tokens.

    Args:
        join: list of `(pattern, replacement)` for `re.sub`, which join tokens, one after another.
        part: list of the same, which split them again.

    Example:
        wikitext("3 @,@ 000 men , and more")       # 3,000 men, and more
        wikitext.restore("3,000 men, and more")    # 3 @,@ 000 men , and more

    Source: GPT-2, "Language Models are Unsupervised Multitask Learners", section 3.1.
    """

    def __init__(self, join: Sequence[tuple[str, str]], part: Sequence[tuple[str, str]]):
        self._join = [(re.compile(pattern), new) for pattern, new in join]
        self._part = [(re.compile(pattern), new) for pattern, new in part]

    def __call__(self, text: str) -> str:
        """Return tokens with spaces between them as plain text, line by line."""
        return "\n".join(self._joined(" ".join(line.split())) for line in text.split("\n"))

    def _joined(self, line):
        plain = line
        for pattern, new in self._join:
            plain = pattern.sub(new, plain)
        return plain if self.restore(plain) == line else line

    def restore(self, text: str) -> str:
        """Return plain text, whose lines were joined, as tokens with one space between them."""
        for pattern, new in self._part:
            text = pattern.sub(new, text)
        return text


# Patterns that join and that split must look at the same context, or lines cannot be restored.
CLOSING = r",;:!?%)\]}"
BEHIND = rf"(?=[ \n.{CLOSING}\"]|$)"  # where a closing mark may stand
TITLES = "Mr Mrs Ms Dr St Jr Sr No Nos Co Inc Ltd Bros vs var pp Lt Sgt Gen Col Capt Rev ca cf etc"


def _full_stop(mark):
    """A full stop, written as `mark`, that is not part of the word before it, as in "Dr."."""
    words = [r"[ \n.(\"][A-Za-z]", r"^[A-Za-z]", r"\.", *(rf"\b{x}" for x in TITLES.split())]
    return mark + "".join(f"(?<!{word}{mark})" for word in words) + rf"(?=[ \n{CLOSING}\"]|$)"


CLITIC = r"((?:s|m|d|t|re|ve|ll)(?!\w))"
PENN_CLITIC = r"(n't|'s|'m|'d|'re|'ve|'ll|')(?=\s|$)"

wikitext = Detokenizer(
    join=[
        (r"= (?==)", "="),
        (r"(?<=\S) @-@ (?=\S)", "-"),
        (r"(?<=\d) @([,.])@ (?=\d)", r"\1"),
        (r"([$£€]) (?=\d)", r"\1"),
        (r"(?<=\w) '" + CLITIC, r"'\1"),
        (r'" ([^"\n]+) "', r'"\1"'),
        (r"([(\[{]) (?=\S)", r"\1"),
        (rf"(?<=\S) ([{CLOSING}]){BEHIND}", r"\1"),
        (_full_stop(r" \."), "."),
    ],
    part=[
        (r"(?<=[^ \n])" + _full_stop(r"\."), " ."),
        (rf"(?<=[^ \n])([{CLOSING}]){BEHIND}", r" \1"),
        (r"([(\[{])(?=\S)", r"\1 "),
        (r'"([^"\n]+)"', r'" \1 "'),
        (r"(?<=\w)'" + CLITIC, r" '\1"),
        (r"([$£€])(?=\d)", r"\1 "),
        (r"(?<=\d)([,.])(?=\d)", r" @\1@ "),
        (r"(?<=[^ \n])-(?=[^ \n])", " @-@ "),
        (r"=(?==)", "= "),
    ],
)
"""`Detokenizer` of WikiText-2 and WikiText-103, https://arxiv.org/abs/1609.07843."""

penn_treebank = Detokenizer(
    join=[(r"(?<=\S) " + PENN_CLITIC, r"\1"), (r"([$#]) (?=\S)", r"\1"), (r"(?<=\S) %", "%")],
    part=[
        (r"(?<=[^ \n])%", " %"),
        (r"([$#])(?=\S)", r"\1 "),
        (r"(?<=[^ \n])" + PENN_CLITIC, r" \1"),
    ],
)
"""`Detokenizer` of the Penn Treebank as language models take it: small letters, no punctuation."""
