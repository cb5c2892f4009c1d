"""Several blanks at once: BERT fills each alone, XLNet one after the other.

Both learn two sentences, each half of the time: «new york» goes with «empire state», «san
francisco» with «golden gate». Then all four words are blank.
"""

CLAIM = (
    "BERT predicts blanks independently, so that it may fill in «New York» and «the Golden Gate "
    "bridge» together; XLNet's later words know the earlier ones."
)
PUBLISHED = "no figure: log P(New | is a city) + log P(York | New, is a city) for XLNet"
SOURCE = "Yang et al. 2019, https://arxiv.org/abs/1906.08237, section 2.6"
NEEDS = ()
FOUND = (
    "BERT gives all of these 0.12, as 1/2 for each blank makes one in sixteen for each fill: the "
    "wrong building is as likely as the right one. XLNet gives the two sentences 0.84, the other "
    "city's building 0.04 and halves of names 1e-6. One seed."
)
SHOWS = (
    "What follows from the objectives, in a world of two sentences. What it is worth in real texts "
    "it does not show: benchmarks/objectives.py fine-tunes after either, at equal compute, with "
    "68.1 % of TREC's questions for XLNet and 64.0 for masked LM."
)

TEXTS = [
    "i went to new york and saw the empire state building",
    "i went to san francisco and saw the golden gate building",
]
BLANK = "i went to {0} {0} and saw the {0} {0} building"
FILLS = {
    "one of the two sentences": ["new york empire state", "san francisco golden gate"],
    "the other city's building": ["new york golden gate", "san francisco empire state"],
    "half of each name": ["new francisco empire gate", "san york golden state"],
}


def run(quick=False):
    """Return a row for each kind of fill, with its probability by either network; one seed."""
    import keras
    import numpy as np

    import keras_lm

    words = sorted({word for text in TEXTS for word in text.split()})
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = keras_lm.tokenizers.WordPieceTokenizer(special + words, lowercase=True)
    size = (tokenizer.vocabulary_size, 2, 2, 32, 64)
    learners = {
        "BERT": (
            keras_lm.models.BertBackbone(*size, dropout=0.0),
            keras_lm.objectives.MaskedLanguageModel(rate=0.6, seed=0),
        ),
        "XLNet": (
            keras_lm.models.XLNetBackbone(*size, dropout=0.0, attention_dropout=0.0),
            keras_lm.objectives.PermutationLanguageModel(context=2, longest=2, seed=0),
        ),
    }
    rows = [{"filled in": name} for name in FILLS]
    for name, (backbone, objective) in learners.items():
        keras.utils.set_random_seed(0)
        task = keras_lm.tasks.MaskedLM(backbone, objective=objective, tokenizer=tokenizer)
        falling = keras.optimizers.schedules.CosineDecay(3e-3, 400)
        task.compile(optimizer=keras.optimizers.Adam(falling))
        task.fit(TEXTS * (16 if quick else 6400), batch_size=32, verbose=0)
        for row, fills in zip(rows, FILLS.values()):
            scores = task.score_fills([BLANK.format("[MASK]")] * len(fills), fills)
            row[f"{name}, probability"] = float(np.exp(np.array(scores, "float64")).sum())
    return rows
