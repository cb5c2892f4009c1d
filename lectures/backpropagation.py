"""Gradients by a tape, beside those by hand.

A tape records each operation on the way forward, and multiplies the local gradients on the way
back, in the reverse of that order; that is all of backpropagation.
"""

CLAIM = "One pass back through the graph gives the gradient of any scalar function of its inputs."
PUBLISHED = "the exercises' answers, by hand: 0, 2, 2, 5292, e^42, 6x²·e^(2x³+10), 6x², and 16"
SOURCE = "CS 533 of Rutgers University, exercises on the chain rule and the forward pass"
NEEDS = ()
FOUND = (
    "The tape gives all of them but two, which teach more than the rule: at x = 42 exp(2x³ + 10) "
    "is too large for a float, so its gradient comes out infinite, and that of its logarithm as "
    "no number at all; at x = 1 the latter is right."
)
SHOWS = (
    "The rule is exact, and its arithmetic is that of floats. Nothing about how quick it is: "
    "gradients of a network of millions of weights take the time of two passes forward."
)

EXERCISES = [
    ("7", 42.0, lambda tf, x: 0 * x + 7, 0.0),
    ("2x", 42.0, lambda tf, x: 2 * x, 2.0),
    ("2x + 99999", 42.0, lambda tf, x: 2 * x + 99999, 2.0),
    ("x³", 42.0, lambda tf, x: x**3, 5292.0),
    ("exp(x)", 42.0, lambda tf, x: tf.exp(x), 1.739274941520501e18),
    ("exp(2x³ + 10)", 42.0, lambda tf, x: tf.exp(2 * x**3 + 10), "10,584·e^148,186"),
    ("log(exp(2x³ + 10))", 42.0, lambda tf, x: tf.math.log(tf.exp(2 * x**3 + 10)), 10584.0),
    ("log(exp(2x³ + 10))", 1.0, lambda tf, x: tf.math.log(tf.exp(2 * x**3 + 10)), 6.0),
    ("x + x² + 2x", 42.0, lambda tf, x: x + x**2 + 2 * x, 87.0),
    ("(x + 2)·x·2²", 1.0, lambda tf, x: (x + 2) * x * 4, 16.0),
]


def run(quick=False):
    """Return a row for each exercise; `quick` makes no difference."""
    import tensorflow as tf

    rows = []
    for name, place, function, by_hand in EXERCISES:
        x = tf.constant(place, tf.float64)
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(tf, x)
        gradient = float(tape.gradient(value, x))
        row = {"f(x)": name, "at x =": place, "value": float(value)}
        rows.append(row | {"gradient by hand": by_hand, "by the tape": gradient})
    return rows
