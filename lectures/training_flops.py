"""FLOPs of training the Transformer, from its weights and the tokens it read."""

CLAIM = "The Transformer translates better than all before it, at a fraction of their FLOPs."
PUBLISHED = "3.3e18 for the base model, with 27.3 BLEU en-de; 2.3e19 for the big one, with 28.4"
SOURCE = "Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, table 2 and sections 5.1 and 5.2"
NEEDS = ()
FOUND = (
    "What the networks multiply and add is 0.33 and 0.46 of the published figures: these are "
    "hours × GPUs × what a GPU can do at best, so this is how busy the GPUs were."
)
SHOWS = (
    "That FLOPs of two tables can be compared only if they were counted in the same way. Not the "
    "BLEU, which takes days of eight GPUs; benchmarks/translation.py has it at small scale."
)

# Steps, of some 25,000 tokens of the source and 25,000 of the target each; FLOPs as published.
TRAINED = {
    "base": ("transformer_base_en_de", 100_000, 3.3e18),
    "big": ("transformer_big_en_de", 300_000, 2.3e19),
}


def run(quick=False):
    """Return a row for each model; nothing is trained, so `quick` makes no difference."""
    from keras_lm.models.sizes import estimate
    from keras_lm.utils.registry import sizes

    rows = []
    for name, (size, steps, published) in TRAINED.items():
        cls = sizes()[size]
        # Of a pair: a token of the source and one of the target.
        flops = estimate(cls, **cls.SIZES[size])["flops_per_token"]["training"] * 25_000 * steps
        row = {"model": name, "steps": steps, "published": published, "computed": float(flops)}
        rows.append(row | {"computed ÷ published": flops / published})
    return rows
