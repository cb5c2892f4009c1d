"""What published files of ELECTRA call its weights, and what their configurations say."""

import dataclasses
import functools
import re

from keras_lm.converters.bert_family import (
    ENCODER_RULES,
    GOOGLE_RULES,
    HUGGINGFACE_ENCODER,
    google_names,
)
from keras_lm.converters.checked_files import CLASSIFIER_RATE, PLAIN_ENCODER, Entries
from keras_lm.converters.converter import (
    GOOGLE_LEAVES,
    ConfigTable,
    Converter,
    Key,
    NameTable,
    PyTorchNames,
    architectures,
    counts,
    dropouts,
    match_score,
    own_activation,
    require_only,
    score_with,
)
from keras_lm.converters.published_labels import huggingface_labels
from keras_lm.models.electra import ElectraBackbone, ElectraGeneratorBackbone

_ENCODER = HUGGINGFACE_ENCODER | {"projection": "embeddings_project"}
_HUGGINGFACE = _ENCODER | {
    # The heads of a classifier of texts and of choices; that of tokens is one layer.
    "classifier/pooler": {"multiple_choice": "sequence_summary.summary", None: "classifier.dense"},
    "classifier/logits": {"classification": "classifier.out_proj", None: "classifier"},
    "span_head/logits": "qa_outputs",
    "replaced_head/dense": "discriminator_predictions.dense",
    "replaced_head/logits": "discriminator_predictions.dense_prediction",
    "token_head/dense": "generator_predictions.dense",
    "token_head/norm": "generator_predictions.LayerNorm",
    "token_head/bias": "generator_lm_head.bias",
}
_GOOGLE = google_names(_ENCODER)


class _GeneratorNames(NameTable):
    """The names of the generator, whose embeddings are the discriminator's if it has none."""

    def resolve(self, tensors):
        # Of two tensors for a name, the first is taken.
        return super().resolve(sorted(tensors, key=lambda name: not name.startswith("generator/")))


HUGGINGFACE_NAMES = PyTorchNames(
    _HUGGINGFACE,
    prefix=r"electra\.",
    spellings={
        "LayerNorm.gamma": "LayerNorm.weight",
        "LayerNorm.beta": "LayerNorm.bias",
    },
    buffers={"embeddings.position_ids": counts},
    copies={"generator_lm_head.weight": "embeddings.word_embeddings.weight"},
)
GOOGLE_NAMES = NameTable(
    _GOOGLE
    | {
        "replaced_head/dense": "discriminator_predictions/dense",
        "replaced_head/logits": "discriminator_predictions/dense_1",
    },
    leaves=GOOGLE_LEAVES,
    prefix="electra/",
    begin="electra/",
)
GOOGLE_GENERATOR_NAMES = _GeneratorNames(
    _GOOGLE
    | {
        "token_head/dense": "generator_predictions/dense",
        "token_head/norm": "generator_predictions/LayerNorm",
        "token_head/bias": "generator_predictions/output_bias",
    },
    leaves=GOOGLE_LEAVES,
    prefix="generator/|electra/(?=embeddings/)",
    begin="generator/",
)


def _check_summary(checkpoint):
    stated = checkpoint.config.get("architectures") or ()
    has_choices = any(str(name).endswith("ForMultipleChoice") for name in stated)
    if has_choices or "sequence_summary.summary.weight" in checkpoint.tensors:
        known = {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"}
        require_only(checkpoint, ElectraBackbone, known)


HUGGINGFACE_CONFIG = ConfigTable(
    ElectraBackbone,
    "electra",
    ENCODER_RULES | {"embedding_dim": Key("embedding_size", 128)},
    PLAIN_ENCODER | Entries(read={"summary_type", "summary_use_proj", "summary_activation"}),
    _check_summary,
    rates=CLASSIFIER_RATE | {"summary_last_dropout": (0.1, "hidden_dropout_prob")},
)


@dataclasses.dataclass(frozen=True)
class _GoogleConfig(ConfigTable):
    """Reads the sizes from shapes, as the published folders have no configuration.

    Shapes do not show the number of heads: those of the published sizes are 64 wide. A
    configuration that someone added, or that is written here, does. `names` has the tensors'.
    """

    names: NameTable | None = None

    def __call__(self, checkpoint):
        tensors, config = self.names.resolve(checkpoint.tensors), checkpoint.config
        config = config if self.inside is None else config.get(self.inside, {})

        def shape(name):
            return checkpoint.tensors.shape(tensors[name])

        rows, embedding_dim = shape("embeddings/word_embeddings")
        hidden_dim, intermediate_dim = shape("encoder/layer_0/intermediate/dense/kernel")
        blocks = [n for n in tensors if re.fullmatch(r"encoder/layer_\d+/output/dense/bias", n)]
        heads = hidden_dim // 64 if hidden_dim % 64 == 0 else None
        dropout = config.get("hidden_dropout_prob", 0.1)
        return {
            "vocabulary_size": rows,
            "num_layers": len(blocks),
            "num_heads": config.get("num_attention_heads", heads),
            "hidden_dim": hidden_dim,
            "intermediate_dim": intermediate_dim,
            "embedding_dim": embedding_dim,
            **dropouts(dropout, config.get("attention_probs_dropout_prob", dropout)),
            "activation": own_activation(config.get("hidden_act", "gelu")),  # here erf, too
            "max_sequence_length": shape("embeddings/position_embeddings")[0],
            "num_segments": shape("embeddings/token_type_embeddings")[0],
        }


_GOOGLE_CONFIG = _GoogleConfig(
    ElectraBackbone,
    None,
    HUGGINGFACE_CONFIG.rules | {"layer_norm_epsilon": GOOGLE_RULES["layer_norm_epsilon"]},
    names=GOOGLE_NAMES,
)
_GOOGLE_FILES = {"config": "config.json", "checkpoint": "electra_model"}


_is_huggingface = functools.partial(
    match_score,
    model_type="electra",
    tensors=["electra.encoder.layer.0.attention.self.query.weight"],
)


def _holds(network):
    return lambda checkpoint: f"{network}/encoder/layer_0/output/dense/kernel" in checkpoint.tensors


ElectraBackbone.CONVERTERS = {
    "huggingface": Converter(
        _is_huggingface,
        HUGGINGFACE_CONFIG,
        HUGGINGFACE_NAMES,
        lambda checkpoint: huggingface_labels(
            checkpoint, "classifier.out_proj.weight", "classifier.weight"
        ),
        architectures=architectures("Electra", replaced="ForPreTraining"),
        tokenizer="ElectraTokenizer",
    ),
    "google": Converter(
        _holds("electra"),
        _GOOGLE_CONFIG,
        GOOGLE_NAMES,
        architectures={"": "modeling.py", "replaced": "run_pretraining.py"},
        files=_GOOGLE_FILES,
    ),
}
ElectraGeneratorBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(
            _is_huggingface,
            refine=functools.partial(score_with, tensor=r"^generator_predictions\.dense\.weight$"),
        ),
        HUGGINGFACE_CONFIG,
        HUGGINGFACE_NAMES,
        architectures=architectures("Electra"),
        tokenizer="ElectraTokenizer",
    ),
    "google": Converter(
        _holds("generator"),
        dataclasses.replace(_GOOGLE_CONFIG, inside="generator", names=GOOGLE_GENERATOR_NAMES),
        GOOGLE_GENERATOR_NAMES,
        architectures={"": "modeling.py", "token": "run_pretraining.py"},
        files=_GOOGLE_FILES,
    ),
}
