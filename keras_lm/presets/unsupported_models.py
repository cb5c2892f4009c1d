"""Models that are not here: what a checkpoint of theirs is, for an error.

Of models that are here, the error names the class: see `Source.recognise`.
"""

# Models whose checkpoints look like those of ours: their `model_type`, by which the names of their
# tensors begin, too → what they are.
RELATED = {
    "bart": "BART, an encoder-decoder with learned positions",
    "big_bird": "BigBird, a BERT with sparse attention",
    "camembert": "CamemBERT, a RoBERTa for French with a SentencePiece vocabulary of its own",
    "convbert": "ConvBERT, a BERT with convolutions beside attention",
    "deberta": "DeBERTa's first version, with another order of projections",
    "funnel": "a Funnel Transformer, which shortens the sequence from block to block",
    "ibert": "I-BERT, a RoBERTa that computes with integers",
    "longformer": "Longformer, a RoBERTa with attention in windows",
    "m2m_100": "M2M-100 or NLLB, an encoder-decoder that normalises before each part of a block",
    "mbart": "mBART, an encoder-decoder that normalises before each part of a block",
    "megatron-bert": "Megatron's BERT, which normalises before each part of a block",
    "mobilebert": "MobileBERT, a BERT with bottlenecks and several feed-forward networks a block",
    "pegasus": "PEGASUS, an encoder-decoder that normalises before each part of a block",
    "roformer": "RoFormer, a BERT with rotary positions",
    "squeezebert": "SqueezeBERT, a BERT of grouped convolutions",
    "umt5": "umT5, a T5 with a table of relative positions in each block",
    "xlm": "XLM, an encoder with an embedding for the language; XLM-R is another model",
    "xlm-roberta-xl": "XLM-R XL, which normalises before each part of a block",
}


def what_it_is(checkpoint):
    """Return what a checkpoint of another model is, after a colon; "" if that is not known."""
    stated = checkpoint.config.get("model_type")
    known = {stated} if stated else {name.split(".")[0] for name in checkpoint.tensors}
    return "".join(f": it is {what}" for name, what in RELATED.items() if name in known)
