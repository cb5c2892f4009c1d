"""Where words begin in the manner of CoNLL-2003, by operations that LiteRT has.

C is the number of characters of all texts.

Source: the tokens of CoNLL-2003, https://aclanthology.org/W03-0419, which follow the Penn
Treebank's (Marcus et al. 1993, https://aclanthology.org/J93-2004). Theirs need a list of
abbreviations; here each character is looked at with a few neighbours alone.
"""

import tensorflow as tf

SPACE = ord(" ")
APOSTROPHES = "'’"
INSIDE = "-._&/@" + APOSTROPHES  # in one word with the characters around: AT&T, 3.5, O'Brien
INSIDE_NUMBERS = ",:"  # 1,000 and 10:30
REPEATED = ".-"  # "..." and "--" are one word
CLITICS = ("s", "d", "m", "re", "ve", "ll")  # after an apostrophe


def begins_run(code_point, is_mark, is_space, is_first):
    """Return whether a word, or a space, begins at each character, (C,) bool.

    Args:
        code_point: (C,) int32.
        is_mark, is_space: (C,) bool. All other characters are letters and digits here.
        is_first: (C,) bool, whether a text begins there.
    """
    is_last = tf.concat([tf.cast(is_first[1:], tf.int32), [1]], axis=0) > 0

    def before(x):  # outside of a text there are spaces
        return tf.where(is_first, SPACE, tf.concat([[SPACE], x[:-1]], axis=0))

    def after(x):
        return tf.where(is_last, SPACE, tf.concat([x[1:], [SPACE]], axis=0))

    # Characters as the rules below see them: lower case, and one sign for all spaces and marks that
    # they do not name.
    is_upper = (code_point >= ord("A")) & (code_point <= ord("Z"))
    is_named = one_of(code_point, INSIDE + INSIDE_NUMBERS)
    here = tf.where(is_upper, code_point + 32, code_point)
    here = tf.where((is_mark & ~is_named) | is_space, SPACE, here)
    last2, last1 = before(before(here)), before(here)
    next1, next2, next3 = after(here), after(after(here)), after(after(after(here)))

    def is_inner(x):
        return (x != SPACE) & ~one_of(x, INSIDE + INSIDE_NUMBERS)

    between = is_inner(last1) & is_inner(next1)
    is_clitic = [
        (next1 == ord(clitic[0]))
        & ((next2 == ord(clitic[1])) & ~is_inner(next3) if clitic[1:] else ~is_inner(next2))
        for clitic in CLITICS
    ]
    is_clitic = any_of(is_clitic) & one_of(here, APOSTROPHES) & between
    is_not = (here == ord("n")) & one_of(next1, APOSTROPHES) & (next2 == ord("t"))
    is_not &= is_inner(last1) & ~is_inner(next3)  # "n't"

    numbers = one_of(here, INSIDE_NUMBERS) & is_digit(last1) & is_digit(next1)
    is_inside = between & (one_of(here, INSIDE) | numbers) & ~is_clitic
    is_alone = (is_mark & ~is_inside) | is_space
    # The last full stop of "U.S.", and that of "J. Smith"; "So do I." and "x." end there.
    initial = is_inner(last1) & ~is_digit(last1) & ~is_inner(last2) & (here == ord("."))
    letter = before(code_point)
    is_lower = (letter >= ord("a")) & (letter <= ord("z"))
    in_name = ~is_lower & (letter != ord("I")) & ~is_last
    ends_abbreviation = initial & ((last2 == ord(".")) | in_name)
    is_repeated = one_of(here, REPEATED) & (here == last1)
    joins_last = ends_abbreviation | is_repeated
    is_sign = one_of(code_point, "+-") & (last1 == SPACE) & is_digit(next1)  # +44 171
    ends = before(tf.where(is_alone & ~is_clitic & ~is_sign, 0, SPACE)) == 0
    return is_first | (is_alone & ~joins_last) | (ends & ~is_repeated) | is_not


def one_of(x, characters):
    """Return whether code points are among some characters."""
    return any_of([x == ord(character) for character in characters])


def any_of(conditions):
    """Return where at least one condition holds."""
    found = conditions[0]
    for condition in conditions[1:]:
        found = found | condition
    return found


def is_digit(x):
    """Return whether code points are ASCII's digits."""
    return (x >= ord("0")) & (x <= ord("9"))
