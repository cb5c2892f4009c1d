"""What a preset, a published checkpoint or a size holds. Importing this imports TensorFlow."""

import math
import re
from collections.abc import Sequence
from typing import Any

from keras_lm import presets, tokenizers
from keras_lm.converters import CheckpointError
from keras_lm.models import Backbone
from keras_lm.models.sizes import estimate, parameters_of
from keras_lm.presets.source import Source
from keras_lm.utils import files, registry
from keras_lm.utils.argument_types import PathLike

# The layers of heads, as models call them, and what they are.
HEADS = {
    "classifier/logits": "classification",
    "multiple_choice_head/logits": "multiple choice",
    "span_head/logits": "question answering",
    "conditional_span_head/start": "question answering",
    "token_head/dense": "masked language model",
    "next_sentence_head/logits": "next sentence",
    "sentence_order_head/logits": "sentence order",
    "replaced_head/dense": "replaced tokens",
    "span_boundary_head/first_dense": "span boundary",
}


def inspect_checkpoint(source: PathLike | Source) -> dict[str, Any]:
    """Return a checkpoint's contents as a JSON-serializable dict, without loading its weights."""
    opened = presets.Source.open(source)
    checkpoint = opened.checkpoint
    contents = {
        "path": source,
        "what": "preset" if checkpoint.format == "keras_lm" else f"{checkpoint.format} checkpoint",
    }
    try:
        backbone, converter = opened.recognise()
    except CheckpointError as error:
        if checkpoint.format == "keras_lm":
            raise
        return contents | {"model": None, "why": str(error), **_weights(checkpoint, r"(?!)")}
    try:
        cls = opened.task
        stated = opened.task_arguments(cls) if cls else {}
    except CheckpointError as error:  # a head that is not known
        cls, stated, contents = None, {}, contents | {"why": str(error)}
    return contents | {
        "model": backbone.__name__,
        "arguments": opened.arguments(),
        **_weights(checkpoint, converter.names.ignored),
        "task": cls and cls.__name__,
        "task_arguments": {k: v for k, v in stated.items() if k != "class_names"} or None,
        "labels": stated.get("class_names"),
        "heads": _heads(checkpoint, converter.names, backbone),
        "tokenizer": _tokenizer(opened),
    }


def _weights(checkpoint, ignored):
    """Count parameters; the dtype is read off the smallest tensor of floats."""
    tensors = checkpoint.tensors
    sizes = {
        name: math.prod(tensors.shape(name)) for name in tensors if not re.search(ignored, name)
    }
    dtypes = (tensors[name].dtype for name in sorted(sizes, key=sizes.get))
    return {
        "parameters": sum(sizes.values()),
        "tensors": len(sizes),
        "dtype": next((str(dtype) for dtype in dtypes if dtype.kind not in "iub"), None),
        "bytes": files.size(checkpoint.folder),
    }


def _heads(checkpoint, names, backbone):
    tensors = names.resolve(checkpoint.weights)

    def has(path):
        if checkpoint.format == "keras_lm":
            return path in tensors
        alternatives = names.alternatives(path).values()
        return any(sources and set(sources) <= set(tensors) for sources in alternatives)

    heads = [what for layer, what in HEADS.items() if has(f"{layer}/kernel")]
    if backbone.PRETRAINING_LAYERS and has("token_head/bias"):  # XLNet's has no other weight
        heads.append("permutation language model")
    if "token" in backbone.HEADS and has("token_head/embeddings"):  # EuroBERT's has no other weight
        heads.append("masked language model")
    return heads


def _tokenizer(opened):
    checkpoint = opened.checkpoint
    if checkpoint.format == "keras_lm" and "tokenizer" not in checkpoint.config:
        return None
    try:
        tokenizer = tokenizers.Tokenizer.from_preset(opened)
    except FileNotFoundError:
        return None
    config = {"class": type(tokenizer).__name__, "vocabulary_size": tokenizer.vocabulary_size}
    return config | tokenizer.get_config()


# === Sizes ===


def inspect_size(name: str) -> dict[str, Any]:
    """Return what a size would need as a dict that JSON can hold; see `keras_lm.models.sizes`."""

    def count(name):
        cls = registry.sizes()[name]
        return estimate(cls, **cls.SIZES[name])

    cls, estimated = registry.sizes()[name], count(name)
    if name in cls.PRETRAINED_WITH:  # a step of pretraining takes both
        beside = count(cls.PRETRAINED_WITH[name])["flops_per_token"]["pretraining"]
        estimated["flops_per_token"]["pretraining"] += beside
    return {
        "size": name,
        "what": "size",
        "model": cls.__name__,
        "published": cls.PUBLISHED.get(name),
        "arguments": cls.SIZES[name],
        **estimated,
    }


def find_sizes(words: Sequence[str] = ()) -> list[Any]:
    """Return a dict for each size whose name contains all of some words."""
    return [
        {
            "size": name,
            "model": cls.__name__.removesuffix(Backbone.__name__),
            "parameters": parameters_of(name),
            "published": cls.PUBLISHED.get(name),
        }
        for name, cls in registry.sizes().items()
        if all(word.lower() in name for word in words)
    ]
