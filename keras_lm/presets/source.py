"""A source: which model and task it holds, their arguments, and the backbone with its weights."""

import contextlib
import dataclasses
import functools
import inspect
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np

from keras_lm.converters import Converter, open_checkpoint
from keras_lm.converters.checked_files import CheckpointError, read_config
from keras_lm.converters.checkpoint import PRESET_CONFIG, Checkpoint
from keras_lm.converters.names import NameTable
from keras_lm.converters.published_labels import architecture_of
from keras_lm.presets.config_limits import check_claims, check_classes, check_output_matrix
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.registry import BACKBONES, TASKS, advice, sizes

FORMAT_VERSION = 1


class SameNames(NameTable):
    """A preset's tensors have the names of our variables."""

    def alternatives(self, path):
        return {None: (path,)}


OF_PRESETS = Converter(None, None, SameNames({}, {}))


class Source:
    """A preset or a published checkpoint, opened: what is in it is found when asked for, once.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.

    Example:

        source = keras_lm.presets.Source.open("hf://google-bert/bert-base-uncased")
        source.recognise()[0]  # BertBackbone
        source.arguments()["num_layers"]  # 12
        backbone = keras_lm.models.Backbone.from_preset(source)
    """

    def __init__(self, checkpoint: Checkpoint):
        self.checkpoint = checkpoint
        self._is_preset = checkpoint.format == "keras_lm"
        self._matches, self._arguments = {}, {}  # by class of backbone

    @classmethod
    def open(cls, source: PathLike | Self) -> Self:
        """Return a folder or an `hf://owner/name` opened; what is opened already as it is.

        Raises:
            FileNotFoundError, CheckpointError: see `keras_lm.converters.open_checkpoint`.
            ValueError: if it is the name of a size, which has no weights; says where they are.
        """
        if isinstance(source, cls):
            return source
        if is_size(source):
            raise ValueError(_without_weights(str(source)))
        with naming_sizes(source):
            return cls(open_checkpoint(source))

    def __str__(self):
        return self.checkpoint.source

    def recognise(self, cls: type = object, kind: str | None = None) -> tuple[Any, Any]:
        """Return the class of the backbone, and its `Converter`: the best match.

        Of models that match equally well, those are taken that were pretrained with the wanted
        head; and of a class and its subclass the class, so that its subclass must be asked for.

        Args:
            cls: class of backbone, to consider only it and its subclasses if a folder has two
                models.
            kind: str. The kind of pretraining head that is wanted, see
                `Backbone.PRETRAINING_HEADS`.

        Raises:
            CheckpointError: if no model matches, or several do.
        """
        checkpoint = self.checkpoint
        found = [_stored(checkpoint)] if self._is_preset else self._best(cls, kind)
        found = [(encoder_or_all(backbone, cls), converter) for backbone, converter in found]
        found = [match for match in found if issubclass(match[0], cls)]
        if len(found) == 1:
            return found[0]
        model_type = checkpoint.config.get("model_type")
        raise CheckpointError(
            f"{checkpoint.source} ({checkpoint.format}, model_type={model_type!r}) "
            + (
                f"holds several models: call from_preset of one of {_names(found)}."
                if found
                else "is not a checkpoint that "
                f"{'keras_lm' if cls is object else cls.__name__} can load{self._what_it_is()}."
            )
        )

    def _what_it_is(self):
        """Return what a checkpoint is that a class cannot load, after a colon; "" if unknown."""
        ours = _names([_stored(self.checkpoint)] if self._is_preset else self._best(object, None))
        if ours:
            return f": it is one of {' or '.join(ours)}"
        is_unnamed = self.checkpoint.format == "huggingface" and not self.checkpoint.config.get(
            "model_type"
        )
        advice = ": add the model_type of the model to its config.json" if is_unnamed else ""
        return what_it_is(self.checkpoint) or advice

    def _best(self, cls, kind):
        """Return the models, subclasses of `cls`, that match best; see `recognise`."""
        found = []
        for backbone in BACKBONES.values():
            # A subclass that inherits the converters of its base must be asked for.
            is_own = backbone is cls or "CONVERTERS" in vars(backbone)
            converter = backbone.CONVERTERS.get(self.checkpoint.format)
            if is_own and issubclass(backbone, cls) and converter is not None:
                if backbone not in self._matches:
                    self._matches[backbone] = converter.matches(self.checkpoint)
                found.append((self._matches[backbone], backbone, converter))
        most = max((signs for signs, *_ in found), default=0)
        best = [match for signs, *match in found if most and signs == most]
        best = [match for match in best if kind in match[0].PRETRAINING_HEADS.values()] or best
        classes = {backbone for backbone, _ in best}
        return [match for match in best if classes.isdisjoint(match[0].__mro__[1:])]

    def arguments(self, cls: type = object) -> dict[str, Any]:
        """Return the arguments of the backbone that the configuration states, as a dict.

        Args:
            cls: see `recognise`.

        Raises:
            CheckpointError: if the configuration lacks something, or holds nonsense.
        """
        backbone, converter = self.recognise(cls)
        if self._is_preset:
            return _innermost(self.checkpoint.config["backbone"])["arguments"]
        if backbone not in self._arguments:
            with reading(self.checkpoint, "its configuration"):
                self._arguments[backbone] = converter.config(self.checkpoint)
        return self._arguments[backbone]

    @functools.cached_property
    def task(self):
        """The class of the task whose head is stored, or None."""
        arguments_of = self.task_arguments
        if not self._is_preset and self.labels is not None:
            # A head that may be another's is first what its problem type says.
            labels = dataclasses.replace(self.labels, others=())

            def arguments_of(cls):
                return cls.arguments_from_checkpoint(labels)

        return next((cls for cls in TASKS.values() if arguments_of(cls) is not None), None)

    @property
    def usual_task(self):
        """The class of the task that it is ready for: `task`, or what its network alone does."""
        return self.task or TASKS.get(self.recognise()[0].usual_task)

    def task_arguments(
        self, cls: type, given: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Return the arguments of a task whose head is stored, as a dict; None if it is not.

        Args:
            cls: class of the task.
            given: dict of the user's arguments, which count more.
        """
        if self._is_preset:
            stored = self.checkpoint.config.get("task")
            is_this = stored and stored["class"] == cls.__name__
            return cls.completed(stored["arguments"]) if is_this else None
        if self.labels is not None:
            return cls.arguments_from_checkpoint(self.labels)
        if not self.checkpoint.has_modules or not hasattr(cls, "arguments_from_modules"):
            return None
        given = given or {}
        limit = given.get("sequence_length") or self.arguments().get("max_sequence_length")
        with reading(self.checkpoint, "its description of modules"):
            return cls.arguments_from_modules(self.checkpoint, limit, given)

    @functools.cached_property
    def labels(self):
        """The `Labels` of a published checkpoint's head, or None."""
        _, converter = self.recognise()
        with reading(self.checkpoint, "its description of labels"):
            return converter.labels(self.checkpoint)

    def make_backbone(self, cls: type, overrides: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return a backbone with random weights, and the `Converter` of its class.

        Args:
            cls: see `recognise`.
            overrides: dict of arguments that count more than the stated ones.

        Raises:
            CheckpointError: if the configuration is wrong, or asks for more than the tensors hold.
            ValueError: if an override is no argument of the class.
        """
        backbone_class, converter = self.recognise(cls)
        checkpoint = self.checkpoint
        refuse_unknown(overrides, {backbone_class.__name__: argument_names(backbone_class)})
        if self._is_preset:
            config = checkpoint.config["backbone"]
            check_claims(checkpoint, checkpoint.config)
            check_classes(checkpoint, checkpoint.config)
        else:
            config = {"class": backbone_class.__name__, "arguments": self.arguments(cls)}
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

    def load_weights(
        self,
        names: Any,
        model: keras.Model,
        fresh: Collection[str] = (),
        beside: Any = (),
    ) -> None:
        """Copy the tensors into a model, and warn of missing and unused ones.

        Args:
            names: `NameTable` of the model's `Converter`.
            model: a backbone or a task.
            fresh: paths of variables that keep their random values.
            beside: dict of tensors from elsewhere, by the paths of their variables.

        Raises:
            CheckpointError: if weights of the backbone are missing, or tensors of another shape.
        """
        variables = {path: v for path, v in stored_weights(model).items() if path not in fresh}
        OF_PRESETS.names.load({path: variables.pop(path) for path in beside}, beside)
        with reading(self.checkpoint, "its weights"):
            missing, unused = names.load(variables, self.checkpoint.weights)
        network = innermost_backbone(model)
        check_output_matrix(self.checkpoint, names, names.untied(unused), model, network)
        network.origin = (self.checkpoint.source, self.checkpoint.card)
        network.stated_token_ids = self._token_ids(network)
        needed = {v.path for v in network.weights}
        broken = [path for path in missing if path in needed]
        if broken:
            raise CheckpointError(
                f"{self} lacks the weights of {summary_of(broken)}: the file is incomplete, or its "
                "configuration is another model's."
            )
        unused = [name for name in unused if not re.search(network.LEFT_OUT, name)]
        if missing:
            check_head(self, type(model), network, unused, missing)
        missing = sorted([*missing, *fresh])
        if missing or unused:
            said = [f"{type(model).__name__}.from_preset({str(self)!r}):"]
            said += [f"new and random are {summary_of(missing)}, to be trained;"] if missing else []
            said += [f"left over in the checkpoint are {summary_of(unused)};"] if unused else []
            warnings.warn(" ".join(said).rstrip(";") + ".", stacklevel=4)

    def _token_ids(self, network):
        """Return the ids of `network.usual_token_ids()` in a published folder, or None."""
        if self.checkpoint.format != "huggingface":
            return None
        files = (
            self.checkpoint.config,
            read_config(self.checkpoint.folder, "generation_config.json"),
        )
        ids = network.usual_token_ids()
        for name in ids:
            for value in [file[name] for file in files if file.get(name) not in (None, [])]:
                ids[name] = value[0] if isinstance(value, list) else value
        return ids


def load_backbone(
    source: PathLike | Source, cls: type, load_weights: bool = True, **overrides: Any
) -> Any:
    """Return a backbone; what `Backbone.from_preset` calls.

    Args:
        source, load_weights, **overrides: see there.
        cls: the class that the backbone must be an instance of.
    """
    check_load_weights(load_weights, cls)
    if is_size(source):
        return from_size(str(source), cls, load_weights, overrides)
    source = Source.open(source)
    backbone, converter = source.make_backbone(cls, overrides)
    if load_weights:
        source.load_weights(converter.names, backbone)
    return backbone


def check_load_weights(load_weights, cls):
    """Raise a ValueError if another argument stands in the place of `load_weights`."""
    if not isinstance(load_weights, (bool, np.bool_)):
        raise ValueError(
            f"load_weights={str(load_weights)[:200]} must be True or False: {cls.__name__}."
            "from_preset takes the source and load_weights by place, and all else by name."
        )


def from_size(name, cls, load_weights, overrides):
    """Return a backbone of a size, which has random weights; see `load_backbone`."""
    size_class = encoder_or_all(sizes()[name], cls)
    if not issubclass(size_class, cls):
        raise ValueError(f"{name!r} is a size of {size_class.__name__}, not of {cls.__name__}.")
    if load_weights:
        raise ValueError(f"{_without_weights(name)} Or pass load_weights=False for random weights.")
    refuse_unknown(overrides, {size_class.__name__: argument_names(size_class)})
    return size_class(**(sizes()[name].SIZES[name] | overrides))


def encoder_or_all(backbone, cls):
    """Return a class of backbone, or that of its encoder alone if `cls` asks for that.

    Args:
        backbone, cls: classes.
    """
    half = backbone.encoder_class
    is_asked_for = half is not None and issubclass(half, cls) and not issubclass(backbone, cls)
    return half if is_asked_for else backbone


def is_size(source):
    """Whether a source is the name of a size."""
    return not isinstance(source, Source) and str(source) in sizes()


def where_published(name):
    """Return a sentence on where the weights of a size are."""
    place = sizes()[name].PUBLISHED.get(name)
    if place is None:
        return "Its weights were never published: train your own, as keras-lm pretrain does."
    return f"Its weights are published at {place}: give that, or a folder with a copy of it."


def _without_weights(name):
    return f"{name!r} names a size, and no weights come with the package. {where_published(name)}"


@contextlib.contextmanager
def naming_sizes(source):
    """Name the sizes that a source without a folder is close to."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}{advice(str(source), sizes())}") from None


@contextlib.contextmanager
def reading(checkpoint, what):
    """Turn what a wrong configuration raises, which may be anything, into a CheckpointError."""
    try:
        yield
    except CheckpointError:
        raise
    except KeyError as error:
        raise CheckpointError(
            f"{checkpoint.source}: {what} lacks {error}. Copy or download it again."
        ) from error
    except ValueError as error:  # which says what to do
        raise CheckpointError(f"{checkpoint.source}: {what}: {error}") from error
    except Exception as error:
        raise CheckpointError(
            f"{checkpoint.source}: {what} is wrong, {type(error).__name__}: {error}. Copy or "
            "download it again."
        ) from error


def _names(found):
    return [backbone.__name__ for backbone, _ in found]


def _stored(checkpoint):
    path = checkpoint.folder / PRESET_CONFIG
    version = checkpoint.config.get("format_version")
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format_version={version}, and this keras_lm reads {FORMAT_VERSION}: "
            f"install the keras_lm that wrote it ({checkpoint.config.get('keras_lm_version')})."
        )
    if "members" in checkpoint.config:
        raise CheckpointError(
            f"{path} is of an ensemble, which has no backbone of its own: load its task, or one of "
            "the presets in it, such as member_0."
        )
    if checkpoint.config.get("backbone") is None:
        raise CheckpointError(f"{path} describes no backbone: save the preset of a model again.")
    name = _innermost(checkpoint.config["backbone"])["class"]
    if name not in BACKBONES:
        raise CheckpointError(
            f"{path} names the backbone {name!r}: this keras_lm has {sorted(BACKBONES)}. A class "
            "of your own is known once its module is imported."
        )
    return BACKBONES[name], OF_PRESETS


def _innermost(config):
    while "backbone" in config:  # a feature extractor has a backbone of its own
        config = config["backbone"]
    return config


def stored_weights(model):
    """Return the weights of a model by their paths in a preset, without random states."""
    weights = model.weights_by_path
    return {path: v for path, v in weights.items() if "seed_generator" not in path}


def check_unquantized(model: keras.Model) -> None:
    """Raise an error if Keras has quantized a layer: no file of ours keeps the scale of integers.

    Args:
        model: a backbone or a task.

    Raises:
        ValueError: if a layer was changed by `quantize`.
    """
    for layer in model._flatten_layers():
        mode = getattr(layer, "quantization_mode", None)
        if mode is not None:
            raise ValueError(
                f"{type(model).__name__} has layers that quantize({str(mode)!r}) changed, such as "
                f"{layer.path}, and their integers cannot be saved: save it before quantize, and "
                "call that on what is loaded."
            )


def innermost_backbone(model: keras.Model) -> Any:
    """Return the network that has the checkpoint's weights.

    Args:
        model: a task or a backbone; that of a task may be a feature extractor.
    """
    while hasattr(model, "backbone"):
        model = model.backbone
    return model


# What other libraries call arguments → ours.
OTHER_NAMES = {
    "num_labels": "num_classes",
    "labels": "class_names",
    "id2label": "class_names",
    "max_length": "sequence_length",
    "max_seq_length": "sequence_length",
    "model_max_length": "sequence_length",
    "preprocessor": "tokenizer",
    "torch_dtype": "dtype",
}


def argument_names(cls):
    """Return the names of the arguments of a backbone or a task that `from_preset` takes, a set."""
    found = inspect.signature(cls.__init__).parameters.values()
    return {
        each.name
        for each in found
        if each.kind is each.POSITIONAL_OR_KEYWORD or each.kind is each.KEYWORD_ONLY
    } - {"self", "backbone"}


def refuse_unknown(arguments, known):
    """Raise a ValueError if `from_preset` got arguments that none of `known` takes.

    `known` is a dict of what takes arguments → their names.
    """
    names = set().union(*known.values())
    if unknown := sorted(set(arguments) - names):
        near = "".join(
            f" {name} is {OTHER_NAMES[name]} here."
            if OTHER_NAMES.get(name) in names
            else advice(name, sorted(names))
            for name in unknown
        )
        takes = ", ".join(f"{what} takes {sorted(each)}" for what, each in known.items())
        raise ValueError(f"from_preset got the unknown arguments {unknown}.{near} {takes}.")


def check_head(
    source: Any, cls: type, backbone: keras.Model, unused: Collection[str], missing: Sequence[str]
) -> None:
    """Raise a CheckpointError if a folder should have a task's head, and the task lacks it.

    Args:
        source: `Source`.
        cls: class of the task. Nothing is wrong if the configuration names no class with its kind
            of head.
        backbone: its network.
        unused: names of tensors that may be the head in another form.
        missing: paths of the head's weights that are not there. A Pretrainer may have new ones.
    """
    named = source.checkpoint.format == "huggingface" and architecture_of(
        source.checkpoint.config, cls.__name__
    )
    unused = [name for name in unused if not re.search(backbone.LEFT_OUT, name)]
    if cls is TASKS["Pretrainer"] and not unused:
        return
    if named and (unused or missing):
        is_of_texts = str(named).endswith("ForSequenceClassification")
        kind = source.checkpoint.config.get("problem_type") if is_of_texts else None
        said = [f"missing are {summary_of(missing)}"] if missing else []
        said += [f"left over are {summary_of(unused)}"] if unused else []
        raise CheckpointError(
            f"{source} is a {named}{f' for {kind}' if kind else ''}, and {cls.__name__} over a "
            f"{type(backbone).__name__} does not find its head there: {'; '.join(said)}. If "
            "the file is damaged, copy or download it again; for a new head, pass "
            "models.Backbone.from_preset(SOURCE) to the task."
        )


def summary_of(names: Sequence[str]) -> str:
    """Return the first of several names, and how many more there are."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


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
