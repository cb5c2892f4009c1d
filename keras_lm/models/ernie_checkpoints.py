"""What published files of ERNIE call its weights, and what their configurations say."""

import dataclasses
import functools
import re

from keras_lm.converters.bert_family import ENCODER_RULES
from keras_lm.converters.checked_files import CheckpointError, Entries
from keras_lm.converters.converter import STATED, Converter, match_score, read
from keras_lm.converters.entity_files import ENTITY_VECTORS
from keras_lm.converters.published_labels import huggingface_labels
from keras_lm.models.bert import BertBackbone
from keras_lm.models.bert_checkpoints import HUGGINGFACE_NAMES
from keras_lm.models.ernie import ErnieBackbone

_ENTITY_ATTENTION = "encoder.layer.{i}.attention.self_ent"
NAMES = dataclasses.replace(
    HUGGINGFACE_NAMES,
    names=HUGGINGFACE_NAMES.names
    | {
        "block_{i}/feedforward/entity_intermediate": "encoder.layer.{i}.intermediate.dense_ent",
        "block_{i}/feedforward/entity_output": "encoder.layer.{i}.output.dense_ent",
        "block_{i}/entity_norm": "encoder.layer.{i}.output.LayerNorm_ent",
        "block_{i}/entity_attention/query_key_value": tuple(
            f"{_ENTITY_ATTENTION}.{part}" for part in ("query", "key", "value")
        ),
        "block_{i}/entity_attention/output": "encoder.layer.{i}.attention.output_ent.dense",
        "block_{i}/entity_attention_norm": "encoder.layer.{i}.attention.output_ent.LayerNorm",
        "entity_table": ENTITY_VECTORS,
        "entity_head/dense": "cls.predictions_ent.transform.dense",
        "entity_head/norm": "cls.predictions_ent.transform.LayerNorm",
    },
    spellings={".gamma": ".weight", ".beta": ".bias"},
)
_FUSION = re.compile(r"(?:bert\.)?encoder\.layer\.(\d+)\.intermediate\.dense_ent\.weight")
_ATTENTION = re.compile(r"(?:bert\.)?encoder\.layer\.(\d+)\.attention\.self_ent\.query\.weight")
WORDS = BertBackbone.CONVERTERS["huggingface"].config.words | Entries(read={"layer_types"})


def _blocks_with(pattern, checkpoint):
    """Return the numbers of the blocks with a tensor, a dict to the tensor's name."""
    matches = ((pattern.fullmatch(name), name) for name in checkpoint.tensors)
    return {int(match[1]): name for match, name in matches if match}


def _config(checkpoint):
    WORDS.check(checkpoint.config, f"{checkpoint.source}: its configuration", "ErnieBackbone")
    fused, attended = (_blocks_with(pattern, checkpoint) for pattern in (_FUSION, _ATTENTION))
    arguments = read(ENCODER_RULES, checkpoint.config)
    width = checkpoint.tensors.shape(next(iter(fused.values())))[1]
    entities = (0, width)
    if f"{ENTITY_VECTORS}.weight" in checkpoint.tensors:
        entities = checkpoint.tensors.shape(f"{ENTITY_VECTORS}.weight")
    if entities[1] != width:
        raise CheckpointError(
            f"{checkpoint.source}: the vectors of entities are {entities[1]} wide, but the model "
            f"reads {width}: put those beside it that it was trained with."
        )
    kinds = checkpoint.config.get("layer_types")
    if kinds is None:
        numbers = range(arguments["num_layers"])
        kinds = ["norm" if i in attended else "mix" if i in fused else "sim" for i in numbers]
    return arguments | {
        # The authors' code makes a block for each type, should these be more.
        "num_layers": max(arguments["num_layers"], len(kinds)),
        "layer_types": kinds,
        "entity_dim": width,
        "num_entities": entities[0],
        "use_pooler": any(name.endswith("pooler.dense.weight") for name in checkpoint.tensors),
    }


ErnieBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(  # no other model has these tensors, and no configuration states this one
            match_score,
            model_type=None,
            own=f"^{_FUSION.pattern}$",
            refine=lambda checkpoint, score: STATED + 1,
        ),
        _config,
        NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "classifier.weight"),
    )
}
