"""From a SOURCE to a backbone, a tokenizer or a task, and from these to a preset folder.

A preset folder holds `keras_lm.json` (classes and their arguments), `model.safetensors` (or its
shards and their index) and `assets/` (the vocabulary in its published form).
"""

import inspect
import json
import os
import pathlib
import tempfile
import warnings

import keras

from keras_lm import models, tasks, tokenizers
from keras_lm.converters import CheckpointError, find_folder, open_checkpoint
from keras_lm.converters.names import NameTable
from keras_lm.converters.safetensors_files import write_safetensors
from keras_lm.models.backbone import Converter
from keras_lm.tokenizers import Tokenizer

FORMAT_VERSION = 1
CONFIG = "keras_lm.json"
ASSETS = "assets"
MAX_SHARD_BYTES = 5_000_000_000
# Embeddings are padded to round numbers of rows; a larger gap means another vocabulary.
MAX_UNUSED_ROWS = 128


def _classes(module, base):
    found = {name: getattr(module, name) for name in module.__all__}
    return {n: c for n, c in found.items() if inspect.isclass(c) and issubclass(c, base)}


BACKBONES = _classes(models, models.Backbone)
TASKS = _classes(tasks, tasks.Task)
TOKENIZERS = _classes(tokenizers, Tokenizer)
SIZES = {name: cls for cls in BACKBONES.values() for name in cls.SIZES}


class _SameNames(NameTable):
    """A preset's tensors are called what our variables are called."""

    def sources(self, path):
        return (path,)


# === Loading ===


def load_backbone(source, cls, load_weights=True, **overrides):
    """See `Backbone.from_preset`."""
    if str(source) in SIZES:
        return _from_size(str(source), cls, load_weights, overrides)
    checkpoint = open_checkpoint(source)
    backbone, converter = _make_backbone(checkpoint, cls, overrides)
    if load_weights:
        _load_weights(checkpoint, converter.names, backbone, [])
    return backbone


def load_task(source, cls, load_weights=True, **arguments):
    """See `Task.from_preset`."""
    if str(source) in SIZES:
        mine, overrides = _divide(arguments, cls, SIZES[str(source)])
        backbone = _from_size(str(source), models.Backbone, load_weights, overrides)
        return cls(backbone, **mine)
    checkpoint = open_checkpoint(source)
    if cls is tasks.Task:
        cls = stated_task(checkpoint)
        if cls is None:
            raise ValueError(
                f"{source} holds no task: call from_preset of the task that you want, such as "
                "TextClassifier.from_preset."
            )
    backbone_class, converter = recognise(checkpoint)
    mine, overrides = _divide(arguments, cls, backbone_class)
    backbone, converter = _make_backbone(checkpoint, models.Backbone, overrides)
    if "tokenizer" not in mine:
        mine["tokenizer"] = _load_tokenizer(checkpoint, backbone)
    stated = stated_arguments(checkpoint, cls)
    mine, is_fresh = _with_stated(mine, stated)
    task = cls(backbone, **mine)
    grows = stated is None and isinstance(task, tasks.ReadingTask)
    if load_weights:
        fresh = [
            v.path for v in task.weights if is_fresh and v.path.startswith(("classifier/", "crf/"))
        ]
        fresh += [f"the embedding of {token}" for token in task.missing_tokens()] if grows else []
        _load_weights(checkpoint, converter.names, task, fresh)
    return task.with_fine_tuning_tokens() if grows else task


def stated_task(checkpoint):
    """Return the class of the task whose head a checkpoint holds, or None."""
    return next((c for c in TASKS.values() if stated_arguments(checkpoint, c) is not None), None)


def stated_arguments(checkpoint, cls):
    """Return the arguments of a task that a checkpoint states, or None without such a head."""
    if checkpoint.format == "keras_lm":
        stored = checkpoint.config.get("task")
        return stored["arguments"] if stored and stored["class"] == cls.__name__ else None
    _, converter = recognise(checkpoint)
    labels = converter.labels(checkpoint)
    return None if labels is None else cls.arguments_from_checkpoint(labels)


def load_tokenizer(source, cls, **overrides):
    """See `Tokenizer.from_preset`."""
    if str(source) in SIZES:
        raise ValueError(f"{source!r} is a size without a vocabulary. {_published(str(source))}")
    folder = find_folder(str(source))
    if (folder / CONFIG).is_file():
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("tokenizer")
        if config is None:
            raise ValueError(f"{folder} is a preset without a tokenizer.")
        return _tokenizer_from_config(folder, config, **overrides)
    reasons = [f"{folder} holds no vocabulary that we can read."]
    for candidate in [c for c in TOKENIZERS.values() if issubclass(c, cls) and c is not Tokenizer]:
        try:
            return candidate.from_files(folder, **overrides)
        except FileNotFoundError as error:
            reasons.append(f"{candidate.__name__}: {error}")
    raise FileNotFoundError(" ".join(reasons))


def _from_size(name, cls, load_weights, overrides):
    size_class = SIZES[name]
    if not issubclass(size_class, cls):
        raise ValueError(f"{name!r} is a size of {size_class.__name__}, not of {cls.__name__}.")
    if load_weights:
        raise ValueError(
            f"{name!r} names a size, and no weights come with the package. {_published(name)} "
            "Or pass load_weights=False for random weights."
        )
    return size_class(**(size_class.SIZES[name] | overrides))


def _published(name):
    place = SIZES[name].PUBLISHED.get(name)
    if place is None:
        return "Its weights were never published."
    return f"Its weights are published at {place}: pass that, or a folder with a copy of it."


def recognise(checkpoint, cls=models.Backbone):
    """Return the class of a checkpoint's backbone, a kind of `cls`, and its `Converter`."""
    if checkpoint.format == "keras_lm":
        version = checkpoint.config.get("format_version")
        if version != FORMAT_VERSION:
            raise CheckpointError(
                f"{checkpoint.folder / CONFIG} has format_version={version}, and this keras_lm "
                f"reads {FORMAT_VERSION}: install the keras_lm that wrote it "
                f"({checkpoint.config.get('keras_lm_version')})."
            )
        config = checkpoint.config.get("backbone", {})
        while "backbone" in config:  # a feature extractor stands on a backbone of its own
            config = config["backbone"]
        name = config.get("class")
        if name not in BACKBONES:
            raise CheckpointError(
                f"{checkpoint.folder / CONFIG} names the backbone {name!r}: this keras_lm has "
                f"{sorted(BACKBONES)}."
            )
        found = [(BACKBONES[name], Converter(None, None, _SameNames({}, {})))]
    else:
        found = [
            (backbone, backbone.CONVERTERS[checkpoint.format])
            for backbone in BACKBONES.values()
            if checkpoint.format in backbone.CONVERTERS
            and backbone.CONVERTERS[checkpoint.format].matches(checkpoint)
        ]
    found = [(backbone, converter) for backbone, converter in found if issubclass(backbone, cls)]
    if len(found) != 1:
        names = [backbone.__name__ for backbone, _ in found]
        model_type = checkpoint.config.get("model_type")
        raise CheckpointError(
            f"{checkpoint.source} ({checkpoint.format}, model_type={model_type!r}) "
            + (
                f"holds several models: call from_preset of one of {names}."
                if names
                else f"is not a checkpoint that {cls.__name__} can load."
            )
        )
    return found[0]


def _make_backbone(checkpoint, cls, overrides):
    backbone_class, converter = recognise(checkpoint, cls)
    if checkpoint.format != "keras_lm":
        try:
            config = converter.config(checkpoint)
        except KeyError as error:
            raise CheckpointError(
                f"{checkpoint.source}: its configuration lacks {error}. Copy or download it again."
            ) from error
        return backbone_class(**(config | overrides)), converter

    def build(config):
        if "backbone" not in config:
            return backbone_class(**(config["arguments"] | overrides))
        return TASKS[config["class"]](build(config["backbone"]), **config["arguments"])

    return build(checkpoint.config["backbone"]), converter


def _divide(arguments, cls, backbone_class):
    """Part what `from_preset` was given into the task's arguments and its backbone's."""

    def names(cls):
        return set(inspect.signature(cls.__init__).parameters) - {"self", "backbone", "arguments"}

    mine = set().union(*(names(base) for base in cls.__mro__ if issubclass(base, tasks.Task)))
    theirs = names(backbone_class) - mine
    unknown = sorted(set(arguments) - mine - theirs)
    if unknown:
        raise ValueError(
            f"from_preset got the unknown arguments {unknown}: {cls.__name__} takes "
            f"{sorted(mine)}, its backbone {sorted(theirs)}."
        )
    return (
        {key: value for key, value in arguments.items() if key in mine},
        {key: value for key, value in arguments.items() if key in theirs},
    )


def _with_stated(mine, stated):
    """Fill the task's arguments up with those that the checkpoint states for a head of its kind.

    Returns:
        `(arguments, is_fresh)`: whether the task needs another classification head than the stored.
    """
    if stated is None:
        return mine, True
    classes = mine.get("num_classes")
    if classes is None and mine.get("class_names") is not None:
        classes = len(mine["class_names"])
    is_fresh = classes is not None and classes != stated.get("num_classes")
    if is_fresh:
        stated = {k: v for k, v in stated.items() if k not in ("num_classes", "class_names")}
    return stated | mine, is_fresh


def _load_weights(checkpoint, names, model, fresh):
    """Copy the checkpoint's tensors into a model, and say what was missing or left over.

    Args:
        checkpoint: `Checkpoint`.
        names: `NameTable`.
        model: a backbone or a task.
        fresh: list of str, paths of variables that keep their random values.
    """
    variables = [v for v in model.weights if "seed_generator" not in v.path]
    backbone = model
    while isinstance(backbone, tasks.Task):
        backbone = backbone.backbone
    needed = {v.path for v in backbone.weights}
    missing, unused = names.load([v for v in variables if v.path not in fresh], checkpoint.weights)
    broken = [path for path in missing if path in needed]
    if broken:
        raise CheckpointError(
            f"{checkpoint.source} lacks the weights of {_summary(broken)}: the file is incomplete, "
            "or its configuration is another model's."
        )
    missing = sorted([*missing, *fresh])
    if missing or unused:
        said = [f"{type(model).__name__}.from_preset({checkpoint.source!r}):"]
        said += [f"new and random are {_summary(missing)}, to be trained;"] if missing else []
        said += [f"left over in the checkpoint are {_summary(unused)};"] if unused else []
        warnings.warn(" ".join(said).rstrip(";") + ".", stacklevel=4)


def _summary(names):
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _load_tokenizer(checkpoint, backbone):
    """Return the checkpoint's tokenizer, or None where it has no vocabulary."""
    if checkpoint.format == "keras_lm":
        config = checkpoint.config.get("tokenizer")
        return None if config is None else _tokenizer_from_config(checkpoint.folder, config)
    while isinstance(backbone, tasks.Task):
        backbone = backbone.backbone
    try:
        tokenizer = backbone.tokenizer_class.from_files(checkpoint.folder)
    except FileNotFoundError:
        return None
    rows = backbone.config["vocabulary_size"]
    if rows - tokenizer.vocabulary_size >= MAX_UNUSED_ROWS:
        raise CheckpointError(
            f"{checkpoint.source}: the vocabulary has {tokenizer.vocabulary_size} entries, the "
            f"embedding {rows} rows: the vocabulary is cut off, or another checkpoint's."
        )
    return tokenizer


def _tokenizer_from_config(folder, config, **overrides):
    assets = pathlib.Path(folder) / ASSETS
    cls = TOKENIZERS.get(config["class"])
    if cls is None:
        raise CheckpointError(
            f"{folder / CONFIG} names the tokenizer {config['class']!r}: this keras_lm has "
            f"{sorted(TOKENIZERS)}."
        )
    try:
        tokenizer = cls.from_assets(assets, config["arguments"] | overrides)
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} is an incomplete preset: {error}") from error
    if tokenizer.vocabulary_size != config["vocabulary_size"]:
        raise CheckpointError(
            f"{assets} holds a vocabulary of {tokenizer.vocabulary_size} entries, the preset was "
            f"saved with {config['vocabulary_size']}: copy the folder again, whole."
        )
    return tokenizer


# === Saving ===


def save(folder, backbone, task=None, tokenizer=None):
    """Write a preset in one step: a reader finds the old one, or the whole new one.

    Args:
        folder: path.
        backbone: `Backbone`, or a task on which `task` stands; None for a tokenizer alone.
        task: `Task`, or None for the backbone alone.
        tokenizer: `Tokenizer` to go with a backbone alone; a task brings its own.

    Raises:
        FileExistsError: if `folder` holds something that is no preset.
    """
    from keras_lm import __version__

    folder = pathlib.Path(folder).expanduser()
    is_other = folder.is_dir() and any(folder.iterdir()) and not (folder / CONFIG).is_file()
    if folder.is_file() or is_other:
        raise FileExistsError(f"{folder} exists and is no preset: choose another folder.")
    config = {
        "format_version": FORMAT_VERSION,
        "keras_lm_version": __version__,
        **({} if backbone is None else {"backbone": _describe(backbone)}),
    }
    if task is not None:
        config["task"] = {"class": type(task).__name__, "arguments": task.get_arguments()}
        tokenizer = task.tokenizer
    if tokenizer is not None:
        config["tokenizer"] = {
            "class": type(tokenizer).__name__,
            "arguments": tokenizer.get_config(),
            "vocabulary_size": tokenizer.vocabulary_size,
        }
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        new = pathlib.Path(temporary) / "new"
        new.mkdir()
        text = json.dumps(config, indent=2, ensure_ascii=False)
        (new / CONFIG).write_text(f"{text}\n", encoding="utf-8")
        if backbone is not None:
            _save_weights(new, backbone if task is None else task)
        if tokenizer is not None:
            (new / ASSETS).mkdir()
            tokenizer.save_assets(new / ASSETS)
        old = pathlib.Path(temporary) / "old"
        try:
            if folder.exists():
                os.rename(folder, old)
            os.rename(new, folder)
        except BaseException:  # Ctrl-C too, or the old preset would go with the temporary folder
            if old.exists() and not folder.exists():
                os.rename(old, folder)
            raise


def _describe(backbone):
    if isinstance(backbone, tasks.Task):
        return {
            "class": type(backbone).__name__,
            "arguments": backbone.get_arguments(),
            "backbone": _describe(backbone.backbone),
        }
    config = backbone.get_config()
    return {"class": type(backbone).__name__, "arguments": config}


def _save_weights(folder, model):
    weights = {v.path: v for v in model.weights if "seed_generator" not in v.path}
    arrays = {path: keras.ops.convert_to_numpy(variable) for path, variable in weights.items()}
    write_safetensors(folder, arrays, MAX_SHARD_BYTES)
