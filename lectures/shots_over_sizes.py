"""Shots over sizes: what networks make of the examples in a prompt, by their size.

In a world of ten words there are sixteen languages, each with another order of the ten. A text is
of one language and does not say which: eight words, each followed by its translation. The first
translation is a guess; each example before a word tells more about the language.
"""

CLAIM = "Answers get better with the examples in a prompt, and the more so the larger the model is."
PUBLISHED = (
    "no table: curves over the number of examples, of a word whose random characters are removed, "
    "which rise steeply for 175 billion parameters, and hardly for 1.3 billion"
)
SOURCE = "Brown et al. 2020, https://arxiv.org/abs/2005.14165, figure 1.2"
NEEDS = ()
FOUND = (
    "After 1,000 steps, three seeds: without an example all sizes are where the best guess is, 22 "
    "to 24 %. With seven, 1,152 parameters get 39 % (36 to 44), 7,120 60 (57 to 66), 26,528 76 "
    "(60 to 100), 227,040 72 (62 to 81), where knowing the languages gives 100."
)
SHOWS = (
    "That networks learn from texts to use the examples in a prompt, and that size helps, up to "
    "26,528 parameters; beyond it the seed decides more, with one rate and as many steps for all. "
    "These texts are only examples: to learn the same from English takes far larger models."
)

WORDS = [chr(ord("a") + number) for number in range(10)]
LANGUAGES, PAIRS = 16, 8
SIZES = [(1, 8), (2, 16), (2, 32), (2, 96)]  # layers, width


def run(quick=False):
    """Return a row for each size, and one for a reader who knows all languages; three seeds."""
    import numpy as np

    from keras_lm.lectures import materials

    shots = [0, 1, 3, 5, 7]
    names = [f"{shot} examples, right in %" for shot in shots]
    right, parameters = {}, {}
    for seed in range(1 if quick else 3):
        draws = np.random.default_rng(seed)
        languages = np.array([draws.permutation(len(WORDS)) for _ in range(LANGUAGES)])
        seen = _draw(draws, languages, 64 if quick else 128_000)
        words, wanted = _draw(draws, languages, 8 if quick else 1000)
        for size in SIZES[: 2 if quick else None]:
            told, parameters[size] = _learn(*size, *seen, words, wanted, seed)
            right.setdefault(size, []).append(100 * (told == wanted).mean(axis=0)[shots])
        told = _reader(languages, words, wanted)
        right.setdefault(None, []).append(100 * (told == wanted).mean(axis=0)[shots])
    rows = []
    for size, scores in right.items():
        row = {"parameters": f"{parameters[size]:,}" if size else "a reader who knows them all"}
        columns = zip(names, np.transpose(scores))
        rows.append(row | {name: materials.spread(column, 0) for name, column in columns})
    return rows


def _draw(draws, languages, number):
    """Return the words of texts and their translations, (texts, pairs) each."""
    import numpy as np

    words = np.stack([draws.permutation(len(WORDS))[:PAIRS] for _ in range(number)])
    spoken = languages[draws.integers(len(languages), size=number)]
    return words, np.take_along_axis(spoken, words, axis=1)


def _learn(layers, width, seen, seen_wanted, words, wanted, seed):
    """Return the translations that a network finds likeliest, and its number of parameters."""
    import keras
    import numpy as np

    import keras_lm

    keras.utils.set_random_seed(seed)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = keras_lm.tokenizers.WordPieceTokenizer(special + WORDS, lowercase=True)
    length = 2 * PAIRS + 2
    backbone = keras_lm.models.GPT2Backbone(
        len(special + WORDS), layers, layers, width, 4 * width, 0.0, max_sequence_length=length
    )
    task = keras_lm.tasks.CausalLM(backbone, tokenizer=tokenizer, sequence_length=length)
    task.compile(optimizer=keras_lm.training.AdamW(4e-3))
    pairs = np.stack([seen, seen_wanted], axis=2).reshape(len(seen), -1)
    task.fit([" ".join(WORDS[word] for word in row) for row in pairs], batch_size=128, verbose=0)
    pairs = np.stack([words, wanted], axis=2).reshape(len(words), -1)
    logits = task.predict([" ".join(WORDS[word] for word in row) for row in pairs], verbose=0)
    # Of [CLS], word, translation, word, …: what follows each word.
    told = logits[:, 1 : 2 * PAIRS : 2, len(special) :].argmax(axis=-1)
    return told, backbone.count_params()


def _reader(languages, words, wanted):
    """Return the best guess of one who knows all languages, by those that fit the examples."""
    import numpy as np

    spoken = languages[:, words]  # (languages, texts, pairs)
    agrees = np.cumprod(spoken == wanted, axis=2)
    fits = np.concatenate([np.ones_like(agrees[..., :1]), agrees[..., :-1]], axis=2)
    votes = [(fits * (spoken == word)).sum(axis=0) for word in range(len(WORDS))]
    return np.argmax(votes, axis=0)
