"""The variance of a query times a key, with and without the square root of their width."""

CLAIM = (
    "For independent parts of mean 0 and variance 1, q · k has the variance d, and q · k / √d the "
    "variance 1; without the division, the softmax gives nearly all to one key."
)
PUBLISHED = "a variance of d, and of 1"
SOURCE = "Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.1, note 4"
NEEDS = ()
FOUND = (
    "For d of 4 to 1,024 the variances are within 0.6 % of d and of 1, by 100,000 pairs of one "
    "seed. Of ten keys, the softmax gives the largest 0.55 for d = 4 and 0.97 for d = 1,024; with "
    "the division 0.32 to 0.33 for all."
)
SHOWS = (
    "The reason for 8 = √64. Trained queries and keys are not independent, so that this says "
    "nothing about a trained network's scores."
)


def run(quick=False):
    """Return a row for each width, of one seed."""
    from keras_lm import analysis

    rows = analysis.dot_product_variance(num_pairs=100 if quick else 100_000)
    return [
        {
            "d": row["dim"],
            "variance of q · k": row["variance"],
            "of q · k / √d": row["scaled_variance"],
            "largest of ten weights": row["largest"],
            "the same with √d": row["scaled_largest"],
        }
        for row in rows
    ]
