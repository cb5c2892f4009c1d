"""From a source to its tokenizer."""

import warnings
from typing import Any

from keras_lm.argument_types import PathLike
from keras_lm.converters import CheckpointError, find_folder
from keras_lm.converters.checked_files import read_json
from keras_lm.converters.checkpoint import PRESET_CONFIG, check_preset
from keras_lm.presets.source import Source, is_size, naming_sizes, where_published
from keras_lm.registry import TOKENIZERS

# The folder of a preset's vocabulary.
ASSETS = "assets"
# Embeddings are padded to round numbers of rows; a larger gap may mean a vocabulary cut off.
USUAL_UNUSED_ROWS = 128


def load_tokenizer(source: PathLike | Source, cls: type, **overrides: Any) -> Any:
    """Return a tokenizer; what `Tokenizer.from_preset` calls.

    Args:
        source, **overrides: see there.
        cls: the class that the tokenizer must be an instance of.

    Raises:
        FileNotFoundError, ValueError: if there is no vocabulary.
    """
    if is_size(source):
        raise ValueError(
            f"{source!r} is a size without a vocabulary. {where_published(str(source))}"
        )
    if isinstance(source, Source):
        folder = source.checkpoint.folder
    else:  # not opened: a vocabulary needs no weights beside it
        with naming_sizes(source):
            folder = find_folder(str(source))
    if (folder / PRESET_CONFIG).is_file():
        config = read_json(folder / PRESET_CONFIG)
        check_preset(folder / PRESET_CONFIG, config)
        if config.get("tokenizer") is None:
            raise ValueError(f"{folder} is a preset without a tokenizer.")
        return _tokenizer_from_config(folder, config["tokenizer"], **overrides)
    reasons = [f"{folder} holds no vocabulary that we can read."]
    best = cls.class_for(folder)

    def order(name):  # last those that have files of their own, of which none is there
        files = TOKENIZERS[name].PUBLISHED_FILES
        lacks = bool(files) and not any((folder / file).is_file() for file in files)
        return TOKENIZERS[name] is not best, lacks, name

    for name in sorted(TOKENIZERS, key=order):
        candidate = TOKENIZERS[name]
        if not issubclass(candidate, cls):
            continue
        try:
            return candidate.from_files(folder, **overrides)
        except FileNotFoundError as error:
            reasons.append(f"{candidate.__name__}: {error}")
    raise FileNotFoundError(" ".join(reasons))


def own_tokenizer(checkpoint, backbone, converter):
    """Return a checkpoint's tokenizer, or None if it has no vocabulary.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        backbone, converter: the network that has its weights, and the `Converter` of its class.
    """
    if checkpoint.format == "keras_lm":
        config = checkpoint.config.get("tokenizer")
        return None if config is None else _tokenizer_from_config(checkpoint.folder, config)
    cls = backbone.tokenizer_class.class_for(checkpoint.folder)
    arguments = converter.vocabulary if cls is backbone.tokenizer_class else {}
    try:
        tokenizer = cls.from_files(checkpoint.folder, **arguments)
    except FileNotFoundError:
        return None
    rows = backbone.vocabulary_size
    if rows - tokenizer.vocabulary_size >= USUAL_UNUSED_ROWS:
        warnings.warn(
            f"{checkpoint.source}: the vocabulary has {tokenizer.vocabulary_size} entries, the "
            f"embedding {rows} rows. Some models are published so; if this is none of them, the "
            "vocabulary is cut off, or another checkpoint's: copy it again.",
            stacklevel=4,
        )
    return tokenizer


def _tokenizer_from_config(folder, config, **overrides):
    assets = folder / ASSETS
    cls = TOKENIZERS.get(config["class"])
    if cls is None:
        raise CheckpointError(
            f"{folder / PRESET_CONFIG} names the tokenizer {config['class']!r}: this keras_lm has "
            f"{sorted(TOKENIZERS)}."
        )
    try:
        tokenizer = cls.from_assets(assets, config["arguments"] | overrides)
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} is an incomplete preset: {error}") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{folder / PRESET_CONFIG} describes a {config['class']} wrongly, "
            f"{type(error).__name__}: {error}. Save the preset again, or copy it again."
        ) from error
    if tokenizer.vocabulary_size != config.get("vocabulary_size"):
        raise CheckpointError(
            f"{assets} holds a vocabulary of {tokenizer.vocabulary_size} entries, the preset was "
            f"saved with {config.get('vocabulary_size')}: copy the folder again, whole."
        )
    return tokenizer
