"""From a source to its tokenizer alone."""

from typing import Any

from keras_lm.converters import find_folder
from keras_lm.converters.checked_files import read_json
from keras_lm.converters.checkpoint import PRESET_CONFIG, check_preset
from keras_lm.presets.loading import tokenizer_from_config
from keras_lm.presets.source import Source, is_size, naming_sizes, where_published
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.registry import tokenizer_classes


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
        folder = source.checkpoint.vocabulary_folder
    else:  # not opened: a vocabulary needs no weights beside it
        with naming_sizes(source):
            folder = find_folder(str(source))
    if (folder / PRESET_CONFIG).is_file():
        config = read_json(folder / PRESET_CONFIG)
        check_preset(folder / PRESET_CONFIG, config)
        if config.get("tokenizer") is None:
            raise ValueError(f"{folder} is a preset without a tokenizer.")
        return tokenizer_from_config(folder, config["tokenizer"], **overrides)
    reasons = [f"{folder} holds no vocabulary that we can read."]
    best, classes = cls.class_for(folder), tokenizer_classes()

    def order(name):  # last those that have files of their own, of which none is there
        files = classes[name].PUBLISHED_FILES
        lacks = bool(files) and not any((folder / file).is_file() for file in files)
        return classes[name] is not best, lacks, name

    for name in sorted(classes, key=order):
        candidate = classes[name]
        if not issubclass(candidate, cls):
            continue
        try:
            return candidate.from_files(folder, **overrides)
        except FileNotFoundError as error:
            reasons.append(f"{candidate.__name__}: {error}")
    raise FileNotFoundError(" ".join(reasons))
