"""Wrong answers that look right, mined from a corpus for an encoder to learn from."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_lm.search import AT_ONCE, Index
from keras_lm.utils.user_arguments import check_whole


def mine_negatives(
    encoder: Any,
    anchors: Sequence[str],
    positives: Sequence[str],
    corpus: Sequence[str] | Index | None = None,
    number: int = 1,
    skip: int = 0,
    margin: float | None = None,
    batch_size: int = 32,
) -> list[list[str]]:
    """Return the texts nearest to each anchor that are not its positive.

    A wrong answer that an encoder takes for a right one teaches it more than a text at random. Of a
    corpus that nobody has read, some of these are right answers: `margin` and `skip` leave out the
    likeliest of them.

    Args:
        encoder: `keras_lm.tasks.SentenceEncoder`, which searches with what it knows now.
        anchors, positives: lists of str, the pairs to learn from. An anchor may stand in several.
        corpus: list of str, or a `keras_lm.search.Index` of them; None for all positives.
        number: int. How many texts of each anchor to return; fewer where there are no more.
        skip: int. How many of the nearest are left out, beside positives.
        margin: float. Leave out texts whose cosine is not less than that of the positive by more
            than this; None for none.
        batch_size: int, see `SentenceEncoder.embed`.

    Returns:
        A list of str for each pair, the nearest first, as `fit` takes `negative`. No text of it
        equals the anchor, or a positive of the same anchor.

    Raises:
        ValueError: if `anchors` and `positives` differ in length, or a number is out of its range.

    Example:

        negatives = keras_lm.data.mine_negatives(encoder, questions, answers, corpus, number=3)
        encoder.fit({"anchor": questions, "positive": answers, "negative": negatives})

    Source: Xiong et al. 2020, https://arxiv.org/abs/2007.00808; a margin below the positive,
    Moreira et al. 2024, https://arxiv.org/abs/2407.15831, section 3.
    """
    check_whole("number", number, 1)
    check_whole("skip", skip, 0)
    anchors, positives = [*anchors], [*positives]
    if len(anchors) != len(positives):
        raise ValueError(
            f"anchors has {len(anchors)} texts and positives {len(positives)}: pass pairs."
        )
    answers = {}
    for anchor, positive in zip(anchors, positives, strict=True):
        answers.setdefault(anchor, {anchor}).add(positive)
    if corpus is None:
        corpus = [*dict.fromkeys(positives)]
    index = corpus if isinstance(corpus, Index) else Index(encoder, corpus, batch_size=batch_size)
    asked = index.embed(anchors, "query", batch_size)
    limits = np.full(len(anchors), np.inf)
    most = max(map(len, answers.values())) + skip + number
    if margin is not None:  # as many as there are, since any number may be too near
        limits = np.sum(asked * index.embed(positives, "document", batch_size), axis=1) - margin
        most = len(index.documents)
    mined = []
    for start in range(0, len(anchors), AT_ONCE):
        hits = zip(*index.nearest(asked[start : start + AT_ONCE], most), strict=True)
        for row, (places, scores) in enumerate(hits, start):
            near = ((index.documents[i], score) for i, score in zip(places, scores, strict=True))
            wrong = [(text, score) for text, score in near if text not in answers[anchors[row]]]
            far = (text for text, score in wrong[skip:] if score < limits[row])
            mined.append([*itertools.islice(far, number)])
    return mined
