"""Who sees the words after a word: left to right, both ways in layers, or all at once.

A sentence is read twice, the second time with another last word. Where the vector of an earlier
word changes, the network has seen the last one.
"""

CLAIM = (
    "A language model gives «bank» the same vector whatever follows; a bidirectional one can use "
    "«deposits», although it comes afterwards."
)
PUBLISHED = "no figure: «Walking along the river bank» and «A bank accepts deposits»"
SOURCE = "10707 of Carnegie Mellon University, lecture 21; Devlin et al. 2018, figure 3"
NEEDS = ()
FOUND = (
    "Left to right, the vector of «bank» is the same to the last bit, in GPT-2 and in an LSTM. A "
    "biLSTM of two layers and BERT change it."
)
SHOWS = (
    "That the networks can, as their weights are random. What a trained one makes of it is shown "
    "by `word_senses`."
)

WORDS = {"a": 2, "bank": 3, "accepts": 4, "deposits": 5, "nothing": 6}


def run(quick=False):
    """Return a row for each network; they are tiny, so `quick` makes no difference."""
    import keras
    import numpy as np

    import keras_lm

    keras.utils.set_random_seed(0)
    models = keras_lm.models
    size, layers, heads, width, inner = 7, 2, 2, 16, 32
    networks = {
        "GPT-2, left to right": models.GPT2Backbone(size, layers, heads, width, inner),
        "LSTM, left to right": models.LSTMBackbone(size, layers, width),
        "LSTM, both ways": models.LSTMBackbone(size, layers, width, bidirectional=True),
        "BERT, all at once": models.BertBackbone(size, layers, heads, width, inner),
    }
    rows = []
    for name, backbone in networks.items():
        texts = ("a bank accepts deposits", "a bank accepts nothing")
        ids = np.array([[WORDS[word] for word in text.split()] for text in texts])
        vectors = np.array(backbone({"token_ids": ids})["sequence_output"])
        change = np.abs(vectors[0] - vectors[1])[1]
        half = len(change) // 2
        row = {"network": name, "change of «bank»": float(change.max())}
        row["first half of its vector"] = float(change[:half].max())
        rows.append(row | {"second half": float(change[half:].max())})
    return rows
