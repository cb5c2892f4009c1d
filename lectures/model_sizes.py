"""Parameters of the published models, counted.

Networks are built without memory for their weights, so that GPT-3 fits into a laptop.
"""

CLAIM = "ELMo has 94 million parameters, BERT 110 and 340, GPT-2 up to 1.5 and GPT-3 175 billion."
PUBLISHED = "the column of that name"
SOURCE = (
    "the lectures' tables, and the papers of the models; of GPT-2 the deck's figures, which its "
    "authors corrected to 124M, 355M, 774M and 1,558M in their repository"
)
NEEDS = ()
FOUND = (
    "24 of 28 are within 3 % of the published figures. GPT-2's smallest is 6.4 % above the "
    "deck's, which was wrong; ALBERT-xxlarge, T5-large and ELECTRA-small are 3.7 to 5.3 % below "
    "their papers' rounded figures, with the shapes of their released weights."
)
SHOWS = (
    "That the networks have the published shapes. Counts are without heads, some of which a paper "
    "may have counted. Nothing about how good a model is."
)

MODELS = [
    ("ELMo, small", "elmo_small_en", 13.6),
    ("ELMo, medium", "elmo_medium_en", 28.0),
    ("ELMo, original", "elmo_original_en", 93.6),
    ("GPT", "gpt_base_en", 117),
    ("BERT-base", "bert_base_en_uncased", 110),
    ("BERT-large", "bert_large_en_uncased", 340),
    ("GPT-2, 12 layers", "gpt2_base_en", 117),
    ("GPT-2, 24 layers", "gpt2_medium_en", 345),
    ("GPT-2, 36 layers", "gpt2_large_en", 762),
    ("GPT-2, 48 layers", "gpt2_extra_large_en", 1542),
    ("GPT-3", "gpt3_175b", 175_000),
    ("Transformer, base", "transformer_base_en_de", 65),
    ("Transformer, big", "transformer_big_en_de", 213),
    ("RoBERTa-large", "roberta_large_en", 355),
    ("ALBERT-base", "albert_base_en_uncased", 12),
    ("ALBERT-large", "albert_large_en_uncased", 18),
    ("ALBERT-xlarge", "albert_extra_large_en_uncased", 60),
    ("ALBERT-xxlarge", "albert_extra_extra_large_en_uncased", 235),
    ("ELECTRA-small", "electra_small_discriminator_uncased_en", 14),
    ("ELECTRA-base", "electra_base_discriminator_uncased_en", 110),
    ("ELECTRA-large", "electra_large_discriminator_uncased_en", 335),
    ("DistilBERT", "distil_bert_base_en_uncased", 66),
    ("TinyBERT, 4 layers", "tiny_bert_4_layers_en_uncased", 14.5),
    ("TinyBERT, 6 layers", "tiny_bert_6_layers_en_uncased", 67.0),
    ("T5-small", "t5_small_multi", 60),
    ("T5-base", "t5_base_multi", 220),
    ("T5-large", "t5_large_multi", 770),
    ("ERNIE", "ernie_base_en_uncased", 114),
]


def run(quick=False):
    """Return a row for each model; `quick` counts the small ones."""
    from keras_lm.models.sizes import estimate
    from keras_lm.utils.registry import sizes

    rows = []
    for name, size, published in MODELS[:3] if quick else MODELS:
        cls = sizes()[size]
        millions = estimate(cls, **cls.SIZES[size])["parameters"] / 1e6
        row = {"model": name, "published, millions": published, "counted, millions": millions}
        rows.append(row | {"difference": f"{100 * (millions / published - 1):+.1f} %"})
    return rows
