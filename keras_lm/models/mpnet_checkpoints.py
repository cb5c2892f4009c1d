"""What published files of MPNet call its weights, and what their configurations say."""

import functools

from keras_lm.converters.bert_family import ENCODER_RULES, ROBERTA_HEADS, ROBERTA_SPELLINGS
from keras_lm.converters.checked_files import CLASSIFIER_RATE, Entries
from keras_lm.converters.converter import (
    ConfigTable,
    Converter,
    Derived,
    PyTorchNames,
    architectures,
    counts,
    has_pooler,
    match_score,
)
from keras_lm.converters.published_labels import huggingface_labels
from keras_lm.models.mpnet import FIRST_POSITION, NUM_BUCKETS, MPNetBackbone

_BLOCK = "encoder.layer.{i}"
NAMES = PyTorchNames(
    {
        "token_embedding": "embeddings.word_embeddings",
        "position_embedding": "embeddings.position_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
        "relative_positions": "encoder.relative_attention_bias",
        "block_{i}/attention/query_key_value": tuple(
            f"{_BLOCK}.attention.attn.{part}" for part in "qkv"
        ),
        "block_{i}/attention/output": f"{_BLOCK}.attention.attn.o",
        "block_{i}/attention_norm": f"{_BLOCK}.attention.LayerNorm",
        "block_{i}/feedforward/intermediate": f"{_BLOCK}.intermediate.dense",
        "block_{i}/feedforward/output": f"{_BLOCK}.output.dense",
        "block_{i}/feedforward_norm": f"{_BLOCK}.output.LayerNorm",
        **ROBERTA_HEADS,
    },
    prefix=r"mpnet\.",
    spellings=ROBERTA_SPELLINGS,
    buffers={"embeddings.position_ids": counts},
    copies={"lm_head.decoder.weight": "embeddings.word_embeddings.weight"},
)

_CONFIG = ConfigTable(
    MPNetBackbone,
    "mpnet",
    {name: rule for name, rule in ENCODER_RULES.items() if name != "num_segments"}
    | {
        # The table's rows: those before the first position, too.
        "max_sequence_length": Derived(
            lambda config, _: config.get("max_position_embeddings", 512) - FIRST_POSITION,
            lambda arguments: {
                "max_position_embeddings": arguments["max_sequence_length"] + FIRST_POSITION,
                "pad_token_id": FIRST_POSITION - 1,
            },
        ),
        "use_pooler": Derived(has_pooler),
    },
    Entries(
        read={"max_position_embeddings"},
        refused={
            "pad_token_id": (FIRST_POSITION - 1,),
            "relative_attention_num_buckets": (NUM_BUCKETS,),
        },
    ),
    rates=CLASSIFIER_RATE,
)

MPNetBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(
            match_score,
            model_type="mpnet",
            tensors=["encoder.relative_attention_bias.weight"],
            prefix="mpnet.",
        ),
        _CONFIG,
        NAMES,
        lambda checkpoint: huggingface_labels(
            checkpoint, "classifier.out_proj.weight", "classifier.weight"
        ),
        architectures=architectures("MPNet"),
        tokenizer="MPNetTokenizer",
    ),
}
