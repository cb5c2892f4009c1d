"""From a source to a backbone, a tokenizer or a task."""

import inspect
import re
import warnings
from contextlib import nullcontext

from keras_lm.converters import CheckpointError
from keras_lm.converters.checked_files import read_json
from keras_lm.converters.checkpoint import PRESET_CONFIG
from keras_lm.converters.sentence_transformers import read_projections
from keras_lm.presets.claims import check_claims, check_classes
from keras_lm.presets.source import (
    SameNames,
    Source,
    encoder_or_all,
    is_size,
    reading,
    where_published,
)
from keras_lm.presets.vocabularies import own_tokenizer
from keras_lm.registry import BACKBONES, TASKS, sizes


def load_backbone(source, cls, load_weights=True, **overrides):
    """Return a backbone; what `Backbone.from_preset` calls.

    Args:
        source, load_weights, **overrides: see there.
        cls: the class that the backbone must be an instance of.
    """
    if is_size(source):
        return _from_size(str(source), cls, load_weights, overrides)
    source = Source.open(source)
    backbone, converter = _make_backbone(source, cls, overrides)
    if load_weights:
        _load_weights(source.checkpoint, converter.names, backbone, [])
    return backbone


def load_task(source, cls, load_weights=True, **arguments):
    """Return a task; what `Task.from_preset` calls.

    Args:
        source, load_weights, **arguments: see there.
        cls: class of the task; the base class for the task that the source holds.

    Raises:
        FileNotFoundError, ValueError: see there.
    """
    if is_size(source):
        backbone_class = _as_read_by(cls, sizes()[str(source)])
        mine, overrides = _divide(arguments, cls, backbone_class)
        backbone = _from_size(str(source), backbone_class, load_weights, overrides)
        return cls.from_parts(backbone, **mine)
    source = Source.open(source)
    checkpoint = source.checkpoint
    if "members" in checkpoint.config:
        return _load_ensemble(source, cls, load_weights, arguments)
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
    backbone, converter = _make_backbone(source, backbone_class, overrides)
    if "tokenizer" not in mine:
        mine["tokenizer"] = own_tokenizer(checkpoint, innermost_backbone(backbone), converter)
    if checkpoint.format == "huggingface":
        mine = cls.arguments_from_files(checkpoint.folder) | mine
    stated = source.task_arguments(cls, mine)
    # Dense layers that a folder describes have files of their own.
    has_files = checkpoint.has_modules and stated and "projections" in stated.keys() - mine.keys()
    mine, is_fresh = _with_stated(mine, stated)
    with reading(checkpoint, f"the description of a {cls.__name__}") if stated else nullcontext():
        task = cls.from_parts(backbone, **mine)
    grows = stated is None
    if load_weights:
        fresh = task.new_weights() if is_fresh else []
        fresh += [f"the embedding of {token}" for token in task.missing_tokens()] if grows else []
        dense = read_projections(checkpoint) if has_files else {}
        _load_weights(checkpoint, converter.names, task, fresh, dense)
    return task.with_fine_tuning_tokens() if grows else task


def _load_ensemble(source, cls, load_weights, arguments):
    found, checkpoint = source.task, source.checkpoint
    if found is None or (cls.__name__ in TASKS and not issubclass(found, cls)):
        raise ValueError(
            f"{source} holds several tasks that answer as one "
            f"{checkpoint.config['task']['class']}, and no {cls.__name__}."
        )
    folders = [checkpoint.folder / member_folder(i) for i in range(checkpoint.config["members"])]
    _check_links(folders)
    try:
        members = [load_task(folder, object, load_weights, **arguments) for folder in folders]
    except RecursionError as error:
        raise CheckpointError(f"{folders[0]}: too many ensembles in ensembles.") from error
    return found(members)


def member_folder(number):
    """Return the name of the folder of a member, in that of its ensemble."""
    return f"member_{number}"


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


def _as_read_by(task_class, backbone_class):
    """Return the class of backbone that a task is over: of two halves, most read the first."""
    half = None if task_class.has_decoder else backbone_class.encoder_class
    return half or backbone_class


def _from_size(name, cls, load_weights, overrides):
    size_class = encoder_or_all(sizes()[name], cls)
    if not issubclass(size_class, cls):
        raise ValueError(f"{name!r} is a size of {size_class.__name__}, not of {cls.__name__}.")
    if load_weights:
        raise ValueError(
            f"{name!r} names a size, and no weights come with the package. {where_published(name)} "
            "Or pass load_weights=False for random weights."
        )
    return size_class(**(sizes()[name].SIZES[name] | overrides))


def _make_backbone(source, cls, overrides):
    backbone_class, converter = source.recognise(cls)
    checkpoint = source.checkpoint
    if checkpoint.format == "keras_lm":
        config = checkpoint.config["backbone"]
        check_claims(checkpoint, checkpoint.config)
        check_classes(checkpoint, checkpoint.config)
    else:
        config = {"class": backbone_class.__name__, "arguments": source.arguments(cls)}
        check_claims(checkpoint, config)

    def build(config):
        if "backbone" not in config:
            return backbone_class.from_config(config["arguments"] | overrides)
        # Older presets name the task `FeatureExtractor`, which brings the same backbone.
        return (BACKBONES | TASKS)[config["class"]](
            build(config["backbone"]), **config["arguments"]
        )

    with reading(checkpoint, "its configuration"):
        return build(config), converter


def _divide(arguments, cls, backbone_class):
    """Split the arguments of `from_preset` into the task's and its backbone's."""

    def names(cls):
        return set(inspect.signature(cls.__init__).parameters) - {"self", "backbone", "arguments"}

    bases = [base for base in cls.__mro__ if hasattr(base, "from_preset")]
    mine = set().union(*map(names, bases))
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
    """Return the arguments, completed with stated ones, and whether the stored head is unfit."""
    if stated is None:
        return mine, True
    classes = mine.get("num_classes")
    if classes is None and mine.get("class_names") is not None:
        classes = len(mine["class_names"])
    is_fresh = classes is not None and classes != stated.get("num_classes")
    if is_fresh:
        stated = {k: v for k, v in stated.items() if k not in ("num_classes", "class_names")}
    if mine.keys() & {"layers", "pooling"}:  # for other vectors than those that were normalised
        stated = {k: v for k, v in stated.items() if k not in ("normalize", "projections")}
    return stated | mine, is_fresh


def _load_weights(checkpoint, names, model, fresh, beside=()):
    """Copy the checkpoint's tensors into a model, and warn of missing and unused ones.

    `fresh` lists the paths of variables that keep their random values; `beside` are tensors by
    their paths.
    """
    variables = {path: v for path, v in stored_weights(model).items() if path not in fresh}
    SameNames({}, {}).load({path: variables.pop(path) for path in beside}, beside)
    needed = {v.path for v in innermost_backbone(model).weights}
    with reading(checkpoint, "its weights"):
        missing, unused = names.load(variables, checkpoint.weights)
    _check_output_matrix(checkpoint, names.untied(unused), model)
    unused = [name for name in unused if not re.search(innermost_backbone(model).LEFT_OUT, name)]
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


def _check_output_matrix(checkpoint, untied, model):
    """Raise a CheckpointError if a model's output matrix would be another than the checkpoint's."""
    kinds = getattr(model, "head_kinds", ())
    reads_it = any(model.backbone.HEADS[kind].reads_embedding for kind in kinds)
    is_stated = checkpoint.config.get("tie_word_embeddings") is False
    if untied and is_stated and reads_it:
        raise CheckpointError(
            f"{checkpoint.source} has an output matrix of its own, {untied[0]} "
            f"(tie_word_embeddings=False), and {type(model).__name__} reads the token embedding "
            "there: tasks that predict no tokens, such as TextClassifier, can load it."
        )


def stored_weights(model):
    """Return the weights of a model by their paths in a preset, without random states.

    Of several tasks over one backbone, the paths of a head begin with the name of its task.
    """
    weights = {v.path: v for v in model.weights}
    if hasattr(model, "tasks"):
        weights = {v.path: v for v in model.backbone.weights}
        shared = {id(v) for v in model.backbone.weights}
        for name, task in model.tasks.items():
            weights |= {f"{name}/{v.path}": v for v in task.weights if id(v) not in shared}
    return {path: v for path, v in weights.items() if "seed_generator" not in path}


def innermost_backbone(model):
    """Return the network that has the checkpoint's weights.

    Args:
        model: a task or a backbone; that of a task may be a feature extractor.
    """
    while hasattr(model, "backbone"):
        model = model.backbone
    return model


def _summary(names):
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
