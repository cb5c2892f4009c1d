"""ALBERT: what sharing saves, by what is shared and how wide the embeddings are."""

CLAIM = "Layers that share their weights, and narrow embeddings, take BERT-base from 108M to 12M."
PUBLISHED = "the column of that name; and in table 4, what it costs: 82.3 → 80.1 on average"
SOURCE = "Lan et al. 2019, https://arxiv.org/abs/1909.11942, table 4"
NEEDS = ()
FOUND = "All eight counts are within 1.2 million of the published ones, which are rounded."
SHOWS = (
    "That sharing is what the paper says. Not what it costs: the paper's scores need pretraining "
    "on all of Wikipedia. A step takes as long as before, as each layer is still computed."
)

PUBLISHED_MILLIONS = {
    (768, "all"): 31,
    (768, "attention"): 83,
    (768, "feedforward"): 57,
    (768, "none"): 108,
    (128, "all"): 12,
    (128, "attention"): 64,
    (128, "feedforward"): 38,
    (128, "none"): 89,
}


def run(quick=False):
    """Return a row for each network; they are built without weights, so `quick` is no quicker."""
    import keras_lm
    from keras_lm.models.sizes import estimate

    size = keras_lm.models.AlbertBackbone.SIZES["albert_base_en_uncased"]
    rows = []
    for (width, shared), published in PUBLISHED_MILLIONS.items():
        arguments = size | {"embedding_dim": width, "sharing": shared}
        counted = estimate(keras_lm.models.AlbertBackbone, **arguments)["parameters"]
        row = {"width of embeddings": width, "shared": shared}
        rows.append(row | {"published, millions": published, "counted, millions": counted / 1e6})
    return rows
