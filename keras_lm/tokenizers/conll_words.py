"""Where words begin in the manner of CoNLL-2003, by operations that LiteRT has.

C is the number of characters of all texts.

Source: the tokens of CoNLL-2003, https://aclanthology.org/W03-0419, which follow the Penn
Treebank's (Marcus et al. 1993, https://aclanthology.org/J93-2004). Theirs need a list of
abbreviations; here each character is looked at with a few neighbours alone.
"""

import string

import numpy as np
import tensorflow as tf

# What a character is to the rules below. ASCII's visible characters stand for themselves.
OTHER, SPACE, MARK = 0, 1, 2  # letters and signs; white space; punctuation

APOSTROPHE = "'"  # ’ is one as well
INSIDE = "-._&/@" + APOSTROPHE  # in one word with the characters around: AT&T, 3.5, O'Brien
INSIDE_NUMBERS = ",:"  # 1,000 and 10:30
REPEATED = ".-"  # "..." and "--" are one word


def signs_of(kinds):
    """Return the sign of each code point, an array like that of their kinds: OTHER, SPACE, MARK."""
    signs = kinds.copy()
    visible = np.arange(ord("!"), ord("~") + 1)
    signs[visible] = visible
    signs[ord("’")] = ord(APOSTROPHE)
    return signs


def begins_run(sign, is_first):
    """Return whether a word, or a space, begins at each character, (C,) bool.

    Args:
        sign: (C,) int32, see `signs_of`.
        is_first: (C,) bool, whether a text begins there.
    """
    is_last = tf.concat([tf.cast(is_first[1:], tf.int32), [1]], axis=0) > 0

    def before(x):  # outside of a text there are spaces
        return tf.where(is_first, SPACE, tf.concat([[SPACE], x[:-1]], axis=0))

    def after(x):
        return tf.where(is_last, SPACE, tf.concat([x[1:], [SPACE]], axis=0))

    last1, here, next1 = before(sign), sign, after(sign)
    last2, next2 = before(last1), after(next1)
    next3 = after(next2)

    between = is_inner(last1) & is_inner(next1)
    is_clitic = among(next1, "sdm") & ~is_inner(next2)
    is_clitic |= among(next1, "rv") & among(next2, "e") & ~is_inner(next3)
    is_clitic |= among(next1, "l") & among(next2, "l") & ~is_inner(next3)
    is_clitic &= among(here, APOSTROPHE) & between  # 's, 'd, 'm, 're, 've and 'll
    is_not = among(here, "n") & among(next1, APOSTROPHE) & among(next2, "t")  # "n't"
    is_not &= is_inner(last1) & ~is_inner(next3)

    numbers = among(here, INSIDE_NUMBERS) & is_digit(last1) & is_digit(next1)
    is_inside = between & (among(here, INSIDE) | numbers) & ~is_clitic
    is_alone = (is_mark(here) & ~is_inside) | (here == SPACE)
    # The last full stop of "U.S.", and that of "J. Smith"; "So do I." and "x." end there.
    initial = is_inner(last1) & ~is_digit(last1) & ~is_inner(last2) & among(here, ".")
    in_name = ~looked_up(last1, string.ascii_lowercase + "I") & ~is_last
    ends_abbreviation = initial & (among(last2, ".") | in_name)
    is_repeated = among(here, REPEATED) & (here == last1)
    joins_last = ends_abbreviation | is_repeated
    is_sign = among(here, "+-") & is_outside(last1) & is_digit(next1)  # +44 171
    ends = before(tf.where(is_alone & ~is_clitic & ~is_sign, OTHER, SPACE)) == OTHER
    return is_first | (is_alone & ~joins_last) | (ends & ~is_repeated) | is_not


def looked_up(sign, characters, others=()):
    """Return where signs are one of some characters, or of OTHER, SPACE and MARK in `others`."""
    found = np.zeros(128, bool)
    found[[*map(ord, characters), *others]] = True
    return tf.gather(tf.constant(found), sign)  # one operation, however many characters


def among(sign, characters):
    """Return where signs are one of some characters, of either case."""
    return looked_up(sign, characters.lower() + characters.upper())


def is_digit(sign):
    """Return where signs are ASCII's digits."""
    return looked_up(sign, string.digits)


def is_inner(sign):
    """Return where signs are letters, digits, and all that is neither a mark nor a space."""
    return looked_up(sign, string.ascii_letters + string.digits, [OTHER])


def is_mark(sign):
    """Return where signs are punctuation."""
    return looked_up(sign, string.punctuation, [MARK])


def is_outside(sign):
    """Return where signs are spaces, and marks that no word has inside."""
    marks = set(string.punctuation) - set(INSIDE + INSIDE_NUMBERS)
    return looked_up(sign, marks, [SPACE, MARK])
