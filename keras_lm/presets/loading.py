"""From a source to a task or a tokenizer."""

import re
from contextlib import nullcontext
from typing import Any

from keras_lm.converters import CheckpointError, find_folder
from keras_lm.converters.checked_files import read_json
from keras_lm.converters.checkpoint import PRESET_CONFIG, check_preset, replaced_weights
from keras_lm.presets.saving import member_folder
from keras_lm.presets.source import (
    Source,
    argument_names,
    check_load_weights,
    innermost_backbone,
    naming_sizes,
    open_source,
    reading,
    refuse_unknown,
    tokenizer_from_config,
    where_published,
)
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.input_files import reading_once
from keras_lm.utils.registry import TASKS, sizes, tokenizer_classes


@reading_once()
def load_task(
    source: PathLike | Source, cls: type, load_weights: bool = True, **arguments: Any
) -> Any:
    """Return a task; what `Task.from_preset` calls.

    Args:
        source, load_weights, **arguments: see there.
        cls: class of the task; the base class for the task that the source holds.

    Raises:
        FileNotFoundError, ValueError: see there.
    """
    check_load_weights(load_weights, cls)
    source = open_source(source)
    if load_weights:
        source.require_weights()
    if source.members:
        return load_ensemble(source, cls, load_weights=load_weights, **arguments)
    if cls.__name__ not in TASKS:  # the base class: what the checkpoint holds
        cls = source.task
        if cls is None:
            raise ValueError(
                f"{source} holds no task: call from_preset of the task that you want, such as "
                "TextClassifier.from_preset."
            )
    backbone_class, _ = source.recognise(kind=cls.pretraining_head)
    backbone_class = _as_read_by(cls, backbone_class)
    mine, overrides = _divide(arguments, cls, backbone_class)
    with replaced_weights(load_weights):
        backbone, converter = source.make_backbone(backbone_class, overrides)
    stated = source.task_arguments(cls, mine)
    if stated is None:
        source.check_new_head(cls, backbone, converter.names, mine)
    has_layers = bool({"projections", "static_queries"} & (stated or {}).keys() - mine.keys())
    mine, is_fresh = _with_stated(mine, stated)
    mine = source.file_arguments(cls, mine, backbone) | mine
    if "tokenizer" not in mine:
        mine["tokenizer"] = source.tokenizer(innermost_backbone(backbone), converter)
    with reading(source, f"the description of a {cls.__name__}") if stated else nullcontext():
        task = cls.from_parts(backbone, **mine)
    grows = stated is None
    if load_weights:
        fresh = task.new_weights() if is_fresh else []
        fresh += [f"the embedding of {token}" for token in task.missing_tokens()] if grows else []
        dense = source.dense_layers() if has_layers else {}
        source.load_weights(converter.names, task, fresh, dense)
        task.compile()  # again, since random weights have another default rate
    return task.with_fine_tuning_tokens() if grows else task


def load_ready_task(
    source: PathLike | Source, cls: type, several: bool = False, **arguments: Any
) -> Any:
    """Return a task that reads texts, by default the source's own.

    Args:
        source: see `load_task`.
        cls: class of the task; the base class for the task that the source is ready for.
        several: bool. Whether a `MultiTask` will do.
        **arguments: see `load_task`.

    Raises:
        ValueError: if the source holds no such task, or no vocabulary.
    """
    source = Source.open(source)
    cls = cls if cls.__name__ in TASKS else source.usual_task
    if cls is TASKS["MultiTask"] and not several:
        raise ValueError(
            f"{source} holds several tasks, and this takes one: in Python, "
            "MultiTask.from_preset(…).tasks['NAME'].save_to_preset(…) writes a preset of it."
        )
    if cls is None:
        raise ValueError(
            f"{source} holds no task, only a pretrained model: train one with keras-lm finetune, "
            "or get vectors from it with keras-lm predict --task feature-extractor."
        )
    task = cls.from_preset(source, **arguments)
    if task.tokenizer is None:
        raise ValueError(
            f"{source} has no vocabulary, so it cannot read texts: put the vocabulary's files, as "
            "they are published, beside the weights."
        )
    return task


def _as_read_by(task_class, backbone_class):
    """Return the class of backbone that a task is over: of two halves, most read the first."""
    half = None if task_class.has_decoder else backbone_class.encoder_class
    return half or backbone_class


def _divide(arguments, cls, backbone_class):
    """Split the arguments of `from_preset` into the task's and its backbone's."""

    bases = [base for base in cls.__mro__ if hasattr(base, "from_preset")]
    mine = set().union(*map(argument_names, bases))
    theirs = argument_names(backbone_class) - mine
    refuse_unknown(arguments, {cls.__name__: mine, "its backbone": theirs})
    return (
        {key: value for key, value in arguments.items() if key in mine},
        {key: value for key, value in arguments.items() if key in theirs},
    )


def _check_order(given, stated):
    """Raise an error if the user's class names are the checkpoint's in another order.

    Names that differ in case, spaces, hyphens and underscores alone are the same.
    """
    given = given if given is None else [*map(str, given)]
    if not given or not stated:
        return
    plain, known = ([re.sub(r"[\s_-]+", "", x.casefold()) or x for x in y] for y in (given, stated))
    if plain != known and sorted(plain) == sorted(known):
        raise ValueError(
            f"class_names={given} are those of the checkpoint, whose scores have the order "
            f"{stated}: leave class_names out. For a new head, pass "
            "models.Backbone.from_preset(SOURCE) to the task."
        )


def _with_stated(mine, stated):
    """Return the arguments, completed with stated ones, and whether the stored head is unfit."""
    if stated is None:
        return mine, True
    classes = mine.get("num_classes")
    if classes is None and mine.get("class_names") is not None:
        classes = len(mine["class_names"])
    is_fresh = classes is not None and classes != stated.get("num_classes")
    _check_order(mine.get("class_names"), stated.get("class_names"))
    if is_fresh:
        stated = {k: v for k, v in stated.items() if k not in ("num_classes", "class_names")}
    if mine.keys() & {"layers", "pooling"}:  # for other vectors than those that were normalised
        after = ("normalize", "projections", "truncate_dim", "skipped_tokens")
        stated = {k: v for k, v in stated.items() if k not in after}
    return stated | mine, is_fresh


# === Ensembles: each of several tasks has a preset in the folder ===


def load_ensemble(source, cls, **arguments):
    """Return the ensemble that a source holds.

    Args:
        source: an opened `Source`.
        cls: class of the ensemble's task, or the base class.
        **arguments: see `load_task`, which loads each member.

    Raises:
        ValueError: if the source holds an ensemble of other tasks, or one that is damaged.
    """
    task_class, checkpoint = source.task, source.checkpoint
    if task_class is None or (cls.__name__ in TASKS and not issubclass(task_class, cls)):
        raise ValueError(
            f"{source} holds several tasks that answer as one "
            f"{checkpoint.config['task']['class']}, and no {cls.__name__}."
        )
    folders = [checkpoint.folder / member_folder(i) for i in range(checkpoint.config["members"])]
    _check_links(folders)
    try:
        members = [load_task(folder, object, **arguments) for folder in folders]
    except RecursionError as error:
        raise CheckpointError(f"{folders[0]}: too many ensembles in ensembles.") from error
    return task_class(members)


def _check_links(folders):
    """Raise a CheckpointError if links make more members, or deeper ones, than there are files."""
    for number, folder in enumerate(folders):
        is_ensemble = (folder / PRESET_CONFIG).is_file() and "members" in read_json(
            folder / PRESET_CONFIG
        )
        earlier = {other.resolve() for other in folders[:number]}
        if folder.is_symlink() and (is_ensemble or folder.resolve() in earlier):
            raise CheckpointError(
                f"{folder} is a link to another member or to an ensemble: copy the preset there."
            )


# === Tokenizers ===


@reading_once()
def load_tokenizer(source: PathLike | Source, cls: type, **overrides: Any) -> Any:
    """Return a tokenizer; what `Tokenizer.from_preset` calls.

    Args:
        source, **overrides: see there.
        cls: the class that the tokenizer must be an instance of.

    Raises:
        FileNotFoundError, ValueError: if there is no vocabulary.
    """
    if str(source) in sizes():
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

    def order(name):  # first those whose files are there, a class before those that extend it
        files, bases = classes[name].PUBLISHED_FILES, len(classes[name].__mro__)
        has = any((folder / file).is_file() for file in files)
        return classes[name] is not best, not has, bool(files), bases, name

    for name in sorted(classes, key=order):
        candidate = classes[name]
        if not issubclass(candidate, cls):
            continue
        try:
            return candidate.from_files(folder, **overrides)
        except FileNotFoundError as error:
            reasons.append(f"{candidate.__name__}: {error}")
    raise FileNotFoundError(" ".join(reasons))
